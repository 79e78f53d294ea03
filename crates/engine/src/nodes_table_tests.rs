use super::*;

macro_rules! sample {
    ($name:literal) => {
        Table::parse(include_str!(concat!("../samples/", $name))).unwrap()
    };
}

fn by_name<'a>(table: &'a Table, name: &str) -> &'a Entry {
    table.entries().find(|entry| entry.hostname.as_ref().is_some_and(|host| host.starts_with(name))).unwrap()
}

#[test]
fn every_version_says_the_same_about_the_same_cluster() {
    for table in [
        sample!("9.1.2/nodes-primary.txt"),
        sample!("9.1.2/nodes.conf"),
        sample!("8.1.1/nodes-primary.txt"),
        sample!("8.1.1/nodes.conf"),
        sample!("8.0.1/nodes-primary.txt"),
        sample!("8.0.1/nodes.conf"),
    ] {
        assert_eq!(table.myself.hostname.as_deref(), Some("orders-0-0.orders-nodes.shop.svc"));
        assert_eq!((table.myself.role, table.myself.config_epoch), (Role::Primary, 1));
        assert_eq!(table.myself.slots.to_string(), "0-5460");
        assert_eq!(table.others.len(), 3);
        assert_eq!(by_name(&table, "orders-1-0").slots.to_string(), "5461-10922");
        let replica = by_name(&table, "orders-3-0");
        assert_eq!((replica.role, replica.primary), (Role::Replica, Some(table.myself.id)));
        assert!(table.entries().all(|entry| entry.connected && entry.health == PeerHealth::Fine));
        assert!(table.entries().all(|entry| entry.ip == Some([127, 0, 0, 1].into())));
    }
}

#[test]
fn a_replica_knows_whom_it_follows() {
    for table in
        [sample!("9.1.2/nodes-replica.txt"), sample!("8.1.1/nodes-replica.txt"), sample!("8.0.1/nodes-replica.txt")]
    {
        assert_eq!(table.myself.role, Role::Replica);
        assert_eq!(table.myself.primary, Some(by_name(&table, "orders-0-0").id));
        assert!(table.myself.slots.is_empty());
    }
}

#[test]
fn only_a_file_tells_the_current_epoch_and_the_port_with_tls() {
    let (file, answer) = (sample!("9.1.2/nodes.conf"), sample!("9.1.2/nodes-primary.txt"));
    assert_eq!((file.current_epoch, answer.current_epoch), (Some(3), None));
    assert_eq!((file.myself.port, file.myself.tls_port), (None, Some(17100)));
    assert_eq!((answer.myself.port, answer.myself.tls_port), (None, None));
    let plain = sample!("8.1.1/nodes.conf");
    assert_eq!((plain.myself.port, plain.myself.tls_port), (Some(17110), None));
}

#[test]
fn a_peer_whose_port_is_not_told_listens_where_the_reader_does() {
    let tls = sample!("9.1.2/nodes-primary.txt");
    assert_eq!(by_name(&tls, "orders-1-0").peer(6379).address, Some("127.0.0.1:6379".parse().unwrap()));
    let plain = sample!("8.1.1/nodes-primary.txt");
    assert_eq!(by_name(&plain, "orders-1-0").peer(6379).address, Some("127.0.0.1:17111".parse().unwrap()));
}

#[test]
fn the_health_of_a_peer_is_told_from_its_flags() {
    let table = sample!("9.1.2/nodes-handshake.txt");
    let met = table.others.iter().find(|entry| entry.health == PeerHealth::Handshake).unwrap();
    assert!(!met.connected && met.hostname.is_none());
    let table = sample!("9.1.2/nodes-fail.txt");
    assert_eq!(by_name(&table, "orders-2-0").health, PeerHealth::Failed);
    let suspected = "155be7566f0b0fa30c9430e470e74f9ca2488571 10.0.0.1:6379@16379 myself,master - 0 0 2 connected\n\
                     06eb7be9df904c9cf33682bfb0a6270ca80c26be fd00::7:6379@16379 master,fail? - 0 0 3 disconnected 7 9-11";
    let table = Table::parse(suspected).unwrap();
    let peer = table.others[0].peer(6379);
    assert_eq!(peer.health, PeerHealth::Suspected);
    assert_eq!(peer.address, Some("[fd00::7]:6379".parse().unwrap()));
    assert_eq!(peer.slots.to_string(), "7,9-11");
}

#[test]
fn a_node_without_an_address_has_none() {
    let table = sample!("8.0.1/nodes-noaddr.txt");
    let lost = by_name(&table, "orders-2-0");
    assert_eq!(lost.peer(6379).address, None);
    assert_eq!(lost.slots.to_string(), "10923-16383");
}

#[test]
fn a_broken_table_is_an_error() {
    let good = "155be7566f0b0fa30c9430e470e74f9ca2488571 10.0.0.1:6379@16379 myself,master - 0 0 2 connected 0-9";
    assert!(Table::parse(good).is_ok());
    assert_eq!(Table::parse(""), Err(TableError::NoSelf));
    assert_eq!(Table::parse(&good.replace("myself,", "")), Err(TableError::NoSelf));
    assert!(matches!(Table::parse(&good[..60]), Err(TableError::Short(_))));
    assert!(matches!(Table::parse(&good[1..]), Err(TableError::Id(_))));
    assert!(matches!(Table::parse(&good.replace("0-9", "9-0")), Err(TableError::Slots(_))));
    assert!(matches!(Table::parse(&good.replace("0-9", "0-9 [3->-nobody]")), Err(TableError::Id(_))));
    assert!(matches!(Table::parse(&good.replace("0 0 2", "0 0 x")), Err(TableError::Number { .. })));
}

#[test]
fn slots_on_their_way_to_others_are_told_by_whom_they_go_to() {
    for table in [sample!("9.1.2/nodes-open.txt"), sample!("8.1.1/nodes-open.txt")] {
        let with = |first: &str| {
            let other = table.others.iter().find(|other| other.slots.to_string().starts_with(first));
            other.unwrap().id
        };
        let mut expected = vec![
            Export { slots: "4-5".parse().unwrap(), to: with("5461-") },
            Export { slots: "9".parse().unwrap(), to: with("10922-") },
        ];
        expected.sort_by_key(|export| export.to);
        assert_eq!(table.myself.open, expected);
        assert_eq!(table.myself.slots.to_string(), "0-5460");
        assert!(table.others.iter().all(|other| other.open.is_empty()));
    }
}
