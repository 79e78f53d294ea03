//! `ValkeyCluster`: observe, validate, build, plan, act, tell.

mod act;
mod certificates;
mod claims;
mod living;
pub mod material;
mod names;
pub mod observe;
mod references;
mod rollback;
pub mod settings;
mod status;
mod story;
mod wishes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use valkey_api::{ChildNames, ClusterStatus, Phase, ValkeyCluster, ValkeyClusterStatus};
use valkey_model::{
    Action as Deed, Desired, Member, Settings as ServerSettings, ShardIndex, WantedSettings, blemishes,
};
use valkey_planner::{Plan, State, plan};
use valkey_resources::{
    BuildError, CheckedCluster, Children, Fitting, Owner, Trust, Wiring, check, connection_secret, object,
    shard_certs_secret, template_mark, users_secret,
};

use self::material::{Home, Material};
use self::observe::{Seen, Wanted, observe, weigh};
use self::status::{Attention, Picture, Verdict};
use crate::children;
use crate::context::{Context, Memory};
use crate::controllers::upgrade;
use crate::stores::{Metadata, Watched};

/// The safety net under all watches and reports.
const RESYNC: Duration = Duration::from_mins(5);
/// How soon a pass is repeated that failed for a reason which may pass.
const RETRY: Duration = Duration::from_secs(2);
/// How soon to look again while something is not as it should be and nothing was promised to wake us.
const PATIENCE: Duration = Duration::from_secs(1);
/// How soon to look again at a cluster that is left alone and not as it should be.
const PAUSED: Duration = Duration::from_secs(10);
/// How soon to look again for something that the spec refers to and that is missing.
const REFERENCE_PATROL: Duration = Duration::from_secs(5);

/// How often the progress of work is written.
const BETWEEN_PROGRESS: Duration = Duration::from_secs(1);

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
    context.stores.filling.over().await;
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

/// What a pass saw, and how well it fits what the spec asks for.
struct Look {
    /// The objects that the cluster consists of, as they were when the look began. Only what was seen may be removed.
    children: Vec<(&'static str, Metadata)>,
    seen: Seen,
    settings: WantedSettings,
    fittings: BTreeMap<Member, Fitting>,
}

struct Pass<'a> {
    context: &'a Context,
    cluster: &'a ValkeyCluster,
    subject: &'a Subject,
}

impl Pass<'_> {
    async fn run(&self, memory: &mut Memory) -> Result<Action, Error> {
        let before = memory.written.clone().or_else(|| self.cluster.status.clone()).unwrap_or_default();
        let cluster = rollback::in_effect(self.cluster, &before);
        let references = references::find(self.context, &cluster, &self.subject.namespace).await?;
        let checked = match check(&cluster, &references) {
            Ok(checked) => checked,
            Err(errors) => {
                let status = status::refused(&errors, self.subject.generation, &before, Timestamp::now());
                self.tell(memory, &before, status).await?;
                return Ok(Action::requeue(REFERENCE_PATROL));
            }
        };
        let attention = if self.cluster.spec.is_paused() { Attention::Paused } else { Attention::Managed };
        let desired = desired(&checked);
        let namespace = &self.subject.namespace;
        let mut look = self.look(memory, &checked, desired).await?;
        let mut planned = plan(desired, &look.seen.topology);
        if planned.steps().any(|step| matches!(step.action, Deed::Migrate { .. })) {
            look.seen.topology.weights = weigh(memory, &planned).await;
            planned = plan(desired, &look.seen.topology);
        }
        let (plan, Look { children, seen, settings, fittings }) = (planned, &look);
        tracing::debug!(state = ?plan.state, steps = plan.steps().count(), again = ?plan.look_again(), "planned");
        if attention == Attention::Managed {
            claims::release(self.context, &checked.names, namespace, &seen.topology.workloads, &plan.workloads)
                .await
                .map_err(|source| Error::Kubernetes { what: "the volume of a leaving member cannot be deleted", source })?;
            let live = settings::start_with(settings, desired, &seen.topology, &before);
            self.apply(memory, &checked, &plan.workloads, &live, children).await?;
            memory.settings.hold(live);
        }
        let verdict = self.verdict(&before, &checked.names, &look, &plan, attention);
        // A loss is said before it is given up: a crash in between must not hide it.
        let loses = !plan.losses.is_empty() || status::is_blank_again(&before, desired, seen);
        if loses {
            self.report(memory, &before, &checked, desired, seen, &plan, &verdict, attention).await?;
        }
        if attention == Attention::Managed {
            self.tell_of_living(&checked.names, &look, &plan).await;
            self.act(memory, &checked.names, seen, &plan).await?;
            living::follow(self.context, memory, &checked, namespace, seen, fittings)
                .await
                .map_err(|source| Error::Kubernetes { what: "a living pod cannot be changed", source })?;
        }
        if !loses {
            self.report(memory, &before, &checked, desired, seen, &plan, &verdict, attention).await?;
        }
        if plan.state == State::Healthy {
            memory.channels.clear();
        }
        Ok(look_again(&plan, attention, memory))
    }

    /// What is wrong with a spec that is good by itself: only those who carry it out can tell.
    fn verdict(
        &self,
        before: &ClusterStatus,
        names: &ChildNames,
        look: &Look,
        plan: &Plan,
        attention: Attention,
    ) -> Verdict {
        let Subject { name, namespace, .. } = self.subject;
        let driven = upgrade::drives(&self.context.stores.upgrades, namespace, name);
        let ours = !driven && attention == Attention::Managed;
        let care = if ours { rollback::Care::Ours } else { rollback::Care::Others };
        let pods = look.seen.pods.values().map(|pod| &**pod);
        let tried = rollback::tried(self.cluster, before, pods, &plan.state, care, Timestamp::now());
        let refused = settings::complaint(&look.settings, names, &look.seen.topology);
        let given_up = tried.rolled_back.as_ref().map(|rolled_back| ("RolledBack", rollback::complaint(rolled_back)));
        Verdict { complaint: given_up.or(refused.map(|words| ("SettingRefused", words))), tried }
    }

    /// Everything that decisions are made from.
    async fn look(&self, memory: &mut Memory, checked: &CheckedCluster, desired: Desired) -> Result<Look, Error> {
        let (names, namespace) = (&checked.names, &self.subject.namespace);
        let templates = self.templates(checked)?;
        let tolerations = checked.pods.tolerations.as_deref().unwrap_or_default();
        let children = self.context.stores.children(namespace, &self.subject.name);
        let wanted = Wanted { desired, templates: &templates, tolerations, children: &children };
        let mut seen = observe(self.context, memory, names, namespace, wanted).await;
        if checked.storage.is_some() {
            seen.topology.durable = seen.pods.keys().copied().collect();
        }
        memory
            .settings
            .recall(self.context, names, namespace)
            .await
            .map_err(|source| Error::Kubernetes { what: "the ConfigMap cannot be read", source })?;
        let settings = memory.settings.look(checked, &seen.topology, seen.pods.values().map(|pod| &**pod));
        seen.topology.settings = Some(settings.clone());
        let fittings = living::examine(checked, memory, &seen);
        seen.topology.outdated.extend(living::to_roll(&fittings));
        seen.topology.wishes = wishes::read(self.cluster, names, &seen);
        seen.topology.hold = upgrade::hold(&self.context.stores.upgrades, namespace, &self.subject.name);
        if !seen.topology.outdated.is_empty() || !seen.topology.wishes.is_empty() {
            let misleading = names::misleading(names, namespace, &seen.pods, memory).await;
            seen.topology.unready.extend(misleading);
        }
        Ok(Look { children, seen, settings, fittings })
    }

    /// Everything that the cluster consists of, Secrets first: a pod that finds them missing waits for a minute.
    async fn apply(
        &self,
        memory: &mut Memory,
        checked: &CheckedCluster,
        workloads: &BTreeMap<ShardIndex, u16>,
        live: &ServerSettings,
        seen: &[(&'static str, Metadata)],
    ) -> Result<(), Error> {
        let now = Timestamp::now();
        let is_current = |material: &Material| material.fits(checked, workloads) && now < material.renew_at;
        if !memory.material.as_ref().is_some_and(is_current) {
            memory.material = Some(material::gather(self.home(), checked, workloads, now).await?);
        }
        let Some(material) = &memory.material else { return Ok(()) };
        let children = Children::build(checked, &self.subject.owner(), &self.wiring(), workloads, live)?;
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
        let place = (self.subject.namespace.as_str(), self.subject.uid.as_str());
        changes.extend(children::prune(client, &mut memory.editions, place, seen, &wanted).await?);
        self.tell_changes(&changes).await;
        Ok(())
    }

    /// The mark that the pods of each shard should have; of shards that are leaving, too.
    fn templates(&self, checked: &CheckedCluster) -> Result<BTreeMap<ShardIndex, String>, BuildError> {
        let wiring = self.wiring();
        checked.shards().map(|shard| Ok((shard, template_mark(checked, &wiring, shard)?))).collect()
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

    async fn act(&self, memory: &mut Memory, names: &ChildNames, seen: &Seen, plan: &Plan) -> Result<(), Error> {
        let done = act::carry_out(self.context, memory, plan).await;
        self.tell_deeds(&done).await;
        let namespace = &self.subject.namespace;
        let failed = |what| move |source| Error::Kubernetes { what, source };
        act::label_roles(self.context, namespace, seen).await.map_err(failed("a pod's role label cannot be set"))?;
        self.tell_replacements(names, plan).await;
        act::replace(self.context, memory, namespace, seen, plan).await.map_err(failed("a pod cannot be replaced"))?;
        act::mark_evictable(self.context, memory, namespace, seen, plan)
            .await
            .map_err(failed("a pod cannot be marked for eviction"))?;
        wishes::settle(self.context, self.cluster, names, seen)
            .await
            .map_err(failed("the switchover that is done cannot be taken off the list"))
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
        verdict: &Verdict,
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
            verdict,
            attention,
            certificates_expire,
            now,
        };
        let topology = status::topology(&checked.names, desired, seen, now);
        let was_formed = before.formed_at.is_some();
        if was_formed && plan.losses.is_empty() && status::is_inconclusive(&seen.topology) {
            return self.tell_topology(memory, topology).await; // what was said before stands
        }
        let status = status::status(&picture, before);
        self.tell(memory, before, status.clone()).await?;
        self.tell_losses(before, &status, &checked.names, plan).await;
        self.tell_topology(memory, topology).await
    }

    /// Writes the status if it says something new, and tells the story of what changed.
    async fn tell(&self, memory: &mut Memory, before: &ClusterStatus, status: ClusterStatus) -> Result<(), Error> {
        if *before == status {
            return Ok(());
        }
        // Slots move by the thousand in a second; people read slower. The end of the work is another status.
        let told_lately = memory.written_at.is_some_and(|at| at.elapsed() < BETWEEN_PROGRESS);
        if told_lately && status::differ_in_progress_only(before, &status) {
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
        memory.written_at = Some(Instant::now());
        Ok(())
    }
}

fn kind(child: &DynamicObject) -> &str {
    child.types.as_ref().map_or("", |types| &types.kind)
}

fn desired(checked: &CheckedCluster) -> Desired {
    Desired { shards: checked.masters, replicas: checked.replicas_per_master, node_timeout: checked.node_timeout() }
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
fn look_again(plan: &Plan, attention: Attention, memory: &Memory) -> Action {
    let renewal =
        memory.material.as_ref().map(|material| material.renew_at.duration_since(Timestamp::now()).unsigned_abs());
    let quiet = renewal.map_or(RESYNC, |renewal| renewal.min(RESYNC));
    let next = match plan.state {
        State::Healthy => quiet,
        // Somebody else is at it; only what is told about it has to be true.
        _ if attention == Attention::Paused => PAUSED,
        State::Working(_) | State::Waiting(_) | State::Stuck(_) => plan.look_again().unwrap_or(PATIENCE).min(PATIENCE),
    };
    Action::requeue(next)
}

/// Whether what a phase says is worth an event.
fn is_turn(before: Option<Phase>, after: Option<Phase>) -> bool {
    before != after
}
