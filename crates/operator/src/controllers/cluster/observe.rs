//! The first step: what is there. Kubernetes speaks through the stores, each node through its sidecar.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use kube::ResourceExt;
use valkey_api::ChildNames;
use valkey_api::names::SIDECAR_PORT;
use valkey_model::{Blemish, Desired, Member, Observation, ShardIndex, Sighting, Spot, blemishes};
use valkey_pki::SpiffeId;
use valkey_resources::{SIDECAR_CONTAINER, VALKEY_CONTAINER};
use valkey_rpc::{Certificates, SidecarClient, State};

use crate::context::{Context, Memory};

/// Everything that one pass saw.
#[derive(Debug)]
pub struct Seen {
    pub topology: Observation,
    pub pods: BTreeMap<Member, Arc<Pod>>,
    pub certificates: BTreeMap<Member, Certificates>,
}

/// Asks Kubernetes' watches and all sidecars at once; one that does not answer costs no more than its own deadline.
pub async fn observe(
    context: &Context,
    memory: &mut Memory,
    names: &ChildNames,
    namespace: &str,
    desired: Desired,
) -> Seen {
    let found = context.stores.pods_of(namespace, names.cluster());
    let pods: BTreeMap<Member, Arc<Pod>> = found
        .into_iter()
        .filter_map(|pod| Some((Member::of_pod(names.cluster(), &pod.name_any()).ok()?, pod)))
        .collect();
    let mut channels = std::mem::take(&mut memory.channels);
    let asked = desired.members().map(|member| {
        let pod = pods.get(&member);
        let channel = channels.remove(&member);
        async move { (member, ask(context, names, namespace, member, pod, channel).await) }
    });
    let mut topology = Observation::default();
    let mut certificates = BTreeMap::new();
    for (member, answer) in join_all(asked).await {
        let Answer { sighting, shown, channel } = answer;
        topology.members.insert(member, sighting);
        certificates.extend(shown.map(|shown| (member, shown)));
        memory.channels.extend(channel.map(|channel| (member, channel)));
    }
    topology.spots = pods.iter().filter_map(|(member, pod)| Some((*member, spot(context, pod)?))).collect();
    topology.headless_for = headless(memory, desired, &topology);
    Seen { topology, pods, certificates }
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
fn headless(
    memory: &mut Memory,
    desired: Desired,
    topology: &Observation,
) -> BTreeMap<ShardIndex, std::time::Duration> {
    let now: Vec<ShardIndex> = blemishes(desired, topology)
        .into_iter()
        .filter_map(|blemish| match blemish {
            Blemish::Headless(shard) => Some(shard),
            _ => None,
        })
        .collect();
    memory.headless_since.retain(|shard, _| now.contains(shard));
    now.into_iter()
        .map(|shard| (shard, memory.headless_since.entry(shard).or_insert_with(Instant::now).elapsed()))
        .collect()
}

/// Whether Kubernetes sends clients to the pod.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Why a pod does not come up, in Kubernetes' own words, if it says so.
pub fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    // The scheduler also says so while it merely tries again; only this reason means that there is no place.
    let unschedulable = |condition: &&PodCondition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    };
    let unscheduled = status.conditions.iter().flatten().find(unschedulable);
    if let Some(condition) = unscheduled {
        return Some(format!("cannot be scheduled: {}", condition.message.clone().unwrap_or_default()));
    }
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
