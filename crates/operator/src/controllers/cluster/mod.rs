//! `ValkeyCluster`: observe, validate, build, plan, act, tell.

mod act;
mod certificates;
pub mod claims;
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

use self::claims::Claims;
use self::material::{Home, Material};
use self::observe::{Seen, Wanted, observe, weigh};
use self::status::{Attention, Picture, Verdict};
use crate::children::{self, Change};
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

    /// What only a human can put right: Kubernetes understood us and will not have it.
    fn refusal(&self) -> Option<String> {
        let (what, source) = match self {
            Self::Children(error) => (error.what(), error.kubernetes()?),
            Self::Material(material::Error::Kubernetes { name, source }) => {
                (format!("Secret {name} cannot be read or written"), source)
            }
            Self::Kubernetes { what, source } => ((*what).to_owned(), source),
            Self::Material(_) | Self::Build(_) | Self::Nameless => return None,
        };
        let kube::Error::Api(answer) = source else { return None };
        (answer.is_forbidden() || answer.is_invalid()).then(|| {
            format!(
                "{what}, Kubernetes refuses it: {}. What runs goes on and is healed. Change the spec or what is named there (a policy, a quota, a role); \
                 it is tried again by itself",
                answer.message.trim_end_matches('.')
            )
        })
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
    Box::pin(pass.run(&mut memory)).await
}

/// After a failed pass: later again. What Kubernetes refuses for good is in the status by then.
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
    claims: Claims,
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
        let attention = self.attention();
        let desired = desired(&checked);
        let mut look = self.look(memory, &checked, desired).await?;
        let mut planned = plan(desired, &look.seen.topology);
        if planned.steps().any(|step| matches!(step.action, Deed::Migrate { .. })) {
            look.seen.topology.weights = weigh(memory, &planned).await;
            planned = plan(desired, &look.seen.topology);
        }
        let plan = planned;
        tracing::debug!(state = ?plan.state, steps = plan.steps().count(), again = ?plan.look_again(), "planned");
        let provided = match attention {
            Attention::Managed => self.provide(memory, &before, &checked, &look, &plan).await,
            Attention::Paused => Ok(()),
        };
        // What may pass is tried again. What Kubernetes will not have must not keep the cluster from being healed.
        let provided = match provided {
            Err(error) if error.refusal().is_none() => return Err(error),
            decided => decided,
        };
        // A loss is said before it is given up: a crash in between must not hide it.
        let loses = !plan.losses.is_empty() || status::is_blank_again(&before, desired, &look.seen);
        if loses {
            let verdict = self.verdict(memory, &before, &checked, &look, &plan, &provided);
            self.report(memory, &before, &checked, desired, &look.seen, &plan, &verdict).await?;
        }
        let outcome = match attention {
            Attention::Managed => self.care(memory, &checked, &look, &plan, provided).await,
            Attention::Paused => provided,
        };
        // After a failure that may pass, what was said before stands.
        let conclusive = outcome.as_ref().map_or_else(|error| error.refusal().is_some(), |()| true);
        if conclusive && !loses {
            let verdict = self.verdict(memory, &before, &checked, &look, &plan, &outcome);
            self.report(memory, &before, &checked, desired, &look.seen, &plan, &verdict).await?;
        }
        outcome?;
        if plan.state == State::Healthy {
            memory.channels.clear();
        }
        Ok(look_again(&plan, attention, memory))
    }

    fn attention(&self) -> Attention {
        if self.cluster.spec.is_paused() { Attention::Paused } else { Attention::Managed }
    }

    /// Brings the objects that the cluster consists of to what is planned.
    async fn provide(
        &self,
        memory: &mut Memory,
        before: &ClusterStatus,
        checked: &CheckedCluster,
        Look { children, seen, settings, .. }: &Look,
        plan: &Plan,
    ) -> Result<(), Error> {
        let present = &seen.topology.workloads;
        claims::release(self.context, &checked.names, &self.subject.namespace, present, &plan.workloads)
            .await
            .map_err(|source| Error::Kubernetes { what: "the volume of a leaving member cannot be deleted", source })?;
        let live = settings::start_with(settings, desired(checked), &seen.topology, before);
        self.apply(memory, checked, &plan.workloads, &live, children).await?;
        memory.settings.hold(live);
        Ok(())
    }

    /// Does what is planned with those that live. Servers are seen to in any case; pods and volumes follow the spec only if the objects do
    /// that say so: a pod that is replaced under an old template would come back as it was, again and again.
    async fn care(
        &self,
        memory: &mut Memory,
        checked: &CheckedCluster,
        Look { seen, fittings, claims, .. }: &Look,
        plan: &Plan,
        provided: Result<(), Error>,
    ) -> Result<(), Error> {
        let namespace = &self.subject.namespace;
        let failed = |what| move |source| Error::Kubernetes { what, source };
        let healed = self.heal(memory, &checked.names, seen, plan).await;
        provided?;
        self.tell_replacements(&checked.names, plan).await;
        act::replace(self.context, memory, namespace, seen, plan).await.map_err(failed("a pod cannot be replaced"))?;
        healed?;
        self.tell_resizes(&checked.names, fittings).await;
        living::follow(self.context, memory, checked, namespace, seen, fittings)
            .await
            .map_err(failed("a living pod cannot be changed"))?;
        claims::follow(self.context, memory, checked, &self.subject.owner(), &seen.topology, claims)
            .await
            .map_err(failed("a volume's claim cannot be changed"))
    }

    /// What is wrong with a spec that is good by itself: only those who carry it out can tell.
    fn verdict(
        &self,
        memory: &Memory,
        before: &ClusterStatus,
        checked: &CheckedCluster,
        look: &Look,
        plan: &Plan,
        outcome: &Result<(), Error>,
    ) -> Verdict {
        let Subject { name, namespace, .. } = self.subject;
        let driven = upgrade::drives(&self.context.stores.upgrades, namespace, name);
        let ours = !driven && self.attention() == Attention::Managed;
        let care = if ours { rollback::Care::Ours } else { rollback::Care::Others };
        let pods = look.seen.pods.values().map(|pod| &**pod);
        let tried = rollback::tried(self.cluster, before, pods, &plan.state, care, Timestamp::now());
        let refused = settings::complaint(&look.settings, &checked.names, &look.seen.topology);
        let storage = checked.storage.as_ref();
        let ungrowable = storage.and_then(|storage| claims::complaint(memory.ungrowable.as_ref(), storage));
        let given_up = tried.rolled_back.as_ref().map(|rolled_back| ("RolledBack", rollback::complaint(rolled_back)));
        let refused = refused.map(|words| ("SettingRefused", words));
        let ungrowable = ungrowable.map(|words| ("VolumesCannotGrow", words));
        let forbidden = outcome.as_ref().err().and_then(Error::refusal).map(|words| ("RefusedByKubernetes", words));
        let complaint = given_up.or(refused).or(ungrowable).or(forbidden);
        Verdict { complaint, tried }
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
        let claims = claims::of_members(self.context, names, namespace, desired);
        let storage = checked.storage.as_ref();
        seen.topology.growth = storage.and_then(|storage| claims::growth(&claims, storage, memory.ungrowable.as_ref()));
        let fittings = living::examine(checked, memory, &seen);
        seen.topology.outdated.extend(living::to_roll(&fittings));
        seen.topology.wishes = wishes::read(self.cluster, names, &seen);
        seen.topology.hold = upgrade::hold(&self.context.stores.upgrades, namespace, &self.subject.name);
        if !seen.topology.outdated.is_empty() || !seen.topology.wishes.is_empty() {
            let misleading = names::misleading(names, namespace, &seen.pods, memory).await;
            seen.topology.unready.extend(misleading);
        }
        Ok(Look { children, seen, settings, fittings, claims })
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
        let mut changes = Vec::new();
        let applied = self.bring(memory, checked, &ground, &workloads, seen, &mut changes).await;
        self.tell_changes(&changes).await;
        applied
    }

    /// First all that pods need, then the pods, and then what is left over goes.
    async fn bring(
        &self,
        memory: &mut Memory,
        checked: &CheckedCluster,
        ground: &[DynamicObject],
        workloads: &[DynamicObject],
        seen: &[(&'static str, Metadata)],
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        let (client, stores) = (&self.context.client, &self.context.stores);
        children::apply(client, stores, &mut memory.editions, ground, changes).await?;
        children::apply(client, stores, &mut memory.editions, workloads, changes).await?;
        let mut wanted: BTreeSet<children::Key> =
            ground.iter().chain(workloads).map(|child| (kind(child).to_owned(), child.name_any())).collect();
        wanted.insert((ValkeyClusterStatus::kind(&()).into_owned(), checked.names.topology()));
        let place = (self.subject.namespace.as_str(), self.subject.uid.as_str());
        changes.extend(children::prune(client, &mut memory.editions, place, seen, &wanted).await?);
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

    /// Nothing of this needs the others to succeed.
    async fn heal(&self, memory: &mut Memory, names: &ChildNames, seen: &Seen, plan: &Plan) -> Result<(), Error> {
        let done = act::carry_out(self.context, memory, plan).await;
        self.tell_deeds(&done).await;
        let namespace = &self.subject.namespace;
        let failed = |what| move |source| Error::Kubernetes { what, source };
        let labelled = act::label_roles(self.context, namespace, seen).await;
        self.tell_evictable(names, seen, plan).await;
        let marked = act::mark_evictable(self.context, memory, namespace, seen, plan).await;
        let settled = wishes::settle(self.context, self.cluster, names, seen).await;
        labelled.map_err(failed("a pod's role label cannot be set"))?;
        marked.map_err(failed("a pod cannot be marked for eviction"))?;
        settled.map_err(failed("the switchover that is done cannot be taken off the list"))
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
            attention: self.attention(),
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
