use std::fs;

use valkey_model::{Peer, PeerHealth, SlotSet};

use super::*;
use crate::view::tests::report;

fn id(byte: u8) -> NodeId {
    NodeId::from_bytes([byte; 20])
}

fn led(slots: &str, epoch: u64) -> Past {
    Past { id: id(9), role: Role::Primary, slots: slots.parse().unwrap(), replicas: vec![id(1)], config_epoch: epoch }
}

fn line(byte: u8, rest: &str) -> String {
    format!("{} 10.0.0.{byte}:6379@16379,host-{byte} {rest}\n", id(byte))
}

#[test]
fn the_past_is_what_the_table_says() {
    let text = line(9, "myself,master - 0 0 4 connected 0-99")
        + &line(1, &format!("slave {} 0 0 4 connected", id(9)))
        + &line(2, "master - 0 0 5 connected 100-199")
        + &line(3, &format!("slave {} 0 0 5 connected", id(2)))
        + "vars currentEpoch 5 lastVoteEpoch 0\n";
    assert_eq!(past(&Table::parse(&text).unwrap()), led("0-99", 4));
}

#[test]
fn a_server_without_a_table_starts_for_the_first_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nodes.conf");
    assert_eq!(table(&path).unwrap(), None);
    fs::write(&path, "").unwrap();
    assert_eq!(table(&path).unwrap(), None);
    fs::write(&path, "garbage").unwrap();
    assert!(matches!(table(&path), Err(GuardError::Table(_))));
}

#[test]
fn only_what_the_server_will_read_counts_as_data() {
    let folder = tempfile::tempdir().unwrap();
    let data = |conf| local_data(folder.path(), conf).unwrap();
    let (log, snapshot) = ("appendonly \"yes\"", "appendonly \"no\"");
    assert_eq!((data(log), data(snapshot)), (LocalData::Gone, LocalData::Gone));
    fs::write(folder.path().join("dump.rdb"), "").unwrap();
    assert_eq!((data(log), data(snapshot)), (LocalData::Gone, LocalData::Old));
    assert_eq!(data("appendonly \"no\"\nsave \"\""), LocalData::Gone, "a leftover");
    fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    assert_eq!(data(log), LocalData::Gone);
    fs::write(folder.path().join("appendonlydir/appendonly.aof.manifest"), "").unwrap();
    assert_eq!((data(log), data(snapshot)), (LocalData::Complete, LocalData::Old));
}

#[test]
fn a_peer_names_the_newest_owner_of_the_slots() {
    let peer = |byte, slots: &str, epoch| Peer {
        id: id(byte),
        address: None,
        role: Role::Primary,
        primary: None,
        slots: slots.parse().unwrap(),
        config_epoch: epoch,
        health: PeerHealth::Fine,
        connected: true,
    };
    let says = |report: &NodeReport| match word(&led("0-99", 4), report) {
        PeerWord::Says { owner_of_my_slots, epoch, .. } => (owner_of_my_slots, epoch),
        PeerWord::Silent => panic!("it did answer"),
    };
    let bystander = NodeReport { slots: "100-199".parse().unwrap(), ..report() };
    assert_eq!(says(&bystander), (None, 0));
    let loyal = NodeReport { peers: vec![peer(9, "0-99", 4)], ..bystander.clone() };
    assert_eq!(says(&loyal), (Some(id(9)), 4));
    let informed = NodeReport { peers: vec![peer(9, "0-9", 4), peer(3, "10-99", 7)], ..bystander };
    assert_eq!(says(&informed), (Some(id(3)), 7));
    let successor = NodeReport { config_epoch: 8, peers: vec![peer(9, "", 4)], ..report() };
    assert_eq!(says(&successor), (Some(report().id), 8));
}

#[test]
fn a_replica_has_data_if_it_has_keys_or_is_loading_them() {
    let says = |report: NodeReport| match word(&led("0-99", 4), &report) {
        PeerWord::Says { is_my_replica, has_data, .. } => (is_my_replica, has_data),
        PeerWord::Silent => panic!("it did answer"),
    };
    let mine = NodeReport { role: Role::Replica, primary: Some(id(9)), slots: SlotSet::EMPTY, ..report() };
    assert_eq!(says(NodeReport { keys: 3, ..mine.clone() }), (true, true));
    assert_eq!(says(NodeReport { loading: true, ..mine.clone() }), (true, true));
    assert_eq!(says(mine.clone()), (true, false));
    assert_eq!(says(NodeReport { primary: Some(id(2)), keys: 3, ..mine }), (false, true));
}

#[test]
fn a_peer_leads_the_shard_if_it_says_so_itself() {
    let copied =
        NodeReport { role: Role::Primary, slots: "0-99".parse().unwrap(), config_epoch: 7, offset: 5, ..report() };
    let follower =
        line(9, &format!("myself,slave {} 0 0 4 connected", id(2))) + &line(2, "master - 0 0 4 connected 0-99");
    let primary = line(9, "myself,master - 0 0 4 connected 0-99") + &line(2, "slave - 0 0 4 connected");
    for text in [follower, primary] {
        let table = Table::parse(&text).unwrap();
        let found = leader(&table, &copied).unwrap();
        assert_eq!((found.id, found.config_epoch, found.copy), (report().id, 7, Copied::Yes));
        let replica = NodeReport { role: Role::Replica, ..copied.clone() };
        let stranger = NodeReport { slots: "100-199".parse().unwrap(), ..copied.clone() };
        assert_eq!((leader(&table, &replica), leader(&table, &stranger)), (None, None));
        for blank in
            [NodeReport { offset: 0, keys: 0, ..copied.clone() }, NodeReport { loading: true, ..copied.clone() }]
        {
            assert_eq!(leader(&table, &blank).unwrap().copy, Copied::NotProven);
        }
    }
}
