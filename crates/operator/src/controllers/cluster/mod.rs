//! `ValkeyCluster`: observe, validate, build, plan, act, tell.

mod act;
mod certificates;
pub mod material;
mod observe;
mod references;
mod status;
mod story;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use valkey_api::{ClusterStatus, Phase, ValkeyCluster, ValkeyClusterStatus, labels};
use valkey_model::{Desired, Member, blemishes};
use valkey_planner::{Plan, State, plan};
use valkey_resources::{
    BuildError, CheckedCluster, Children, Owner, Trust, Wiring, check, connection_secret, object, shard_certs_secret,
    users_secret,
};

use self::material::{Home, Material};
use self::observe::{Seen, observe};
use self::status::{Attention, Picture};
use crate::children;
use crate::context::{Context, Memory};
use crate::stores::Watched;

/// The safety net under all watches and reports.
const RESYNC: Duration = Duration::from_mins(5);
/// How soon a pass is repeated that failed for a reason which may pass.
const RETRY: Duration = Duration::from_secs(2);
/// How soon to look again while something is not as it should be and nothing was promised to wake us.
const PATIENCE: Duration = Duration::from_secs(1);
/// How soon to look again for something that the spec refers to and that is missing.
const REFERENCE_PATROL: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Material(#[from] material::Error),
    #[error(transparent)]
    Children(#[from] children::Error),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("{what}: {source}")]
    Kubernetes { what: &'static str, source: kube::Error },
    #[error("the API server sent a cluster without a name, namespace or uid")]
    Nameless,
}

impl Error {
    /// For logs, metrics and events alike.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Material(_) => "CertificatesFailed",
            Self::Children(_) => "ApplyFailed",
            Self::Build(_) => "Defect",
            Self::Kubernetes { .. } => "KubernetesFailed",
            Self::Nameless => "Nameless",
        }
    }
}

/// One look at one cluster.
pub async fn reconcile(cluster: Arc<Watched>, context: Arc<Context>) -> Result<Action, Error> {
    let cluster = match &cluster.0 {
        Ok(cluster) => cluster,
        Err(invalid) => {
            // The CRD's own rules let nothing through that cannot be read, so this is another version's object.
            tracing::error!(name = ?invalid.metadata.name, error = invalid.error, "a cluster cannot be read; it is left alone");
            return Ok(Action::await_change());
        }
    };
    let subject = Subject::of(cluster)?;
    if cluster.metadata.deletion_timestamp.is_some() {
        // Children go with their owner by Kubernetes' own hand, with us or without.
        return Ok(Action::await_change());
    }
    let mut memory = context.memory(&subject.namespace, &subject.name, &subject.uid).await;
    let pass = Pass { context: &context, cluster, subject: &subject };
    pass.run(&mut memory).await
}

/// After a failed pass: later again. Conditions and events tell of it if it lasts.
#[allow(clippy::needless_pass_by_value)] // the controller calls it so
pub fn after_failure(cluster: Arc<Watched>, error: &Error, _: Arc<Context>) -> Action {
    tracing::warn!(cluster = cluster.name_any(), namespace = cluster.namespace(), reason = error.category(), %error, "a pass failed");
    Action::requeue(RETRY)
}

/// Which cluster.
#[derive(Debug)]
struct Subject {
    name: String,
    namespace: String,
    uid: String,
    generation: i64,
}

impl Subject {
    fn of(cluster: &ValkeyCluster) -> Result<Self, Error> {
        let meta = cluster.meta();
        let (Some(name), Some(namespace), Some(uid)) = (&meta.name, &meta.namespace, &meta.uid) else {
            return Err(Error::Nameless);
        };
        let generation = meta.generation.unwrap_or_default();
        Ok(Self { name: name.clone(), namespace: namespace.clone(), uid: uid.clone(), generation })
    }

    fn owner(&self) -> Owner {
        Owner { name: self.name.clone(), namespace: self.namespace.clone(), uid: self.uid.clone() }
    }
}

struct Pass<'a> {
    context: &'a Context,
    cluster: &'a ValkeyCluster,
    subject: &'a Subject,
}

impl Pass<'_> {
    async fn run(&self, memory: &mut Memory) -> Result<Action, Error> {
        let before = memory.written.clone().or_else(|| self.cluster.status.clone()).unwrap_or_default();
        let references = references::find(self.context, self.cluster, &self.subject.namespace).await?;
        let checked = match check(self.cluster, &references) {
            Ok(checked) => checked,
            Err(errors) => {
                let status = status::refused(&errors, self.subject.generation, &before, Timestamp::now());
                self.tell(memory, &before, status).await?;
                return Ok(Action::requeue(REFERENCE_PATROL));
            }
        };
        let attention = if self.cluster.spec.is_paused() { Attention::Paused } else { Attention::Managed };
        let desired = desired(&checked);
        let templates = match attention {
            Attention::Managed => self.apply(memory, &checked).await?,
            Attention::Paused => BTreeMap::new(),
        };
        let seen = observe(self.context, memory, &checked.names, &self.subject.namespace, desired).await;
        let plan = plan(desired, &seen.topology);
        // A loss is said before it is given up: a crash in between must not hide it.
        let loses = !plan.losses.is_empty() || status::is_blank_again(&before, desired, &seen);
        if loses {
            self.report(memory, &before, &checked, desired, &seen, &plan, attention).await?;
        }
        if attention == Attention::Managed {
            self.act(memory, &seen, &plan, &templates).await?;
        }
        if !loses {
            self.report(memory, &before, &checked, desired, &seen, &plan, attention).await?;
        }
        if plan.state == State::Healthy {
            memory.channels.clear();
        }
        Ok(look_again(&plan, memory))
    }

    /// Everything that the cluster consists of, Secrets first: a pod that finds them missing waits for a minute.
    async fn apply(&self, memory: &mut Memory, checked: &CheckedCluster) -> Result<BTreeMap<Member, String>, Error> {
        let now = Timestamp::now();
        let current =
            memory.material.as_ref().is_some_and(|material| material.fits(checked) && now < material.renew_at);
        if !current {
            memory.material = Some(material::gather(self.home(), checked, now).await?);
        }
        let Some(material) = &memory.material else { return Ok(BTreeMap::new()) };
        let children = Children::build(checked, &self.subject.owner(), &self.wiring())?;
        let templates = templates(&children);
        let objects = [
            self.secrets(checked, material)?,
            certificates::objects(self.context, checked, &self.subject.owner(), material)?,
            children.into_objects()?,
        ];
        let objects: Vec<DynamicObject> = objects.into_iter().flatten().collect();
        let (workloads, ground): (Vec<_>, Vec<_>) = objects.into_iter().partition(|child| kind(child) == "StatefulSet");
        let (client, stores) = (&self.context.client, &self.context.stores);
        let mut changes = children::apply(client, stores, &mut memory.editions, &ground).await?;
        changes.extend(children::apply(client, stores, &mut memory.editions, &workloads).await?);
        let mut wanted: BTreeSet<children::Key> =
            ground.iter().chain(&workloads).map(|child| (kind(child).to_owned(), child.name_any())).collect();
        wanted.insert((ValkeyClusterStatus::kind(&()).into_owned(), checked.names.topology()));
        let place = (self.subject.namespace.as_str(), self.subject.name.as_str(), self.subject.uid.as_str());
        changes.extend(children::prune(client, stores, &mut memory.editions, place, &wanted).await?);
        self.tell_changes(&changes).await;
        Ok(templates)
    }

    fn home(&self) -> Home<'_> {
        let settings = &self.context.settings;
        Home {
            client: &self.context.client,
            namespace: &self.subject.namespace,
            operator_namespace: &settings.namespace,
            trust_domain: &settings.trust_domain,
            root: &self.context.root,
        }
    }

    fn wiring(&self) -> Wiring {
        let settings = &self.context.settings;
        Wiring {
            sidecar_image: settings.sidecar_image.clone(),
            operator_namespace: settings.namespace.clone(),
            trust_domain: settings.trust_domain.to_string(),
            report_url: settings.report_url.clone(),
        }
    }

    fn secrets(&self, checked: &CheckedCluster, material: &Material) -> Result<Vec<DynamicObject>, BuildError> {
        let owner = self.subject.owner();
        let root = self.context.root.certificate_pem();
        let trust = Trust { tls_ca: material.tls.twin_pem(), root: root.clone() };
        let ca = (checked.encryption == valkey_resources::Encryption::Tls).then_some(root.as_str());
        let mut secrets = vec![
            object(users_secret(checked, &owner, &material.passwords))?,
            object(connection_secret(checked, &owner, &material.passwords, ca))?,
        ];
        for (shard, certificates) in &material.certificates {
            secrets.push(object(shard_certs_secret(checked, &owner, *shard, certificates, &trust))?);
        }
        Ok(secrets)
    }

    async fn act(
        &self,
        memory: &mut Memory,
        seen: &Seen,
        plan: &Plan,
        templates: &BTreeMap<Member, String>,
    ) -> Result<(), Error> {
        let done = act::carry_out(self.context, memory, plan).await;
        self.tell_deeds(&done).await;
        let namespace = &self.subject.namespace;
        let failed = |what| move |source| Error::Kubernetes { what, source };
        act::label_roles(self.context, namespace, seen).await.map_err(failed("a pod's role label cannot be set"))?;
        let outdated = act::outdated(seen, templates);
        act::replace(self.context, namespace, seen, &outdated)
            .await
            .map_err(failed("a pod of an older template cannot be replaced"))
    }

    #[allow(clippy::too_many_arguments)] // all that a status is made of
    async fn report(
        &self,
        memory: &mut Memory,
        before: &ClusterStatus,
        checked: &CheckedCluster,
        desired: Desired,
        seen: &Seen,
        plan: &Plan,
        attention: Attention,
    ) -> Result<(), Error> {
        let now = Timestamp::now();
        let certificates_expire = memory
            .material
            .as_ref()
            .and_then(|material| material.facts.iter().map(|issued| issued.facts.not_after).min());
        let picture = Picture {
            checked,
            namespace: &self.subject.namespace,
            generation: self.subject.generation,
            desired,
            seen,
            plan,
            blemishes: &blemishes(desired, &seen.topology),
            attention,
            certificates_expire,
            now,
        };
        let status = status::status(&picture, before);
        let topology = status::topology(&checked.names, desired, seen, now);
        self.tell(memory, before, status.clone()).await?;
        self.tell_losses(before, &status, &checked.names, plan).await;
        self.tell_topology(memory, topology).await
    }

    /// Writes the status if it says something new, and tells the story of what changed.
    async fn tell(&self, memory: &mut Memory, before: &ClusterStatus, status: ClusterStatus) -> Result<(), Error> {
        if *before == status {
            return Ok(());
        }
        let clusters: Api<ValkeyCluster> = Api::namespaced(self.context.client.clone(), &self.subject.namespace);
        // A merge patch leaves what is not mentioned, so what is gone must be mentioned as null.
        let patch = Patch::Merge(json!({ "status": with_nulls(before, &status) }));
        match clusters.patch_status(&self.subject.name, &PatchParams::default(), &patch).await {
            Ok(_) => {}
            Err(kube::Error::Api(answer)) if answer.is_not_found() => return Ok(()),
            Err(source) => return Err(Error::Kubernetes { what: "the status cannot be written", source }),
        }
        self.tell_turns(before, &status).await;
        memory.written = Some(status);
        Ok(())
    }
}

fn kind(child: &DynamicObject) -> &str {
    child.types.as_ref().map_or("", |types| &types.kind)
}

fn desired(checked: &CheckedCluster) -> Desired {
    Desired { shards: checked.masters, replicas: checked.replicas_per_master, node_timeout: checked.node_timeout() }
}

/// The template that each member's pod should come from.
fn templates(children: &Children) -> BTreeMap<Member, String> {
    let of = |set: &k8s_openapi::api::apps::v1::StatefulSet| {
        let spec = set.spec.as_ref()?;
        let template = spec.template.metadata.as_ref()?.annotations.as_ref()?.get(labels::TEMPLATE)?.clone();
        let shard: u16 = set.labels().get(labels::SHARD)?.parse().ok()?;
        let replicas = u16::try_from(spec.replicas?).ok()?;
        Some((0..replicas).map(move |ordinal| (Member::new(shard, ordinal), template.clone())).collect::<Vec<_>>())
    };
    children.stateful_sets.iter().filter_map(of).flatten().collect()
}

/// What the new status says, with an explicit null for every field that the old one had and the new one has not.
fn with_nulls(before: &ClusterStatus, after: &ClusterStatus) -> serde_json::Value {
    let as_map = |status: &ClusterStatus| match serde_json::to_value(status) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let mut fields = as_map(after);
    for (name, value) in as_map(before) {
        if let Some(serde_json::Value::Object(now)) = fields.get_mut(&name) {
            if let serde_json::Value::Object(then) = value {
                for (inner, _) in then {
                    now.entry(inner).or_insert(serde_json::Value::Null);
                }
            }
            continue;
        }
        fields.entry(name).or_insert(serde_json::Value::Null);
    }
    serde_json::Value::Object(fields)
}

/// When to look again if nothing wakes us first.
fn look_again(plan: &Plan, memory: &Memory) -> Action {
    let renewal =
        memory.material.as_ref().map(|material| material.renew_at.duration_since(Timestamp::now()).unsigned_abs());
    let quiet = renewal.map_or(RESYNC, |renewal| renewal.min(RESYNC));
    let next = match plan.state {
        State::Healthy => quiet,
        State::Working(_) | State::Waiting(_) | State::Stuck(_) => plan.look_again().unwrap_or(PATIENCE).min(PATIENCE),
    };
    Action::requeue(next)
}

/// Whether what a phase says is worth an event.
fn is_turn(before: Option<Phase>, after: Option<Phase>) -> bool {
    before != after
}
