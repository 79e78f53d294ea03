use valkey_model::{LocalData, Peer, ReplicaLink, SlotSet};

use crate::fixtures::{Fixture, blank_report, peer_of, stranger};
use crate::{Plan, plan};

use super::*;

fn planned(cluster: &Fixture) -> Plan {
    plan(cluster.desired, &cluster.seen)
}

fn told(plan: &Plan) -> &Progress {
    match &plan.state {
        State::Working(progress) | State::Waiting(progress) | State::Stuck(progress) => progress,
        State::Healthy => panic!("it is healthy"),
    }
}

#[test]
fn a_new_cluster_says_which_pod_it_waits_for() {
    let mut cluster = Fixture::blank(3, 1);
    cluster.see("2-1", Sighting::Starting);
    let plan = planned(&cluster);
    assert!(matches!(plan.state, State::Waiting(_)));
    assert_eq!(told(&plan).message, "5 of 6 nodes are up");
    assert_eq!(told(&plan).waiting_for.as_deref(), Some("pod orders-2-1 to start"));
    assert_eq!(told(&plan).operation, Operation::Forming);
    assert_eq!(plan.look_again(), None);
}

#[test]
fn a_forming_cluster_counts_slots_and_then_nodes() {
    let plan = planned(&Fixture::blank(3, 1));
    assert_eq!(told(&plan).message, "0 of 16384 slots assigned");
    assert_eq!(plan.look_again(), Some(FORMING));

    let mut cluster = Fixture::formed(3, 1);
    for member in cluster.desired.members().collect::<Vec<_>>() {
        cluster.report(&member.to_string()).node_timeout = Duration::from_secs(1);
    }
    cluster.report("0-1").peers.clear();
    cluster.report("2-1").peers.clear();
    assert_eq!(told(&planned(&cluster)).message, "4 of 6 nodes joined");
}

#[test]
fn a_healing_cluster_counts_the_nodes_that_are_well() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.see("1-1", Sighting::Unreachable);
    let plan = planned(&cluster);
    assert_eq!((told(&plan).message.as_str(), told(&plan).operation), ("5 of 6 nodes are well", Operation::Healing));
    assert_eq!(told(&plan).waiting_for.as_deref(), Some("orders-1-1 to answer"));
    assert_eq!(plan.look_again(), Some(UNANSWERED));
}

#[test]
fn two_primaries_that_share_nothing_need_a_human() {
    let mut cluster = Fixture::formed(2, 1);
    let (one, other) = (cluster.report("0-0").clone(), "0-99".parse::<SlotSet>().unwrap());
    let rival = cluster.report("0-1");
    (rival.role, rival.primary, rival.slots) = (Role::Primary, None, one.slots.minus(&other));
    cluster.report("0-0").slots = other;
    let plan = planned(&cluster);
    assert!(matches!(plan.state, State::Stuck(_)), "{plan:?}");
    assert!(told(&plan).message.contains("orders-0-0, orders-0-1"), "{plan:?}");
}

#[test]
fn a_server_of_another_cluster_needs_a_human() {
    let mut cluster = Fixture::formed(2, 1);
    let company = Peer { id: stranger(7), ..peer_of(&blank_report("9-9")) };
    cluster.replace("1-1", stranger(1));
    cluster.report("1-1").peers = vec![company];
    let plan = planned(&cluster);
    assert!(matches!(plan.state, State::Stuck(_)), "{plan:?}");
    assert!(told(&plan).message.contains("another cluster"), "{plan:?}");
}

#[test]
fn a_held_server_says_whom_it_waits_for() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.hold("1-0", LocalData::Gone).see("1-1", Sighting::Starting);
    let plan = planned(&cluster);
    assert_eq!(told(&plan).waiting_for.as_deref(), Some("orders-1-1, which may have the data of shard 1"));
    assert_eq!(plan.look_again(), Some(PATIENT));
}

#[test]
fn open_slots_that_nobody_can_finish_are_told_to_a_human() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.open("0-0", "7", stranger(1));
    let plan = planned(&cluster);
    assert!(matches!(plan.state, State::Stuck(_)), "{plan:?}");
    assert!(told(&plan).message.contains("SETSLOT"), "{plan:?}");
}

fn named(cluster: &Fixture) -> (Operation, String, bool) {
    let plan = planned(cluster);
    (told(&plan).operation, told(&plan).message.clone(), plan.state.is_sound())
}

/// From its end to its first day: somebody deleted a replica, and Kubernetes makes it anew.
#[test]
fn a_pod_that_is_deleted_is_made_anew_and_a_server_that_fails_is_healed() {
    let anew = (Operation::Rolling, "pod orders-1-1 is made anew".to_owned(), true);
    let mut cluster = Fixture::formed(3, 1);
    let pod = crate::fixtures::member("1-1");
    cluster.seen.going.insert(pod);
    assert_eq!(named(&cluster), anew, "it still answers");
    assert_eq!(told(&planned(&cluster)).waiting_for.as_deref(), Some("pod orders-1-1 to be made anew"));
    cluster.report("1-1").link = ReplicaLink::Down;
    assert_eq!(named(&cluster), anew);
    cluster.seen.going.clear();
    cluster.see("1-1", Sighting::Missing);
    assert_eq!(named(&cluster), anew);
    cluster.see("1-1", Sighting::Starting);
    assert_eq!(named(&cluster), (Operation::Healing, "5 of 6 nodes are well".to_owned(), false), "its server failed");
    cluster.seen.unused.insert(pod);
    assert_eq!(named(&cluster), anew);
    let mut cluster = Fixture::formed(3, 1);
    cluster.report("1-1").link = ReplicaLink::Syncing;
    assert_eq!(named(&cluster).0, Operation::Healing, "its link broke");
    cluster.seen.fresh.insert(pod);
    assert_eq!(named(&cluster), anew);
}

#[test]
fn pods_that_are_made_anew_in_two_shards_are_an_illness() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.see("1-1", Sighting::Missing).see("2-1", Sighting::Missing);
    assert_eq!(named(&cluster).0, Operation::Healing);
}

#[test]
fn a_primary_that_hands_over_as_wished_copies_without_being_ill() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.lead("1-1").report("1-0").link = ReplicaLink::Syncing;
    assert_eq!(named(&cluster).0, Operation::Healing);
    cluster.seen.wishes = vec![valkey_model::Wish::Lead(crate::fixtures::member("1-1"))];
    assert_eq!(named(&cluster).0, Operation::Switching);
}

#[test]
fn a_roll_that_is_held_is_told_and_only_an_event_wakes_us() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.outdate(&["0-1"]).seen.hold = Some("the upgrade is paused".into());
    let plan = planned(&cluster);
    assert_eq!((told(&plan).operation, plan.state.is_sound()), (Operation::Rolling, true));
    assert_eq!(told(&plan).waiting_for.as_deref(), Some("the upgrade is paused"));
    assert_eq!((plan.look_again(), plan.replace.len()), (None, 0));
}

#[test]
fn a_removed_pod_that_is_still_an_object_is_waited_for() {
    let mut cluster = Fixture::formed(3, 1);
    assert_eq!(planned(&cluster).state, State::Healthy);
    cluster.seen.going.insert(Member::new(3, 1));
    assert_eq!(told(&planned(&cluster)).waiting_for.as_deref(), Some("pod orders-3-1 to end"));
}

#[test]
fn one_that_has_left_and_is_still_known_is_no_illness() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.report("0-1").peers.push(peer_of(&blank_report("3-0")));
    let plan = planned(&cluster);
    assert_eq!(told(&plan).message, "the nodes that have left are being forgotten");
    assert!(plan.state.is_sound());
}
