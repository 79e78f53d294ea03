use std::collections::BTreeSet;

use valkey_model::{LocalData, Sighting};

use super::*;
use crate::fixtures::{Fixture, actions, id, member, stranger};
use crate::newcomers::LEADING;

fn given(cluster: &Fixture) -> Vec<Step> {
    let view = cluster.view();
    steps(&view, &heads(&view))
}

fn add_slots(on: &str, slots: &str) -> Action {
    Action::AddSlots { on: member(on), slots: slots.parse().unwrap() }
}

#[test]
fn a_new_cluster_gets_its_slots_in_one_go() {
    let cluster = Fixture::blank(2, 1);
    assert_eq!(actions(&given(&cluster)), [add_slots("0-0", "0-8191"), add_slots("1-0", "8192-16383")]);
}

#[test]
fn primaries_are_spread_over_hosts_and_then_over_zones() {
    let mut cluster = Fixture::blank(2, 2);
    cluster.spot("0-0", "a", "x").spot("0-1", "b", "x").spot("0-2", "c", "y");
    cluster.spot("1-0", "a", "x").spot("1-1", "b", "x").spot("1-2", "c", "y");
    let given = actions(&given(&cluster));
    assert_eq!(given, [add_slots("0-0", "0-8191"), add_slots("1-2", "8192-16383")]);
}

#[test]
fn a_host_is_left_to_the_shard_that_has_no_other() {
    for (second, third) in [("bc", "ca"), ("cb", "ca"), ("bc", "ac"), ("cb", "ac")] {
        let mut cluster = Fixture::blank(3, 1);
        for (shard, hosts) in ["ab", second, third].into_iter().enumerate() {
            for (ordinal, host) in hosts.chars().enumerate() {
                let host = host.to_string();
                cluster.spot(&format!("{shard}-{ordinal}"), &host, &host);
            }
        }
        let view = cluster.view();
        let hosts: BTreeSet<_> = heads(&view).values().map(|(head, _)| view.seen().spots[head].host.clone()).collect();
        assert_eq!(hosts.len(), 3, "{second} {third}: {hosts:?}");
    }
}

#[test]
fn a_pass_that_was_cut_short_is_carried_on() {
    let mut cluster = Fixture::blank(2, 1);
    cluster.report("0-1").config_epoch = LEADING + 1;
    cluster.report("1-1").config_epoch = LEADING + 2;
    cluster.report("1-1").slots = "8192-16383".parse().unwrap();
    assert_eq!(actions(&given(&cluster)), [add_slots("0-1", "0-8191")]);
}

#[test]
fn slots_that_a_leader_did_not_get_go_to_it() {
    let mut cluster = Fixture::formed(2, 1);
    cluster.report("0-0").slots = "0-99".parse().unwrap();
    cluster.everywhere(id("0-0"), |peer| peer.slots = "0-99".parse().unwrap());
    assert_eq!(actions(&given(&cluster)), [add_slots("0-0", "100-8191")]);
}

#[test]
fn nothing_is_given_while_anybody_is_unknown() {
    for sighting in [Sighting::Missing, Sighting::Starting, Sighting::Unreachable] {
        let mut cluster = Fixture::blank(3, 1);
        cluster.see("2-1", sighting);
        assert_eq!(given(&cluster), []);
    }
}

#[test]
fn nothing_is_given_while_somebody_is_held_whose_table_is_not_known() {
    let mut cluster = Fixture::formed(2, 0);
    cluster.replace("0-0", stranger(1)).hold("1-0", LocalData::Gone);
    assert_eq!(given(&cluster), []);
}

#[test]
fn slots_that_anybody_believes_to_be_owned_are_not_given() {
    let mut cluster = Fixture::formed(2, 0);
    cluster.replace("0-0", stranger(1));
    assert_eq!(given(&cluster), []);
}
