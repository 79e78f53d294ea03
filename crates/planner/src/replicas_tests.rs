use valkey_model::{LocalData, Sighting};

use super::*;
use crate::fixtures::{Fixture, actions, id, member, peer_of, stranger};

fn given(cluster: &Fixture) -> Vec<Step> {
    let view = cluster.view();
    steps(&view, &crate::formation::heads(&view))
}

fn follow(on: &str, primary: &str) -> Action {
    Action::Replicate { on: member(on), primary: id(primary) }
}

/// A pod came back as a new server, and has met the others.
fn with_newcomer(shards: u16, replicas: u16, at: &str) -> Fixture {
    let mut cluster = Fixture::formed(shards, replicas);
    let met = cluster.report(at).peers.clone();
    cluster.replace(at, stranger(1));
    cluster.report(at).peers = met;
    cluster
}

#[test]
fn a_newcomer_follows_whoever_leads_its_shard() {
    let mut cluster = with_newcomer(3, 1, "1-0");
    let lead = cluster.report("1-0").peer(id("1-0")).cloned();
    assert_eq!(lead, None);
    let heir = cluster.report("1-1");
    (heir.role, heir.primary, heir.config_epoch) = (Role::Primary, None, 9);
    heir.slots = "5461-10921".parse().unwrap();
    let heir = peer_of(heir);
    cluster.everywhere(heir.id, |peer| *peer = heir.clone());
    assert_eq!(actions(&given(&cluster)), [follow("1-0", "1-1")]);
}

#[test]
fn a_healthy_cluster_stays_as_it_is() {
    assert_eq!(given(&Fixture::formed(3, 2)), []);
}

#[test]
fn a_newcomer_that_has_not_met_the_primary_waits() {
    let mut cluster = with_newcomer(2, 1, "1-1");
    cluster.peer("1-1", id("1-0")).health = PeerHealth::Handshake;
    assert_eq!(given(&cluster), []);
}

#[test]
fn a_server_with_keys_is_never_made_a_replica() {
    let mut cluster = with_newcomer(2, 1, "1-1");
    assert_eq!(actions(&given(&cluster)), [follow("1-1", "1-0")]);
    cluster.report("1-1").keys = 1;
    assert_eq!(given(&cluster), []);
}

#[test]
fn a_replica_of_another_shard_is_brought_home() {
    let mut cluster = Fixture::formed(2, 1);
    cluster.report("1-1").primary = Some(id("0-0"));
    assert_eq!(actions(&given(&cluster)), [follow("1-1", "1-0")]);
}

#[test]
fn a_replica_is_not_taken_from_a_primary_that_may_be_alive() {
    let mut cluster = Fixture::formed(3, 2);
    let heir = cluster.report("0-1");
    (heir.role, heir.primary, heir.config_epoch) = (Role::Primary, None, 9);
    heir.slots = "0-5460".parse().unwrap();
    let heir = peer_of(heir);
    cluster.everywhere(heir.id, |peer| *peer = heir.clone());
    cluster.see("0-0", Sighting::Unreachable);
    assert_eq!(given(&cluster), []);
    cluster.see("0-0", Fixture::formed(3, 2).hold("0-0", LocalData::Gone).seen.sighting(member("0-0")).clone());
    assert_eq!(actions(&given(&cluster)), [follow("0-2", "0-1")]);
}

#[test]
fn nobody_follows_a_primary_that_others_know_to_be_succeeded() {
    let mut cluster = with_newcomer(3, 2, "0-2");
    cluster.see("0-1", Sighting::Unreachable);
    cluster.peer("1-0", id("0-1")).slots = "0-5460".parse().unwrap();
    cluster.peer("1-0", id("0-1")).config_epoch = 9;
    assert_eq!(given(&cluster), []);
}
