//! Who leads a shard that nobody ever led, and who gets slots that nobody owns.

use std::collections::BTreeMap;

use valkey_model::{Action, Member, NodeReport, Role, ShardIndex, Sighting, SlotSet, Step, partition};

use crate::introductions::strangers;
use crate::view::ClusterView;

/// Gives every slot without an owner to the shard that it is due to.
///
/// Only while every member of the cluster is accounted for: a pod that is still starting may have the slots in its files,
/// and then they would have two owners (F28). A new cluster loses no time by that, since it needs all of its pods anyway.
pub(crate) fn steps(view: &ClusterView) -> Vec<Step> {
    let free = SlotSet::all().minus(&view.owned());
    if free.is_empty() || !view.everyone_known() || !strangers(view).is_empty() {
        return Vec::new();
    }
    let primaries = primaries(view);
    let parts = view.shards().zip(partition(view.desired.shards));
    let given = parts.filter_map(|(shard, due)| {
        let slots = due.intersection(&free);
        let (member, report) = primaries.get(&shard).filter(|_| !slots.is_empty())?;
        Some(give(*member, report, slots))
    });
    given.flatten().collect()
}

fn give(on: Member, report: &NodeReport, slots: SlotSet) -> Vec<Step> {
    let epoch = u64::from(on.shard.0) + 1;
    let numbered = report
        .is_blank()
        .then_some(Step { action: Action::SetEpoch { on, epoch }, reason: "a new primary needs an epoch of its own" });
    let given = Step { action: Action::AddSlots { on, slots }, reason: "nobody owns these slots" };
    numbered.into_iter().chain([given]).collect()
}

/// The primary of every shard that may be given slots: its leader, or a new one.
///
/// New ones are spread over hosts, then over zones. One that was chosen on an earlier look wins, and a choice depends on
/// the shards before it alone: so a pass that was cut short, or an outdated view of a later shard, changes no choice.
fn primaries<'a>(view: &ClusterView<'a>) -> BTreeMap<ShardIndex, (Member, &'a NodeReport)> {
    let mut chosen: BTreeMap<ShardIndex, (Member, &NodeReport)> = BTreeMap::new();
    for shard in view.shards().filter(|shard| !has_held(view, *shard)) {
        let leader = view.leader(shard).filter(|(_, report)| !report.loading);
        let primary = if is_new(view, shard) { candidate(view, shard, &chosen) } else { leader };
        chosen.extend(primary.map(|primary| (shard, primary)));
    }
    chosen
}

fn candidate<'a>(
    view: &ClusterView<'a>,
    shard: ShardIndex,
    chosen: &BTreeMap<ShardIndex, (Member, &NodeReport)>,
) -> Option<(Member, &'a NodeReport)> {
    let spots = &view.seen().spots;
    let crowding = |member: Member| {
        let spot = spots.get(&member)?;
        let others = || chosen.values().filter_map(|(other, _)| spots.get(other));
        let neighbours = others().filter(|other| other.host == spot.host).count();
        Some((neighbours, others().filter(|other| other.zone == spot.zone).count()))
    };
    let candidates = view.live_in(shard).filter(|(_, report)| report.is_empty_primary() && !report.loading);
    candidates.min_by_key(|(member, report)| (report.config_epoch == 0, crowding(*member), *member))
}

fn has_held(view: &ClusterView, shard: ShardIndex) -> bool {
    view.held().any(|(member, _)| member.shard == shard)
}

/// A shard without a leader, in which nobody has data or follows somebody whose data may come back.
fn is_new(view: &ClusterView, shard: ShardIndex) -> bool {
    let has_nothing = |sighting: &Sighting| match sighting {
        Sighting::Known(report) if report.role == Role::Primary => report.is_empty_primary(),
        // A copy of another shard, which got here by mistake.
        Sighting::Known(report) => report.primary.is_some_and(|id| view.report_of(id).is_some()),
        _ => false,
    };
    view.leaders(shard).is_empty() && view.shard(shard).all(|(_, sighting)| has_nothing(sighting))
}

#[cfg(test)]
#[path = "formation_tests.rs"]
mod tests;
