use prost::Message;
use valkey_model::{Action, Member, Settings, SlotSet, Version, Way};

use super::*;
use crate::message::Outcome;

fn id(byte: u8) -> NodeId {
    NodeId::from_bytes([byte; 20])
}

fn report() -> NodeReport {
    let peer = Peer {
        id: id(2),
        address: Some("10.0.0.2:6379".parse().unwrap()),
        role: Role::Replica,
        primary: Some(id(1)),
        slots: SlotSet::EMPTY,
        config_epoch: 3,
        health: PeerHealth::Suspected,
        connected: true,
    };
    let stranger = Peer { id: id(3), address: None, primary: None, health: PeerHealth::Handshake, ..peer.clone() };
    NodeReport {
        id: id(1),
        address: "[fd00::1]:6379".parse().unwrap(),
        role: Role::Primary,
        primary: None,
        slots: "0-5460,7000".parse().unwrap(),
        config_epoch: 3,
        current_epoch: 9,
        serving: true,
        loading: false,
        link: ReplicaLink::Down,
        offset: u64::MAX,
        keys: 17,
        memory: 1 << 40,
        max_memory: 1 << 41,
        version: Version::new(9, 1, 2),
        node_timeout: Duration::from_secs(5),
        peers: vec![peer, stranger],
        exports: Exports {
            running: vec![Export { slots: "0-99,200".parse().unwrap(), to: id(2) }],
            open: vec![Export { slots: "7000".parse().unwrap(), to: id(3) }],
            failures: 2,
            last_failure: Some(Failure { message: "Connection lost to target".into(), ago: Duration::from_secs(3) }),
        },
        settings: Some(TakenSettings {
            mark: "0123abcd".into(),
            refused: Some(RefusedSettings { mark: "4567".into(), words: "ERR CONFIG SET failed".into() }),
        }),
    }
}

fn observed(state: State) -> Observed {
    let certificate = Certificate { thumbprint: "ab".repeat(32), expires_at: -1 };
    Observed {
        state,
        sidecar_version: "0.1.0".into(),
        contract_version: 1,
        certificates: Certificates { mtls: Some(certificate), tls: None },
    }
}

#[test]
fn what_a_sidecar_saw_arrives_unchanged() {
    let held = Held { id: id(1), slots: "5-9".parse().unwrap(), data: LocalData::Old };
    for state in [State::Starting("no answer yet".into()), State::Held(held), State::Known(Box::new(report()))] {
        let said = observed(state);
        let wire = proto::ObserveResponse::from(said.clone()).encode_to_vec();
        let heard = Observed::try_from(proto::ObserveResponse::decode(wire.as_slice()).unwrap());
        assert_eq!(heard, Ok(said));
    }
}

#[test]
fn every_action_arrives_unchanged_at_the_member_that_it_is_for() {
    let on = Member::new(2, 1);
    for said in [
        Action::SetEpoch { on, epoch: 7 },
        Action::AddSlots { on, slots: "0-5460".parse().unwrap() },
        Action::Meet { on, address: "10.0.0.9:6379".parse().unwrap() },
        Action::Replicate { on, primary: id(4) },
        Action::TakeOver { on },
        Action::HandOver { on },
        Action::Migrate { on, slots: "0-99,200".parse().unwrap(), to: id(4), way: Way::Atomic },
        Action::Migrate { on, slots: "7".parse().unwrap(), to: id(4), way: Way::Classic },
        Action::Forget { on, id: id(5) },
        Action::SetNodeTimeout { on, timeout: Duration::from_secs(5) },
        Action::Configure {
            on,
            settings: Settings {
                mark: "0123abcd".into(),
                values: [("save".into(), String::new()), ("maxmemory".into(), "1gb".into())].into(),
            },
        },
        Action::Release { on },
    ] {
        let wire = proto::Command::from(&said).encode_to_vec();
        assert_eq!(action(proto::Command::decode(wire.as_slice()).unwrap(), on), Ok(said));
    }
}

#[test]
fn every_outcome_arrives_unchanged() {
    for said in [Outcome::Done, Outcome::Refused("ERR Slot 3 is already busy".into()), Outcome::Skipped] {
        assert_eq!(Outcome::try_from(proto::Outcome::from(said.clone())), Ok(said));
    }
}

#[test]
fn what_is_missing_or_unknown_is_an_error_and_no_default() {
    let mut no_role = proto::Node::from(report());
    no_role.role = 0;
    assert_eq!(NodeReport::try_from(no_role), Err(Malformed::Unknown { what: "role", value: 0 }));
    let mut new_link = proto::Node::from(report());
    new_link.link = 77;
    assert_eq!(NodeReport::try_from(new_link), Err(Malformed::Unknown { what: "link", value: 77 }));
    let mut nowhere = proto::Node::from(report());
    nowhere.address = "orders-0-0:6379".into();
    assert_eq!(NodeReport::try_from(nowhere), Err(Malformed::Address("orders-0-0:6379".into())));
    let no_way = proto::Migrate { slots: "7".into(), to: id(4).to_string(), way: 0 };
    let no_way = proto::Command { action: Some(proto::command::Action::Migrate(no_way)) };
    assert_eq!(action(no_way, Member::new(0, 0)), Err(Malformed::Unknown { what: "way", value: 0 }));
    assert!(matches!(action(proto::Command { action: None }, Member::new(0, 0)), Err(Malformed::Lacks(_))));
    assert!(matches!(Outcome::try_from(proto::Outcome { result: None }), Err(Malformed::Lacks(_))));
}

#[test]
fn a_sidecar_that_does_not_know_of_moves_or_settings_has_none() {
    let older = proto::Node { exports: None, max_memory: 0, settings: None, ..report().into() };
    let report = NodeReport::try_from(older).unwrap();
    assert_eq!((report.exports, report.settings), (Exports::default(), None));
}
