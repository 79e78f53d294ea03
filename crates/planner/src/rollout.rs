//! Which pod is made anew next.
//!
//! One pod of the cluster at a time, and only when the one before is in sync again: a shard never has fewer copies of its data
//! than it needs to survive a fault, and a template that does not work stops at its first pod (F31, F33, F34).

use std::collections::BTreeSet;

use valkey_model::{Blemish, Member, Role, ShardIndex, Sighting, Step};

use crate::Replacement;
use crate::handover;
use crate::measure::{concerns, is_illness};
use crate::settle::is_news;
use crate::view::ClusterView;

/// What the roll would do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roll {
    /// Every pod is up to date.
    Done,
    Replace(Replacement),
    HandOver(Step),
    /// It goes on in a moment, when all nodes have heard the latest news. Nothing else may begin until then.
    Soon,
    /// It goes on when this has come; nobody need wait for it.
    Wait(String),
    /// It goes on when no slots are on their way from or to this shard any more. No new ones shall begin there: others take turns in
    /// giving to a shard, which would never be free until all have arrived.
    WaitForMoves(ShardIndex, String),
    /// It goes on when somebody allows it.
    Held(String),
}

impl Roll {
    /// The shard in which no moves of slots shall begin.
    pub fn reserved(&self) -> Option<ShardIndex> {
        match self {
            Self::WaitForMoves(shard, _) => Some(*shard),
            Self::Done | Self::Replace(_) | Self::HandOver(_) | Self::Soon | Self::Wait(_) | Self::Held(_) => None,
        }
    }
}

/// Pods that are outdated and run nothing: they may well wait for ever for what the new template has put right. Replaced at
/// once, whatever else is wrong.
///
/// Those of a shard that is leaving, too: as long as it has slots it has to be whole. One in which a server once ran may come up
/// again by itself, and may have the last copy of its shard's data in a volume that goes with it. So of those only one goes at
/// a time, while somebody leads its shard and all others are well.
pub(crate) fn stuck(view: &ClusterView, blemishes: &[Blemish]) -> Vec<Replacement> {
    if view.seen().hold.is_some() {
        return Vec::new();
    }
    let stuck = view.members().filter(|(member, sighting)| {
        view.is_outdated(*member)
            && !view.is_surplus(*member)
            && !view.is_going(*member)
            && matches!(sighting, Sighting::Starting)
    });
    let stuck: Vec<Member> = stuck.map(|(member, _)| member).collect();
    let (unused, used): (Vec<Member>, Vec<Member>) =
        stuck.iter().partition(|member| view.seen().unused.contains(member));
    let is_here = |member| !view.is_going(member) && !view.is_evictable(member);
    let is_well = |member| is_here(member) && !blemishes.iter().any(|b| is_illness(b) && concerns(b, member));
    let is_free = |member| stuck.contains(&member) && !view.is_evictable(member);
    let others_well = view.members().all(|(member, _)| is_free(member) || is_well(member));
    let dispensable = used.into_iter().find(|member| others_well && view.leader(member.shard).is_some());
    let replaced = unused.into_iter().chain(dispensable);
    replaced.map(|member| Replacement { member, reason: "it is outdated and does not come up" }).collect()
}

pub(crate) fn next(view: &ClusterView, blemishes: &[Blemish], let_go: &BTreeSet<Member>) -> Roll {
    let outdated: BTreeSet<Member> =
        view.wanted().map(|(member, _)| member).filter(|member| view.is_outdated(*member)).collect();
    if outdated.is_empty() {
        return Roll::Done;
    }
    if let Some(why) = &view.seen().hold {
        return Roll::Held(why.clone());
    }
    if let Some((going, _)) = view.members().find(|(member, _)| view.is_going(*member)) {
        return Roll::Wait(format!("pod {} to end", view.pod(going)));
    }
    let mut open = view.members().map(|(member, _)| member);
    if let Some(open) = open.find(|member| view.is_evictable(*member) || let_go.contains(member)) {
        return Roll::Wait(format!("pod {}, which may be evicted, to be gone", view.pod(open)));
    }
    let unready = || view.wanted().map(|(member, _)| member).filter(|member| view.seen().unready.contains(member));
    let replaceable = |ill: Member| outdated.contains(&ill) && can_be_spared(view, ill) && unready().all(|m| m == ill);
    if let Some(ill) = only_ill(view, blemishes).filter(|ill| replaceable(*ill)) {
        return Roll::Replace(Replacement { member: ill, reason: "it is outdated and not well" });
    }
    if let Some(blemish) = blemishes.iter().find(|blemish| !is_news(view, blemish)) {
        return Roll::Wait(crate::progress::on_its_way(view, blemish));
    }
    if !blemishes.is_empty() {
        return Roll::Soon;
    }
    if let Some(awaited) = unready().find(|member| !outdated.contains(member)) {
        return Roll::Wait(format!("pod {} to be ready", view.pod(awaited)));
    }
    // Clients lose nothing with those that Kubernetes sends nobody to, and the new template may be what they need.
    let unready: BTreeSet<Member> = unready().collect();
    let fresh: BTreeSet<Member> = unready.intersection(&view.seen().fresh).copied().collect();
    let due = [fresh, unready].into_iter().find(|those| !those.is_empty()).unwrap_or(outdated);
    let mut shards: Vec<ShardIndex> = view.shards().filter(|s| due.iter().any(|m| m.shard == *s)).collect();
    shards.sort_by_key(|shard| (!is_begun(view, *shard), *shard));
    let mut decided = shards.into_iter().map(|shard| of_shard(view, shard, &due)).peekable();
    let first = decided.peek().cloned();
    let possible = decided.find(|roll| !matches!(roll, Roll::Wait(_) | Roll::WaitForMoves(..)));
    possible.or(first).unwrap_or(Roll::Done)
}

/// Replicas first, then their primary, which hands its shard over to one of them before.
fn of_shard(view: &ClusterView, shard: ShardIndex, due: &BTreeSet<Member>) -> Roll {
    if view.is_moving(shard) {
        return Roll::WaitForMoves(shard, handover::Obstacle::Moving(shard).waits_for(view));
    }
    let members = || view.live_in(shard).filter(|(member, _)| due.contains(member));
    if let Some((member, _)) = members().find(|(_, report)| report.role == Role::Replica) {
        return Roll::Replace(Replacement { member, reason: "a replica that is outdated" });
    }
    let Some((member, _)) = members().next() else { return Roll::Done };
    if view.desired.replicas == 0 {
        return Roll::Replace(Replacement { member, reason: "a primary without replicas that is outdated" });
    }
    let may_lead = |heir| !view.is_outdated(heir) && !due.contains(&heir) && !view.shall_resign(heir);
    match handover::choose(view, shard, may_lead) {
        Ok(heir) => Roll::HandOver(handover::step(heir, "the pod of its primary is outdated")),
        Err(obstacle) => Roll::Wait(obstacle.waits_for(view)),
    }
}

/// Some pods of the shard are up to date already.
fn is_begun(view: &ClusterView, shard: ShardIndex) -> bool {
    let mut wanted = view.wanted().filter(|(member, _)| member.shard == shard);
    wanted.any(|(member, _)| !view.is_outdated(member))
}

/// The one member that everything that is wrong is about.
fn only_ill(view: &ClusterView, blemishes: &[Blemish]) -> Option<Member> {
    let is_about = |blemish: &Blemish, member| match blemish {
        Blemish::Disagrees { by, .. } | Blemish::KnowsOthers { by, .. } if *by == member => true,
        Blemish::Headless(_) | Blemish::TwoPrimaries(_) => false,
        blemish => concerns(blemish, member),
    };
    let all_about = |member| blemishes.iter().all(|blemish| is_about(blemish, member));
    // What it has not heard yet is no illness.
    let is_ill = |member| blemishes.iter().any(|blemish| is_illness(blemish) && concerns(blemish, member));
    let mut wanted = view.wanted().map(|(member, _)| member);
    wanted.find(|member| is_ill(*member) && all_about(*member))
}

/// Somebody else leads its shard, so no copy of the data that is better than what is left goes with it.
fn can_be_spared(view: &ClusterView, member: Member) -> bool {
    !view.is_moving(member.shard)
        && view.leader(member.shard).is_some_and(|(leader, report)| leader != member && !report.loading)
        && !matches!(view.seen().sighting(member), Sighting::Unreachable | Sighting::Held(_) | Sighting::Missing)
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
