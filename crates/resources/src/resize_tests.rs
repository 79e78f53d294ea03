use k8s_openapi::api::core::v1::PodSpec;

use super::*;
use crate::test_support::checked;

/// A living pod as the API server shows it: requests filled in from limits, and what nobody asked about.
fn pod(requests: &Value, limits: &Value) -> Pod {
    serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "orders-0-0", "namespace": "shop", "generation": 1},
        "spec": {
            "nodeName": "worker-1",
            "initContainers": [{
                "name": "sidecar",
                "image": "registry.example:5000/valkey-sidecar:0.1.0",
                "restartPolicy": "Always",
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
            }],
            "containers": [{
                "name": "valkey",
                "image": "docker.io/valkey/valkey:9.1.2",
                "resizePolicy": [
                    {"resourceName": "cpu", "restartPolicy": "NotRequired"},
                    {"resourceName": "memory", "restartPolicy": "NotRequired"},
                ],
                "resources": {"requests": requests, "limits": limits},
            }],
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }))
    .unwrap()
}

fn with_pending(mut pod: Pod, reason: &str) -> Pod {
    let condition = json!({
        "type": "PodResizePending", "status": "True", "reason": reason,
        "message": "Node didn't have enough capacity: memory, requested: 999, capacity: 7",
    });
    let conditions = pod.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions.push(serde_json::from_value(condition).unwrap());
    pod
}

fn wanted(resources: &str) -> CheckedCluster {
    checked(&format!("{{resources: {resources}}}"))
}

fn living() -> Pod {
    pod(&json!({"cpu": "500m", "memory": "1Gi"}), &json!({"memory": "1Gi"}))
}

#[test]
fn a_pod_that_has_what_it_should_is_left_alone_however_that_is_written() {
    for same in [
        "{requests: {cpu: 500m, memory: 1Gi}, limits: {memory: 1Gi}}",
        "{requests: {cpu: '0.5'}, limits: {memory: 1024Mi}}",
        "{limits: {memory: 1Gi}}",
        "{}",
    ] {
        assert_eq!(fitting(&living(), &wanted(same), None), Fitting::Fit, "{same}");
    }
}

#[test]
fn other_amounts_are_given_in_place() {
    let more = wanted("{requests: {cpu: 1}, limits: {memory: 2Gi}}");
    let patch = json!({"spec": {"containers": [{
        "name": "valkey",
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "2Gi"}},
    }]}});
    assert_eq!(fitting(&living(), &more, Some(600 << 20)), Fitting::Resize(patch));
    let less_cpu = wanted("{requests: {cpu: 100m}, limits: {memory: 1Gi}}");
    assert!(matches!(fitting(&living(), &less_cpu, None), Fitting::Resize(_)));
}

#[test]
fn memory_is_taken_away_only_after_the_data_has_made_room() {
    let less = wanted("{requests: {cpu: 500m}, limits: {memory: 512Mi}}");
    let Some(Bytes(room)) = less.max_memory else { panic!("no room") };
    for too_much in [None, Some(0), Some(room + 1)] {
        assert!(matches!(fitting(&living(), &less, too_much), Fitting::Wait(_)), "{too_much:?}");
    }
    assert!(matches!(fitting(&living(), &less, Some(room)), Fitting::Resize(_)));
}

#[test]
fn a_request_or_limit_that_it_did_not_have_needs_a_new_pod() {
    for new in ["{limits: {memory: 1Gi, cpu: 1}}", "{requests: {cpu: 500m}, limits: {memory: 1Gi, cpu: 2}}"] {
        let fitting = fitting(&living(), &wanted(new), Some(1));
        assert!(matches!(&fitting, Fitting::Roll(why) if why.contains("limits of cpu")), "{new}: {fitting:?}");
    }
}

#[test]
fn what_the_namespace_gives_in_addition_is_not_taken_away() {
    let given = pod(&json!({"cpu": "100m", "memory": "1Gi"}), &json!({"cpu": "2", "memory": "1Gi"}));
    assert_eq!(fitting(&given, &wanted("{limits: {memory: 1Gi}}"), None), Fitting::Fit);
}

#[test]
fn a_pod_stays_in_its_class() {
    // Without the sidecar's own requests, which keep every pod of ours in the middle class.
    let mut alone = pod(&json!({"cpu": "1", "memory": "1Gi"}), &json!({"cpu": "1", "memory": "1Gi"}));
    alone.spec.as_mut().unwrap().init_containers = None;
    let burst = wanted("{requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}");
    let fitting_alone = fitting(&alone, &burst, None);
    assert!(matches!(&fitting_alone, Fitting::Roll(why) if why.contains("Guaranteed")), "{fitting_alone:?}");
    let both = wanted("{limits: {cpu: 2, memory: 2Gi}}");
    assert!(matches!(fitting(&alone, &both, None), Fitting::Resize(_)));
}

#[test]
fn only_what_can_never_be_is_a_reason_for_a_new_pod() {
    let same = wanted("{requests: {cpu: 500m}, limits: {memory: 1Gi}}");
    assert_eq!(fitting(&with_pending(living(), "Deferred"), &same, None), Fitting::Fit);
    let infeasible = with_pending(living(), "Infeasible");
    assert!(matches!(fitting(&infeasible, &same, None), Fitting::Roll(why) if why.contains("enough capacity")));
    // Somebody asks for less again.
    let other = wanted("{requests: {cpu: 400m}, limits: {memory: 1Gi}}");
    assert!(matches!(fitting(&infeasible, &other, None), Fitting::Resize(_)));
}

#[test]
fn a_pod_whose_containers_are_not_known_is_left_alone() {
    let unknown = Pod { spec: Some(PodSpec::default()), ..Pod::default() };
    assert_eq!(fitting(&unknown, &wanted("{limits: {memory: 2Gi}}"), None), Fitting::Fit);
}

#[test]
fn a_pod_that_no_machine_takes_is_made_anew_when_less_is_asked_for() {
    let mut waiting = living();
    waiting.spec.as_mut().unwrap().node_name = None;
    let less = wanted("{requests: {cpu: 500m}, limits: {memory: 512Mi}}");
    assert!(matches!(fitting(&waiting, &less, None), Fitting::Roll(_)));
    let same = wanted("{requests: {cpu: 500m}, limits: {memory: 1Gi}}");
    assert_eq!(fitting(&waiting, &same, None), Fitting::Fit);
}
