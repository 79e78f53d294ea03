//! What a human is told about the way from here to a healthy cluster, and when to look again.

use std::time::Duration;

use valkey_model::{Blemish, Member, PeerHealth, ReplicaLink, Role, SLOTS, Sighting, SlotSet, partition};

use crate::introductions::{Stranger, strangers};
use crate::takeover::Succession;
use crate::view::ClusterView;
use crate::{Operation, Progress, State};

/// Gossip answers within this time while a cluster forms.
const FORMING: Duration = Duration::from_millis(100);
const HEALING: Duration = Duration::from_millis(500);
/// Votes, loading and copying take seconds.
const PATIENT: Duration = Duration::from_secs(1);
/// A server that does not answer costs a time-out with every look.
const UNANSWERED: Duration = Duration::from_secs(2);
/// Only a human can help, but he need not tell us that he did.
const STUCK: Duration = Duration::from_secs(10);

/// Whether this plan does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    Acting,
    Idle,
}

/// Where a cluster that is not healthy stands, and when to look again.
pub(crate) fn report(
    view: &ClusterView,
    blemishes: &[Blemish],
    successions: &[Succession],
    activity: Activity,
) -> (State, Option<Duration>) {
    let operation = operation(view);
    let gossip = if operation == Operation::Forming { FORMING } else { HEALING };
    let mut progress = measure(view, operation, blemishes);
    if activity == Activity::Acting {
        return (State::Working(progress), Some(gossip));
    }
    let succession = successions.iter().find_map(|succession| match succession {
        Succession::Wait { on } => Some(on.clone()),
        Succession::Act { .. } => None,
    });
    let absent = view.members().find_map(|(member, sighting)| absence(member, sighting));
    if let Some(advice) = advice(view).filter(|_| succession.is_none()) {
        progress.message = advice;
        return (State::Stuck(progress), Some(STUCK));
    }
    let copying = blemishes.iter().any(|b| matches!(b, Blemish::Loading(_) | Blemish::Syncing(_)));
    let headless = blemishes.iter().any(|b| matches!(b, Blemish::Headless(_))) && !view.owned().is_empty();
    let again = match &absent {
        _ if succession.is_some() || copying || headless => Some(PATIENT),
        Some((_, Absence::Silent)) => Some(UNANSWERED),
        Some((_, Absence::Pod)) => None, // the pod's next event wakes us
        None => Some(gossip),
    };
    progress.waiting_for = succession.or(absent.map(|(what, _)| what)).or_else(|| blemishes.first().map(on_its_way));
    (State::Waiting(progress), again)
}

/// A cluster is being formed until its nodes got their final time-out for the first time.
fn operation(view: &ClusterView) -> Operation {
    let settled = view.live().any(|(_, report)| report.node_timeout == view.desired.node_timeout);
    if settled && !view.owned().is_empty() { Operation::Healing } else { Operation::Forming }
}

enum Absence {
    Pod,
    Silent,
}

fn absence(member: Member, sighting: &Sighting) -> Option<(String, Absence)> {
    match sighting {
        Sighting::Missing => Some((format!("pod {member} to be created"), Absence::Pod)),
        Sighting::Starting => Some((format!("pod {member} to start"), Absence::Pod)),
        Sighting::Unreachable => Some((format!("{member} to answer"), Absence::Silent)),
        Sighting::Held(_) | Sighting::Known(_) => None,
    }
}

fn on_its_way(blemish: &Blemish) -> String {
    match blemish {
        Blemish::Loading(member) => format!("{member} to load its data"),
        Blemish::Syncing(member) => format!("{member} to copy its primary's data"),
        Blemish::LinkDown(member) => format!("{member} to reach its primary"),
        _ => "the news to reach every node".to_owned(),
    }
}

fn measure(view: &ClusterView, operation: Operation, blemishes: &[Blemish]) -> Progress {
    let say = |done, of, message| Progress { operation, done, of, message, waiting_for: None };
    let size = view.desired.size();
    if operation == Operation::Healing {
        let ill = view.members().filter(|(member, _)| blemishes.iter().any(|b| concerns(b, *member))).count();
        return say(size - ill, size, format!("{} of {size} nodes are well", size - ill));
    }
    let up = view.live().count();
    if up < size {
        return say(up, size, format!("{up} of {size} nodes are up"));
    }
    let primaries = view.live().filter(|(_, report)| report.role == Role::Primary);
    let assigned = primaries.fold(SlotSet::EMPTY, |all, (_, report)| all.union(&report.slots)).len();
    if assigned < SLOTS {
        return say(assigned.into(), SLOTS.into(), format!("{assigned} of {SLOTS} slots assigned"));
    }
    let joined = view.live().filter(|(member, _)| has_joined(view, *member)).count();
    if joined < size {
        return say(joined, size, format!("{joined} of {size} nodes joined"));
    }
    let replicas = size - usize::from(view.desired.shards);
    let following = view.live().filter(|(_, r)| r.role == Role::Replica && r.link == ReplicaLink::Up).count();
    match view.live().find(|(_, report)| report.role == Role::Replica && report.link != ReplicaLink::Up) {
        Some((member, _)) => say(following, replicas, format!("copying data to {member}")),
        None if following < replicas => {
            say(following, replicas, format!("{following} of {replicas} replicas follow their primary"))
        }
        None => say(size, size, "all nodes joined, the last details follow".to_owned()),
    }
}

fn has_joined(view: &ClusterView, member: Member) -> bool {
    let Some(report) = view.seen().report(member) else { return false };
    let met = |id| report.peer(id).is_some_and(|peer| peer.health != PeerHealth::Handshake);
    view.live().all(|(other, about)| other == member || met(about.id))
}

fn concerns(blemish: &Blemish, member: Member) -> bool {
    match blemish {
        Blemish::Missing(m)
        | Blemish::Starting(m)
        | Blemish::Held(m)
        | Blemish::Unreachable(m)
        | Blemish::Loading(m)
        | Blemish::Astray(m)
        | Blemish::LinkDown(m)
        | Blemish::Syncing(m)
        | Blemish::NotServing(m)
        | Blemish::Unsettled(m)
        | Blemish::Disagrees { about: m, .. } => *m == member,
        Blemish::Headless(shard) | Blemish::TwoPrimaries(shard) => *shard == member.shard,
        // One missing node is news for all others, but only one node is not well.
        Blemish::KnowsOthers { .. } | Blemish::SlotsMissing(_) => false,
    }
}

/// What a human has to do where nothing will change by itself.
fn advice(view: &ClusterView) -> Option<String> {
    if let Some((member, _)) = strangers(view).iter().find(|(_, stranger)| *stranger == Stranger::Surely) {
        return Some(format!(
            "the server of pod {member} belongs to another cluster: it knows other nodes, but none of this one. Find out \
             whose data it has, then delete the pod together with its volume"
        ));
    }
    let keeper = view.ready().find(|(_, r)| r.role == Role::Primary && r.slots.is_empty() && r.keys > 0);
    if let Some((member, report)) = keeper {
        return Some(format!(
            "the server of pod {member} has {} keys, but no slots, so it cannot become a replica without losing them. Save \
             what you need from it, then delete the pod together with its volume",
            report.keys
        ));
    }
    view.shards().find_map(|shard| shard_advice(view, shard))
}

fn shard_advice(view: &ClusterView, shard: valkey_model::ShardIndex) -> Option<String> {
    let leaders = view.leaders(shard);
    let newest = leaders.iter().max_by_key(|(_, report)| report.config_epoch);
    if newest.is_some_and(|(_, n)| leaders.iter().any(|(_, rival)| !rival.slots.intersects(&n.slots))) {
        let names: Vec<_> = leaders.iter().map(|(member, _)| member.to_string()).collect();
        return Some(format!(
            "shard {shard} has slots at more than one primary: {}. Move the slots of all but one to that one",
            names.join(", ")
        ));
    }
    let due = partition(view.desired.shards).into_iter().nth(shard.0.into())?;
    let empty = view.shard(shard).all(|(_, s)| matches!(s, Sighting::Known(report) if report.is_empty_primary()));
    let taken = view.live().fold(SlotSet::EMPTY, |all, (_, report)| all.union(&report.slots));
    (empty && due.minus(&taken).is_empty()).then(|| {
        format!("shard {shard} has no slots, since other shards own all of those that are due to it. Move slots to it")
    })
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
