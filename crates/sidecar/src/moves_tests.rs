use std::time::{Duration, Instant};

use valkey_model::{Export, Exports, Failure, Peer, PeerHealth};

use super::*;
use crate::view::tests::report;

fn id(byte: u8) -> NodeId {
    NodeId::from_bytes([byte; 20])
}

fn set(text: &str) -> SlotSet {
    text.parse().unwrap()
}

fn export(slots: &str, to: NodeId) -> Export {
    Export { slots: set(slots), to }
}

fn owning(slots: &str) -> NodeReport {
    let peer = |byte, role| Peer {
        id: id(byte),
        address: None,
        role,
        primary: None,
        slots: SlotSet::EMPTY,
        config_epoch: 1,
        health: PeerHealth::Fine,
        connected: true,
    };
    NodeReport { slots: set(slots), peers: vec![peer(2, Role::Primary), peer(3, Role::Replica)], ..report() }
}

#[test]
fn a_refused_order_counts_as_done_only_if_nothing_of_it_is_left() {
    let slots = set("10-19");
    assert!(is_needless(&owning("0-9"), &slots, id(2)));
    assert!(!is_needless(&owning("0-10"), &slots, id(2)));
    // A replica has no slots of its own; that says nothing about whether they moved.
    assert!(!is_needless(&NodeReport { role: Role::Replica, ..owning("0-9") }, &slots, id(2)));
    let moving = |slots, to| {
        let exports = Exports { running: vec![export(slots, to)], ..Exports::default() };
        NodeReport { exports, ..owning("0-14") }
    };
    assert!(is_needless(&moving("10-14", id(2)), &slots, id(2)));
    assert!(!is_needless(&moving("10-14", id(3)), &slots, id(2)));
    assert!(!is_needless(&moving("10-13", id(2)), &slots, id(2)));
}

#[test]
fn only_slots_that_are_ours_are_due_and_only_to_a_primary_that_we_know() {
    let due_of = |report: &NodeReport, databases, to| due(report, databases, &set("8-12"), to);
    let due = |report: &NodeReport, to| due_of(report, 1, to).map_err(|error| error.to_string());
    assert_eq!(due(&owning("0-9"), id(2)), Ok(set("8-9")));
    assert_eq!(due(&owning("0-5"), id(9)), Ok(SlotSet::EMPTY));
    assert!(matches!(due_of(&owning("0-9"), 16, id(2)), Err(OrderError::Databases(16))));
    assert!(due(&owning("0-9"), id(9)).unwrap_err().contains("does not know"));
    assert!(due(&owning("0-9"), id(3)).unwrap_err().contains("is a replica: choose"));
    assert!(due(&NodeReport { role: Role::Replica, ..owning("") }, id(2)).unwrap_err().contains("is a replica: order"));
    let exports = Exports { running: vec![export("4", id(2))], ..Exports::default() };
    assert!(due(&NodeReport { exports, ..owning("0-9") }, id(2)).unwrap_err().contains("by the server itself"));
}

#[test]
fn slots_are_moved_one_after_the_other_and_each_is_queued_once() {
    let moves = Moves::default();
    moves.order(&set("5-6"), id(2)).unwrap();
    moves.order(&set("5-7"), id(2)).unwrap();
    moves.order(&set("1"), id(3)).unwrap();
    let busy = moves.order(&set("1-6"), id(3)).unwrap_err();
    assert!(busy.to_string().contains("slots 5-6 are on their way to 0202"), "{busy}");
    let mut order = Vec::new();
    while let Some((slot, to)) = moves.begin() {
        order.push((slot, to));
        moves.moved(slot);
    }
    assert_eq!(order, [(5, id(2)), (6, id(2)), (7, id(2)), (1, id(3))]);
    assert_eq!(moves.exports(Instant::now()), Exports::default());
}

#[test]
fn a_slot_that_fails_ends_the_queue_and_a_success_ends_the_count() {
    let moves = Moves::default();
    for _ in 0..2 {
        moves.order(&set("5-6"), id(2)).unwrap();
        moves.order(&set("1"), id(3)).unwrap();
        assert_eq!(moves.begin(), Some((5, id(2))));
        moves.failed(5, "slot 5 did not move".into());
    }
    let exports = moves.exports(Instant::now() + Duration::from_secs(3));
    assert_eq!((exports.running.len(), exports.failures), (0, 2));
    let failure = exports.last_failure.unwrap();
    assert_eq!(failure.message, "slot 5 did not move");
    assert!(failure.ago >= Duration::from_secs(3));
    moves.order(&set("5-6"), id(2)).unwrap();
    assert_eq!(moves.begin(), Some((5, id(2))));
    moves.moved(5);
    let exports = moves.exports(Instant::now());
    assert_eq!((exports.running, exports.failures, exports.last_failure), (vec![export("6", id(2))], 0, None));
}

#[test]
fn several_slots_are_under_way_and_one_that_fails_leaves_the_others_to_their_end() {
    let moves = Moves::default();
    moves.order(&set("5-7"), id(2)).unwrap();
    moves.order(&set("1-2"), id(3)).unwrap();
    let begun: Vec<_> = (0..4).filter_map(|_| moves.begin()).collect();
    assert_eq!(begun, [(5, id(2)), (6, id(2)), (7, id(2)), (1, id(3))]);
    moves.failed(6, "slot 6 did not move".into());
    assert_eq!(moves.begin(), None);
    assert_eq!(moves.slots(), set("1,5,7"));
    for slot in [1, 5, 7] {
        moves.moved(slot);
    }
    assert_eq!(moves.slots(), SlotSet::EMPTY);
}

#[tokio::test]
async fn before_the_server_ends_no_other_slot_is_begun() {
    let moves = Moves::default();
    moves.leave_off().await;
    moves.order(&set("5-6"), id(2)).unwrap();
    assert_eq!(moves.begin(), Some((5, id(2))));
    let left = moves.leave_off();
    tokio::pin!(left);
    tokio::select! {
        () = &mut left => panic!("a slot is under way"),
        () = tokio::time::sleep(Duration::from_millis(30)) => {}
    }
    assert_eq!(moves.exports(Instant::now()).running, [export("5", id(2))]);
    moves.moved(5);
    left.await;
}

#[test]
fn moves_of_both_kinds_are_told_alike() {
    let failure = |message: &str, seconds| Failure { message: message.into(), ago: Duration::from_secs(seconds) };
    let servers = Exports {
        running: vec![export("1", id(2))],
        open: vec![export("5", id(2))],
        failures: 2,
        last_failure: Some(failure("theirs", 9)),
    };
    let ours = Exports {
        running: vec![export("5-6", id(2))],
        open: Vec::new(),
        failures: 1,
        last_failure: Some(failure("ours", 3)),
    };
    let both = together(servers.clone(), ours);
    assert_eq!((both.running.len(), both.open.len(), both.failures), (2, 1, 3));
    assert_eq!(both.last_failure.unwrap().message, "ours");
    assert_eq!(together(servers.clone(), Exports::default()), servers);
}
