//! Who leads a shard that nobody ever led, and who gets slots that nobody owns.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use valkey_model::{Action, Member, NodeReport, Role, ShardIndex, Sighting, SlotSet, Step, partition};

use crate::introductions::strangers;
use crate::newcomers;
use crate::view::ClusterView;

/// Gives every slot without an owner to the shard that it is due to.
///
/// Only while every member of the cluster is accounted for: a pod that is still starting may have the slots in its files,
/// and then they would have two owners (F28). A new cluster loses no time by that, since it needs all of its pods anyway. One
/// that is held has its table in its files: it may know an owner whose claim is as good as the new one, for ever.
pub(crate) fn steps(view: &ClusterView, heads: &Heads) -> Vec<Step> {
    let free = SlotSet::all().minus(&view.owned());
    let held = view.held().next().is_some();
    if free.is_empty() || held || !view.everyone_known() || !strangers(view).is_empty() {
        return Vec::new();
    }
    let parts = view.shards().zip(partition(view.desired.shards));
    let given = parts.filter_map(|(shard, due)| {
        let slots = due.intersection(&free);
        let (on, _) = *heads.get(&shard).filter(|_| !slots.is_empty())?;
        Some(Step { action: Action::AddSlots { on, slots }, reason: "nobody owns these slots" })
    });
    given.collect()
}

/// Who leads each shard that slots may be given to or taken from.
pub(crate) type Heads<'a> = BTreeMap<ShardIndex, (Member, &'a NodeReport)>;

/// The leader of every shard, and of every wanted one that has no slots yet the member that shall lead it.
///
/// New ones are spread over hosts, then over zones. One that was chosen on an earlier look wins, so that a pass that was cut
/// short is carried on.
pub(crate) fn heads<'a>(view: &ClusterView<'a>) -> Heads<'a> {
    let mut chosen = Heads::new();
    for shard in view.all_shards().into_iter().filter(|shard| !has_held(view, *shard)) {
        let leader = || view.leader(shard).or_else(|| importer(view, shard)).filter(|(_, report)| !report.loading);
        let head = if is_new(view, shard) { candidate(view, shard, &chosen) } else { leader() };
        chosen.extend(head.map(|head| (shard, head)));
    }
    chosen
}

fn candidate<'a>(view: &ClusterView<'a>, shard: ShardIndex, chosen: &Heads) -> Option<(Member, &'a NodeReport)> {
    let spots = &view.seen().spots;
    let crowding = |member: Member| {
        let spot = spots.get(&member)?;
        let others = || chosen.values().filter_map(|(other, _)| spots.get(other));
        let neighbours = others().filter(|other| other.host == spot.host).count();
        // Three shards on the hosts ab, bc and ca: if the first takes a, then the second must leave c to the third.
        let awaiting = spots.iter().filter(|(other, at)| other.shard > shard && at.host == spot.host).count();
        Some((neighbours, awaiting, others().filter(|other| other.zone == spot.zone).count()))
    };
    let followers = |id| view.live_in(shard).filter(|(_, report)| report.primary == Some(id)).count();
    let candidates = view.live_in(shard).filter(|(member, _)| view.desired.wants(*member));
    let candidates = candidates.filter(|(_, report)| report.is_empty_primary() && !report.loading);
    candidates.min_by_key(|(member, report)| {
        let settled = (Reverse(followers(report.id)), newcomers::rank(report.config_epoch));
        (settled, view.shall_resign(*member), crowding(*member), *member)
    })
}

/// A primary without slots that has keys of open ones: nobody else can get the rest of them, even if its shard is leaving.
fn importer<'a>(view: &ClusterView<'a>, shard: ShardIndex) -> Option<(Member, &'a NodeReport)> {
    let mut primaries = view.live_in(shard).filter(|(_, report)| report.role == Role::Primary);
    primaries.find(|(_, report)| view.leaders(shard).is_empty() && view.is_awaited(report.id))
}

fn has_held(view: &ClusterView, shard: ShardIndex) -> bool {
    view.held().any(|(member, _)| member.shard == shard)
}

/// A wanted shard without a leader, in which nobody has anything.
fn is_new(view: &ClusterView, shard: ShardIndex) -> bool {
    let nothing = || view.shard(shard).all(|(_, sighting)| has_nothing(view, sighting));
    !view.is_leaving(shard) && view.leaders(shard).is_empty() && nothing()
}

/// Somebody who has no data, and follows nobody whose data may come back.
pub(crate) fn has_nothing(view: &ClusterView, sighting: &Sighting) -> bool {
    match sighting {
        Sighting::Known(report) if report.role == Role::Primary => report.is_empty_primary(),
        // A copy of another shard, which got here by mistake, or of a new primary that has nothing itself.
        Sighting::Known(report) => report.primary.is_some_and(|id| view.report_of(id).is_some()),
        _ => false,
    }
}

#[cfg(test)]
#[path = "formation_tests.rs"]
mod tests;
