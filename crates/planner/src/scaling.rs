//! Which slots move next.
//!
//! A shard gives slots to one other at a time, a few bounded jobs in a go, and takes them from a few others at once. Nothing of it
//! is remembered: who has which slots, and what is under way, is read from the servers on every look, so another target, a crash of
//! ours or a failed job is just another starting point (F22, F25).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use valkey_model::{
    Action, Export, Member, NodeReport, PeerHealth, ReplicaLink, Role, SLOTS, ShardIndex, Sighting, SlotKeys, SlotSet,
    Step, Version, Way,
};

use crate::balance::{self, Imbalance, Ownership, Transfer, imbalance};
use crate::change::Intent;
use crate::formation::Heads;
use crate::memory;
use crate::view::ClusterView;

/// A source takes no writes at the end of a job, for as long as it takes to delete what has moved (engine.md 2.3).
const KEYS_PER_JOB: u64 = 40_000;
const SLOTS_PER_JOB: u16 = 2048;
/// In bytes.
const NEGLIGIBLE: u64 = 16 << 20;
/// So many that the source has no idle time until the next look, and so few that another target is heeded soon.
const JOBS: usize = 6;
/// From so many a shard takes slots at once: it waits for a single one part of the time (256 MB to a new shard, by hand: 4 s one after the
/// other, 3 s all three at once). One thread takes what all of them send, and serves clients, too.
const SOURCES: usize = 3;
/// Key by key, a second source doubles what the target writes to its table, and its clients wait for that.
const CLASSIC_SOURCES: usize = 1;
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// So many failures in a row do not come by chance: some releases cannot move slots by themselves while they are written to (F21). Key
/// by key is slower and always works.
const BY_HAND: u32 = 5;
/// If that does not help either, somebody should look at it.
pub(crate) const ALARMING: u32 = 8;
const ATOMIC_SINCE: Version = Version::new(9, 0, 0);

/// How slots are spread now. Shards that nobody leads at this moment have none in it.
pub(crate) fn spread(view: &ClusterView, heads: &Heads) -> Ownership {
    let owned = |shard: ShardIndex| heads.get(&shard).map(|(_, head)| head.slots.clone()).unwrap_or_default();
    view.all_shards().into_iter().map(|shard| (shard, owned(shard))).collect()
}

/// How far the cluster is from its even spread, in truth.
pub(crate) fn left_to_do(view: &ClusterView, heads: &Heads) -> Imbalance {
    imbalance(&spread(view, heads), view.desired.shards)
}

/// Slots that a classic move has opened and nobody is at: some of their keys are on the other side already. They go on to where
/// they were going, whatever is wanted by now.
pub(crate) fn finish(view: &ClusterView, heads: &Heads) -> Intent {
    let mut taken = BTreeSet::new();
    let mut intents = Vec::new();
    for (from, export) in view.open() {
        let Some(report) = view.seen().report(from).filter(|report| report.exports.running.is_empty()) else {
            continue;
        };
        let intent = finish_one(view, heads, from, report, export);
        // One at a time per source.
        if intent.steps().is_none() || taken.insert(from) {
            intents.push(intent);
        }
    }
    let steps: Vec<Step> = intents.iter().filter_map(Intent::steps).flatten().cloned().collect();
    if steps.is_empty() { Intent::best_of(intents) } else { Intent::Act(steps) }
}

fn finish_one(view: &ClusterView, heads: &Heads, from: Member, report: &NodeReport, export: &Export) -> Intent {
    let Export { slots, to } = export;
    let target = view.home_of(*to);
    let pod = view.pod(from);
    if target.is_none() && view.everyone_known() {
        return Intent::Refuse(format!(
            "slots {slots} of {pod} are on their way to {to}, which is gone for good: the keys that had arrived there are \
             lost. Say CLUSTER SETSLOT <slot> STABLE on {pod} for each of them"
        ));
    }
    let called = || target.map_or_else(|| to.to_string(), |target| view.pod(target));
    let ready = target.filter(|target| heads.get(&target.shard).is_some_and(|(head, _)| head == target));
    let obstacle = ready.map_or_else(
        || Some(format!("{} to lead its shard", called())),
        |target| {
            let shards = [from.shard, target.shard];
            shards.into_iter().find_map(|shard| unfit(view, heads, shard)).or_else(|| pause(view, from, report))
        },
    );
    match obstacle {
        Some(obstacle) => Intent::Wait(obstacle),
        None => Intent::Act(vec![Step {
            action: Action::Migrate { on: from, slots: slots.clone(), to: *to, way: Way::Classic },
            reason: "a move was interrupted",
        }]),
    }
}

/// New moves, for an even spread over the wanted shards and away from those that are leaving.
pub(crate) fn begin(view: &ClusterView, heads: &Heads, reserved: &BTreeSet<ShardIndex>) -> Intent {
    let present = left_to_do(view, heads);
    if present.misplaced() == 0 {
        return Intent::Nothing;
    }
    let spread = projected(view, heads);
    if spread.values().map(|slots| u32::from(slots.len())).sum::<u32>() != u32::from(SLOTS) {
        return Intent::Wait("all nodes to agree on who owns which slots".into());
    }
    if let Some(refusal) = memory::refusal(view, heads, &present) {
        return Intent::Refuse(refusal);
    }
    let imbalance = imbalance(&spread, view.desired.shards);
    let wish = |shard: ShardIndex| reserved.contains(&shard).then(|| format!("the change of shard {shard}'s primary"));
    let resting = |shard| given_pause(view, heads, &imbalance, shard);
    let heir = |shard| heads.get(&shard).filter(|(head, _)| view.is_surplus(*head)).map(|_| led_by_surplus(shard));
    let unfit = |shard| unfit(view, heads, shard).or_else(|| heir(shard));
    let obstacle = |shard| unfit(shard).or_else(|| wish(shard)).or_else(|| resting(shard));
    let can_give = |shard| !view.is_moving(shard) && obstacle(shard).is_none();
    let room = |shard| if obstacle(shard).is_none() { room(view, heads, shard) } else { 0 };
    let transfers = balance::transfers(&imbalance, view.desired.shards, can_give, room);
    let steps: Vec<Step> = transfers.into_iter().flat_map(|transfer| jobs(view, heads, &present, transfer)).collect();
    if !steps.is_empty() {
        return Intent::Act(steps);
    }
    let concerned = imbalance.surplus.keys().chain(imbalance.deficit.keys());
    let in_the_way = concerned.copied().find_map(obstacle);
    Intent::Wait(in_the_way.unwrap_or_else(|| "the slots that are moving".into()))
}

/// From how many more a shard can take slots now.
fn room(view: &ClusterView, heads: &Heads, shard: ShardIndex) -> usize {
    if view.gives_slots(shard) {
        return 0;
    }
    let atomic = heads.values().all(|(_, head)| head.version >= ATOMIC_SINCE);
    let most = if atomic { SOURCES } else { CLASSIC_SOURCES };
    most.saturating_sub(view.sources(shard).len())
}

/// The spread as it will be when everything that is under way is over.
fn projected(view: &ClusterView, heads: &Heads) -> Ownership {
    let mut spread = spread(view, heads);
    for (from, Export { slots, to }) in view.moves() {
        let Some(to) = view.home_of(*to) else { continue };
        let moving = spread.get(&from.shard).map(|owned| owned.intersection(slots)).unwrap_or_default();
        spread.entry(from.shard).and_modify(|owned| *owned = owned.minus(&moving));
        spread.entry(to.shard).and_modify(|owned| *owned = owned.union(&moving));
    }
    spread
}

/// Why slots can neither be taken from nor given to a shard at this moment: somebody of it is not well, so that a fault would
/// lose what has just moved, or a failover in the middle of it would split their ownership (F20).
fn unfit(view: &ClusterView, heads: &Heads, shard: ShardIndex) -> Option<String> {
    let Some((head, leader)) = heads.get(&shard) else { return Some(format!("shard {shard} to have a primary")) };
    let doubted = view.live().any(|(_, report)| report.peer(leader.id).is_some_and(|p| p.health != PeerHealth::Fine));
    if !leader.serving || doubted {
        return Some(format!("all nodes to reach {}", view.pod(*head)));
    }
    let needed = view.shard(shard).filter(|(member, _)| !view.is_surplus(*member));
    needed.into_iter().find_map(|(member, sighting)| match sighting {
        _ if view.is_going(member) => Some(format!("pod {} to be made anew", view.pod(member))),
        Sighting::Known(_) if member == *head => None,
        Sighting::Known(report) if is_in_sync(report, leader) => None,
        Sighting::Known(_) => Some(format!("{} to be in sync with its primary", view.pod(member))),
        _ => Some(format!("{} to come up", view.pod(member))),
    })
}

/// What has been opened already goes on all the same: the shard cannot be handed over before.
fn led_by_surplus(shard: ShardIndex) -> String {
    format!("shard {shard} to be led by a member that stays")
}

pub(crate) fn is_in_sync(replica: &NodeReport, leader: &NodeReport) -> bool {
    let NodeReport { role, primary, link, loading, .. } = replica;
    *role == Role::Replica && *primary == Some(leader.id) && *link == ReplicaLink::Up && !loading
}

fn given_pause(view: &ClusterView, heads: &Heads, imbalance: &Imbalance, shard: ShardIndex) -> Option<String> {
    let (member, report) = heads.get(&shard).filter(|_| imbalance.surplus.contains_key(&shard))?;
    pause(view, *member, report)
}

/// After a failure a source gets a rest, twice as long after each further one.
fn pause(view: &ClusterView, member: Member, report: &NodeReport) -> Option<String> {
    let failures = report.exports.failures;
    let doublings = failures.checked_sub(1)?.min(6);
    let rest = Duration::from_secs(1 << doublings).min(LONGEST_PAUSE);
    let failure = report.exports.last_failure.as_ref()?;
    let left = rest.checked_sub(failure.ago).filter(|left| !left.is_zero())?.as_secs() + 1;
    Some(format!("the next try of moving slots away from {}, in {left} s", view.pod(member)))
}

fn jobs(view: &ClusterView, heads: &Heads, imbalance: &Imbalance, transfer: Transfer) -> Vec<Step> {
    let Transfer { from, to, count } = transfer;
    let (Some((on, source)), Some((_, target))) = (heads.get(&from), heads.get(&to)) else { return Vec::new() };
    let known = source.peer(target.id).is_some_and(|p| p.address == Some(target.address) && p.role == Role::Primary);
    if !known {
        return Vec::new();
    }
    let atomic = source.version.min(target.version) >= ATOMIC_SINCE && source.exports.failures < BY_HAND;
    let way = if atomic { Way::Atomic } else { Way::Classic };
    let reason = if view.is_leaving(from) { "its shard is leaving" } else { "another shard has too few slots" };
    let weights = view.seen().weights.get(on).filter(|weights| !weights.is_empty());
    let mut left = match weights {
        Some(keys) => {
            let due = keys_due(view, heads, imbalance, transfer, source);
            balance::choose_by_keys(&source.slots, count, keys, due, negligible(source))
        }
        None => balance::choose(&source.slots, count),
    };
    let mut steps = Vec::new();
    while !left.is_empty() && steps.len() < JOBS {
        let slots = weights.map_or_else(|| left.first(job_size(source)), |keys| weighed_job(source, &left, keys));
        left = left.minus(&slots);
        steps.push(Step { action: Action::Migrate { on: *on, slots, to: target.id, way }, reason });
    }
    steps
}

/// How many keys should go with a transfer, for the data to be spread as evenly as the slots.
///
/// Bytes are what counts, but servers tell them for all slots together only: within a shard every key counts the same.
fn keys_due(view: &ClusterView, heads: &Heads, imbalance: &Imbalance, transfer: Transfer, source: &NodeReport) -> u64 {
    let Transfer { from, to, count } = transfer;
    let bytes = |shard: ShardIndex| heads.get(&shard).map_or(0, |(_, head)| u128::from(head.memory));
    let fair = heads.keys().map(|shard| bytes(*shard)).sum::<u128>() / u128::from(view.desired.shards.max(1));
    let of = |amounts: &BTreeMap<ShardIndex, u16>, shard| u128::from(amounts.get(&shard).copied().unwrap_or(1).max(1));
    let (too_many, slots) = if view.is_leaving(from) {
        (fair.saturating_sub(bytes(to)), of(&imbalance.deficit, to))
    } else {
        (bytes(from).saturating_sub(fair), of(&imbalance.surplus, from))
    };
    let due = too_many * u128::from(count) * u128::from(source.keys) / slots / bytes(from).max(1);
    u64::try_from(due).unwrap_or(u64::MAX)
}

/// So many keys more or less are no reason to cut a shard's slots into pieces.
fn negligible(source: &NodeReport) -> u64 {
    let keys = u128::from(source.keys) * u128::from(NEGLIGIBLE) / u128::from(source.memory.max(1));
    u64::try_from(keys).unwrap_or(u64::MAX).max(source.keys / 50)
}

/// How many slots fit into a job, if keys are spread evenly. Each failure halves it: a smaller job has less time to fail (F21).
fn job_size(source: &NodeReport) -> u16 {
    let slots = u64::from(source.slots.len());
    let fitting = (KEYS_PER_JOB * slots).checked_div(source.keys).unwrap_or(u64::MAX);
    let fitting = u16::try_from(fitting).unwrap_or(u16::MAX).min(SLOTS_PER_JOB);
    fitting.checked_shr(source.exports.failures).unwrap_or(0).max(1)
}

/// The first slots that fit into a job by what is in them; one that is too large goes alone.
fn weighed_job(source: &NodeReport, left: &SlotSet, keys: &SlotKeys) -> SlotSet {
    let halved = |limit: u64| limit.checked_shr(source.exports.failures).unwrap_or(0);
    let (room, most) = (halved(KEYS_PER_JOB), halved(SLOTS_PER_JOB.into()).max(1));
    let slots = left.ranges().flat_map(|range| range.first()..=range.last());
    let mut sum = 0_u64;
    let fitting = slots.zip(1_u64..).take_while(|(slot, number)| {
        sum = sum.saturating_add(keys.of(*slot));
        *number == 1 || (sum <= room && *number <= most)
    });
    left.first(u16::try_from(fitting.count()).unwrap_or(SLOTS_PER_JOB))
}

#[cfg(test)]
#[path = "scaling_tests.rs"]
mod tests;
