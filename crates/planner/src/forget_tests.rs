use valkey_model::{Peer, Sighting};

use super::*;
use crate::fixtures::{Fixture, actions, blank_report, id, member, peer_of, stranger};

fn forget(on: &str, id: NodeId) -> Action {
    Action::Forget { on: member(on), id }
}

fn with_ghost() -> Fixture {
    let mut cluster = Fixture::formed(2, 1);
    let ghost = Peer { id: stranger(1), health: PeerHealth::Failed, connected: false, ..peer_of(&blank_report("9-9")) };
    for by in ["0-0", "1-1"] {
        cluster.report(by).peers.push(ghost.clone());
    }
    cluster
}

#[test]
fn a_ghost_is_struck_wherever_it_is() {
    let expected = [forget("0-0", stranger(1)), forget("1-1", stranger(1))];
    assert_eq!(actions(&ghosts(&with_ghost().view())), expected);
}

#[test]
fn one_whose_pod_is_ending_is_not_asked_to_forget_anybody() {
    let mut cluster = with_ghost();
    cluster.seen.going.insert(member("1-1"));
    assert_eq!(actions(&ghosts(&cluster.view())), [forget("0-0", stranger(1))]);
}

#[test]
fn nobody_is_struck_while_a_member_is_unknown() {
    for sighting in [Sighting::Missing, Sighting::Starting, Sighting::Unreachable] {
        let mut cluster = with_ghost();
        cluster.see("0-1", sighting);
        assert_eq!(ghosts(&cluster.view()), []);
    }
}

#[test]
fn nobody_is_struck_whom_somebody_believes_to_own_slots() {
    let mut cluster = with_ghost();
    cluster.peer("1-1", stranger(1)).slots = "7".parse().unwrap();
    assert_eq!(ghosts(&cluster.view()), []);
}

#[test]
fn nobody_is_struck_whom_a_replica_follows() {
    let mut cluster = with_ghost();
    cluster.report("1-1").primary = Some(stranger(1));
    assert_eq!(ghosts(&cluster.view()), []);
}

/// Shard 0 came back with new, empty servers.
fn with_lost_shard() -> Fixture {
    let mut cluster = Fixture::formed(2, 1);
    cluster.replace("0-0", stranger(1)).replace("0-1", stranger(2));
    cluster
}

#[test]
fn the_owner_of_a_shard_without_any_copy_is_struck_and_the_loss_is_told() {
    let lost = lost_shards(&with_lost_shard().view()).unwrap();
    assert_eq!(actions(&lost.steps), [forget("1-0", id("0-0")), forget("1-1", id("0-0"))]);
    assert_eq!(lost.losses().collect::<Vec<_>>(), [Loss { shard: ShardIndex(0), what: Lost::AllCopies }]);
}

#[test]
fn no_shard_is_lost_while_a_copy_may_come_back() {
    for sighting in [Sighting::Missing, Sighting::Starting, Sighting::Unreachable] {
        let mut cluster = with_lost_shard();
        cluster.see("1-1", sighting);
        assert_eq!(lost_shards(&cluster.view()), None);
    }
    let mut cluster = with_lost_shard();
    cluster.report("0-1").keys = 1;
    assert_eq!(lost_shards(&cluster.view()), None);
}

#[test]
fn no_shard_is_lost_while_nodes_disagree_about_its_owner() {
    let mut cluster = with_lost_shard();
    cluster.peer("1-1", id("0-0")).slots = SlotSet::EMPTY;
    cluster.peer("1-1", id("1-0")).slots = SlotSet::all();
    assert_eq!(lost_shards(&cluster.view()), None);
}

/// The primary's successor died before everybody had heard of it: nobody will ever tell them.
#[test]
fn owners_that_are_all_gone_are_struck_even_if_nodes_disagree_which_of_them_it_was() {
    let mut cluster = with_lost_shard();
    cluster.peer("1-1", id("0-0")).slots = SlotSet::EMPTY;
    cluster.peer("1-1", id("0-1")).slots = "0-8191".parse().unwrap();
    let struck = actions(&lost_shards(&cluster.view()).unwrap().steps);
    assert!(struck.contains(&forget("1-0", id("0-0"))) && struck.contains(&forget("1-1", id("0-1"))), "{struck:?}");
}
