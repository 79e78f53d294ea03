use std::time::Duration;

use super::*;
use crate::{Exports, Version, partition};

const DESIRED: Desired = Desired { shards: 2, replicas: 1, node_timeout: Duration::from_secs(5) };

fn id(member: Member) -> NodeId {
    let [high, low] = (member.shard.0 * 100 + member.ordinal + 1).to_be_bytes();
    NodeId::from_bytes([&[high, low][..], &[0; 18]].concat().try_into().unwrap())
}

/// What a server says of which others know nothing yet. The first of each shard leads.
fn report(member: Member) -> NodeReport {
    let leads = member.ordinal == 0;
    let primary = Member { ordinal: 0, ..member };
    let slots = partition(DESIRED.shards)[usize::from(member.shard.0)].clone();
    NodeReport {
        id: id(member),
        address: format!("10.0.{}.{}:6379", member.shard, member.ordinal).parse().unwrap(),
        role: if leads { Role::Primary } else { Role::Replica },
        primary: (!leads).then(|| id(primary)),
        slots: if leads { slots } else { SlotSet::EMPTY },
        config_epoch: u64::from(member.shard.0) + 1,
        current_epoch: 2,
        serving: true,
        loading: false,
        link: if leads { ReplicaLink::Down } else { ReplicaLink::Up },
        offset: 100,
        keys: 10,
        memory: 1000,
        max_memory: 0,
        version: Version::new(9, 1, 2),
        node_timeout: DESIRED.node_timeout,
        peers: Vec::new(),
        exports: Exports::default(),
        settings: None,
    }
}

fn peer(report: &NodeReport) -> Peer {
    Peer {
        id: report.id,
        address: Some(report.address),
        role: report.role,
        primary: report.primary,
        slots: report.slots.clone(),
        config_epoch: report.config_epoch,
        health: PeerHealth::Fine,
        connected: true,
    }
}

/// A cluster without a flaw, after some change.
fn seen(change: impl Fn(Member, &mut NodeReport)) -> Observation {
    let all: Vec<NodeReport> = DESIRED.members().map(report).collect();
    let known = |member: Member| {
        let mut report = report(member);
        report.peers = all.iter().filter(|other| other.id != report.id).map(peer).collect();
        change(member, &mut report);
        (member, Sighting::Known(Box::new(report)))
    };
    Observation { members: DESIRED.members().map(known).collect(), ..Observation::default() }
}

#[test]
fn a_cluster_that_is_whole_has_no_blemish() {
    assert_eq!(blemishes(DESIRED, &seen(|_, _| {})), []);
}

#[test]
fn what_nobody_notices_is_told_last() {
    let found = blemishes(
        DESIRED,
        &seen(|member, report| {
            report.node_timeout = Duration::from_secs(1);
            if member == Member::new(1, 1) {
                report.peers.pop();
            }
        }),
    );
    let unsettled = |blemish: &Blemish| matches!(blemish, Blemish::Unsettled(_));
    assert!(matches!(found[0], Blemish::KnowsOthers { .. }) && found[1..].iter().all(unsettled), "{found:?}");
}

#[test]
fn a_replica_without_a_link_is_not_felt_and_a_primary_that_does_not_serve_is() {
    let ill = seen(|member, report| (report.link, report.serving) = (ReplicaLink::Down, member != Member::new(0, 0)));
    let felt: Vec<_> = blemishes(DESIRED, &ill).into_iter().filter(|blemish| blemish.is_felt(&ill)).collect();
    assert_eq!(felt, [Blemish::NotServing(Member::new(0, 0))]);
}

#[test]
fn somebody_who_lost_his_slots_to_a_newer_owner_is_not_in_sync() {
    let all: BTreeSet<Member> = DESIRED.members().collect();
    assert_eq!(seen(|_, _| {}).in_sync(), all);
    let outdated = seen(|member, report| {
        let primary = id(Member::new(0, 0));
        if member == Member::new(1, 0) {
            report.peers.iter_mut().filter(|peer| peer.id != primary).for_each(|peer| {
                (peer.slots, peer.config_epoch) = ("0-99".parse().unwrap(), 9);
            });
        }
        if member == Member::new(1, 1) {
            report.link = ReplicaLink::Syncing;
        }
    });
    assert_eq!(outdated.in_sync(), BTreeSet::from([Member::new(0, 1), Member::new(1, 0)]));
}

#[test]
fn a_slot_that_changes_hands_while_we_look_is_not_missing() {
    let source = Member::new(0, 0);
    let is_missing =
        |seen: &Observation| blemishes(DESIRED, seen).iter().any(|b| matches!(b, Blemish::SlotsMissing(_)));
    // The target was asked before it got slot 7, the source after it gave it away. Others know of either.
    let gave_7 = |member: Member, report: &mut NodeReport| {
        let without = |slots: &SlotSet| slots.minus(&"7".parse().unwrap());
        if member == source {
            report.slots = without(&report.slots);
        }
    };
    let passing = seen(gave_7);
    assert!(!is_missing(&passing));
    assert!(!blemishes(DESIRED, &passing).is_empty(), "nor is all well");
    let lost = seen(|member, report| {
        gave_7(member, report);
        for peer in report.peers.iter_mut().filter(|peer| peer.id == id(source)) {
            peer.slots = peer.slots.minus(&"7".parse().unwrap());
        }
    });
    assert!(is_missing(&lost), "nobody says that anybody has it");
    let failed = seen(|member, report| {
        gave_7(member, report);
        report.peers.iter_mut().for_each(|peer| peer.health = PeerHealth::Failed);
    });
    assert!(is_missing(&failed), "nobody reaches the one who should have it");
}

#[test]
fn a_primary_that_does_not_answer_us_is_felt_when_a_peer_doubts_it() {
    let silent = Member::new(0, 0);
    let felt = |change: &dyn Fn(Member, &mut NodeReport), sighting: Sighting| {
        let mut seen = seen(change);
        seen.members.insert(silent, sighting);
        blemishes(DESIRED, &seen).iter().any(|blemish| blemish.is_felt(&seen))
    };
    let doubts = |about: Member| {
        move |by: Member, report: &mut NodeReport| {
            let peers = report.peers.iter_mut().filter(|peer| by == Member::new(1, 1) && peer.id == id(about));
            peers.for_each(|peer| peer.health = PeerHealth::Suspected);
        }
    };
    assert!(!felt(&|_, _| {}, Sighting::Unreachable), "all of its peers reach it");
    assert!(felt(&doubts(silent), Sighting::Unreachable));
    assert!(felt(&|_, report| report.serving = false, Sighting::Unreachable));
    assert!(felt(&|_, _| {}, Sighting::Missing), "it is gone, and nobody has noticed it yet");
}
