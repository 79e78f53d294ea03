use serde_json::{Value, json};
use valkey_api::upgrade::{ShardProgress, ValkeyUpgradeSpec};
use valkey_model::Version;

use super::super::facts::{Health, NodeFacts};
use super::super::owner::Manager;
use super::*;

const FROM: &str = "8.1.4";
const TARGET: &str = "9.1.2";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[allow(clippy::needless_pass_by_value)] // literals read better without an ampersand
fn upgrade(status: Value) -> ValkeyUpgrade {
    let object = json!({
        "metadata": {"name": "to-9-1", "namespace": "shop", "generation": 1},
        "spec": {"clusterRef": {"name": "orders"}, "targetVersion": TARGET},
        "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn node(shard: i32, ordinal: i32, tag: &str) -> NodeFacts {
    NodeFacts {
        pod: format!("orders-{shard}-{ordinal}"),
        shard,
        tag: Some(tag.into()),
        version: tag.parse().ok(),
        health: Health::Ready,
        trouble: None,
    }
}

/// Two shards of two, all healthy at this tag.
fn cluster(tag: &str, nodes_at: &str) -> ClusterFacts {
    ClusterFacts {
        tag: tag.into(),
        grip: if tag == TARGET { Grip::Ours } else { Grip::Free },
        standing: Standing::Ready,
        running: Some(Version::new(8, 1, 4)),
        shards: 2,
        replicas: 1,
        nodes: (0..2)
            .flat_map(|shard| (0..2).map(move |ordinal| (shard, ordinal)))
            .map(|(s, o)| node(s, o, nodes_at))
            .collect(),
        patience: SignedDuration::from_secs(300),
        on_standstill: OnStandstill::RollBack,
    }
}

fn with(cluster: ClusterFacts) -> Facts {
    Facts { cluster: Some(cluster), rival: None }
}

fn managed(name: &str) -> Grip {
    Grip::Managed(Manager { name: name.into(), place: "in Git".into() })
}

/// Follows an upgrade from its present status on, as the controller does.
fn look(upgrade: &mut ValkeyUpgrade, facts: &Facts, second: i64) -> Option<SetTag> {
    let decision = decide(upgrade, facts, at(second));
    upgrade.status = Some(decision.status);
    decision.deed
}

fn message(upgrade: &ValkeyUpgrade) -> &str {
    upgrade.status.as_ref().unwrap().message.as_deref().unwrap()
}

fn condition(upgrade: &ValkeyUpgrade, kind: ConditionType) -> &str {
    &conditions::get(&upgrade.status.as_ref().unwrap().conditions, kind).unwrap().status
}

/// One that has written its tag at second 0.
fn rolling() -> ValkeyUpgrade {
    let mut upgrade = upgrade(json!({}));
    let deed = look(&mut upgrade, &with(cluster(FROM, FROM)), 0);
    assert_eq!(deed, Some(SetTag { tag: TARGET.into(), hold: Hold::IfFree }));
    assert_eq!(look(&mut upgrade, &with(cluster(TARGET, FROM)), 0), None);
    assert_eq!(upgrade.phase(), UpgradePhase::InProgress);
    upgrade
}

/// The first `count` nodes run the target and are healthy.
fn updated(count: usize) -> ClusterFacts {
    let mut cluster = cluster(TARGET, FROM);
    for (updated, target) in cluster.nodes.iter_mut().zip(self::cluster(TARGET, TARGET).nodes).take(count) {
        *updated = target;
    }
    cluster
}

fn stuck(count: usize) -> ClusterFacts {
    let mut cluster = updated(count);
    cluster.standing = Standing::Unready("a replica is missing".into());
    let next = &mut cluster.nodes[count];
    next.tag = Some(TARGET.into());
    (next.version, next.health) = (None, Health::NotReady);
    next.trouble = Some("container valkey cannot start (ImagePullBackOff): no such image".into());
    cluster
}

#[test]
fn an_upgrade_goes_from_its_first_look_to_its_end() {
    let mut upgrade = rolling();
    for count in 0..=4 {
        assert_eq!(look(&mut upgrade, &with(updated(count)), 10 * i64::try_from(count).unwrap()), None);
        let status = upgrade.status.clone().unwrap();
        assert_eq!(status.updated_nodes.as_deref(), Some(format!("{count}/4").as_str()));
    }
    assert_eq!(upgrade.phase(), UpgradePhase::Succeeded);
    let status = upgrade.status.as_ref().unwrap();
    assert_eq!(status.shards[1], ShardProgress { shard: 1, updated: 2, total: 2 });
    assert_eq!((status.from_version.as_deref(), status.completed_at.clone()), (Some(FROM), Some(Time(at(40)))));
    for kind in [ConditionType::Accepted, ConditionType::Succeeded] {
        assert_eq!(condition(&upgrade, kind), "True");
    }
    assert_eq!(condition(&upgrade, ConditionType::Progressing), "False");
}

#[test]
fn the_end_waits_for_a_cluster_that_is_ready_with_every_node_on_the_version() {
    let mut unready = updated(4);
    unready.standing = Standing::Unready("the operator has not looked at its present spec yet".into());
    let mut lying = updated(4);
    lying.nodes[3].version = Some(Version::new(8, 1, 4));
    let mut missing = updated(4);
    missing.nodes.pop();
    for cluster in [unready, lying, missing] {
        let mut upgrade = rolling();
        look(&mut upgrade, &with(cluster), 10);
        assert_eq!(upgrade.phase(), UpgradePhase::InProgress);
    }
}

#[test]
fn what_has_ended_never_does_anything_again() {
    for phase in ["Succeeded", "RolledBack", "Failed", "Refused"] {
        let mut upgrade = upgrade(json!({"phase": phase, "fromVersion": FROM, "startedAt": "1970-01-01T00:00:00Z"}));
        let before = upgrade.status.clone();
        for facts in [with(cluster(FROM, FROM)), with(stuck(1)), Facts { cluster: None, rival: None }] {
            assert_eq!(look(&mut upgrade, &facts, 1_000_000), None, "{phase}");
            assert_eq!(upgrade.status, before, "{phase}");
        }
    }
}

#[test]
fn nothing_is_written_while_something_stands_in_the_way() {
    let standing = |standing| with(ClusterFacts { standing, ..cluster(FROM, FROM) });
    for (facts, word) in [
        (Facts { cluster: None, rival: None }, "no ValkeyCluster orders"),
        (Facts { rival: Some("older".into()), ..with(cluster(FROM, FROM)) }, "ValkeyUpgrade older"),
        (standing(Standing::Rejected("bad memory".into())), "bad memory"),
        (standing(Standing::Unready("shard 1 has no primary".into())), "shard 1 has no primary"),
        (standing(Standing::Paused), "spec.paused"),
    ] {
        let mut upgrade = upgrade(json!({}));
        assert_eq!(look(&mut upgrade, &facts, 0), None, "{word}");
        assert_eq!(upgrade.phase(), UpgradePhase::Pending);
        assert!(message(&upgrade).contains(word), "{}", message(&upgrade));
        assert!(!upgrade.is_under_way());
        // It goes on by itself when the obstacle is gone.
        assert!(look(&mut upgrade, &with(cluster(FROM, FROM)), 5).is_some());
    }
}

#[test]
fn a_forbidden_way_is_refused_with_nothing_written() {
    let mut downgrade = upgrade(json!({}));
    assert_eq!(look(&mut downgrade, &with(cluster("9.2.0", "9.2.0")), 0), None);
    assert_eq!(downgrade.phase(), UpgradePhase::Refused, "an unknown series");
    let mut older = upgrade(json!({}));
    older.spec = ValkeyUpgradeSpec { target_version: "8.1.4".into(), ..older.spec };
    assert_eq!(look(&mut older, &with(cluster(TARGET, TARGET)), 0), None);
    assert_eq!((older.phase(), condition(&older, ConditionType::Accepted)), (UpgradePhase::Refused, "False"));
    assert!(message(&older).contains("backup"), "{}", message(&older));
}

#[test]
fn the_version_that_is_there_is_reached_at_once() {
    let mut upgrade = upgrade(json!({}));
    assert_eq!(look(&mut upgrade, &with(cluster(TARGET, TARGET)), 0), None);
    assert_eq!(upgrade.phase(), UpgradePhase::Succeeded);
}

#[test]
fn a_tag_that_somebody_manages_is_left_to_them_and_they_are_named() {
    let facts = with(ClusterFacts { grip: managed("argocd-controller"), ..cluster(FROM, FROM) });
    let mut upgrade = upgrade(json!({}));
    assert_eq!(look(&mut upgrade, &facts, 0), None);
    assert_eq!(upgrade.phase(), UpgradePhase::Refused);
    for word in ["argocd-controller", "in Git", "orders", TARGET] {
        assert!(message(&upgrade).contains(word), "{}", message(&upgrade));
    }
}

#[test]
fn only_from_a_hand_that_wrote_once_the_tag_is_taken_by_force() {
    for (grip, hold) in [(Grip::Free, Hold::IfFree), (Grip::Ours, Hold::IfFree), (Grip::OneOff, Hold::FromOneOff)] {
        let mut upgrade = upgrade(json!({}));
        let deed = look(&mut upgrade, &with(ClusterFacts { grip, ..cluster(FROM, FROM) }), 0);
        assert_eq!(deed, Some(SetTag { tag: TARGET.into(), hold }));
    }
}

#[test]
fn the_intention_is_known_before_the_deed_and_survives_a_crash_on_either_side_of_it() {
    let mut upgrade = upgrade(json!({}));
    assert!(look(&mut upgrade, &with(cluster(FROM, FROM)), 0).is_some());
    let status = upgrade.status.clone().unwrap();
    assert_eq!((status.from_version.as_deref(), status.started_at), (Some(FROM), None));
    // The deed did not happen: it is done now.
    let mut lost = upgrade.clone();
    assert!(look(&mut lost, &with(cluster(FROM, FROM)), 500).is_some());
    // It did: the way back is known, and the clock begins when it is seen.
    assert_eq!(look(&mut upgrade, &with(cluster(TARGET, FROM)), 500), None);
    assert_eq!(upgrade.status.as_ref().unwrap().started_at, Some(Time(at(500))));
    assert_eq!(look(&mut upgrade, &with(stuck(0)), 801).unwrap().tag, FROM);
}

#[test]
fn a_standstill_is_rolled_back_until_every_node_is_where_it_was() {
    let mut upgrade = rolling();
    look(&mut upgrade, &with(updated(1)), 100);
    assert_eq!(look(&mut upgrade, &with(stuck(1)), 400), None, "300 seconds after the last progress");
    assert_eq!(look(&mut upgrade, &with(stuck(1)), 401), Some(SetTag { tag: FROM.into(), hold: Hold::IfFree }));
    assert_eq!(upgrade.phase(), UpgradePhase::RollingBack);
    assert!(
        message(&upgrade).contains("orders-0-1 container valkey cannot start (ImagePullBackOff)"),
        "{}",
        message(&upgrade)
    );
    // A crash before the deed: it is done again.
    assert!(look(&mut upgrade, &with(stuck(1)), 402).is_some());
    let mut back = stuck(1);
    (back.tag, back.grip) = (FROM.into(), Grip::Ours);
    assert_eq!(look(&mut upgrade, &with(back), 403), None);
    assert_eq!(
        (upgrade.phase(), upgrade.status.as_ref().unwrap().updated_nodes.as_deref()),
        (UpgradePhase::RollingBack, Some("2/4"))
    );
    assert_eq!(look(&mut upgrade, &with(cluster(FROM, FROM)), 500), None);
    assert_eq!((upgrade.phase(), condition(&upgrade, ConditionType::Succeeded)), (UpgradePhase::RolledBack, "False"));
}

#[test]
fn a_node_that_comes_and_goes_is_no_progress() {
    let mut upgrade = rolling();
    look(&mut upgrade, &with(updated(1)), 10);
    for second in [100, 200, 300] {
        assert_eq!(look(&mut upgrade, &with(stuck(0)), second), None);
        assert_eq!(look(&mut upgrade, &with(updated(1)), second + 5), None);
    }
    assert!(look(&mut upgrade, &with(updated(1)), 311).is_some(), "301 seconds after it came up first");
}

#[test]
fn without_automatic_rollback_it_stops_and_says_what_to_do() {
    let mut upgrade = rolling();
    let cluster = ClusterFacts { on_standstill: OnStandstill::Stop, ..stuck(0) };
    assert_eq!(look(&mut upgrade, &with(cluster), 301), None);
    assert_eq!(upgrade.phase(), UpgradePhase::Failed);
    for word in ["ImagePullBackOff", "autoRollback", FROM] {
        assert!(message(&upgrade).contains(word), "{}", message(&upgrade));
    }
}

#[test]
fn a_tag_that_is_not_ours_any_more_is_not_set_back() {
    for grip in [managed("argocd-controller"), Grip::OneOff] {
        let mut upgrade = rolling();
        assert_eq!(look(&mut upgrade, &with(ClusterFacts { grip: grip.clone(), ..stuck(0) }), 301), None);
        assert_eq!(upgrade.phase(), UpgradePhase::Failed);
        // The same if it was taken from us after we decided to go back.
        let mut late = rolling();
        assert!(look(&mut late, &with(stuck(0)), 301).is_some());
        assert_eq!(look(&mut late, &with(ClusterFacts { grip, ..stuck(0) }), 302), None);
        assert_eq!(late.phase(), UpgradePhase::Failed);
    }
}

#[test]
fn a_tag_that_somebody_changes_meanwhile_ends_the_upgrade() {
    let (mut upgrade, mut going_back) = (rolling(), rolling());
    assert!(look(&mut going_back, &with(stuck(0)), 301).is_some());
    for upgrade in [&mut upgrade, &mut going_back] {
        assert_eq!(look(upgrade, &with(cluster("9.1.3", FROM)), 302), None);
        assert_eq!(upgrade.phase(), UpgradePhase::Failed);
        assert!(message(upgrade).contains("9.1.3"), "{}", message(upgrade));
    }
}

#[test]
fn the_only_copy_is_never_rolled_back_to_a_version_that_cannot_read_it() {
    let alone = |mut cluster: ClusterFacts| {
        cluster.replicas = 0;
        cluster.nodes.retain(|node| node.pod.ends_with("-0"));
        cluster
    };
    let mut some = rolling();
    let mut facts = alone(updated(1));
    facts.standing = Standing::Unready("shard 1 has no primary".into());
    assert_eq!(look(&mut some, &with(facts.clone()), 10), None);
    assert_eq!(look(&mut some, &with(facts), 311), None);
    assert_eq!(some.phase(), UpgradePhase::Failed);
    assert!(message(&some).contains("only copy"), "{}", message(&some));
    // As long as no node has run the new version, there is nothing that the former one could not read.
    assert!(look(&mut rolling(), &with(alone(stuck(0))), 301).is_some());
}

#[test]
fn a_pause_holds_everything_and_its_time_does_not_count() {
    let mut before = upgrade(json!({}));
    before.spec.paused = Some(true);
    assert_eq!(look(&mut before, &with(cluster(FROM, FROM)), 0), None);
    assert_eq!((before.phase(), before.is_under_way()), (UpgradePhase::Paused, false));

    let mut upgrade = rolling();
    upgrade.spec.paused = Some(true);
    assert_eq!(look(&mut upgrade, &with(stuck(1)), 10_000), None);
    assert_eq!((upgrade.phase(), upgrade.is_under_way()), (UpgradePhase::Paused, true));
    upgrade.spec.paused = Some(false);
    assert_eq!(look(&mut upgrade, &with(stuck(1)), 20_000), None);
    assert_eq!(upgrade.phase(), UpgradePhase::InProgress);
    assert_eq!(look(&mut upgrade, &with(stuck(1)), 20_300), None);
    assert!(look(&mut upgrade, &with(stuck(1)), 20_301).is_some());
}

#[test]
fn a_paused_cluster_is_no_standstill() {
    let mut upgrade = rolling();
    let paused = ClusterFacts { standing: Standing::Paused, ..stuck(1) };
    assert_eq!(look(&mut upgrade, &with(paused), 10_000), None);
    assert_eq!(upgrade.phase(), UpgradePhase::Paused);
}

#[test]
fn saying_the_same_again_changes_nothing() {
    let mut upgrade = rolling();
    look(&mut upgrade, &with(stuck(1)), 10);
    let before = upgrade.status.clone();
    look(&mut upgrade, &with(stuck(1)), 20);
    assert_eq!(upgrade.status, before);
}

#[test]
fn a_cluster_that_is_deleted_meanwhile_ends_the_upgrade() {
    let mut upgrade = rolling();
    assert_eq!(look(&mut upgrade, &Facts { cluster: None, rival: None }, 5), None);
    assert_eq!(upgrade.phase(), UpgradePhase::Failed);
}

#[test]
fn a_refusal_of_the_api_server_is_told_in_its_words() {
    let words = r#"conflict with "helm" using valkey.io/v1alpha1: .spec.valkeyImage.tag"#;
    let mut fresh = upgrade(json!({}));
    look(&mut fresh, &with(cluster(FROM, FROM)), 0);
    for (upgrade, phase) in [(fresh, UpgradePhase::Refused), (rolling(), UpgradePhase::Failed)] {
        let status = refused_at_the_write(&upgrade, upgrade.status.clone().unwrap(), words, at(1));
        assert_eq!(status.phase, Some(phase));
        assert!(status.message.unwrap().contains("helm"));
    }
}
