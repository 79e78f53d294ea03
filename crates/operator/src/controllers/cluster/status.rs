//! The last step: what to say. A plain function of what was wanted, seen and done.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use valkey_api::cluster::{CertificateStatus, Endpoints, LastFailure, Moves, Operation, TlsStatus};
use valkey_api::names::VALKEY_PORT;
use valkey_api::topology::{Node, NodeRole, NodeState, Topology};
use valkey_api::{ChildNames, ClusterStatus, ConditionStatus, ConditionType, Phase, conditions, labels};
use valkey_model::{
    Blemish, Desired, Member, NodeReport, Observation, Peer, PeerHealth, ReplicaLink, Role, ShardIndex, Sighting,
    SlotSet,
};
use valkey_planner::{Load, Operation as Work, Plan, Progress, State};
use valkey_resources::{CheckedCluster, Encryption, SpecErrors};

use super::observe::{Seen, is_ready, trouble};
use super::rollback::Tried;

/// Everything that a status is made of.
#[derive(Debug)]
pub struct Picture<'a> {
    pub checked: &'a CheckedCluster,
    pub namespace: &'a str,
    pub generation: i64,
    pub desired: Desired,
    pub seen: &'a Seen,
    pub plan: &'a Plan,
    pub blemishes: &'a [Blemish],
    pub verdict: &'a Verdict,
    pub attention: Attention,
    /// When the first certificate in use expires.
    pub certificates_expire: Option<Timestamp>,
    pub now: Timestamp,
}

/// What came of a spec that is good by itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// What does not do as the spec says: a reason for programs, and words for people.
    pub complaint: Option<(&'static str, String)>,
    pub tried: Tried,
}

/// Whether the operator may touch the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    Managed,
    Paused,
}

/// The status of a cluster whose spec is good. `before` is what was said last; times move only with what they speak about.
pub fn status(picture: &Picture<'_>, before: &ClusterStatus) -> ClusterStatus {
    let Picture {
        checked,
        namespace,
        generation,
        desired,
        seen,
        plan,
        blemishes,
        verdict,
        attention,
        certificates_expire,
        now,
    } = *picture;
    let names = &checked.names;
    let live: Vec<&NodeReport> = seen.topology.reports().map(|(_, report)| report).collect();
    let masters = live.iter().filter(|report| report.role == Role::Primary && !report.slots.is_empty());
    let followers = live.iter().filter(|report| report.role == Role::Replica && report.link == ReplicaLink::Up);
    let ready = desired.members().filter(|member| node_state(seen, *member) == NodeState::Ready).count();
    let slots = masters.clone().fold(SlotSet::EMPTY, |all, report| all.union(&report.slots)).len();
    let healthy = blemishes.is_empty();
    let formed_at = before.formed_at.clone().or_else(|| healthy.then_some(Time(now)));
    let age = if formed_at.is_some() { Age::Formed } else { Age::New };
    let reach = reach(picture, before);
    let (phase, operation) = doing(plan, attention, age, reach);
    let operation = operation.map(|operation| with_moves(operation, plan, before, now));
    let mut status = ClusterStatus {
        phase: Some(phase),
        observed_generation: Some(generation),
        masters: count(masters.count()),
        replicas: count(followers.count()),
        selector: Some(format!("{}={}", labels::CLUSTER, names.cluster())),
        ready_nodes: count(ready),
        total_nodes: count(desired.size()),
        nodes: Some(format!("{ready}/{}", desired.size())),
        slots_assigned: Some(i32::from(slots)),
        valkey_version: live.iter().map(|report| report.version).min().map(|version| version.to_string()),
        stateful_sets: plan.workloads.keys().map(|shard| names.stateful_set(*shard)).collect(),
        tls: (checked.encryption == Encryption::Tls).then(|| tls(certificates_expire, now)),
        formed_at,
        endpoints: Some(endpoints(names, namespace, checked.encryption)),
        operation,
        image: verdict.tried.healthy.clone(),
        rolled_back: verdict.tried.rolled_back.clone(),
        last_failure: failure(picture, before),
        conditions: before.conditions.clone(),
    };
    let mut set = |kind, holds: bool, reason: &str, message: &str| {
        conditions::set(
            &mut status.conditions,
            kind,
            ConditionStatus::from(holds),
            reason,
            message,
            generation,
            Time(now),
        );
    };
    let warnings: Vec<_> = checked.warnings.iter().map(ToString::to_string).collect();
    let (reason, words) = match &verdict.complaint {
        Some((reason, words)) => (*reason, words.clone()),
        None if warnings.is_empty() => ("Valid", "the spec is good".into()),
        None => ("ValidWithWarnings", warnings.join(" ")),
    };
    set(ConditionType::Accepted, verdict.complaint.is_none(), reason, &words);
    let as_planned = is_as_planned(picture, before);
    let serves = serves_on(picture, before);
    let words = match (healthy, reach) {
        (true, Reach::Open) => "all slots are served and every replica is in sync".into(),
        (true, Reach::Opening) => OPENING.into(),
        (false, _) if serves => format!("all slots are served; {}", in_words(names, blemishes)),
        (false, _) => in_words(names, blemishes),
    };
    let health = if healthy { "Healthy" } else { reason_of(&plan.state, age) };
    set(ConditionType::Ready, (healthy && reach == Reach::Open) || serves, health, &words);
    let working = matches!(plan.state, State::Working(_) | State::Waiting(_)) && attention == Attention::Managed;
    set(
        ConditionType::Progressing,
        working,
        reason_of(&plan.state, age),
        progress(&plan.state).map_or("nothing to do", |p| &p.message),
    );
    let degraded = age == Age::Formed && !healthy && !as_planned;
    set(ConditionType::Degraded, degraded, health, if degraded { &words } else { "" });
    say_tls(&mut status, generation, Time(now));
    let losses = losses(picture, before);
    if !losses.is_empty() {
        say_lost(&mut status.conditions, losses, generation, Time(now));
    }
    status
}

/// For how long a node may give no answer before anybody is told.
const SILENCE: Duration = Duration::from_secs(10);

/// Whether a look says nothing new: somebody has just given no answer, and none of its peers misses it. A machine that is busy for a
/// moment must wake up nobody.
pub fn is_inconclusive(seen: &Observation) -> bool {
    let doubts = |peer: &Peer| matches!(peer.health, PeerHealth::Suspected | PeerHealth::Failed);
    let lasts = |member: &Member| seen.unsynced_for.get(member).is_some_and(|since| *since >= SILENCE);
    let mut silent = seen.members.iter().filter(|(_, sighting)| **sighting == Sighting::Unreachable).peekable();
    silent.peek().is_some()
        && silent.all(|(member, _)| !lasts(member))
        && !seen.reports().any(|(_, report)| report.peers.iter().any(doubts))
}

fn say_tls(status: &mut ClusterStatus, generation: i64, now: Time) {
    let Some(TlsStatus { certificate_status, .. }) = &status.tls else { return };
    let valid = *certificate_status == CertificateStatus::Valid;
    let (reason, words) = if valid {
        ("Valid", "every node has a valid certificate")
    } else {
        ("Invalid", "a certificate is missing or has expired")
    };
    let holds = ConditionStatus::from(valid);
    conditions::set(&mut status.conditions, ConditionType::TlsConfigured, holds, reason, words, generation, now);
}

/// Whether a cluster that was ready has nothing that its clients feel. It becomes ready again only when it is whole.
fn serves_on(picture: &Picture<'_>, before: &ClusterStatus) -> bool {
    let Picture { blemishes, seen, .. } = picture;
    let was_ready = conditions::is_true(&before.conditions, ConditionType::Ready);
    was_ready && !blemishes.iter().any(|blemish| blemish.is_felt(&seen.topology))
}

/// Whether a cluster lacks nothing but what a planned change takes away for a while: nobody need be woken up for that. A pod that
/// does not come up is no part of any plan.
fn is_as_planned(picture: &Picture<'_>, before: &ClusterStatus) -> bool {
    serves_on(picture, before) && picture.plan.state.is_sound() && failure(picture, before).is_none()
}

/// Whether two statuses differ in nothing but how far the same work has got.
pub fn differ_in_progress_only(one: &ClusterStatus, other: &ClusterStatus) -> bool {
    let still = |status: &ClusterStatus| {
        let mut still = status.clone();
        still.operation = still.operation.map(|Operation { name, .. }| Operation { name, ..Operation::default() });
        let progressing = ConditionType::Progressing.as_str();
        for condition in still.conditions.iter_mut().filter(|condition| condition.type_ == progressing) {
            condition.message.clear();
        }
        still
    };
    one != other && still(one) == still(other)
}

/// What is gone for good, in words.
fn losses(picture: &Picture<'_>, before: &ClusterStatus) -> Vec<String> {
    if is_blank_again(before, picture.desired, picture.seen) {
        return vec!["every node came back empty: all data is gone, and a new cluster is formed".into()];
    }
    picture.plan.losses.iter().map(ToString::to_string).collect()
}

/// The planner has no memory, so a cluster that comes back blank as a whole looks like a new one to it; that it was there
/// before is only known from what we said about it.
pub fn is_blank_again(before: &ClusterStatus, desired: Desired, seen: &Seen) -> bool {
    let everyone = seen.topology.reports().count() == desired.size();
    before.formed_at.is_some() && everyone && seen.topology.reports().all(|(_, report)| report.is_blank())
}

/// Shards are given up one after the other, so what is lost is added to what was said since the cluster was whole. What is
/// lost after that is another accident, with a time of its own.
fn say_lost(conditions: &mut Vec<Condition>, mut losses: Vec<String>, generation: i64, now: Time) {
    let kind = ConditionType::DataLost;
    let since = conditions::get(conditions, ConditionType::Ready).map(|ready| ready.last_transition_time.clone());
    let said = conditions::get(conditions, kind).filter(|said| Some(&said.last_transition_time) >= since.as_ref());
    match said.map(|said| said.message.split(SEPARATOR).map(str::to_owned).collect::<Vec<_>>()) {
        Some(mut words) => {
            losses.retain(|loss| !words.contains(loss));
            words.append(&mut losses);
            losses = words;
        }
        None => conditions.retain(|condition| condition.type_ != kind.as_str()),
    }
    let words = losses.join(SEPARATOR);
    conditions::set(conditions, kind, ConditionStatus::True, "CopiesGone", &words, generation, now);
}

const SEPARATOR: &str = "; ";

/// The status of a cluster whose spec is bad: whatever runs is left as it was, and so is what was said about it.
pub fn refused(errors: &SpecErrors, generation: i64, before: &ClusterStatus, now: Timestamp) -> ClusterStatus {
    let mut status = ClusterStatus { phase: before.phase.or(Some(Phase::Pending)), ..before.clone() };
    let words = errors.to_string();
    let mut set = |kind, status_: ConditionStatus, reason: &str, words: &str| {
        conditions::set(&mut status.conditions, kind, status_, reason, words, generation, Time(now));
    };
    set(ConditionType::Accepted, ConditionStatus::False, "InvalidSpec", &words);
    if conditions::get(&before.conditions, ConditionType::Ready).is_none() {
        set(
            ConditionType::Ready,
            ConditionStatus::False,
            "InvalidSpec",
            "nothing is made from a spec that is not accepted",
        );
    }
    status.observed_generation = Some(generation);
    let same = before.last_failure.as_ref().filter(|failure| failure.message == words);
    status.last_failure = Some(LastFailure {
        reason: "InvalidSpec".into(),
        message: words,
        hint: Some("correct the spec; nothing that runs was touched".into()),
        at: same.map_or(Time(now), |same| same.at.clone()),
    });
    status
}

fn count(number: usize) -> Option<i32> {
    i32::try_from(number).ok()
}

fn progress(state: &State) -> Option<&Progress> {
    match state {
        State::Healthy => None,
        State::Working(progress) | State::Waiting(progress) | State::Stuck(progress) => Some(progress),
    }
}

/// Whether clients that come through the Service find a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Open,
    /// The nodes are ready, but Kubernetes has not heard it from all of its probes yet.
    Opening,
}

/// Asked only on the way to Ready: a probe that fails later takes its pod out of the Service, and the cluster works on.
fn reach(picture: &Picture<'_>, before: &ClusterStatus) -> Reach {
    let was_open = conditions::is_true(&before.conditions, ConditionType::Ready);
    let ready = picture.seen.pods.values().filter(|pod| is_ready(pod)).count();
    if was_open || ready >= picture.desired.size() { Reach::Open } else { Reach::Opening }
}

const OPENING: &str = "all nodes are ready; waiting until Kubernetes has heard it and lets clients in";

/// Whether a cluster was ever whole. One that was is never called new again, whatever became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    New,
    Formed,
}

impl Age {
    fn of_work(self, work: Work) -> Work {
        if self == Self::Formed && work == Work::Forming { Work::Healing } else { work }
    }
}

fn reason_of(state: &State, age: Age) -> &'static str {
    match state {
        State::Healthy => "Healthy",
        State::Stuck(_) => "Stuck",
        State::Working(progress) | State::Waiting(progress) => match age.of_work(progress.operation) {
            Work::Forming => "Forming",
            Work::Healing => "Healing",
            Work::Scaling => "Scaling",
            Work::Rolling => "Rolling",
            Work::Switching => "Switching",
            Work::Configuring => "Configuring",
            Work::Growing => "Growing",
            Work::Draining => "Draining",
        },
    }
}

fn doing(plan: &Plan, attention: Attention, age: Age, reach: Reach) -> (Phase, Option<Operation>) {
    let operation = progress(&plan.state).map(|progress| Operation {
        name: format!("{:?}", age.of_work(progress.operation)),
        percent: (progress.of > 0).then(|| count(progress.done.saturating_mul(100) / progress.of)).flatten(),
        message: progress.message.clone(),
        waiting_for: progress.waiting_for.clone(),
        moves: None,
    });
    let operation = operation.or_else(|| {
        let opening = plan.state == State::Healthy && reach == Reach::Opening;
        let name = format!("{:?}", Work::Forming);
        opening.then(|| Operation { name, percent: Some(100), message: OPENING.into(), waiting_for: None, moves: None })
    });
    let phase = match &plan.state {
        _ if attention == Attention::Paused => Phase::Paused,
        State::Healthy if reach == Reach::Opening => Phase::Creating,
        State::Healthy => Phase::Running,
        State::Stuck(_) => Phase::Failed,
        State::Working(progress) | State::Waiting(progress) => match age.of_work(progress.operation) {
            Work::Forming => Phase::Creating,
            Work::Healing => Phase::Degraded,
            Work::Scaling => Phase::Scaling,
            Work::Rolling | Work::Switching | Work::Configuring | Work::Growing | Work::Draining => Phase::Updating,
        },
    };
    (phase, operation.filter(|_| attention == Attention::Managed))
}

/// Adds how far the slots have got. What was told before says when it began and how much it was, so nothing has to be remembered.
fn with_moves(operation: Operation, plan: &Plan, before: &ClusterStatus, now: Timestamp) -> Operation {
    let Some(load) = progress(&plan.state).and_then(|progress| progress.load) else { return operation };
    let told = before.operation.as_ref().and_then(|operation| operation.moves.as_ref());
    let moves = moves(load, told, now);
    let percent = (moves.slots - moves.slots_left).saturating_mul(100).checked_div(moves.slots);
    let pace = match (moves.bytes_per_second, moves.seconds_left) {
        (Some(rate), Some(left)) => format!("; {} kB/s, about {left} s left", rate / 1000),
        _ => String::new(),
    };
    Operation { message: operation.message + &pace, percent, moves: Some(moves), ..operation }
}

fn moves(load: Load, told: Option<&Moves>, now: Timestamp) -> Moves {
    let as_i64 = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let (slots_left, bytes_left) = (i32::from(load.slots), as_i64(load.bytes));
    let started_at = told.map_or(Time(now), |told| told.started_at.clone());
    // More than before: another target joined it.
    let slots = told.map_or(slots_left, |told| told.slots + (slots_left - told.slots_left).max(0));
    let bytes = told.map_or(bytes_left, |told| told.bytes + (bytes_left - told.bytes_left).max(0));
    let seconds = now.duration_since(started_at.0).as_secs();
    let rate = (bytes - bytes_left).checked_div(seconds).filter(|rate| *rate > 0);
    Moves {
        started_at,
        slots,
        slots_left,
        keys_left: as_i64(load.keys),
        bytes,
        bytes_left,
        bytes_per_second: rate,
        seconds_left: rate.map(|rate| bytes_left / rate),
    }
}

fn tls(expires: Option<Timestamp>, now: Timestamp) -> TlsStatus {
    let certificate_status = match expires {
        None => CertificateStatus::Pending,
        Some(expires) if expires <= now => CertificateStatus::Expired,
        Some(_) => CertificateStatus::Valid,
    };
    TlsStatus { certificate_status, expires_at: expires.map(Time) }
}

fn endpoints(names: &ChildNames, namespace: &str, encryption: Encryption) -> Endpoints {
    Endpoints {
        host: names.client_host(namespace),
        port: i32::from(VALKEY_PORT),
        connection_secret: names.connection_secret(),
        ca_secret: (encryption == Encryption::Tls).then(|| names.connection_secret()),
    }
}

/// The first few things that are wrong, with pods by their names.
fn in_words(names: &ChildNames, blemishes: &[Blemish]) -> String {
    const ENOUGH: usize = 3;
    let told: Vec<_> =
        blemishes.iter().take(ENOUGH).map(|blemish| blemish.told_of(names.cluster()).to_string()).collect();
    let more = blemishes.len().saturating_sub(ENOUGH);
    if more > 0 { format!("{}; and {more} more", told.join("; ")) } else { told.join("; ") }
}

/// What keeps a pod from coming up, if Kubernetes says so; gone as soon as it is.
fn failure(picture: &Picture<'_>, before: &ClusterStatus) -> Option<LastFailure> {
    let names = &picture.checked.names;
    let troubled = picture.seen.pods.iter().find_map(|(member, pod)| Some((member, trouble(pod)?)));
    let (reason, message, hint) = match (troubled, &picture.plan.state) {
        (Some((member, trouble)), _) => {
            let pod = names.pod(*member);
            let hint = format!("see `kubectl describe pod {pod}`; correct image, resources or scheduling in the spec");
            ("PodCannotStart", format!("pod {pod} {trouble}"), hint)
        }
        (None, State::Stuck(progress)) => {
            ("Stuck", progress.message.clone(), progress.waiting_for.clone().unwrap_or_default())
        }
        (None, _) => return None,
    };
    let same = before.last_failure.as_ref().filter(|failure| failure.message == message);
    let at = same.map_or(Time(picture.now), |same| same.at.clone());
    Some(LastFailure { reason: reason.into(), message, hint: Some(hint), at })
}

fn node_state(seen: &Seen, member: Member) -> NodeState {
    match seen.topology.sighting(member) {
        Sighting::Missing => NodeState::Missing,
        Sighting::Starting => NodeState::Starting,
        Sighting::Held(_) => NodeState::Held,
        Sighting::Unreachable => NodeState::Unreachable,
        Sighting::Known(report) => {
            let joined = match report.role {
                Role::Primary => !report.slots.is_empty() && report.serving,
                Role::Replica => report.link == ReplicaLink::Up,
            };
            if joined && !report.loading { NodeState::Ready } else { NodeState::Starting }
        }
    }
}

/// Every node of the cluster. What moves by itself (offset, lag, memory, keys) is as of the last change of the rest.
pub fn topology(names: &ChildNames, desired: Desired, seen: &Seen, now: Timestamp) -> Topology {
    let members: BTreeSet<Member> = desired.members().chain(seen.topology.members.keys().copied()).collect();
    let nodes: Vec<Node> = members.into_iter().map(|member| node(names, member, seen)).collect();
    let ready = nodes.iter().filter(|node| node.state == NodeState::Ready).count();
    Topology { summary: format!("{ready}/{}", desired.size()), nodes, observed_at: Some(Time(now)) }
}

/// Whether two topologies say the same, apart from what moves all the time.
pub fn same_topology(one: &Topology, other: &Topology) -> bool {
    let still = |topology: &Topology| {
        let still = |node: &Node| Node { offset: None, lag: None, memory: None, keys: None, ..node.clone() };
        (topology.summary.clone(), topology.nodes.iter().map(still).collect::<Vec<_>>())
    };
    still(one) == still(other)
}

fn node(names: &ChildNames, member: Member, seen: &Seen) -> Node {
    let report = seen.topology.report(member);
    let spot = seen.topology.spots.get(&member);
    let leader = leader_offset(seen, member.shard);
    let number = |value: u64| i64::try_from(value).ok();
    let shown = seen
        .certificates
        .get(&member)
        .and_then(|certificates| certificates.tls.clone().or_else(|| certificates.mtls.clone()));
    Node {
        pod: names.pod(member),
        shard: i32::from(member.shard.0),
        state: node_state(seen, member),
        node: spot.map(|spot| spot.host.clone()),
        zone: spot.map(|spot| spot.zone.clone()).filter(|zone| !zone.is_empty()),
        id: report.map(|report| report.id.to_string()),
        role: report.map(|report| match report.role {
            Role::Primary => NodeRole::Primary,
            Role::Replica => NodeRole::Replica,
        }),
        slots: report.filter(|report| !report.slots.is_empty()).map(|report| report.slots.to_string()),
        primary: report.and_then(|report| report.primary).map(|primary| primary.to_string()),
        offset: report.and_then(|report| number(report.offset)),
        lag: report
            .filter(|report| report.role == Role::Replica)
            .and_then(|report| number(leader?.saturating_sub(report.offset))),
        memory: report.and_then(|report| number(report.memory)),
        keys: report.and_then(|report| number(report.keys)),
        version: report.map(|report| report.version.to_string()),
        certificate_thumbprint: shown.map(|certificate| certificate.thumbprint),
    }
}

fn leader_offset(seen: &Seen, shard: ShardIndex) -> Option<u64> {
    let leads = |(member, report): &(Member, &NodeReport)| {
        member.shard == shard && report.role == Role::Primary && !report.slots.is_empty()
    };
    seen.topology.reports().find(leads).map(|(_, report)| report.offset)
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
