use valkey_model::{Peer, Sighting};

use super::*;
use crate::fixtures::{Fixture, actions, address, blank_report, id, member, peer_of, stranger};

fn meet(on: &str, whom: &str) -> Action {
    Action::Meet { on: member(on), address: address(whom) }
}

#[test]
fn every_two_nodes_are_introduced_once() {
    let cluster = Fixture::blank(3, 0);
    assert_eq!(actions(&steps(&cluster.view())), [meet("0-0", "1-0"), meet("0-0", "2-0"), meet("1-0", "2-0")]);
}

#[test]
fn a_healthy_cluster_needs_no_introductions() {
    assert_eq!(steps(&Fixture::formed(3, 2).view()), []);
}

#[test]
fn a_new_address_is_told_to_those_who_do_not_know_it() {
    let mut cluster = Fixture::formed(3, 0);
    let moved = "10.9.9.9:6379".parse().unwrap();
    cluster.report("1-0").address = moved;
    cluster.peer("2-0", id("1-0")).address = Some(moved);
    assert_eq!(actions(&steps(&cluster.view())), [Action::Meet { on: member("0-0"), address: moved }]);
}

#[test]
fn an_introduction_that_is_under_way_is_not_repeated() {
    let mut cluster = Fixture::blank(2, 0);
    let greeted = Peer { id: stranger(1), health: PeerHealth::Handshake, ..peer_of(&blank_report("1-0")) };
    cluster.report("0-0").peers.push(greeted);
    assert_eq!(steps(&cluster.view()), []);
}

#[test]
fn a_cluster_that_does_not_exist_yet_waits_for_all_of_its_pods() {
    let mut cluster = Fixture::blank(3, 1);
    cluster.see("2-1", Sighting::Starting);
    assert_eq!(steps(&cluster.view()), []);
}

#[test]
fn in_a_large_cluster_everybody_meets_the_first_three() {
    let cluster = Fixture::blank(30, 1);
    let given = steps(&cluster.view());
    assert_eq!(given.len(), 59 + 58 + 57);
    assert!(given.iter().all(|step| step.action.on() <= member("1-0")));
}

#[test]
fn a_loading_server_is_not_disturbed() {
    let mut cluster = Fixture::blank(2, 0);
    cluster.report("1-0").loading = true;
    assert_eq!(steps(&cluster.view()), []);
}

#[test]
fn a_server_of_another_cluster_is_not_let_in() {
    let mut cluster = Fixture::formed(3, 0);
    let company = Peer { id: stranger(7), ..peer_of(&blank_report("9-9")) };
    cluster.replace("2-0", stranger(1));
    cluster.report("2-0").peers = vec![company];
    assert_eq!(strangers(&cluster.view()), [(member("2-0"), Stranger::Surely)]);
    assert_eq!(steps(&cluster.view()), []);
}

#[test]
fn a_server_that_only_knows_one_of_ours_who_is_away_is_let_in() {
    let mut cluster = Fixture::formed(4, 0);
    let away = cluster.peer("0-0", id("2-0")).clone();
    cluster.replace("3-0", stranger(1)).see("2-0", Sighting::Missing);
    cluster.report("3-0").peers = vec![away];
    assert_eq!(actions(&steps(&cluster.view())), [meet("0-0", "3-0"), meet("1-0", "3-0")]);
}

#[test]
fn a_server_whose_company_is_gone_is_let_in() {
    let mut cluster = Fixture::formed(3, 0);
    cluster.replace("1-0", stranger(1)).replace("2-0", stranger(2));
    assert_eq!(strangers(&cluster.view()), [(member("0-0"), Stranger::Perhaps)]);
    assert_eq!(actions(&steps(&cluster.view())), [meet("1-0", "2-0")]);
    for gone in ["1-0", "2-0"] {
        cluster.everywhere(id(gone), |peer| (peer.health, peer.connected) = (PeerHealth::Failed, false));
    }
    assert_eq!(strangers(&cluster.view()), []);
    assert_eq!(steps(&cluster.view()).len(), 3);
}
