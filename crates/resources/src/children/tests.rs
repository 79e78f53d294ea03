use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;
use crate::test_support::{checked, checked_with_password, owner, wiring};
use crate::valkey_conf::{carried_over, live_settings};

/// Every field that a user can set, set.
const EVERYTHING: &str = include_str!("../../tests/everything.yaml");

/// As many members as the spec asks for.
fn workloads(cluster: &CheckedCluster) -> BTreeMap<ShardIndex, u16> {
    cluster.shards().map(|shard| (shard, cluster.replicas_per_master + 1)).collect()
}

pub fn build(spec: &str) -> Children {
    let cluster = checked(spec);
    Children::build(&cluster, &owner(), &wiring(), &workloads(&cluster), &live_settings(&cluster)).unwrap()
}

/// The children as one YAML text.
fn yaml(children: Children) -> String {
    let documents = children.into_objects().unwrap();
    documents.iter().map(|object| serde_saphyr::to_string(object).unwrap()).collect::<Vec<_>>().join("---\n")
}

/// Compares with a committed file. `UPDATE_EXPECTED=1 cargo test -p valkey-resources` rewrites it; then read the difference.
fn assert_expected(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/expected").join(name);
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == text, "{name} differs from what is committed: see the test's comment");
}

fn template_hash(spec: &str) -> String {
    let children = build(spec);
    template_of(&children)
}

fn template_of(children: &Children) -> String {
    let template = &children.stateful_sets[0].spec.as_ref().unwrap().template;
    template.metadata.as_ref().unwrap().annotations.as_ref().unwrap()[labels::TEMPLATE].clone()
}

#[test]
fn an_empty_spec_becomes_these_objects() {
    assert_expected("empty.yaml", &yaml(build("{}")));
}

#[test]
fn a_spec_with_everything_becomes_these_objects() {
    let cluster = checked_with_password(EVERYTHING, "secret");
    let children =
        Children::build(&cluster, &owner(), &wiring(), &workloads(&cluster), &live_settings(&cluster)).unwrap();
    assert_expected("everything.yaml", &yaml(children));
}

#[test]
fn nobodys_pods_are_restarted_by_accident() {
    // If this fails you have changed what every pod of every cluster looks like: a new operator would restart them all.
    assert_eq!(template_hash("{}"), "e2fca8edee246e6f");
    let cluster = checked_with_password(EVERYTHING, "secret");
    assert_eq!(template_mark(&cluster, &wiring(), ShardIndex(0)).unwrap(), "4de3431f952a47a9");
}

#[test]
fn how_much_a_pod_gets_needs_no_restart_but_that_it_gets_some_does() {
    let limits = |limits: &str| template_hash(&format!("{{resources: {{limits: {{{limits}}}}}}}"));
    assert_eq!(limits("memory: 1Gi"), limits("memory: 2Gi"));
    assert_eq!(limits("cpu: 1, memory: 1Gi"), limits("cpu: 500m, memory: 2Gi"));
    assert_ne!(limits("memory: 1Gi"), limits("memory: 1Gi, cpu: 1"));
    assert_ne!(limits("memory: 1Gi, ephemeral-storage: 1Gi"), limits("memory: 1Gi, ephemeral-storage: 2Gi"));
    assert_ne!(template_hash("{resources: {requests: {memory: 1Gi}}}"), limits("memory: 1Gi"));
}

#[test]
fn a_server_has_a_share_of_cpu_unless_the_spec_says_which() {
    let requested = |spec: &str| {
        let template = build(spec).stateful_sets.remove(0).spec.unwrap().template;
        let server = template.spec.unwrap().containers.remove(0);
        server.resources.unwrap().requests.unwrap_or_default().get("cpu").map(|amount| amount.0.clone())
    };
    assert_eq!(requested("{}").as_deref(), Some("100m"));
    assert_eq!(requested("{resources: {requests: {memory: 1Gi}}}").as_deref(), Some("100m"));
    assert_eq!(requested("{resources: {requests: {cpu: 2}}}").as_deref(), Some("2"));
    assert_eq!(requested("{resources: {limits: {cpu: 2}}}"), None, "Kubernetes takes the limit");
}

#[test]
fn pods_start_with_what_they_are_told_to_and_not_with_what_is_wanted() {
    let (before, after) = (checked("{}"), checked("{config: {maxclients: '99999999', databases: '4'}}"));
    let good = live_settings(&before);
    let build = |live| Children::build(&after, &owner(), &wiring(), &workloads(&after), live).unwrap();
    let conf = |children: &Children| children.config_map.data.as_ref().unwrap()[VALKEY_CONF].clone();
    let kept = build(&good);
    assert!(!conf(&kept).contains("maxclients") && conf(&kept).contains("databases \"4\""));
    assert_eq!(Settings::of_conf(&conf(&kept)), Some(good.clone()));
    let taken = build(&live_settings(&after));
    assert!(conf(&taken).contains("maxclients \"99999999\""));
    assert_eq!(template_of(&kept), template_of(&taken));
    assert_eq!(carried_over(&after, &good), good);
}

#[test]
fn what_needs_no_restart_does_not_change_the_template_hash() {
    let before = template_hash("{}");
    for spec in [
        "{labels: {team: shop}}",
        "{annotations: {example.com/a: b}}",
        "{config: {maxclients: '100'}}",
        "{maxMemory: 1gb}",
        "{auth: {enabled: false}}",
        "{readService: {enabled: true}}",
        "{persistence: {aof: {appendfsync: always}}}",
        "{paused: true}",
    ] {
        assert_eq!(template_hash(spec), before, "{spec}");
    }
    let newer = Wiring { sidecar_image: "registry.example:5000/valkey-sidecar:0.2.0".into(), ..wiring() };
    let cluster = checked("{}");
    let children = Children::build(&cluster, &owner(), &newer, &workloads(&cluster), &live_settings(&cluster)).unwrap();
    assert_eq!(template_of(&children), before);
    assert_eq!(template_mark(&cluster, &newer, ShardIndex(0)).unwrap(), before);
}

#[test]
fn what_needs_a_restart_changes_the_template_hash() {
    let before = template_hash("{}");
    for spec in [
        "{valkeyImage: {tag: 9.1.3}}",
        "{sidecarImage: {tag: 0.2.0}}",
        "{resources: {limits: {memory: 1Gi}}}",
        "{config: {databases: '4'}}",
        "{nodeSelector: {disk: fast}}",
        "{securityContext: {runAsUser: 1000}}",
    ] {
        assert_ne!(template_hash(spec), before, "{spec}");
    }
}

#[test]
fn every_child_is_owned_marked_and_stamped() {
    let objects = build("{readService: {enabled: true}}").into_objects().unwrap();
    let stamps: BTreeSet<_> = objects.iter().map(|object| object.annotations()[labels::DESIRED].clone()).collect();
    assert_eq!(stamps.len(), objects.len());
    for object in &objects {
        assert!(object.types.is_some());
        assert_eq!(object.namespace().as_deref(), Some("shop"));
        assert_eq!(object.annotations()[labels::CR], "orders");
        assert_eq!(object.annotations()[labels::LOCKED], "true");
        assert_eq!(object.labels()[labels::CLUSTER], "orders");
        let owner = &object.owner_references()[0];
        assert_eq!(
            (owner.kind.as_str(), owner.controller, owner.block_owner_deletion),
            ("ValkeyCluster", Some(true), Some(false))
        );
        assert_eq!(owner.api_version, "valkey.io/v1alpha1");
    }
}

#[test]
fn the_stamp_tells_a_changed_object_from_an_unchanged_one() {
    let stamp = |spec: &str| object(build(spec).config_map).unwrap().annotations()[labels::DESIRED].clone();
    assert_eq!(stamp("{}"), stamp("{}"));
    assert_ne!(stamp("{}"), stamp("{config: {maxclients: '100'}}"));
}

#[test]
fn no_role_is_in_a_template_and_the_read_service_follows_the_role() {
    let children = build("{readService: {enabled: true}}");
    let template = &children.stateful_sets[0].spec.as_ref().unwrap().template;
    assert!(!template.metadata.as_ref().unwrap().labels.as_ref().unwrap().contains_key(labels::ROLE));
    let read = children.read_service.unwrap().spec.unwrap();
    assert_eq!(read.selector.unwrap()[labels::ROLE], labels::REPLICA);
    assert_eq!(build("{}").read_service, None);
}

#[test]
fn a_name_or_a_tag_of_the_sidecar_can_be_chosen_alone() {
    let image = |spec: &str| {
        let set = build(spec).stateful_sets.remove(0);
        set.spec.unwrap().template.spec.unwrap().init_containers.unwrap().remove(0).image.unwrap()
    };
    assert_eq!(image("{}"), "registry.example:5000/valkey-sidecar:0.1.0");
    assert_eq!(image("{sidecarImage: {tag: '2'}}"), "registry.example:5000/valkey-sidecar:2");
    assert_eq!(image("{sidecarImage: {name: mine}}"), "mine:0.1.0");
}

#[test]
fn a_constraint_of_the_user_takes_the_place_of_ours_and_stands_beside_the_rest() {
    let spread = |spec: &str| {
        let set = build(spec).stateful_sets.remove(0);
        let constraints = set.spec.unwrap().template.spec.unwrap().topology_spread_constraints.unwrap();
        constraints.into_iter().map(|c| (c.topology_key, c.when_unsatisfiable, c.max_skew)).collect::<Vec<_>>()
    };
    let zone = "topology.kubernetes.io/zone";
    let ours = |topology: &str| (topology.to_owned(), "ScheduleAnyway".to_owned(), 1);
    assert_eq!(spread("{}"), [ours("kubernetes.io/hostname"), ours(zone)]);
    let soft = format!(
        "{{topologySpreadConstraints: [{{topologyKey: {zone}, whenUnsatisfiable: ScheduleAnyway, maxSkew: 2}}]}}"
    );
    assert_eq!(spread(&soft), [ours("kubernetes.io/hostname"), (zone.into(), "ScheduleAnyway".into(), 2)]);
    let hard = format!(
        "{{topologySpreadConstraints: [{{topologyKey: {zone}, whenUnsatisfiable: DoNotSchedule, maxSkew: 1}}]}}"
    );
    assert_eq!(spread(&hard).len(), 3);
}

#[test]
fn a_users_security_context_is_laid_over_ours_field_by_field() {
    let set = build("{securityContext: {runAsUser: 1000}}").stateful_sets.remove(0);
    let security = set.spec.unwrap().template.spec.unwrap().security_context.unwrap();
    assert_eq!(
        (security.run_as_user, security.run_as_group, security.run_as_non_root),
        (Some(1000), Some(999), Some(true))
    );
}

#[test]
fn without_persistence_the_data_is_in_the_pod_and_no_claim_is_made() {
    let set = build("{persistence: {enabled: false}}").stateful_sets.remove(0).spec.unwrap();
    assert_eq!((set.volume_claim_templates, set.persistent_volume_claim_retention_policy), (None, None));
    let volumes = set.template.spec.unwrap().volumes.unwrap();
    assert!(volumes.iter().any(|volume| volume.name == "data" && volume.empty_dir.is_some()));
}
