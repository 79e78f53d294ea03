use proptest::collection::vec;
use proptest::prelude::*;
use valkey_model::partition;

use super::*;

/// Each shard in turn gets so many slots; what is left goes to the last.
fn spread(cuts: &[u16]) -> Ownership {
    let mut cuts: Vec<u16> = cuts.iter().map(|cut| cut % SLOTS).chain([0, SLOTS]).collect();
    cuts.sort_unstable();
    let run = |pair: &[u16]| SlotRange::new(pair[0], pair[1].saturating_sub(1)).into_iter().collect::<SlotSet>();
    let runs = cuts.windows(2).map(|pair| if pair[0] < pair[1] { run(pair) } else { SlotSet::EMPTY });
    (0..).map(ShardIndex).zip(runs).collect()
}

/// Moves everything that has to move, in as many goes as it takes.
fn settle(owned: &mut Ownership, shards: u16) -> u32 {
    let mut moved = 0;
    for _ in 0..200 {
        let left = imbalance(owned, shards);
        for Transfer { from, to, count } in transfers(&left, shards, |_| true, |_| 2) {
            let chosen = choose(&owned[&from], count);
            assert_eq!(chosen.len(), count);
            assert!(chosen.minus(&owned[&from]).is_empty());
            owned.entry(from).and_modify(|slots| *slots = slots.minus(&chosen));
            let taken = owned.entry(to).or_default();
            *taken = taken.union(&chosen);
            moved += u32::from(count);
        }
    }
    moved
}

proptest! {
    #[test]
    fn every_spread_becomes_even_with_as_few_moves_as_can_be(cuts in vec(any::<u16>(), 0..12), shards in 1..=14_u16) {
        let mut owned = spread(&cuts);
        let fewest: u32 = owned.iter().map(|(shard, slots)| {
            let due = SLOTS / shards + u16::from(!SLOTS.is_multiple_of(shards));
            u32::from(if shard.0 < shards { slots.len().saturating_sub(due) } else { slots.len() })
        }).sum();
        let misplaced = u32::from(imbalance(&owned, shards).misplaced());
        let moved = settle(&mut owned, shards);
        prop_assert_eq!(moved, misplaced);
        prop_assert!(moved >= fewest && moved <= fewest + u32::from(shards));
        let counts: Vec<u16> = (0..shards).map(|shard| owned.get(&ShardIndex(shard)).map_or(0, SlotSet::len)).collect();
        prop_assert_eq!(counts.iter().map(|count| u32::from(*count)).sum::<u32>(), u32::from(SLOTS));
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{:?}", counts);
    }
}

#[test]
fn a_new_cluster_is_in_balance() {
    for shards in 1..=40 {
        let owned: Ownership = (0..).map(ShardIndex).zip(partition(shards)).collect();
        assert_eq!(imbalance(&owned, shards), Imbalance::default());
    }
}

#[test]
fn one_more_shard_takes_its_share_and_no_slot_more() {
    for shards in 1..=20 {
        let mut owned: Ownership = (0..).map(ShardIndex).zip(partition(shards)).collect();
        assert_eq!(settle(&mut owned, shards + 1), u32::from(SLOTS / (shards + 1)));
    }
}

#[test]
fn small_pieces_go_first_and_long_runs_stay() {
    let owned: SlotSet = "0-4999,6000,7000-7009".parse().unwrap();
    assert_eq!(choose(&owned, 1).to_string(), "6000");
    assert_eq!(choose(&owned, 12).to_string(), "0,6000,7000-7009");
}

#[test]
fn a_shard_parts_with_the_run_of_slots_that_has_the_wanted_number_of_keys() {
    let owned: SlotSet = "0-99".parse().unwrap();
    let keys = |slot: u16| if slot < 50 { 0 } else { 10 };
    let keys: SlotKeys = (0..100).map(|slot| (slot, keys(slot))).collect();
    let chosen = |count, due| choose_by_keys(&owned, count, &keys, due, 10).to_string();
    assert_eq!(chosen(20, 0), "0-19");
    assert_eq!(chosen(20, 10), "0-19", "a little is no reason to cut");
    assert_eq!(chosen(20, 100), "40-59");
    assert_eq!(chosen(20, 1_000_000), "50-69", "as much as can be");
    assert_eq!(chosen(100, 0), "0-99");
    let even: SlotKeys = (0..100).map(|slot| (slot, 10)).collect();
    assert_eq!(choose_by_keys(&"0-49,60,70-99".parse().unwrap(), 1, &even, 10, 10).to_string(), "60");
}

fn transfer(from: u16, to: u16, count: u16) -> Transfer {
    Transfer { from: ShardIndex(from), to: ShardIndex(to), count }
}

#[test]
fn who_leaves_gives_before_all_others() {
    let owned = [(0, "0-9999"), (1, ""), (2, "10000-16383")].map(|(s, set)| (ShardIndex(s), set.parse().unwrap()));
    let left = imbalance(&owned.into(), 2);
    assert_eq!(transfers(&left, 2, |_| true, |_| 1), [transfer(2, 1, 6384)]);
    assert_eq!(transfers(&left, 2, |_| true, |_| 9), [transfer(2, 1, 6384), transfer(0, 1, 1808)]);
    assert_eq!(transfers(&left, 2, |_| true, |_| 0), []);
    assert_eq!(transfers(&left, 2, |shard| shard != ShardIndex(2), |_| 9), [transfer(0, 1, 1808)]);
}

#[test]
fn those_who_need_slots_share_those_who_give() {
    let owned: Ownership = (0..).map(ShardIndex).zip(partition(4)).collect();
    let left = imbalance(&owned, 6);
    let expected = [transfer(0, 4, 1365), transfer(1, 5, 1365), transfer(2, 4, 1365), transfer(3, 5, 1365)];
    assert_eq!(transfers(&left, 6, |_| true, |_| 3), expected);
    let busy = |shard| if shard == ShardIndex(4) { 1 } else { 3 };
    let expected = [transfer(0, 5, 1365), transfer(1, 5, 1365), transfer(2, 4, 1365)];
    assert_eq!(
        transfers(&left, 6, |_| true, busy),
        expected,
        "the one that takes from fewer gets more, and no more than it needs"
    );
}
