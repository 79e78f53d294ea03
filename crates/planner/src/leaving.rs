//! Which members come and which may go.

use std::collections::BTreeMap;
use std::time::Duration;

use valkey_model::{Blemish, Member, NodeId, ShardIndex, Sighting, SlotSet};

use crate::change::Intent;
use crate::handover::{self, step};
use crate::measure::concerns;
use crate::scaling::is_in_sync;
use crate::view::{ClusterView, own_claim};

/// An order to move slots that we believe to have failed may still be under way for so long.
const CALM: Duration = Duration::from_secs(2);

/// How many members each shard's workload should ask for now.
///
/// It grows at once. It shrinks when nobody would miss what goes, and until then stays as it is.
pub(crate) fn workloads(view: &ClusterView, blemishes: &[Blemish]) -> BTreeMap<ShardIndex, u16> {
    let due = view.desired.replicas + 1;
    let wanted = view.shards().map(|shard| {
        let present = view.seen().workloads.get(&shard).copied().unwrap_or(0);
        let stays = present > due && !may_shrink(view, blemishes, shard);
        (shard, if stays { present } else { due })
    });
    let present = view.seen().workloads.iter().map(|(shard, count)| (*shard, *count));
    let leaving = present.filter(|(shard, _)| view.is_leaving(*shard) && !has_no_slots(view, *shard));
    wanted.chain(leaving).collect()
}

/// Whether a wanted shard is whole without its surplus members: one of the others leads, and all of those are in sync.
fn may_shrink(view: &ClusterView, blemishes: &[Blemish], shard: ShardIndex) -> bool {
    if has_no_slots(view, shard) {
        return true;
    }
    let Some((leader, report)) = view.leader(shard).filter(|(leader, _)| view.desired.wants(*leader)) else {
        return false;
    };
    let owns = |id: NodeId| view.claims().any(|claim| claim.owner == id);
    let is_dispensable = |sighting: &Sighting| match sighting {
        Sighting::Missing | Sighting::Starting => true,
        Sighting::Held(_) | Sighting::Unreachable => false,
        Sighting::Known(surplus) => surplus.slots.is_empty() && !owns(surplus.id),
    };
    view.shard(shard).all(|(member, sighting)| match sighting {
        _ if view.is_surplus(member) => is_dispensable(sighting),
        Sighting::Known(other) => member == leader || is_in_sync(other, report),
        _ => false,
    }) && !blemishes.iter().any(|blemish| concerns(blemish, leader))
}

/// Proof that nothing is in a shard: every slot has an owner elsewhere that says so itself, nobody believes otherwise, and nothing
/// is on its way from or to it (F23).
///
/// Whoever does not answer may know better. A pod whose server is not up does not: all slots are served without it.
fn has_no_slots(view: &ClusterView, shard: ShardIndex) -> bool {
    let elsewhere = |id: NodeId| view.home_of(id).is_some_and(|home| home.shard != shard);
    let owners = view.live().filter(|(member, _)| member.shard != shard).filter_map(|(_, report)| own_claim(report));
    let served: SlotSet = owners.flat_map(|claim| claim.slots.ranges()).collect();
    let held = view.shard(shard).any(|(_, sighting)| matches!(sighting, Sighting::Held(_)));
    let moves = |from: Member, to| from.shard == shard || !elsewhere(to);
    let calm = view.seen().emptied_for.get(&shard).is_some_and(|time| *time >= CALM);
    calm && view.anyone_unreachable().is_none()
        && !held
        && served == SlotSet::all()
        && view.claims().all(|claim| elsewhere(claim.owner))
        && !view.moves().any(|(from, export)| moves(from, export.to))
}

/// Lets a member that stays lead where one that goes does.
pub(crate) fn hand_over(view: &ClusterView) -> Intent {
    let led_by_surplus = view.shards().filter(|shard| view.leaders(*shard).iter().any(|(m, _)| view.is_surplus(*m)));
    let intents = led_by_surplus.map(|shard| match handover::choose(view, shard, |_| true) {
        Ok(heir) => Intent::Act(vec![step(heir, "the primary of its shard is not wanted any more")]),
        Err(obstacle) => Intent::Wait(obstacle.waits_for(view)),
    });
    Intent::best_of(intents)
}

#[cfg(test)]
#[path = "leaving_tests.rs"]
mod tests;
