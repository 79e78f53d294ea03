use valkey_model::{LocalData, ReplicaLink, Wish};

use super::*;
use crate::change::Intent;
use crate::fixtures::{Damage, Fixture, id, member};

fn rolled(cluster: &Fixture) -> Roll {
    next(&cluster.view(), &valkey_model::blemishes(cluster.desired, &cluster.seen), &BTreeSet::new())
}

fn replaced(roll: &Roll) -> Option<Member> {
    match roll {
        Roll::Replace(replacement) => Some(replacement.member),
        _ => None,
    }
}

fn handed_to(roll: &Roll) -> Option<Member> {
    match roll {
        Roll::HandOver(step) => Some(step.action.on()),
        _ => None,
    }
}

fn unstuck(cluster: &Fixture) -> Vec<Member> {
    let blemishes = valkey_model::blemishes(cluster.desired, &cluster.seen);
    stuck(&cluster.view(), &blemishes).iter().map(|replacement| replacement.member).collect()
}

fn all_of(cluster: &Fixture) -> Vec<String> {
    cluster.desired.members().map(|member| member.to_string()).collect()
}

fn outdated(shards: u16, replicas: u16) -> Fixture {
    let mut cluster = Fixture::formed(shards, replicas);
    let all = all_of(&cluster);
    cluster.outdate(&all.iter().map(String::as_str).collect::<Vec<_>>());
    cluster
}

#[test]
fn replicas_go_first_then_their_primary_hands_over_and_goes_as_a_replica() {
    let mut cluster = outdated(2, 2);
    for expected in ["0-1", "0-2"] {
        assert_eq!(replaced(&rolled(&cluster)), Some(member(expected)));
        cluster.seen.outdated.remove(&member(expected));
    }
    assert_eq!(handed_to(&rolled(&cluster)), Some(member("0-1")));
    cluster.lead("0-1");
    assert_eq!(replaced(&rolled(&cluster)), Some(member("0-0")));
    cluster.seen.outdated.remove(&member("0-0"));
    assert_eq!(replaced(&rolled(&cluster)), Some(member("1-1")));
    cluster.seen.outdated.clear();
    assert_eq!(rolled(&cluster), Roll::Done);
}

#[test]
fn a_shard_that_is_begun_comes_first() {
    let mut cluster = outdated(3, 1);
    cluster.seen.outdated.remove(&member("2-1"));
    assert_eq!(handed_to(&rolled(&cluster)), Some(member("2-1")));
}

#[test]
fn a_primary_without_replicas_goes_itself() {
    assert_eq!(replaced(&rolled(&outdated(2, 0))), Some(member("0-0")));
}

#[test]
fn nothing_is_taken_down_while_anything_is_wrong() {
    let damages: [Damage; 8] = [
        ("a pod is about to go", &|c| {
            c.seen.going.insert(member("1-1"));
        }),
        ("a pod is not there", &|c| {
            c.see("1-1", Sighting::Missing);
        }),
        ("a pod that is up to date starts", &|c| {
            c.see("1-1", Sighting::Starting).seen.outdated.remove(&member("1-1"));
        }),
        ("somebody does not answer", &|c| {
            c.see("1-1", Sighting::Unreachable);
        }),
        ("somebody is held", &|c| {
            c.hold("1-0", LocalData::Gone);
        }),
        ("one that is up to date copies", &|c| {
            c.report("1-1").link = ReplicaLink::Syncing;
            c.seen.outdated.remove(&member("1-1"));
        }),
        ("a primary does not serve", &|c| c.report("1-0").serving = false),
        ("two are not well", &|c| {
            c.report("0-1").link = ReplicaLink::Down;
            c.report("1-1").link = ReplicaLink::Down;
        }),
    ];
    for (what, damage) in damages {
        let mut cluster = outdated(2, 1);
        damage(&mut cluster);
        let roll = rolled(&cluster);
        assert!(matches!(roll, Roll::Wait(_)), "{what}: {roll:?}");
    }
}

/// It may wait for ever for what the new template has put right, and the roll with it.
#[test]
fn an_outdated_replica_that_is_the_only_one_not_well_goes() {
    let mut cluster = outdated(2, 1);
    cluster.report("1-1").link = ReplicaLink::Down;
    assert_eq!(replaced(&rolled(&cluster)), Some(member("1-1")));
    cluster.moving("0-0", "7", "1-0");
    assert_eq!(replaced(&rolled(&cluster)), None, "not in the middle of a move");
}

#[test]
fn one_that_has_not_heard_of_another_is_not_ill() {
    let mut cluster = outdated(2, 1);
    cluster.report("1-1").peers.pop();
    assert_eq!(replaced(&rolled(&cluster)), None);
    cluster.report("1-1").link = ReplicaLink::Down;
    assert_eq!(replaced(&rolled(&cluster)), Some(member("1-1")));
    cluster.seen.unready.insert(member("0-1"));
    assert_eq!(replaced(&rolled(&cluster)), None, "not two at once");
}

#[test]
fn news_that_are_under_way_are_awaited() {
    let mut cluster = outdated(2, 1);
    cluster.peer("0-0", id("1-0")).slots = "9000-16383".parse().unwrap();
    assert_eq!(rolled(&cluster), Roll::Soon);
}

#[test]
fn shards_whose_slots_move_are_left_alone() {
    let mut cluster = outdated(3, 1);
    cluster.moving("0-0", "7", "1-0");
    assert_eq!(replaced(&rolled(&cluster)), Some(member("2-1")));
}

/// Else the others would give to it in turns, and the roll would wait until everything has arrived.
#[test]
fn no_moves_begin_in_the_shard_whose_moves_the_roll_waits_for() {
    let mut cluster = Fixture::with_slots(&["0-8191", "8192-16383", ""], 1);
    cluster.moving("0-0", "0-99", "2-0");
    let begun = |cluster: &Fixture| {
        let view = cluster.view();
        let blemishes = valkey_model::blemishes(cluster.desired, &cluster.seen);
        assert_eq!(blemishes, []);
        crate::change::intents(&view, &crate::formation::heads(&view), &blemishes, crate::Activity::Idle).begin
    };
    assert!(matches!(begun(&cluster), Intent::Act(_)));
    cluster.outdate(&["2-0", "2-1"]);
    assert!(matches!(rolled(&cluster), Roll::WaitForMoves(ShardIndex(2), _)), "{:?}", rolled(&cluster));
    assert!(matches!(begun(&cluster), Intent::Wait(_)));
}

#[test]
fn nobody_is_handed_a_shard_who_is_asked_to_resign() {
    let mut cluster = outdated(2, 1);
    cluster.seen.outdated.remove(&member("0-1"));
    cluster.seen.wishes = vec![Wish::Resign(member("0-1"))];
    assert_eq!(replaced(&rolled(&cluster)), Some(member("1-1")), "the next shard goes on");
}

#[test]
fn a_pod_that_is_outdated_and_runs_nothing_is_replaced_at_once() {
    let mut cluster = outdated(2, 1);
    cluster.see("1-1", Sighting::Starting).see("0-1", Sighting::Unreachable);
    cluster.seen.unused.insert(member("1-1"));
    assert_eq!(unstuck(&cluster), [member("1-1")]);
    cluster.seen.going.insert(member("1-1"));
    assert_eq!(unstuck(&cluster), []);
}

/// A server that starts again in its pod may have the last copy in a volume that goes with the pod.
#[test]
fn a_pod_that_may_have_the_last_copy_is_not_replaced_before_it_has_run() {
    let mut cluster = outdated(2, 0);
    cluster.see("1-0", Sighting::Starting);
    assert_eq!(unstuck(&cluster), []);
    cluster.seen.unused.insert(member("1-0"));
    assert_eq!(unstuck(&cluster), [member("1-0")]);
}

/// They may come up again by themselves: the container was killed, and is started again.
#[test]
fn pods_in_which_a_server_ran_go_one_at_a_time_and_while_all_others_are_well() {
    let mut cluster = outdated(3, 1);
    cluster.see("1-1", Sighting::Starting).see("2-1", Sighting::Starting);
    assert_eq!(unstuck(&cluster), [member("1-1")]);
    cluster.report("0-1").link = ReplicaLink::Syncing;
    assert_eq!(unstuck(&cluster), []);
}

/// Services and drains count pods that are ready, not servers that are in sync.
#[test]
fn nothing_goes_on_before_kubernetes_finds_the_last_pod_ready() {
    for replicas in [1, 2] {
        let mut cluster = outdated(2, replicas);
        cluster.seen.outdated.remove(&member("0-1"));
        cluster.seen.unready.insert(member("0-1"));
        assert_eq!(rolled(&cluster), Roll::Wait("pod orders-0-1 to be ready".into()));
        cluster.seen.unready.clear();
        assert!(matches!(rolled(&cluster), Roll::HandOver(_) | Roll::Replace(_)));
    }
}

#[test]
fn an_outdated_pod_that_is_not_ready_goes_before_those_that_are() {
    let mut cluster = outdated(2, 1);
    cluster.seen.unready.insert(member("1-1"));
    assert_eq!(replaced(&rolled(&cluster)), Some(member("1-1")));
    cluster.seen.unready.insert(member("0-1"));
    assert_eq!(replaced(&rolled(&cluster)), Some(member("0-1")));
    cluster.seen.outdated.remove(&member("0-1"));
    assert_eq!(rolled(&cluster), Roll::Wait("pod orders-0-1 to be ready".into()), "not two at once");
}

#[test]
fn surplus_pods_that_are_not_ready_are_not_awaited() {
    let mut cluster = outdated(2, 2);
    cluster.want(2, 1).seen.unready.insert(member("0-2"));
    assert_eq!(replaced(&rolled(&cluster)), Some(member("0-1")));
}

#[test]
fn a_roll_that_is_held_says_why_and_replaces_nobody() {
    let mut cluster = outdated(2, 1);
    cluster.seen.hold = Some("the upgrade is paused".into());
    assert_eq!(rolled(&cluster), Roll::Held("the upgrade is paused".into()));
    cluster.see("1-1", Sighting::Starting).seen.unused.insert(member("1-1"));
    assert_eq!(unstuck(&cluster), []);
    cluster.seen.hold = None;
    assert_eq!(unstuck(&cluster), [member("1-1")]);
}
