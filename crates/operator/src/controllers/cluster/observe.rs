//! The first step: what is there. Kubernetes speaks through the stores, each node through its sidecar.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, Toleration};
use kube::ResourceExt;
use valkey_api::names::SIDECAR_PORT;
use valkey_api::{ChildNames, labels};
use valkey_model::{Action, Blemish, Desired, Member, Observation, ShardIndex, Sighting, SlotKeys, Spot, blemishes};
use valkey_pki::SpiffeId;
use valkey_planner::Plan;
use valkey_resources::{SIDECAR_CONTAINER, VALKEY_CONTAINER};
use valkey_rpc::{Certificates, SidecarClient, State};

use crate::context::{Context, Memory};
use crate::stores::Metadata;

/// For how long a wish to evict a pod counts. `kubectl drain` and autoscalers ask again every 5 to 10 seconds.
const EVICTION_COUNTS: SignedDuration = SignedDuration::from_mins(1);

/// Everything that one pass saw.
#[derive(Debug)]
pub struct Seen {
    pub topology: Observation,
    pub pods: BTreeMap<Member, Arc<Pod>>,
    pub certificates: BTreeMap<Member, Certificates>,
}

/// What the spec asks for, as far as looking depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub desired: Desired,
    /// The mark that up-to-date pods of each shard have.
    pub templates: &'a BTreeMap<ShardIndex, String>,
    pub tolerations: &'a [Toleration],
    /// The objects that the cluster consists of.
    pub children: &'a [(&'static str, Metadata)],
}

/// Asks Kubernetes' watches and all sidecars at once; one that does not answer costs no more than its own deadline.
pub async fn observe(
    context: &Context,
    memory: &mut Memory,
    names: &ChildNames,
    namespace: &str,
    wanted: Wanted<'_>,
) -> Seen {
    let Wanted { desired, templates, tolerations, children } = wanted;
    let found = context.stores.pods_of(namespace, names.cluster());
    let pods: BTreeMap<Member, Arc<Pod>> = found
        .into_iter()
        .filter_map(|pod| Some((Member::of_pod(names.cluster(), &pod.name_any()).ok()?, pod)))
        .collect();
    let mut channels = std::mem::take(&mut memory.channels);
    // Who is not wanted any more is looked at until it is gone: it may still have data.
    let members: BTreeSet<Member> = desired.members().chain(pods.keys().copied()).collect();
    let asked = members.into_iter().map(|member| {
        let pod = pods.get(&member);
        let channel = channels.remove(&member);
        async move { (member, ask(context, names, namespace, member, pod, channel).await) }
    });
    let mut topology = Observation { cluster: names.cluster().to_owned(), ..Observation::default() };
    let mut certificates = BTreeMap::new();
    for (member, answer) in join_all(asked).await {
        let Answer { sighting, shown, channel } = answer;
        topology.members.insert(member, sighting);
        certificates.extend(shown.map(|shown| (member, shown)));
        memory.channels.extend(channel.map(|channel| (member, channel)));
    }
    topology.spots = pods.iter().filter_map(|(member, pod)| Some((*member, spot(context, pod)?))).collect();
    topology.headless_for = headless(memory, desired, &topology);
    topology.unsynced_for = unsynced(memory, &topology);
    topology.workloads = workloads(children);
    let those = |is: &dyn Fn(Member, &Pod) -> bool| -> BTreeSet<Member> {
        pods.iter().filter(|(member, pod)| is(**member, pod)).map(|(member, _)| *member).collect()
    };
    memory.retain_marks(&pods);
    topology.going = those(&|member, pod| is_going(pod) || memory.deleted.contains_key(&member));
    topology.evictable = those(&|member, pod| is_evictable(pod) || memory.let_go.contains_key(&member));
    topology.unready = those(&|_, pod| !is_ready(pod));
    let ready = pods.iter().filter(|(_, pod)| is_ready(pod)).filter_map(|(member, pod)| Some((*member, pod.uid()?)));
    memory.was_ready.extend(ready);
    topology.fresh =
        those(&|member, pod| !is_ready(pod) && never_failed(pod) && !memory.was_ready.contains_key(&member));
    topology.stranded = those(&|_, pod| unschedulable(pod).is_some());
    topology.unused = those(&|_, pod| !has_started(pod));
    topology.outdated = those(&|member, pod| is_outdated(member, pod, templates));
    topology.emptied_for = emptied(memory, desired, &topology);
    let closed = |member| {
        let spot: Option<&Spot> = topology.spots.get(&member);
        spot.is_some_and(|spot| context.stores.is_closed(&spot.host, tolerations))
    };
    let now = Timestamp::now();
    topology.unwelcome = those(&|member, pod| closed(member) || is_eviction_asked(pod, now));
    Seen { topology, pods, certificates }
}

/// Asks those who are to give slots away what is in them. A sidecar that is too old to know is left out.
pub async fn weigh(memory: &mut Memory, plan: &Plan) -> BTreeMap<Member, SlotKeys> {
    let givers = plan.steps().filter(|step| matches!(step.action, Action::Migrate { .. })).map(|step| step.action.on());
    let givers: BTreeSet<Member> = givers.collect();
    let asked = givers.into_iter().filter_map(|giver| {
        let mut client = memory.channels.get(&giver).map(|(_, client)| client.clone())?;
        Some(async move { (giver, client.weigh().await) })
    });
    let answers = join_all(asked).await.into_iter().filter_map(|(giver, answer)| match answer {
        Ok(keys) => Some((giver, keys)),
        Err(error) => {
            tracing::debug!(member = %giver, %error, "what is in its slots is not known");
            None
        }
    });
    answers.collect()
}

/// How many members each shard's `StatefulSet` asks for, as its watch shows it.
fn workloads(children: &[(&'static str, Metadata)]) -> BTreeMap<ShardIndex, u16> {
    let sets = children.iter().filter(|(kind, set)| *kind == "StatefulSet" && set.0.deletion_timestamp.is_none());
    let of = |(_, Metadata(meta)): &(_, Metadata)| {
        let shard = meta.labels.as_ref()?.get(labels::SHARD)?.parse().ok()?;
        let members = meta.annotations.as_ref()?.get(labels::MEMBERS)?.parse().ok()?;
        Some((ShardIndex(shard), members))
    };
    sets.filter_map(of).collect()
}

/// Whether a pod was made from a template that needs a restart to become the present one.
fn is_outdated(member: Member, pod: &Pod, templates: &BTreeMap<ShardIndex, String>) -> bool {
    templates.get(&member.shard).is_some_and(|wanted| pod.annotations().get(labels::TEMPLATE) != Some(wanted))
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether the disruption budget leaves the pod out.
pub fn is_evictable(pod: &Pod) -> bool {
    pod.labels().contains_key(labels::EVICTABLE)
}

/// Whether somebody has asked for the pod's eviction lately. Those who mean it ask again every few seconds.
fn is_eviction_asked(pod: &Pod, now: Timestamp) -> bool {
    let asked = pod.annotations().get(labels::EVICTION).and_then(|at| at.parse::<Timestamp>().ok());
    asked.is_some_and(|asked| now.duration_since(asked) < EVICTION_COUNTS)
}

struct Answer {
    sighting: Sighting,
    shown: Option<Certificates>,
    channel: Option<(IpAddr, SidecarClient)>,
}

impl Answer {
    fn of(sighting: Sighting) -> Self {
        Self { sighting, shown: None, channel: None }
    }
}

async fn ask(
    context: &Context,
    names: &ChildNames,
    namespace: &str,
    member: Member,
    pod: Option<&Arc<Pod>>,
    open: Option<(IpAddr, SidecarClient)>,
) -> Answer {
    let Some(pod) = pod.filter(|pod| !is_over(pod)) else { return Answer::of(Sighting::Missing) };
    let Some(address) = sidecar_address(pod) else { return Answer::of(Sighting::Starting) };
    let mut client = match open.filter(|(known, _)| *known == address) {
        Some((_, client)) => client,
        None => match dial(context, names, namespace, member, address).await {
            Ok(client) => client,
            Err(error) => {
                tracing::debug!(pod = pod.name_any(), error, "a sidecar cannot be reached");
                return Answer::of(unanswered(pod));
            }
        },
    };
    match client.observe().await {
        Ok(observed) => Answer {
            sighting: sighting(observed.state),
            shown: Some(observed.certificates),
            channel: Some((address, client)),
        },
        Err(error) => {
            tracing::debug!(pod = pod.name_any(), %error, "a sidecar does not answer");
            Answer::of(unanswered(pod))
        }
    }
}

fn sighting(state: State) -> Sighting {
    state.into()
}

async fn dial(
    context: &Context,
    names: &ChildNames,
    namespace: &str,
    member: Member,
    address: IpAddr,
) -> Result<SidecarClient, String> {
    let settings = &context.settings;
    let identity = SpiffeId::pod(&settings.trust_domain, namespace, names.cluster(), &names.pod(member));
    let identity = identity.map_err(|error| error.to_string())?.to_string();
    let connected = context.dialer.connect(SocketAddr::new(address, SIDECAR_PORT), &identity).await;
    connected.map_err(|error| error.to_string())
}

/// A pod that has ended runs nothing and never will again.
fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    all.into_iter().find(|container| container.name == name)
}

fn is_running(pod: &Pod, name: &str) -> bool {
    container(pod, name).and_then(|container| container.state.as_ref()).is_some_and(|state| state.running.is_some())
}

/// Where the sidecar can be called, if it runs.
fn sidecar_address(pod: &Pod) -> Option<IpAddr> {
    let address = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
    is_running(pod, SIDECAR_CONTAINER).then_some(address)
}

/// A sidecar that does not answer while no server was ever started beside it has nothing to hide; any other may.
fn unanswered(pod: &Pod) -> Sighting {
    if has_started(pod) { Sighting::Unreachable } else { Sighting::Starting }
}

/// Whether a server ever ran in this pod.
pub fn has_started(pod: &Pod) -> bool {
    container(pod, VALKEY_CONTAINER).is_some_and(|valkey| {
        let state = valkey.state.as_ref();
        valkey.restart_count > 0 || state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    })
}

fn spot(context: &Context, pod: &Pod) -> Option<Spot> {
    let host = pod.spec.as_ref()?.node_name.clone()?;
    let zone = context.stores.zone_of(&host).unwrap_or_default();
    Some(Spot { host, zone })
}

/// For how long each shard has been without a primary, by this process' own clock.
fn headless(memory: &mut Memory, desired: Desired, topology: &Observation) -> BTreeMap<ShardIndex, Duration> {
    let now: Vec<ShardIndex> = blemishes(desired, topology)
        .into_iter()
        .filter_map(|blemish| match blemish {
            Blemish::Headless(shard) => Some(shard),
            _ => None,
        })
        .collect();
    lasting(&mut memory.headless_since, &now)
}

/// For how long each shard that has given its slots away has had none.
fn emptied(memory: &mut Memory, desired: Desired, topology: &Observation) -> BTreeMap<ShardIndex, Duration> {
    let emptied: Vec<ShardIndex> = topology.emptied(desired).into_iter().collect();
    lasting(&mut memory.emptied_since, &emptied)
}

/// How long it has been so with each of these; the others begin anew.
fn lasting<K: Copy + Ord>(since: &mut BTreeMap<K, Instant>, now: &[K]) -> BTreeMap<K, Duration> {
    since.retain(|key, _| now.contains(key));
    now.iter().map(|key| (*key, since.entry(*key).or_insert_with(Instant::now).elapsed())).collect()
}

/// For how long each member has not been seen in sync.
fn unsynced(memory: &mut Memory, topology: &Observation) -> BTreeMap<Member, Duration> {
    let in_sync = topology.in_sync();
    let others: Vec<Member> = topology.members.keys().filter(|member| !in_sync.contains(member)).copied().collect();
    lasting(&mut memory.unsynced_since, &others)
}

/// Whether the server in a pod has not failed so far.
fn never_failed(pod: &Pod) -> bool {
    container(pod, VALKEY_CONTAINER).is_none_or(|valkey| valkey.restart_count == 0)
}

/// Whether Kubernetes sends clients to the pod.
pub fn is_ready(pod: &Pod) -> bool {
    readiness(pod).is_some()
}

/// When Kubernetes began to send clients to the pod, if it does.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    Some(readiness(pod)?.last_transition_time.as_ref()?.0)
}

fn readiness(pod: &Pod) -> Option<&PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// That there is no place for the pod. The scheduler has other reasons too, for which it merely tries again.
fn unschedulable(pod: &Pod) -> Option<&PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions
        .find(|condition| condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable"))
}

/// Why a pod does not come up, in Kubernetes' own words, if it says so.
pub fn trouble(pod: &Pod) -> Option<String> {
    if let Some(condition) = unschedulable(pod) {
        return Some(format!("cannot be scheduled: {}", condition.message.clone().unwrap_or_default()));
    }
    let status = pod.status.as_ref()?;
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    all.into_iter().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason =
            waiting.reason.as_deref().filter(|reason| !matches!(*reason, "ContainerCreating" | "PodInitializing"))?;
        Some(format!(
            "container {} cannot start ({reason}): {}",
            container.name,
            waiting.message.clone().unwrap_or_default()
        ))
    })
}
