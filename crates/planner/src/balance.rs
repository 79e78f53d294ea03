//! How many slots each shard is due, and which ones change hands.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use valkey_model::{SLOTS, ShardIndex, SlotKeys, SlotRange, SlotSet};

/// Who has slots.
pub(crate) type Ownership = BTreeMap<ShardIndex, SlotSet>;

/// How far a cluster is from the even spread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Imbalance {
    /// Shards with too many slots, and how many those are; the shards that are leaving have too many as long as they have any.
    pub surplus: BTreeMap<ShardIndex, u16>,
    pub deficit: BTreeMap<ShardIndex, u16>,
}

impl Imbalance {
    /// How many slots have to move. No plan can do with fewer.
    pub fn misplaced(&self) -> u16 {
        self.surplus.values().sum()
    }
}

/// What has to move for every wanted shard to have an even share, and the others nothing.
///
/// Where the slots cannot be spread evenly, those who have most already keep one more: nothing moves that need not.
pub(crate) fn imbalance(owned: &Ownership, shards: u16) -> Imbalance {
    let count = |shard: ShardIndex| owned.get(&shard).map_or(0, SlotSet::len);
    let mut wanted: Vec<ShardIndex> = (0..shards).map(ShardIndex).collect();
    wanted.sort_by_key(|shard| (Reverse(count(*shard)), *shard));
    let (share, rest) = (SLOTS / shards.max(1), usize::from(SLOTS % shards.max(1)));
    let quota: BTreeMap<ShardIndex, u16> =
        wanted.into_iter().enumerate().map(|(rank, shard)| (shard, share + u16::from(rank < rest))).collect();
    let mut found = Imbalance::default();
    for shard in owned.keys().chain(quota.keys()) {
        let (has, due) = (count(*shard), quota.get(shard).copied().unwrap_or(0));
        if has > due {
            found.surplus.insert(*shard, has - due);
        } else if has < due {
            found.deficit.insert(*shard, due - has);
        }
    }
    found
}

/// Slots that go from one shard to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub from: ShardIndex,
    pub to: ShardIndex,
    pub count: u16,
}

/// Who gives how much to whom next: every giver to one other, and to the one that takes from the fewest so far. The largest needs
/// come first, and who leaves before all others. What is left is the next look's matter.
///
/// `can_give` tells who can give anything now, `room` from how many more a shard can take.
pub(crate) fn transfers(
    imbalance: &Imbalance,
    shards: u16,
    can_give: impl Fn(ShardIndex) -> bool,
    room: impl Fn(ShardIndex) -> usize,
) -> Vec<Transfer> {
    let mut givers: Vec<_> = imbalance.surplus.iter().filter(|(shard, _)| can_give(**shard)).collect();
    givers.sort_by_key(|(shard, has)| (shard.0 < shards, Reverse(**has), **shard));
    let taker = |(shard, needs): (&ShardIndex, &u16)| Taker { shard: *shard, needs: *needs, room: room(*shard) };
    let mut takers: Vec<Taker> = imbalance.deficit.iter().map(taker).collect();
    let mut transfers = Vec::new();
    for (from, has) in givers {
        let able = takers.iter_mut().filter(|taker| taker.room > 0 && taker.needs > 0);
        let Some(taker) = able.max_by_key(|taker| (taker.room, taker.needs, Reverse(taker.shard))) else { break };
        let count = u16::min(*has, taker.needs);
        taker.needs -= count;
        taker.room -= 1;
        transfers.push(Transfer { from: *from, to: taker.shard, count });
    }
    transfers
}

struct Taker {
    shard: ShardIndex,
    needs: u16,
    room: usize,
}

/// Which slots a shard gives away: small pieces first, so that the long runs stay whole.
pub(crate) fn choose(owned: &SlotSet, count: u16) -> SlotSet {
    let alone = |run: SlotRange| std::iter::once(run).collect::<SlotSet>();
    let mut runs: Vec<SlotSet> = owned.ranges().map(alone).collect();
    runs.sort_by_key(SlotSet::len);
    let mut chosen = SlotSet::EMPTY;
    for run in runs {
        chosen = chosen.union(&run.first(count - chosen.len()));
    }
    chosen
}

/// The same, where it is known what is in the slots: those that make the shard part with about so many keys.
///
/// Mostly that is true of the handy ones, more or less. If not, the run of slots is taken that comes nearest.
pub(crate) fn choose_by_keys(owned: &SlotSet, count: u16, keys: &SlotKeys, due: u64, tolerance: u64) -> SlotSet {
    let miss = |slots: &SlotSet| keys.within(slots).abs_diff(due);
    let handy = choose(owned, count);
    if miss(&handy) <= tolerance {
        return handy;
    }
    let slots: Vec<u16> = owned.ranges().flat_map(|range| range.first()..=range.last()).collect();
    let run = nearest_run(&slots, usize::from(count), keys, due);
    let run: SlotSet = run.iter().filter_map(|slot| SlotRange::new(*slot, *slot).ok()).collect();
    if miss(&run) < miss(&handy) { run } else { handy }
}

/// Of all runs of so many slots, one after the other in the list, the one with about so many keys.
fn nearest_run<'a>(slots: &'a [u16], count: usize, keys: &SlotKeys, due: u64) -> &'a [u16] {
    let mut sum: u64 = slots.iter().take(count).map(|slot| keys.of(*slot)).sum();
    let (mut best, mut least) = (0, sum.abs_diff(due));
    for (start, (leaves, enters)) in slots.iter().zip(slots.iter().skip(count)).enumerate() {
        sum = sum - keys.of(*leaves) + keys.of(*enters);
        if sum.abs_diff(due) < least {
            (best, least) = (start + 1, sum.abs_diff(due));
        }
    }
    slots.get(best..best + count).unwrap_or(slots)
}

#[cfg(test)]
#[path = "balance_tests.rs"]
mod tests;
