use std::time::Duration;

use serde_json::json;
use valkey_api::ValkeyCluster;
use valkey_model::{Exports, NodeId, RefusedSettings, ReplicaLink, Role, SlotSet, TakenSettings, Version};
use valkey_resources::{References, check, valkey_conf};

use super::*;

const DESIRED: Desired = Desired { shards: 3, replicas: 0, node_timeout: Duration::from_secs(5) };

fn checked(spec: serde_json::Value) -> CheckedCluster {
    check(&ValkeyCluster::new("orders", serde_json::from_value(spec).unwrap()), &References::default()).unwrap()
}

fn with_clients(count: &str) -> CheckedCluster {
    checked(json!({"config": {"maxclients": count}}))
}

fn report(settings: Option<TakenSettings>) -> Sighting {
    Sighting::Known(Box::new(NodeReport {
        id: NodeId::from_bytes([1; 20]),
        address: "10.0.0.1:6379".parse().unwrap(),
        role: Role::Primary,
        primary: None,
        slots: SlotSet::EMPTY,
        config_epoch: 1,
        current_epoch: 1,
        serving: true,
        loading: false,
        link: ReplicaLink::Down,
        offset: 0,
        keys: 0,
        memory: 0,
        max_memory: 0,
        version: Version::new(9, 1, 2),
        node_timeout: Duration::from_secs(5),
        peers: Vec::new(),
        exports: Exports::default(),
        settings,
    }))
}

fn has(settings: &Settings) -> Sighting {
    report(Some(TakenSettings { mark: settings.mark.clone(), refused: None }))
}

fn refuses(settings: &Settings, words: &str) -> Sighting {
    let refused = RefusedSettings { mark: settings.mark.clone(), words: words.into() };
    report(Some(TakenSettings { mark: "former".into(), refused: Some(refused) }))
}

/// The three members in their order.
fn seen(sightings: [Sighting; 3]) -> Observation {
    Observation { members: DESIRED.members().zip(sightings).collect(), ..Observation::default() }
}

fn formed() -> ClusterStatus {
    serde_json::from_value(json!({"formedAt": "2026-01-01T00:00:00Z"})).unwrap()
}

/// The `ConfigMap` holds the settings for 100 clients.
fn kept() -> (Kept, Settings) {
    let mut kept = Kept::default();
    let good = live_settings(&with_clients("100"));
    kept.hold(good.clone());
    (kept, good)
}

fn nobody() -> std::iter::Empty<&'static Pod> {
    std::iter::empty()
}

#[test]
fn what_every_node_took_last_is_read_back_from_the_config_map() {
    let cluster = with_clients("100");
    let good = live_settings(&cluster);
    let data = [(VALKEY_CONF.to_owned(), valkey_conf(&cluster, &good))].into();
    assert_eq!(held(&ConfigMap { data: Some(data), ..ConfigMap::default() }), Some(good));
    assert_eq!(held(&ConfigMap::default()), None);
}

#[test]
fn pods_of_a_new_cluster_start_with_what_is_wanted() {
    let settings = Kept::default().look(&with_clients("100"), &Observation::default(), nobody());
    assert_eq!(settings.wanted, settings.good);
    assert_eq!(start_with(&settings, DESIRED, &Observation::default(), &ClusterStatus::default()), settings.wanted);
    // The first settings may be why nobody comes up: others may take their place.
    let (mut kept, _) = kept();
    let settings = kept.look(&with_clients("200"), &Observation::default(), nobody());
    assert_eq!(start_with(&settings, DESIRED, &Observation::default(), &ClusterStatus::default()), settings.wanted);
}

#[test]
fn pods_start_with_new_settings_only_after_every_running_node_took_them() {
    let (mut kept, good) = kept();
    let new = live_settings(&with_clients("200"));
    let mut start = |sightings| {
        let topology = seen(sightings);
        let settings = kept.look(&with_clients("200"), &topology, nobody());
        start_with(&settings, DESIRED, &topology, &formed())
    };
    for not_yet in [
        [has(&good), has(&good), has(&good)],
        [has(&new), has(&new), has(&good)],
        [has(&new), has(&new), has(&Settings::default())],
        [has(&new), has(&new), Sighting::Unreachable],
        // After a power cut nobody runs who could have taken them.
        [Sighting::Missing, Sighting::Starting, Sighting::Missing],
    ] {
        assert_eq!(start(not_yet.clone()), good, "{not_yet:?}");
    }
    for taken in [
        [has(&new), has(&new), has(&new)],
        [has(&new), has(&new), Sighting::Missing],
        [has(&new), report(None), has(&new)],
    ] {
        assert_eq!(start(taken.clone()), new, "{taken:?}");
    }
}

#[test]
fn a_node_that_leaves_is_not_waited_for() {
    let (mut kept, good) = kept();
    let new = live_settings(&with_clients("200"));
    let mut topology = seen([has(&new), has(&new), has(&new)]);
    topology.members.insert(Member::new(3, 0), has(&good));
    let settings = kept.look(&with_clients("200"), &topology, nobody());
    assert_eq!(start_with(&settings, DESIRED, &topology, &formed()), new);
    topology.members.insert(Member::new(0, 0), has(&good));
    assert_eq!(start_with(&settings, DESIRED, &topology, &formed()), good);
    topology.going.insert(Member::new(0, 0));
    assert_eq!(start_with(&settings, DESIRED, &topology, &formed()), new);
}

const WORDS: &str = "ERR CONFIG SET failed (possibly related to argument 'maxclients') - too many";

#[test]
fn a_refusal_is_remembered_until_the_spec_changes_and_told_with_the_field() {
    let (mut kept, good) = kept();
    let (bad, names) = (with_clients("99999999"), ChildNames::new("orders"));
    let new = live_settings(&bad);
    let refused = kept.look(&bad, &seen([has(&good), refuses(&new, WORDS), has(&good)]), nobody());
    assert_eq!(refused.refused, Some((Member::new(1, 0), WORDS.to_owned())));
    // The pod that refused was made anew and knows nothing of it.
    let topology = seen([has(&good), has(&good), has(&good)]);
    let refused = kept.look(&bad, &topology, nobody());
    assert_eq!(start_with(&refused, DESIRED, &topology, &formed()), good);
    assert_eq!(
        complaint(&refused, &names, &topology).unwrap(),
        format!(
            "spec.config.maxclients: 99999999 is refused by node orders-1-0: {WORDS}; every node keeps the settings that it had. \
             Correct the value, or leave it out for the default"
        )
    );
    let better = kept.look(&with_clients("200"), &topology, nobody());
    assert_eq!((&better.refused, complaint(&better, &names, &topology)), (&None, None));
    assert_eq!(kept.look(&bad, &topology, nobody()).refused, None, "asked for again, it is tried again");
}

#[test]
fn one_that_refuses_what_the_others_have_is_told_by_name() {
    let (mut kept, good) = kept();
    let topology = seen([has(&good), refuses(&good, WORDS), has(&good)]);
    let settings = kept.look(&with_clients("100"), &topology, nobody());
    assert_eq!(settings.refused, None);
    let told = complaint(&settings, &ChildNames::new("orders"), &topology).unwrap();
    assert!(told.starts_with("node orders-1-0 refuses the settings that the others have: ERR"), "{told}");
}

#[test]
fn the_field_is_named_as_the_user_wrote_it() {
    let spec = json!({"maxMemory": "1gb", "persistence": {"rdb": {"save": "60 1"}}});
    let settings = live_settings(&checked(spec));
    let field = |name: &str| culprit(&format!("ERR (possibly related to argument '{name}')"), &settings);
    assert_eq!(field("maxmemory"), Some(("spec.maxMemory".into(), "1073741824".into())));
    assert_eq!(field("save"), Some(("spec.persistence.rdb.save".into(), "60 1".into())));
    assert_eq!(field("appendonly").unwrap().0, "spec.persistence.aof");
    assert_eq!(field("unheard-of"), None);
}

#[test]
fn data_gets_more_memory_when_every_pod_has_it() {
    let of = |limit: &str| checked(json!({"resources": {"limits": {"memory": limit}}}));
    let pod = |limit: &str| -> Pod {
        let status = json!({"name": "valkey", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "resources": {"limits": {"memory": limit}}});
        serde_json::from_value(json!({"status": {"containerStatuses": [status]}})).unwrap()
    };
    let mut kept = Kept::default();
    kept.hold(live_settings(&of("1Gi")));
    let (small, large) = (live_settings(&of("1Gi")), live_settings(&of("2Gi")));
    let topology = Observation::default();
    assert_eq!(kept.look(&of("2Gi"), &topology, [&pod("2Gi"), &pod("1Gi")].into_iter()).wanted, small);
    assert_eq!(kept.look(&of("2Gi"), &topology, [&pod("2Gi"), &pod("2Gi")].into_iter()).wanted, large);
    // Less memory is for the data first and for the pods afterwards.
    kept.hold(large);
    assert_eq!(kept.look(&of("1Gi"), &topology, [&pod("2Gi")].into_iter()).wanted, small);
}
