use super::*;
use crate::fixtures::{Fixture, id, member};

fn decided(cluster: &Fixture) -> Vec<(Action, Option<Lost>)> {
    let acts = successions(&cluster.view()).into_iter().filter_map(|succession| match succession {
        Succession::Act { step, loss } => Some((step.action, loss.map(|loss| loss.what))),
        Succession::Wait { .. } => None,
    });
    acts.collect()
}

fn take_over(on: &str) -> (Action, Option<Lost>) {
    (Action::TakeOver { on: member(on) }, None)
}

fn release(on: &str) -> (Action, Option<Lost>) {
    (Action::Release { on: member(on) }, None)
}

#[test]
fn nothing_is_decided_about_a_healthy_cluster() {
    assert_eq!(successions(&Fixture::formed(3, 2).view()), []);
}

#[test]
fn the_replica_with_the_most_data_takes_over_from_a_held_primary() {
    let mut cluster = Fixture::formed(3, 2);
    cluster.hold("1-0", LocalData::Gone);
    cluster.report("1-2").offset = 1001;
    assert_eq!(decided(&cluster), [take_over("1-2")]);
    cluster.report("1-1").loading = true;
    cluster.report("1-2").link = ReplicaLink::Syncing;
    assert_eq!(decided(&cluster), []);
}

#[test]
fn a_primary_that_does_not_answer_keeps_its_shard() {
    for sighting in [Sighting::Missing, Sighting::Starting, Sighting::Unreachable] {
        let mut cluster = Fixture::formed(3, 2);
        cluster.see("1-0", sighting).headless_for(1, 600);
        assert_eq!(decided(&cluster), []);
    }
}

#[test]
fn a_primary_that_came_back_as_somebody_else_is_succeeded() {
    let mut cluster = Fixture::formed(2, 1);
    cluster.replace("1-0", crate::fixtures::stranger(1));
    assert_eq!(decided(&cluster), [take_over("1-1")]);
}

#[test]
fn where_the_servers_can_vote_they_get_the_time_to_do_so() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.hold("1-0", LocalData::Gone);
    cluster.everywhere(id("1-0"), |peer| peer.health = PeerHealth::Failed);
    assert_eq!(successions(&cluster.view()), [wait("the vote for the next primary of shard 1".to_owned())]);
    cluster.headless_for(1, 15);
    assert_eq!(decided(&cluster), [take_over("1-1")]);
}

#[test]
fn where_too_few_servers_are_left_to_vote_nobody_waits_for_them() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.hold("1-0", LocalData::Gone).hold("2-0", LocalData::Gone);
    for dead in ["1-0", "2-0"] {
        cluster.everywhere(id(dead), |peer| peer.health = PeerHealth::Failed);
    }
    assert_eq!(decided(&cluster), [take_over("1-1"), take_over("2-1")]);
}

#[test]
fn a_held_server_with_more_data_than_its_replica_is_released() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.hold("1-0", LocalData::Old);
    let replica = cluster.report("1-1");
    (replica.offset, replica.keys) = (0, 0);
    let expected = (Action::Release { on: member("1-0") }, Some(Lost::AllButSnapshot));
    assert_eq!(decided(&cluster), [expected]);
    cluster.see("1-0", Fixture::formed(3, 1).hold("1-0", LocalData::Complete).seen.sighting(member("1-0")).clone());
    assert_eq!(decided(&cluster), [release("1-0")]);
}

#[test]
fn the_loss_of_all_copies_is_told() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.hold("1-0", LocalData::Gone);
    let replica = cluster.report("1-1");
    (replica.offset, replica.keys) = (0, 0);
    assert_eq!(decided(&cluster), [(Action::TakeOver { on: member("1-1") }, Some(Lost::AllCopies))]);
}

#[test]
fn a_held_server_waits_a_minute_for_pods_and_for_ever_for_one_that_may_run() {
    for (sighting, seconds, released) in [
        (Sighting::Missing, 59, false),
        (Sighting::Starting, 59, false),
        (Sighting::Missing, 60, true),
        (Sighting::Unreachable, 600, false),
    ] {
        let mut cluster = Fixture::formed(3, 1);
        cluster.hold("1-0", LocalData::Gone).see("1-1", sighting).headless_for(1, seconds);
        assert_eq!(!decided(&cluster).is_empty(), released);
    }
}

#[test]
fn a_held_server_is_released_when_its_shard_has_a_new_primary() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.hold("1-0", LocalData::Gone);
    let heir = cluster.report("1-1");
    (heir.role, heir.primary, heir.config_epoch) = (Role::Primary, None, 9);
    heir.slots = "5461-10921".parse().unwrap();
    assert_eq!(decided(&cluster), [release("1-0")]);
}

#[test]
fn nobody_takes_over_from_a_successor_that_we_do_not_see() {
    let mut cluster = Fixture::formed(3, 2);
    cluster.hold("1-0", LocalData::Gone).see("1-2", Sighting::Unreachable);
    assert_eq!(decided(&cluster), [take_over("1-1")]);
    let elected = cluster.peer("0-0", id("1-2"));
    (elected.slots, elected.config_epoch) = ("5461-10921".parse().unwrap(), 9);
    assert_eq!(decided(&cluster), []);
}

#[test]
fn nobody_takes_over_while_slots_may_still_reach_the_former_primary() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.moving("0-0", "7", "1-0").hold("1-0", LocalData::Gone);
    assert_eq!(decided(&cluster), []);
    cluster.headless_for(1, 15);
    assert_eq!(decided(&cluster), [take_over("1-1")]);
}

/// A new shard, or one that has given all of its slots away.
fn without_slots() -> Fixture {
    let mut cluster = Fixture::with_slots(&["0-8191", "8192-16383", ""], 1);
    cluster.replace("2-0", crate::fixtures::stranger(1));
    cluster
}

#[test]
fn a_primary_without_slots_is_succeeded_without_a_word_about_losses() {
    let mut cluster = without_slots();
    assert_eq!(decided(&cluster), [take_over("2-1")]);
    let replica = cluster.report("2-1");
    (replica.offset, replica.keys) = (0, 0);
    assert_eq!(decided(&cluster), [take_over("2-1")]);
}

#[test]
fn a_primary_without_slots_in_a_shard_that_leaves_is_not_missed() {
    assert_eq!(successions(&without_slots().want(2, 1).view()), []);
}

#[test]
fn a_shard_that_leaves_is_healed_as_long_as_it_has_slots() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.want(2, 1).hold("2-0", LocalData::Gone);
    assert_eq!(decided(&cluster), [take_over("2-1")]);
}

#[test]
fn data_that_a_held_server_cannot_read_is_neither_released_nor_lost() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.hold("1-0", LocalData::Unreadable).see("1-1", Sighting::Missing).headless_for(1, 3600);
    assert_eq!(decided(&cluster), []);
    // Not even for a replica that has nothing.
    let mut cluster = Fixture::formed(3, 1);
    cluster.hold("1-0", LocalData::Unreadable).headless_for(1, 3600);
    (cluster.report("1-1").offset, cluster.report("1-1").keys) = (0, 0);
    assert_eq!(decided(&cluster), []);
}

#[test]
fn a_replica_with_data_takes_over_from_a_held_server_that_cannot_read_its_own() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.hold("1-0", LocalData::Unreadable);
    assert_eq!(decided(&cluster), [take_over("1-1")]);
}

/// Its primary started anew while it was away, and with it the count of what was written.
#[test]
fn one_that_was_away_for_long_does_not_lead_by_a_number_from_before() {
    let mut cluster = Fixture::formed(1, 2);
    cluster.hold("0-0", LocalData::Gone).report("0-2").offset = 9999;
    assert_eq!(decided(&cluster), [take_over("0-2")]);
    cluster.seen.unsynced_for.insert(member("0-1"), Duration::from_secs(3));
    cluster.seen.unsynced_for.insert(member("0-2"), Duration::from_secs(90));
    assert_eq!(decided(&cluster), [take_over("0-1")]);
}
