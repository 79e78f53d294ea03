use valkey_model::{LocalData, PeerHealth, ReplicaLink};

use super::*;
use crate::fixtures::{Damage, Fixture, id, member, peer_of, stranger};

fn sizes(cluster: &Fixture) -> Vec<(u16, u16)> {
    let found = valkey_model::blemishes(cluster.desired, &cluster.seen);
    workloads(&cluster.view(), &found).into_iter().map(|(shard, count)| (shard.0, count)).collect()
}

#[test]
fn workloads_grow_at_once() {
    let mut cluster = Fixture::formed(2, 1);
    cluster.see("0-1", Sighting::Unreachable);
    assert_eq!(sizes(cluster.want(3, 2)), [(0, 3), (1, 3), (2, 3)]);
}

/// Shard 2 is leaving, and has nothing any more.
fn drained() -> Fixture {
    let mut cluster = Fixture::with_slots(&["0-8191", "8192-16383", ""], 1);
    cluster.want(2, 1).emptied(&[2]);
    cluster
}

#[test]
fn a_shard_goes_when_nothing_is_left_in_it() {
    assert_eq!(sizes(&drained()), [(0, 2), (1, 2)]);
}

#[test]
fn a_shard_stays_as_long_as_anybody_may_believe_that_it_has_something() {
    let doubts: [Damage; 10] = [
        ("it says so itself", &|c| c.report("2-0").slots = "7".parse().unwrap()),
        ("another one says so", &|c| c.peer("1-1", id("2-0")).slots = "7".parse().unwrap()),
        ("it gives slots away", &|c| {
            c.moving("2-0", "7", "1-0");
        }),
        ("it gets slots", &|c| {
            c.moving("0-0", "7", "2-0");
        }),
        ("slots are open towards it", &|c| {
            c.open("0-0", "7", id("2-0"));
        }),
        ("slots go to somebody whom nobody knows", &|c| {
            c.open("0-0", "7", stranger(1));
        }),
        ("somebody does not answer", &|c| {
            c.see("0-1", Sighting::Unreachable);
        }),
        ("a member of it does not answer", &|c| {
            c.see("2-1", Sighting::Unreachable);
        }),
        ("a member of it is held", &|c| {
            c.hold("2-1", LocalData::Old);
        }),
        ("it is empty for a moment only", &|c| {
            c.seen.emptied_for.insert(ShardIndex(2), Duration::from_millis(1999));
        }),
    ];
    for (what, doubt) in doubts {
        let mut cluster = drained();
        doubt(&mut cluster);
        assert_eq!(sizes(&cluster), [(0, 2), (1, 2), (2, 2)], "{what}");
    }
}

#[test]
fn a_shard_stays_while_a_slot_has_no_owner_who_is_seen() {
    for sighting in [Sighting::Missing, Sighting::Starting] {
        let mut cluster = drained();
        cluster.see("0-0", sighting);
        assert_eq!(sizes(&cluster).len(), 3);
    }
}

/// A pod that does not come up, be it of the shard that leaves or of one that stays, has no word in it (F31).
#[test]
fn pods_that_never_came_up_keep_no_shard_from_leaving() {
    let mut cluster = drained();
    cluster.see("2-0", Sighting::Starting).see("2-1", Sighting::Missing).see("1-1", Sighting::Starting);
    for sighting in cluster.seen.members.values_mut() {
        if let Sighting::Known(report) = sighting {
            report.peers.retain(|peer| peer.id != id("2-0") && peer.id != id("2-1"));
        }
    }
    assert_eq!(sizes(&cluster).len(), 2);
}

#[test]
fn surplus_members_go_when_all_others_are_in_sync() {
    let mut cluster = Fixture::formed(2, 2);
    assert_eq!(sizes(cluster.want(2, 1)), [(0, 2), (1, 2)]);
    cluster.report("0-1").link = ReplicaLink::Syncing;
    assert_eq!(sizes(&cluster), [(0, 3), (1, 2)]);
}

#[test]
fn surplus_members_stay_while_somebody_may_need_them() {
    let doubts: [Damage; 6] = [
        ("it leads", &|c| {
            c.lead("0-2");
        }),
        ("it is believed to own slots", &|c| c.peer("1-0", id("0-2")).slots = "7".parse().unwrap()),
        ("it does not answer", &|c| {
            c.see("0-2", Sighting::Unreachable);
        }),
        ("another one is not there", &|c| {
            c.see("0-1", Sighting::Starting);
        }),
        ("another one follows somebody else", &|c| c.report("0-1").primary = Some(id("1-0"))),
        ("the primary is doubted", &|c| c.peer("1-0", id("0-0")).health = PeerHealth::Suspected),
    ];
    for (what, doubt) in doubts {
        let mut cluster = Fixture::formed(2, 2);
        cluster.want(2, 1);
        doubt(&mut cluster);
        assert_eq!(sizes(&cluster)[0], (0, 3), "{what}");
    }
}

#[test]
fn a_surplus_member_that_does_not_come_up_is_not_missed() {
    let mut cluster = Fixture::formed(2, 2);
    cluster.want(2, 1).see("0-2", Sighting::Starting).see("1-2", Sighting::Missing);
    assert_eq!(sizes(&cluster), [(0, 2), (1, 2)]);
}

#[test]
fn a_primary_that_leaves_a_shard_which_stays_hands_it_over() {
    let mut cluster = Fixture::formed(2, 2);
    cluster.want(2, 1).lead("0-2");
    cluster.report("0-1").offset = 1001;
    let expected = step(member("0-1"), "the primary of its shard is not wanted any more");
    assert_eq!(hand_over(&cluster.view()), Intent::Act(vec![expected]));
    cluster.moving("0-2", "7", "1-0");
    assert!(matches!(hand_over(&cluster.view()), Intent::Wait(_)));
}

#[test]
fn a_new_member_of_a_leaving_shard_that_knows_nobody_does_not_matter() {
    let mut cluster = drained();
    let newcomer = peer_of(&crate::fixtures::blank_report("2-1"));
    cluster.replace("2-1", stranger(3));
    cluster.everywhere(newcomer.id, |peer| peer.id = stranger(3));
    assert_eq!(sizes(&cluster).len(), 2);
}
