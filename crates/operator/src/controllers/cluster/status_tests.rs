use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use valkey_model::{Exports, NodeId, Observation, SlotSet, Version, partition};
use valkey_planner::plan;
use valkey_resources::{References, check};

use super::*;

fn checked(spec: serde_json::Value) -> CheckedCluster {
    let mut cluster = valkey_api::ValkeyCluster::new("orders", serde_json::from_value(spec).unwrap());
    cluster.metadata.namespace = Some("shop".into());
    check(&cluster, &References::default()).unwrap()
}

fn id(member: Member) -> NodeId {
    let mut bytes = [0; 20];
    bytes[0] = u8::try_from(member.shard.0 + 1).unwrap();
    bytes[1] = u8::try_from(member.ordinal + 1).unwrap();
    NodeId::from_bytes(bytes)
}

const DESIRED: Desired = Desired { shards: 3, replicas: 1, node_timeout: Duration::from_secs(5) };

fn blank(member: Member) -> NodeReport {
    NodeReport {
        id: id(member),
        address: ([10, 0, u8::try_from(member.shard.0).unwrap(), u8::try_from(member.ordinal).unwrap()], 6379).into(),
        role: Role::Primary,
        primary: None,
        slots: SlotSet::EMPTY,
        config_epoch: 0,
        current_epoch: 0,
        serving: false,
        loading: false,
        link: ReplicaLink::Down,
        offset: 0,
        keys: 0,
        memory: 1_000_000,
        max_memory: 0,
        version: Version::new(9, 1, 2),
        node_timeout: Duration::from_secs(1),
        peers: Vec::new(),
        exports: Exports::default(),
        settings: None,
    }
}

/// A whole 3×1 cluster in which every first member leads.
fn whole() -> Observation {
    let parts = partition(3);
    let formed = |member: Member| {
        let leads = member.ordinal == 0;
        NodeReport {
            role: if leads { Role::Primary } else { Role::Replica },
            primary: (!leads).then(|| id(Member { ordinal: 0, ..member })),
            slots: if leads { parts[usize::from(member.shard.0)].clone() } else { SlotSet::EMPTY },
            config_epoch: u64::from(member.shard.0) + 1,
            serving: true,
            link: ReplicaLink::Up,
            offset: if leads { 100 } else { 90 },
            node_timeout: DESIRED.node_timeout,
            ..blank(member)
        }
    };
    let all: Vec<(Member, NodeReport)> = DESIRED.members().map(|member| (member, formed(member))).collect();
    let with_peers = |(member, report): &(Member, NodeReport)| {
        let peers = all.iter().filter(|(other, _)| other != member).map(|(_, other)| valkey_model::Peer {
            id: other.id,
            address: Some(other.address),
            role: other.role,
            primary: other.primary,
            slots: other.slots.clone(),
            config_epoch: other.config_epoch,
            health: valkey_model::PeerHealth::Fine,
            connected: true,
        });
        (*member, Sighting::Known(Box::new(NodeReport { peers: peers.collect(), ..report.clone() })))
    };
    Observation { members: all.iter().map(with_peers).collect(), ..Observation::default() }
}

fn seen(topology: Observation) -> Seen {
    let pods = topology.reports().map(|(member, _)| (member, ready_pod("True"))).collect();
    Seen { topology, pods, certificates: BTreeMap::new() }
}

fn ready_pod(ready: &str) -> Arc<Pod> {
    let status = serde_json::json!({"conditions": [{"type": "Ready", "status": ready}]});
    Arc::new(Pod { status: Some(serde_json::from_value(status).unwrap()), ..Pod::default() })
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn told(topology: Observation, before: &ClusterStatus, attention: Attention, now: Timestamp) -> ClusterStatus {
    told_of(&seen(topology), before, attention, now)
}

fn told_of(seen: &Seen, before: &ClusterStatus, attention: Attention, now: Timestamp) -> ClusterStatus {
    let plan = plan(DESIRED, &seen.topology);
    let blemishes = valkey_model::blemishes(DESIRED, &seen.topology);
    let checked = checked(serde_json::json!({}));
    let picture = Picture {
        checked: &checked,
        namespace: "shop",
        generation: 1,
        desired: DESIRED,
        seen,
        plan: &plan,
        blemishes: &blemishes,
        verdict: &Verdict::default(),
        attention,
        certificates_expire: Some(at(1_000_000)),
        now,
    };
    status(&picture, before)
}

fn condition(status: &ClusterStatus, kind: ConditionType) -> (String, String, String) {
    let found = conditions::get(&status.conditions, kind).unwrap();
    (found.status.clone(), found.reason.clone(), found.message.clone())
}

#[test]
fn a_whole_cluster_is_ready_and_says_where_it_is() {
    let status = told(whole(), &ClusterStatus::default(), Attention::Managed, at(10));
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!((status.masters, status.replicas, status.slots_assigned), (Some(3), Some(3), Some(16384)));
    assert_eq!((status.nodes.as_deref(), &status.operation), (Some("6/6"), &None));
    assert_eq!(condition(&status, ConditionType::Ready).0, "True");
    assert_eq!(condition(&status, ConditionType::Degraded).0, "False");
    assert_eq!(status.formed_at, Some(Time(at(10))));
    assert_eq!(status.endpoints.unwrap().host, "orders.shop.svc");
}

#[test]
fn it_is_ready_when_clients_get_in_and_stays_so_while_it_is_whole() {
    let with = |ready: &str| {
        let seen = seen(whole());
        let pods = seen.pods.keys().map(|member| (*member, ready_pod(ready))).collect();
        Seen { pods, ..seen }
    };
    let opening = told_of(&with("False"), &ClusterStatus::default(), Attention::Managed, at(10));
    assert_eq!((opening.phase, condition(&opening, ConditionType::Ready).0.as_str()), (Some(Phase::Creating), "False"));
    let open = told_of(&with("True"), &opening, Attention::Managed, at(11));
    assert_eq!((open.phase, condition(&open, ConditionType::Ready).0.as_str()), (Some(Phase::Running), "True"));
    assert_eq!(told_of(&with("False"), &open, Attention::Managed, at(12)), open);
}

#[test]
fn saying_the_same_later_changes_nothing() {
    let first = told(whole(), &ClusterStatus::default(), Attention::Managed, at(10));
    assert_eq!(told(whole(), &first, Attention::Managed, at(20)), first);
}

#[test]
fn a_new_cluster_is_being_created_and_one_that_was_whole_is_degraded() {
    let nothing = || Observation::default();
    let new = told(nothing(), &ClusterStatus::default(), Attention::Managed, at(10));
    assert_eq!((new.phase, new.formed_at.clone()), (Some(Phase::Creating), None));
    assert_eq!(condition(&new, ConditionType::Degraded).0, "False");

    let formed = told(whole(), &new, Attention::Managed, at(20));
    let after = told(nothing(), &formed, Attention::Managed, at(30));
    assert_eq!((after.phase, after.formed_at), (Some(Phase::Degraded), Some(Time(at(20)))));
}

#[test]
fn what_is_missing_is_told_by_the_names_of_pods() {
    let mut wounded = whole();
    wounded.members.insert(Member::new(2, 1), Sighting::Unreachable);
    let formed = told(whole(), &ClusterStatus::default(), Attention::Managed, at(10));
    let status = told(wounded, &formed, Attention::Managed, at(20));
    let (holds, reason, message) = condition(&status, ConditionType::Ready);
    assert_eq!((holds.as_str(), reason.as_str()), ("True", "Healing"), "a silent replica is not felt");
    assert!(message.contains("all slots are served; orders-2-1 does not answer"), "{message}");
    let (holds, _, message) = condition(&status, ConditionType::Degraded);
    assert!(holds == "True" && message.contains("orders-2-1 does not answer"), "{message}");
}

#[test]
fn one_missed_answer_is_no_news_unless_it_lasts_or_a_peer_misses_somebody() {
    let silent = Member::new(2, 0);
    let after = |seconds, health| {
        let mut seen = whole();
        seen.members.insert(silent, Sighting::Unreachable);
        seen.unsynced_for.insert(silent, Duration::from_secs(seconds));
        for sighting in seen.members.values_mut() {
            let Sighting::Known(report) = sighting else { continue };
            report.peers.iter_mut().for_each(|peer| peer.health = health);
        }
        is_inconclusive(&seen)
    };
    assert!(after(0, PeerHealth::Fine) && after(9, PeerHealth::Fine));
    assert!(!after(10, PeerHealth::Fine));
    assert!(!after(3, PeerHealth::Suspected));
    assert!(!is_inconclusive(&whole()));
}

#[test]
fn a_cluster_is_not_ready_while_slots_have_no_owner_nor_until_it_is_whole_again() {
    let formed = told(whole(), &ClusterStatus::default(), Attention::Managed, at(10));
    let mut headless = whole();
    headless.members.insert(Member::new(2, 0), Sighting::Missing);
    let down = told(headless, &formed, Attention::Managed, at(20));
    assert_eq!(condition(&down, ConditionType::Ready).0, "False");
    let mut healing = whole();
    healing.members.insert(Member::new(2, 1), Sighting::Starting);
    assert_eq!(condition(&told(healing, &down, Attention::Managed, at(30)), ConditionType::Ready).0, "False");
    assert_eq!(condition(&told(whole(), &down, Attention::Managed, at(30)), ConditionType::Ready).0, "True");
}

#[test]
fn a_formed_cluster_that_comes_back_blank_has_lost_its_data_and_a_new_one_has_not() {
    let all_blank = || Observation {
        members: DESIRED.members().map(|member| (member, Sighting::Known(Box::new(blank(member))))).collect(),
        ..Observation::default()
    };
    let new = told(all_blank(), &ClusterStatus::default(), Attention::Managed, at(10));
    assert_eq!(conditions::get(&new.conditions, ConditionType::DataLost), None);
    let formed = told(whole(), &new, Attention::Managed, at(20));
    let wiped = told(all_blank(), &formed, Attention::Managed, at(30));
    assert_eq!(condition(&wiped, ConditionType::DataLost).0, "True");
    let again = told(whole(), &wiped, Attention::Managed, at(40));
    assert_eq!(condition(&again, ConditionType::DataLost).0, "True", "it stays until somebody has seen it");
}

#[test]
fn a_paused_cluster_is_looked_at_and_that_is_all() {
    let status = told(whole(), &ClusterStatus::default(), Attention::Paused, at(10));
    assert_eq!((status.phase, status.masters), (Some(Phase::Paused), Some(3)));
}

#[test]
fn a_bad_spec_leaves_what_was_said_about_the_running_cluster() {
    let running = told(whole(), &ClusterStatus::default(), Attention::Managed, at(10));
    let mut cluster = valkey_api::ValkeyCluster::new(
        "orders",
        serde_json::from_value(serde_json::json!({"config": {"port": "1"}})).unwrap(),
    );
    cluster.metadata.namespace = Some("shop".into());
    let errors = check(&cluster, &References::default()).unwrap_err();
    let status = refused(&errors, 2, &running, at(20));
    assert_eq!((status.phase, status.masters), (running.phase, running.masters));
    assert_eq!(condition(&status, ConditionType::Ready), condition(&running, ConditionType::Ready));
    let (holds, _, message) = condition(&status, ConditionType::Accepted);
    assert!(holds == "False" && message.contains("spec.config.port"), "{message}");
    assert_eq!(status.last_failure.as_ref().unwrap().message, message);
    assert_eq!(refused(&errors, 2, &status, at(30)), status, "the same again is nothing new");
}

#[test]
fn a_topology_that_only_moved_is_the_same() {
    let names = ChildNames::new("orders");
    let before = topology(&names, DESIRED, &seen(whole()), at(10));
    assert_eq!((before.summary.as_str(), before.nodes.len()), ("6/6", 6));
    assert_eq!(before.nodes[1].lag, Some(10));
    let mut moved = whole();
    if let Some(Sighting::Known(report)) = moved.members.get_mut(&Member::new(0, 0)) {
        report.offset += 1000;
        report.keys += 1;
    }
    assert!(same_topology(&before, &topology(&names, DESIRED, &seen(moved), at(20))));
    let mut failed = whole();
    failed.members.insert(Member::new(0, 1), Sighting::Missing);
    assert!(!same_topology(&before, &topology(&names, DESIRED, &seen(failed), at(20))));
}

fn lost(conditions: &[Condition]) -> (&str, Time) {
    let lost = conditions::get(conditions, ConditionType::DataLost).unwrap();
    (&lost.message, lost.last_transition_time.clone())
}

#[test]
fn losses_of_one_accident_are_told_together_and_those_of_the_next_apart() {
    let mut all = Vec::new();
    let ready = |all: &mut Vec<_>, ready, second| {
        conditions::set(all, ConditionType::Ready, ready, "", "", 1, Time(at(second)));
    };
    ready(&mut all, ConditionStatus::False, 10);
    say_lost(&mut all, vec!["shard 0".into()], 1, Time(at(11)));
    say_lost(&mut all, vec!["shard 0".into(), "shard 2".into()], 1, Time(at(12)));
    assert_eq!(lost(&all), ("shard 0; shard 2", Time(at(11))));

    ready(&mut all, ConditionStatus::True, 20);
    ready(&mut all, ConditionStatus::False, 30);
    say_lost(&mut all, vec!["shard 0".into()], 1, Time(at(31)));
    assert_eq!(lost(&all), ("shard 0", Time(at(31))));
}

#[test]
fn progress_alone_is_told_from_news() {
    let doing = |message: &str, name: &str| {
        let mut status = told(whole(), &ClusterStatus::default(), Attention::Managed, at(10));
        let progressing = conditions::get(&status.conditions, ConditionType::Progressing).unwrap().clone();
        status.conditions.retain(|condition| *condition != progressing);
        status.conditions.push(Condition { message: message.into(), ..progressing });
        status.operation =
            Some(Operation { name: name.into(), percent: Some(1), message: message.into(), ..Operation::default() });
        status
    };
    let before = doing("1 of 9", "Scaling");
    assert!(differ_in_progress_only(&before, &doing("2 of 9", "Scaling")));
    assert!(!differ_in_progress_only(&before, &before));
    assert!(!differ_in_progress_only(&before, &doing("2 of 9", "Rolling")));
    assert!(!differ_in_progress_only(&before, &ClusterStatus { masters: Some(4), ..before.clone() }));
}

#[test]
fn a_roll_does_not_degrade_a_cluster_but_a_pod_that_does_not_come_up_does() {
    let ready = told(whole(), &ClusterStatus::default(), Attention::Managed, at(1));
    let (member, mut rolling) = (Member::new(0, 1), whole());
    rolling.outdated = [Member::new(1, 1)].into();
    rolling.going = [member].into();
    rolling.members.insert(member, Sighting::Starting);
    let mut seen = seen(rolling);
    let status = told_of(&seen, &ready, Attention::Managed, at(2));
    assert_eq!(condition(&status, ConditionType::Ready).0, "True");
    assert_eq!(condition(&status, ConditionType::Degraded).0, "False");
    assert_eq!(status.phase, Some(Phase::Updating));

    let waiting = serde_json::json!({"containerStatuses": [{
        "name": "valkey", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff"}},
    }]});
    let stuck = Pod { status: Some(serde_json::from_value(waiting).unwrap()), ..Pod::default() };
    seen.pods.insert(member, Arc::new(stuck));
    let status = told_of(&seen, &ready, Attention::Managed, at(2));
    assert_eq!(condition(&status, ConditionType::Ready).0, "True", "all slots are served");
    assert_eq!(condition(&status, ConditionType::Degraded).0, "True");
}

#[test]
fn moves_tell_how_much_is_left_and_how_long_it_will_take() {
    let load = |slots, bytes| Load { slots, keys: 10, bytes };
    let begun = moves(load(4096, 4_000_000), None, at(100));
    assert_eq!((begun.slots, begun.slots_left, begun.bytes_per_second), (4096, 4096, None));
    let later = moves(load(1024, 1_000_000), Some(&begun), at(103));
    assert_eq!((later.slots, later.slots_left), (4096, 1024));
    assert_eq!((later.bytes_per_second, later.seconds_left), (Some(1_000_000), Some(1)));
    // Another target joins: what has moved stays moved.
    let more = moves(load(2048, 2_000_000), Some(&later), at(104));
    assert_eq!((more.slots, more.slots_left, more.bytes, more.bytes_left), (5120, 2048, 5_000_000, 2_000_000));
    assert_eq!(more.started_at, begun.started_at);
}
