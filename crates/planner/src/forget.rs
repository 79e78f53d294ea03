//! Which nodes are gone for good.

use std::collections::BTreeSet;

use valkey_model::{Action, Member, NodeId, NodeReport, PeerHealth, ShardIndex, SlotSet, Step};

use crate::formation::has_nothing;
use crate::introductions::strangers;
use crate::view::{ClusterView, own_claim, table_claims};
use crate::{Loss, Lost};

/// Strikes ids that no pod has any more and that own nothing.
///
/// Only while nothing is unknown: a pod that is away may come back with its old id. On all nodes in one go, because gossip
/// brings an entry back after a minute from any node that still has it (F05).
pub(crate) fn ghosts(view: &ClusterView) -> Vec<Step> {
    let owners: BTreeSet<NodeId> = view.claims().map(|claim| claim.owner).collect();
    let ghosts = departed(view).into_iter().filter(|id| !owners.contains(id));
    ghosts.flat_map(|id| strike(view, id, "its pod is gone for good")).collect()
}

/// Shards that came back without a single copy of their data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostShards {
    pub shards: Vec<ShardIndex>,
    pub steps: Vec<Step>,
}

impl LostShards {
    pub fn losses(self) -> impl Iterator<Item = Loss> {
        self.shards.into_iter().map(|shard| Loss { shard, what: Lost::AllCopies })
    }
}

/// Strikes the owners of slots that nobody can bring back: all members are here, none of them has the id, nobody is a
/// replica of it, and the members of every shard without a primary are empty. The slots are given away on the next look.
pub(crate) fn lost_shards(view: &ClusterView) -> Option<LostShards> {
    let shards: Vec<_> = view.all_shards().into_iter().filter(|shard| view.leaders(*shard).is_empty()).collect();
    let all_empty = shards.iter().flat_map(|shard| view.shard(*shard)).all(|(_, sighting)| has_nothing(view, sighting));
    if shards.is_empty() || !all_empty || view.held().next().is_some() {
        return None;
    }
    let owners: BTreeSet<NodeId> = view.claims().map(|claim| claim.owner).collect();
    let departed = departed(view);
    let lost = departed.iter().copied().filter(|id| owners.contains(id) && all_agree_about(view, *id, &departed));
    let steps: Vec<_> = lost.flat_map(|id| strike(view, id, "no copy of its slots is left")).collect();
    (!steps.is_empty()).then_some(LostShards { shards, steps })
}

/// Ids that are in some table, but at no pod, followed by nobody and awaited by no slot, while every member of the cluster is
/// known and ready.
fn departed(view: &ClusterView) -> BTreeSet<NodeId> {
    let busy = view.live().any(|(_, report)| report.loading);
    // The company of a stranger is gone from here, but alive elsewhere.
    if busy || !view.everyone_known() || !strangers(view).is_empty() {
        return BTreeSet::new();
    }
    let met = view.live().flat_map(|(_, report)| report.peers.iter());
    let met: BTreeSet<NodeId> = met.filter(|peer| peer.health != PeerHealth::Handshake).map(|peer| peer.id).collect();
    let followed: BTreeSet<NodeId> = view.live().filter_map(|(_, report)| report.primary).collect();
    let awaited: BTreeSet<NodeId> = view.moves().map(|(_, export)| export.to).collect();
    // A replica refuses to strike its own primary, and would bring it back to all others.
    let is_free = |id: &NodeId| view.home_of(*id).is_none() && !followed.contains(id) && !awaited.contains(id);
    met.into_iter().filter(is_free).collect()
}

/// Nobody says that a node's slots belong to somebody else, unless that one is gone as well. If somebody does, news are under way.
fn all_agree_about(view: &ClusterView, id: NodeId, departed: &BTreeSet<NodeId>) -> bool {
    let slots: SlotSet = view.claims().filter(|c| c.owner == id).flat_map(|c| c.slots.ranges()).collect();
    let contradicts = |report: &NodeReport| {
        let mut claims = own_claim(report).into_iter().chain(table_claims(report));
        claims.any(|claim| claim.owner != id && !departed.contains(&claim.owner) && claim.slots.intersects(&slots))
    };
    !view.live().any(|(_, report)| contradicts(report))
}

/// On everybody who knows it, but those whose pod is ending: their table ends with them, and they hardly answer any more.
fn strike(view: &ClusterView, id: NodeId, reason: &'static str) -> Vec<Step> {
    let knowing = view.live().filter(|(member, report)| report.peer(id).is_some() && !view.is_going(*member));
    knowing.map(|(on, _): (Member, _)| Step { action: Action::Forget { on, id }, reason }).collect()
}

#[cfg(test)]
#[path = "forget_tests.rs"]
mod tests;
