use serde_json::Value;

use super::*;

const ROOT: &str = "/srv/volumes";

/// A claim as Kubernetes leaves it for us, with changes merged in.
fn claim(change: Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": {
            "namespace": "shop", "name": "data-orders-0", "uid": "1234", "resourceVersion": "7",
            "annotations": { ASKED_OF: PROVISIONER, SELECTED_NODE: "node-2" },
        },
        "spec": {
            "storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    merge(&mut claim, change);
    serde_json::from_value(claim).unwrap()
}

fn bound(request: &str, capacity: &str) -> PersistentVolumeClaim {
    claim(json!({
        "spec": { "volumeName": "pvc-1234", "resources": { "requests": { "storage": request } } },
        "status": { "phase": "Bound", "capacity": { "storage": capacity } },
    }))
}

fn volume_with(change: Value) -> PersistentVolume {
    let mut volume = json!({
        "metadata": { "name": "pvc-1234", "annotations": { PROVISIONED_BY: PROVISIONER } },
        "spec": {
            "capacity": { "storage": "2Gi" }, "persistentVolumeReclaimPolicy": "Delete",
            "local": { "path": "/srv/volumes/shop_data-orders-0_1234" },
        },
        "status": { "phase": "Released" },
    });
    merge(&mut volume, change);
    serde_json::from_value(volume).unwrap()
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                if value.is_null() {
                    into.remove(&key);
                    continue;
                }
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

fn class(binding: &str) -> StorageClass {
    let class = json!({ "provisioner": PROVISIONER, "reclaimPolicy": "Retain", "volumeBindingMode": binding });
    serde_json::from_value(class).unwrap()
}

fn request() -> Request {
    match for_claim(&claim(json!({}))) {
        ForClaim::Provision(request) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_claim_is_provisioned_when_kubernetes_asks_us_and_expanded_when_it_outgrows_its_volume() {
    let provision = || ForClaim::Provision(request());
    let expand = |to: &str| ForClaim::Expand { volume: "pvc-1234".into(), to: Quantity(to.into()) };
    let on_any_node = || ForClaim::Provision(Request { selected_node: None, ..request() });
    for (case, claim, expected) in [
        ("asked of us", claim(json!({})), provision()),
        ("no node selected", claim(json!({ "metadata": { "annotations": { SELECTED_NODE: null } } })), on_any_node()),
        ("asked of others", claim(json!({ "metadata": { "annotations": { ASKED_OF: "x" } } })), ForClaim::Nothing),
        ("not asked yet", claim(json!({ "metadata": { "annotations": null } })), ForClaim::Nothing),
        (
            "being deleted",
            claim(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })),
            ForClaim::Nothing,
        ),
        ("promised to a volume", claim(json!({ "spec": { "volumeName": "other" } })), ForClaim::Nothing),
        ("bound and content", bound("1Gi", "1Gi"), ForClaim::Nothing),
        ("same size, written otherwise", bound("1Gi", "1024Mi"), ForClaim::Nothing),
        ("outgrown", bound("2Gi", "1Gi"), expand("2Gi")),
        ("asks for less", bound("1Gi", "2Gi"), ForClaim::Nothing),
    ] {
        assert_eq!(for_claim(&claim), expected, "{case}");
    }
}

#[test]
fn what_a_directory_cannot_be_is_refused() {
    for change in [
        json!({ "spec": { "volumeMode": "Block" } }),
        json!({ "spec": { "dataSource": { "kind": "PersistentVolumeClaim", "name": "other" } } }),
    ] {
        assert!(matches!(for_claim(&claim(change.clone())), ForClaim::Refuse(_)), "{change}");
    }
}

#[test]
fn a_volume_is_tied_to_its_node_and_to_its_claim() {
    let directory = directory(Path::new(ROOT), &request());
    assert_eq!(directory, Path::new("/srv/volumes/shop_data-orders-0_1234"));
    let made = volume(&request(), &class("WaitForFirstConsumer"), "node-2", &directory);
    assert_eq!(
        serde_json::to_value(made).unwrap(),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": "pvc-1234", "annotations": { PROVISIONED_BY: PROVISIONER } },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "storageClassName": "fast",
                "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem",
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": "shop", "name": "data-orders-0", "uid": "1234",
                },
                "local": { "path": "/srv/volumes/shop_data-orders-0_1234" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": "kubernetes.io/hostname", "operator": "In", "values": ["node-2"] },
                ] }] } },
            },
        })
    );
}

#[test]
fn the_longest_claim_name_still_makes_a_file_name() {
    let long = Request { namespace: "n".repeat(63), name: "c".repeat(253), uid: "u".repeat(36), ..request() };
    let directory = directory(Path::new(ROOT), &long);
    assert!(directory.file_name().unwrap().len() <= 255);
    assert!(directory.to_str().unwrap().ends_with(&long.uid));
}

#[test]
fn only_immediate_classes_take_any_node_and_only_one_that_takes_pods() {
    assert!(waits_for_consumer(&class("WaitForFirstConsumer")));
    assert!(!waits_for_consumer(&class("Immediate")));
    let node = |name: &str, spec: Value, ready: &str| -> Node {
        let status = json!({ "conditions": [{ "type": "Ready", "status": ready }] });
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec, "status": status })).unwrap()
    };
    let taint = |effect: &str| json!({ "taints": [{ "key": "k", "effect": effect }] });
    let nodes = [
        node("a-cordoned", json!({ "unschedulable": true }), "True"),
        node("b-tainted", taint("NoSchedule"), "True"),
        node("c-lost", json!({}), "Unknown"),
        node("e-good", json!({}), "True"),
        node("d-good", taint("PreferNoSchedule"), "True"),
    ];
    assert_eq!(first_schedulable(&nodes).as_deref(), Some("d-good"));
    assert_eq!(first_schedulable(&nodes[..3]), None);
}

#[test]
fn a_volume_only_ever_grows() {
    let to = |size: &str| Quantity(size.into());
    let foreign = volume_with(json!({ "metadata": { "annotations": { PROVISIONED_BY: "somebody" } } }));
    assert_eq!(growth(&foreign, &to("3Gi")), Growth::NotOurs);
    let two = volume_with(json!({}));
    assert_eq!(growth(&two, &to("3Gi")), Growth::Raise);
    assert_eq!(growth(&two, &to("2Gi")), Growth::Report(to("2Gi")));
    assert_eq!(growth(&two, &to("1500Mi")), Growth::Report(to("2Gi")));
}

#[test]
fn an_expanded_claim_keeps_only_the_conditions_of_others() {
    let condition = |name: &str| json!({ "type": name, "status": "True" });
    let mut claim = bound("2Gi", "1Gi");
    let conditions = json!([condition("Resizing"), condition("ModifyingVolume"), condition("FileSystemResizePending")]);
    claim.status.as_mut().unwrap().conditions = serde_json::from_value(conditions).unwrap();
    assert_eq!(
        expanded(&claim, &Quantity("2Gi".into())),
        json!({
            "metadata": { "resourceVersion": "7" },
            "status": {
                "capacity": { "storage": "2Gi" },
                "allocatedResources": { "storage": "2Gi" },
                "allocatedResourceStatuses": { "storage": null },
                "conditions": [condition("ModifyingVolume")],
            },
        })
    );
}

#[test]
fn a_volume_goes_with_its_claim_and_never_takes_a_directory_outside_the_root() {
    let at = |path: &str| json!({ "spec": { "local": { "path": path } } });
    let by = |who: &str| json!({ "metadata": { "annotations": { PROVISIONED_BY: who } } });
    let phase = |phase: &str| json!({ "status": { "phase": phase } });
    let policy = |policy: &str| json!({ "spec": { "persistentVolumeReclaimPolicy": policy } });
    let removed = ForVolume::Remove("/srv/volumes/shop_data-orders-0_1234".into());
    for (case, change, expected) in [
        ("released", json!({}), Some(removed)),
        ("bound", phase("Bound"), Some(ForVolume::Keep)),
        ("no status yet", json!({ "status": null }), Some(ForVolume::Keep)),
        ("retained", policy("Retain"), Some(ForVolume::Keep)),
        ("of somebody else", by("somebody"), Some(ForVolume::Keep)),
        ("the root itself", at("/srv/volumes"), None),
        ("the root itself, with a slash", at("/srv/volumes/"), None),
        ("above the root", at("/srv"), None),
        ("beside the root", at("/srv/volumes-of-others/x"), None),
        ("out through dots", at("/srv/volumes/../../etc"), None),
        ("dots alone", at("/srv/volumes/.."), None),
        ("too deep", at("/srv/volumes/a/b"), None),
        ("relative", at("srv/volumes/a"), None),
        ("no path", json!({ "spec": { "local": null } }), None),
    ] {
        let decision = for_volume(&volume_with(change), Path::new(ROOT));
        match expected {
            Some(expected) => assert_eq!(decision, expected, "{case}"),
            None => assert!(matches!(decision, ForVolume::Refuse(_)), "{case}: {decision:?}"),
        }
    }
}
