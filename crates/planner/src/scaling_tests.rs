use valkey_model::{Failure, LocalData, SlotSet};

use super::*;
use crate::fixtures::{Damage, Fixture, id, member, stranger};
use crate::formation::heads;

fn begun(cluster: &Fixture) -> Intent {
    let view = cluster.view();
    begin(&view, &heads(&view), &BTreeSet::new())
}

/// The moves of a plan: from whom, to whom, which slots.
fn moved(intent: &Intent) -> Vec<(String, valkey_model::NodeId, String)> {
    let steps = intent.steps().unwrap_or_else(|| panic!("{intent:?}"));
    let of = |step: &Step| match &step.action {
        Action::Migrate { on, slots, to, .. } => (on.to_string(), *to, slots.to_string()),
        other => panic!("{other}"),
    };
    steps.iter().map(of).collect()
}

fn waits_for(intent: &Intent) -> &str {
    match intent {
        Intent::Wait(on) => on,
        other => panic!("{other:?}"),
    }
}

/// Two shards with all slots, and two that are new and ready to take theirs.
fn with_new_shards() -> Fixture {
    Fixture::with_slots(&["0-8191", "8192-16383", "", ""], 1)
}

#[test]
fn a_balanced_cluster_moves_nothing() {
    assert_eq!(begun(&Fixture::formed(3, 1)), Intent::Nothing);
}

#[test]
fn new_shards_get_their_share_all_at_once() {
    let moves = moved(&begun(&with_new_shards()));
    let expected = [
        ("0-0", "2-0", "0-2047"),
        ("0-0", "2-0", "2048-4095"),
        ("1-0", "3-0", "8192-10239"),
        ("1-0", "3-0", "10240-12287"),
    ];
    assert_eq!(moves, expected.map(|(from, to, slots)| (from.to_owned(), id(to), slots.to_owned())));
}

/// Who gives to whom by a plan, each pair once.
fn pairs(intent: &Intent) -> Vec<(String, valkey_model::NodeId)> {
    let mut pairs: Vec<_> = moved(intent).into_iter().map(|(from, to, _)| (from, to)).collect();
    pairs.dedup();
    pairs
}

#[test]
fn a_new_shard_takes_from_a_few_at_once() {
    let mut cluster = Fixture::with_slots(&["0-4095", "4096-8191", "8192-12287", "12288-16383", ""], 1);
    let all = ["0-0", "1-0", "2-0"].map(|from| (from.to_owned(), id("4-0")));
    assert_eq!(pairs(&begun(&cluster)), all);
    cluster.moving("0-0", "0-818", "4-0").moving("2-0", "8192-9010", "4-0");
    assert_eq!(
        pairs(&begun(&cluster)),
        [("1-0".to_owned(), id("4-0"))],
        "one more, instead of the one that is not begun"
    );
    cluster.moving("3-0", "12288-13106", "4-0");
    assert_eq!(waits_for(&begun(&cluster)), "the slots that are moving");
}

#[test]
fn key_by_key_a_shard_takes_from_one_only() {
    let mut cluster = Fixture::with_slots(&["0-8191", "8192-16383", ""], 1);
    assert_eq!(pairs(&begun(&cluster)).len(), 2);
    cluster.report("2-0").version = Version::new(8, 1, 9);
    assert_eq!(pairs(&begun(&cluster)).len(), 1);
}

#[test]
fn who_gives_takes_nothing() {
    let mut cluster = Fixture::with_slots(&["0-6000", "6001-16383", ""], 1);
    cluster.moving("2-0", "", "0-0");
    assert_eq!(waits_for(&begun(&cluster)), "the slots that are moving");
}

#[test]
fn a_job_has_no_more_keys_than_a_pause_can_bear() {
    let mut cluster = with_new_shards();
    for (keys, slots) in [(8192 * 40, "0-999"), (u64::MAX / KEYS_PER_JOB, "0"), (0, "0-2047")] {
        cluster.report("0-0").keys = keys;
        let moves = moved(&begun(&cluster));
        assert_eq!(moves[0].2, slots);
        assert!(moves.iter().filter(|(from, ..)| from == "0-0").count() <= JOBS);
    }
}

#[test]
fn slots_are_chosen_by_what_is_in_them() {
    let mut cluster = with_new_shards();
    // All of shard 0's data is in its last quarter; shard 1 has as much, but spread evenly.
    for leader in ["0-0", "1-0"] {
        cluster.report(leader).keys = 20_480;
        cluster.report(leader).memory = 2_048_000_000;
    }
    cluster.seen.weights.insert(member("0-0"), (6144..8192).map(|slot| (slot, 10)).collect());
    let moves = moved(&begun(&cluster));
    let from_0: Vec<_> = moves.iter().filter(|(from, ..)| from == "0-0").map(|(_, _, slots)| slots.as_str()).collect();
    assert_eq!(from_0, ["3072-5119", "5120-7167"], "half of the slots, with half of the keys");
    let from_1: Vec<_> = moves.iter().filter(|(from, ..)| from == "1-0").map(|(_, _, slots)| slots.as_str()).collect();
    assert_eq!(from_1, ["8192-10239", "10240-12287"]);
    cluster.report("0-0").memory = 2_048_000;
    cluster.report("1-0").memory = 2_048_000;
    assert_eq!(moved(&begun(&cluster))[0].2, "0-2047", "too little to cut the slots into pieces for it");
}

#[test]
fn a_job_ends_before_the_slot_that_would_be_too_much() {
    let mut cluster = with_new_shards();
    cluster.report("0-0").keys = 100_000;
    cluster.report("0-0").memory = 1;
    let keys = [(0, 30_000), (1, 20_000), (2, 50_000)];
    cluster.seen.weights.insert(member("0-0"), keys.into_iter().collect());
    let jobs: Vec<_> = moved(&begun(&cluster)).into_iter().filter(|(from, ..)| from == "0-0").collect();
    let jobs: Vec<_> = jobs.iter().map(|(_, _, slots)| slots.as_str()).collect();
    assert_eq!(jobs, ["0", "1", "2", "3-2050", "2051-4095"]);
}

#[test]
fn a_failure_makes_the_next_try_smaller_and_later() {
    for (failures, waits, slots) in [(1, 1, "0-1023"), (2, 2, "0-511"), (4, 8, "0-127"), (30, 60, "0")] {
        let mut cluster = with_new_shards();
        let mut fail = |ago| {
            let exports = &mut cluster.report("0-0").exports;
            exports.failures = failures;
            exports.last_failure = Some(Failure { message: "no luck".into(), ago });
            begun(&cluster)
        };
        let early = fail(Duration::from_secs(waits).saturating_sub(Duration::from_millis(1)));
        assert!(moved(&early).iter().all(|(from, ..)| from != "0-0"), "{early:?}");
        assert_eq!(moved(&fail(Duration::from_secs(waits)))[0].2, slots);
    }
}

#[test]
fn slots_are_moved_by_the_servers_themselves_if_both_can() {
    let mut cluster = with_new_shards();
    let way = |cluster: &Fixture| match &begun(cluster) {
        Intent::Act(steps) => steps
            .iter()
            .map(|step| match &step.action {
                Action::Migrate { way, .. } => *way,
                other => panic!("{other}"),
            })
            .min(),
        other => panic!("{other:?}"),
    };
    assert_eq!(way(&cluster), Some(Way::Atomic));
    for shard in ["0", "1", "2", "3"] {
        cluster.report(&format!("{shard}-0")).version = Version::new(8, 1, 9);
    }
    assert_eq!(way(&cluster), Some(Way::Classic));
}

#[test]
fn a_source_whose_own_moves_keep_failing_is_helped_key_by_key() {
    for (failures, expected) in [(BY_HAND - 1, Way::Atomic), (BY_HAND, Way::Classic)] {
        let mut cluster = with_new_shards();
        let failure = Failure { message: "invalid CRLF".into(), ago: LONGEST_PAUSE };
        cluster.report("0-0").exports.failures = failures;
        cluster.report("0-0").exports.last_failure = Some(failure);
        let intent = begun(&cluster);
        let ways = intent.steps().unwrap().iter().filter_map(|step| match &step.action {
            Action::Migrate { on, way, .. } if *on == member("0-0") => Some(*way),
            _ => None,
        });
        assert!(ways.clone().count() > 0 && ways.clone().all(|way| way == expected), "{failures}: {intent:?}");
    }
}

/// Whatever is wrong with somebody of a shard: nothing is moved from or to it, and the others are not kept from it.
#[test]
fn slots_move_only_between_shards_that_are_whole() {
    let damages: [Damage; 9] = [
        ("a replica is not there", &|c| {
            c.see("2-1", Sighting::Missing);
        }),
        ("a replica starts", &|c| {
            c.see("2-1", Sighting::Starting);
        }),
        ("a replica does not answer", &|c| {
            c.see("2-1", Sighting::Unreachable);
        }),
        ("a replica is held", &|c| {
            c.hold("2-1", LocalData::Old);
        }),
        ("a replica copies", &|c| c.report("2-1").link = ReplicaLink::Syncing),
        ("a replica has lost its primary", &|c| c.report("2-1").link = ReplicaLink::Down),
        ("a replica loads", &|c| c.report("2-1").loading = true),
        ("a pod is about to go", &|c| {
            c.seen.going.insert(member("2-1"));
        }),
        ("somebody doubts the primary", &|c| c.peer("1-1", id("2-0")).health = PeerHealth::Suspected),
    ];
    for (what, damage) in damages {
        let mut cluster = with_new_shards();
        damage(&mut cluster);
        let moves = moved(&begun(&cluster));
        assert!(!moves.is_empty() && moves.iter().all(|(_, to, _)| *to != id("2-0")), "{what}: {moves:?}");
    }
}

#[test]
fn nobody_is_disturbed_whose_slots_are_moving() {
    let mut cluster = with_new_shards();
    cluster.moving("0-0", "0-2047", "2-0");
    let moves = moved(&begun(&cluster));
    assert!(moves.iter().all(|(from, to, _)| from == "1-0" && *to == id("3-0")), "{moves:?}");
    cluster.moving("1-0", "8192", "3-0");
    assert_eq!(waits_for(&begun(&cluster)), "the slots that are moving");
}

#[test]
fn what_is_under_way_counts_as_arrived() {
    let mut cluster = Fixture::with_slots(&["0-9999", "10000-16383"], 1);
    assert_eq!(moved(&begun(&cluster)).len(), 1);
    cluster.moving("0-0", "0-1807", "1-0");
    assert_eq!(waits_for(&begun(&cluster)), "the slots that are moving");
}

#[test]
fn a_shard_that_is_to_get_another_primary_begins_no_moves() {
    let cluster = with_new_shards();
    let view = cluster.view();
    let intent = begin(&view, &heads(&view), &BTreeSet::from([ShardIndex(2)]));
    assert!(moved(&intent).iter().all(|(_, to, _)| *to == id("3-0")), "{intent:?}");
}

#[test]
fn nothing_moves_while_it_is_not_known_who_owns_what() {
    let mut cluster = with_new_shards();
    cluster.report("2-0").slots = "0-99".parse().unwrap();
    cluster.report("2-0").config_epoch = 50;
    assert_eq!(waits_for(&begun(&cluster)), "all nodes to agree on who owns which slots");
}

#[test]
fn slots_of_a_shard_that_leaves_go_to_all_others() {
    let mut cluster = Fixture::formed(3, 1);
    let moves = moved(&begun(cluster.want(2, 1)));
    assert!(moves.iter().all(|(from, to, _)| from == "2-0" && *to == id("0-0")), "{moves:?}");
    assert_eq!(left_to_do(&cluster.view(), &heads(&cluster.view())).misplaced(), 5462);
}

#[test]
fn open_slots_go_on_to_where_they_were_going() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.open("0-0", "7", id("1-0"));
    let view = cluster.view();
    let action = Action::Migrate { on: member("0-0"), slots: "7".parse().unwrap(), to: id("1-0"), way: Way::Classic };
    assert_eq!(finish(&view, &heads(&view)), Intent::Act(vec![Step { action, reason: "a move was interrupted" }]));
}

/// A new shard got some keys of its first slot, and then was not wanted any more, or still is.
#[test]
fn open_slots_go_on_to_a_shard_that_has_no_others() {
    for shards in [2, 3] {
        let mut cluster = Fixture::with_slots(&["0-8191", "8192-16383", ""], 1);
        cluster.open("0-0", "7", id("2-0")).want(shards, 1).report("2-0").keys = 1;
        let view = cluster.view();
        assert_eq!(moved(&finish(&view, &heads(&view))), [("0-0".to_owned(), id("2-0"), "7".to_owned())], "{shards}");
    }
}

#[test]
fn open_slots_wait_until_both_sides_are_well() {
    for (damage, on) in [("0-1", "orders-0-1 to come up"), ("1-1", "orders-1-1 to come up")] {
        let mut cluster = Fixture::formed(3, 1);
        cluster.open("0-0", "7", id("1-0")).see(damage, Sighting::Starting);
        let view = cluster.view();
        assert_eq!(waits_for(&finish(&view, &heads(&view))), on);
    }
}

/// Else the two would wait for each other: the shard cannot be handed over while slots are open.
#[test]
fn open_slots_go_on_even_if_their_owner_is_not_wanted_any_more() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.lead("0-1").open("0-1", "7", id("1-0")).want(3, 0);
    let view = cluster.view();
    assert_eq!(moved(&finish(&view, &heads(&view))).len(), 1);
    assert!(matches!(crate::leaving::hand_over(&view), Intent::Wait(_)));
}

#[test]
fn open_slots_of_a_replica_are_its_primarys_matter() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.open("0-1", "7", id("1-0"));
    let view = cluster.view();
    assert_eq!(finish(&view, &heads(&view)), Intent::Nothing);
    assert!(!view.is_moving(ShardIndex(0)));
}

#[test]
fn open_slots_whose_target_is_gone_need_a_human() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.open("0-0", "7", stranger(1));
    let view = cluster.view();
    assert!(matches!(finish(&view, &heads(&view)), Intent::Refuse(why) if why.contains("SETSLOT")));
}

#[test]
fn the_pause_after_a_failure_ends_at_a_minute() {
    let cluster = Fixture::formed(3, 1);
    let view = cluster.view();
    let mut report = crate::fixtures::blank_report("0-0");
    report.slots = SlotSet::all();
    report.exports.failures = u32::MAX;
    report.exports.last_failure = Some(Failure { message: String::new(), ago: Duration::from_secs(59) });
    assert!(pause(&view, member("0-0"), &report).is_some());
    report.exports.last_failure = Some(Failure { message: String::new(), ago: Duration::from_mins(1) });
    assert_eq!(pause(&view, member("0-0"), &report), None);
}
