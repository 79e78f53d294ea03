//! What becomes of a shard whose primary does not run: who leads it next, and which held server may start.

use std::cmp::Reverse;
use std::time::Duration;

use valkey_model::{
    Action, Held, LocalData, Member, NodeId, NodeReport, PeerHealth, ReplicaLink, Role, ShardIndex, Sighting, SlotSet,
    Step,
};

use crate::view::ClusterView;
use crate::{Loss, Lost};

/// How long the servers may take to elect a primary before we appoint one. An election takes about a second (F15).
const VOTE: Duration = Duration::from_secs(15);
/// How long we wait for a pod that may have more data than what is here.
const RETURN: Duration = Duration::from_mins(1);

/// When a primary ends, all of its replicas notice within this time.
const TOGETHER: Duration = Duration::from_secs(10);

/// What is decided about one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Succession {
    Act { step: Step, loss: Option<Loss> },
    Wait { on: String },
}

impl Succession {
    pub fn step(&self) -> Option<Step> {
        match self {
            Self::Act { step, .. } => Some(step.clone()),
            Self::Wait { .. } => None,
        }
    }

    pub fn loss(&self) -> Option<Loss> {
        match self {
            Self::Act { loss, .. } => *loss,
            Self::Wait { .. } => None,
        }
    }
}

pub(crate) fn successions(view: &ClusterView) -> Vec<Succession> {
    view.all_shards().into_iter().flat_map(|shard| of_shard(view, shard)).collect()
}

fn of_shard(view: &ClusterView, shard: ShardIndex) -> Vec<Succession> {
    if let Some((_, leader)) = view.leader(shard) {
        return releases(view, shard, leader);
    }
    if view.leaders(shard).is_empty() { heal(view, shard).into_iter().collect() } else { Vec::new() }
}

/// A held server whose shard has a new primary is no danger any more: it will find its slots taken, and follow.
fn releases(view: &ClusterView, shard: ShardIndex, leader: &NodeReport) -> Vec<Succession> {
    let held = held_in(view, shard).filter(|(_, held)| held.slots.is_empty() || held.slots.intersects(&leader.slots));
    held.map(|(on, _)| act(Action::Release { on }, "its shard has a new primary")).collect()
}

/// Finds the best copy of the data of a shard without a primary, and lets it lead.
fn heal(view: &ClusterView, shard: ShardIndex) -> Option<Succession> {
    let heir = best_heir(view, shard);
    let held = held_in(view, shard).max_by_key(|(member, held)| (held.data, Reverse(*member)));
    if heir.is_none() && held.is_none() {
        return None; // nobody here has ever been anything, or nothing is proven
    }
    if let (Some((on, _)), None, true) = (heir, held, owned_nothing(view, shard)) {
        // A new shard, or one that has given its slots away: there is nothing to lose, and if it is leaving, nothing to do.
        let reason = "the primary of its shard does not run";
        return (!view.is_leaving(shard)).then(|| act(Action::TakeOver { on }, reason));
    }
    if is_succeeded(view, shard) {
        return Some(wait(format!("the news that shard {shard} has a new primary")));
    }
    if let Some((on, Held { data: LocalData::Complete, .. })) = held {
        return Some(act(Action::Release { on }, "it has every write on disk"));
    }
    if let Some((on, heir)) = heir.filter(|(_, heir)| has_data(heir)) {
        return Some(promote(view, shard, on, heir));
    }
    if let Some(absent) = absent(view, shard) {
        return Some(wait(format!("{}, which may have the data of shard {shard}", view.pod(absent))));
    }
    if let Some((on, Held { data: LocalData::Unreadable, .. })) = held {
        // Not lost: whoever wrote it can read it. So nobody leads without it, and nobody is told that it is gone.
        return Some(wait(format!(
            "the newer version: {} cannot read the data that it wrote, and shard {shard} has no other copy; set \
             spec.valkeyImage.tag to it again",
            view.pod(on)
        )));
    }
    Some(match (held, heir) {
        (Some((on, Held { data: LocalData::Old, .. })), _) => {
            lose(Action::Release { on }, "nobody has newer data", Loss { shard, what: Lost::AllButSnapshot })
        }
        (_, Some((on, _))) => lose(Action::TakeOver { on }, NO_COPY, Loss { shard, what: Lost::AllCopies }),
        (Some((on, _)), None) => lose(Action::Release { on }, NO_COPY, Loss { shard, what: Lost::AllCopies }),
        (None, None) => return None,
    })
}

const NO_COPY: &str = "no copy of its shard's data is left";

/// The replicas that may lead: they follow a primary that is proven not to run, and their copy is whole.
fn heirs<'a>(view: &ClusterView<'a>, shard: ShardIndex) -> impl Iterator<Item = (Member, &'a NodeReport)> {
    let replicas = view.live_in(shard).filter(|(_, report)| report.role == Role::Replica);
    let whole = replicas.filter(|(_, report)| !report.loading && report.link != ReplicaLink::Syncing);
    whole.filter(move |(_, report)| report.primary.is_some_and(|id| view.is_proven_gone(id, shard)))
}

/// The one whose copy is best: of those who were in sync last the one with the most of it.
fn best_heir<'a>(view: &ClusterView<'a>, shard: ShardIndex) -> Option<(Member, &'a NodeReport)> {
    let unsynced = |member: &Member| view.seen().unsynced_for.get(member).copied().unwrap_or_default();
    let last = heirs(view, shard).map(|(member, _)| unsynced(&member)).min()?;
    let fresh = heirs(view, shard).filter(|(member, _)| unsynced(member) <= last + TOGETHER);
    fresh.max_by_key(|(member, heir)| (heir.offset, heir.keys, Reverse(*member)))
}

/// Whether the primaries that the heirs follow own no slot in anybody's view.
fn owned_nothing(view: &ClusterView, shard: ShardIndex) -> bool {
    let followed: Vec<NodeId> = heirs(view, shard).filter_map(|(_, heir)| heir.primary).collect();
    !view.claims().any(|claim| followed.contains(&claim.owner))
}

/// Whether somebody knows of a newer primary of this shard, which we do not see.
fn is_succeeded(view: &ClusterView, shard: ShardIndex) -> bool {
    let followed = heirs(view, shard).filter_map(|(_, heir)| heir.primary);
    let gone: Vec<NodeId> = followed.chain(held_in(view, shard).map(|(_, held)| held.id)).collect();
    let of_the_gone = || view.claims().filter(|claim| gone.contains(&claim.owner));
    let slots: SlotSet = of_the_gone().flat_map(|claim| claim.slots.ranges()).collect();
    let epoch = of_the_gone().map(|claim| claim.epoch).max().unwrap_or_default();
    view.claims()
        .any(|claim| claim.epoch > epoch && claim.slots.intersects(&slots) && !view.is_proven_gone(claim.owner, shard))
}

fn promote(view: &ClusterView, shard: ShardIndex, on: Member, heir: &NodeReport) -> Succession {
    let patience = view.seen().headless_for.get(&shard).copied().unwrap_or_default();
    // A move that finds the former primary again before it has heard of its heir would give it a newer epoch than the heir's, and
    // all of its slots with it (F20).
    if patience < VOTE && heir.primary.is_some_and(|id| view.is_awaited(id)) {
        return wait(format!("the moves of slots to the former primary of shard {shard} to fail"));
    }
    if patience < VOTE && is_marked_failed(view, heir) && can_vote(view, heir) {
        return wait(format!("the vote for the next primary of shard {shard}"));
    }
    act(Action::TakeOver { on }, "the primary of its shard does not run, and it has the best copy of the data")
}

/// The servers agree that the primary is gone: from here on they elect another one by themselves.
fn is_marked_failed(view: &ClusterView, heir: &NodeReport) -> bool {
    let failed = |report: &NodeReport| {
        let peer = heir.primary.and_then(|id| report.peer(id));
        peer.is_some_and(|peer| peer.health == PeerHealth::Failed)
    };
    view.live().any(|(_, report)| failed(report))
}

/// Whether more than half of the primaries that own slots, as the heir knows them, are there to elect it. With one or two
/// shards they never are.
fn can_vote(view: &ClusterView, heir: &NodeReport) -> bool {
    let voters: Vec<_> = heir.peers.iter().filter(|p| p.role == Role::Primary && !p.slots.is_empty()).collect();
    let is_fit = |id| view.report_of(id).is_some_and(|report| report.role == Role::Primary && !report.loading);
    let fit = voters.iter().filter(|peer| peer.health == PeerHealth::Fine && is_fit(peer.id)).count();
    2 * fit > voters.len()
}

/// Somebody of the shard who is not here, but may come with data. Patience ends only for pods that do not come at all: one
/// that does not answer may be running, and one that loads will be done.
fn absent(view: &ClusterView, shard: ShardIndex) -> Option<Member> {
    let patience = view.seen().headless_for.get(&shard).copied().unwrap_or_default();
    let may_come = |sighting: &Sighting| match sighting {
        Sighting::Missing | Sighting::Starting => patience < RETURN,
        Sighting::Unreachable => true,
        Sighting::Held(_) => false,
        Sighting::Known(report) => {
            report.loading || (report.role == Role::Replica && report.link == ReplicaLink::Syncing)
        }
    };
    view.shard(shard).find(|(_, sighting)| may_come(sighting)).map(|(member, _)| member)
}

/// A replica that was ever in sync has an offset, even if its shard has no keys.
fn has_data(report: &NodeReport) -> bool {
    report.offset > 0 || report.keys > 0
}

fn held_in<'a>(view: &ClusterView<'a>, shard: ShardIndex) -> impl Iterator<Item = (Member, &'a Held)> {
    view.held().filter(move |(member, _)| member.shard == shard)
}

fn act(action: Action, reason: &'static str) -> Succession {
    Succession::Act { step: Step { action, reason }, loss: None }
}

fn lose(action: Action, reason: &'static str, loss: Loss) -> Succession {
    Succession::Act { step: Step { action, reason }, loss: Some(loss) }
}

fn wait(on: String) -> Succession {
    Succession::Wait { on }
}

#[cfg(test)]
#[path = "takeover_tests.rs"]
mod tests;
