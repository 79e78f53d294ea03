//! Labels and annotations of pods that live already: both can change without a restart.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use valkey_api::labels::{PREFIX, SPEC_KEYS};

use crate::checked::CheckedCluster;

/// The keys that come from the spec.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Keys {
    labels: BTreeSet<String>,
    annotations: BTreeSet<String>,
}

impl Keys {
    fn of_spec(cluster: &CheckedCluster) -> Self {
        let keys = |entries: &BTreeMap<String, String>| entries.keys().cloned().collect();
        Self { labels: keys(&cluster.pods.labels), annotations: keys(&cluster.pods.annotations) }
    }

    /// A pod that does not say so got none.
    fn of_pod(pod: &Pod) -> Self {
        let said = pod.annotations().get(SPEC_KEYS);
        said.and_then(|said| serde_json::from_str(said).ok()).unwrap_or_default()
    }
}

/// What a pod says about the keys that it got from the spec; `None` if it got none.
pub fn keys(cluster: &CheckedCluster) -> Option<String> {
    let keys = Keys::of_spec(cluster);
    (keys != Keys::default()).then(|| serde_json::to_string(&keys).unwrap_or_default())
}

/// What a living pod's labels and annotations have to become for the spec, as a merge patch. `None` if they are right.
pub fn relabel(pod: &Pod, cluster: &CheckedCluster) -> Option<Value> {
    let Keys { labels, annotations } = Keys::of_pod(pod);
    let labels = changes(pod.labels(), &labels, &cluster.pods.labels);
    let mut annotations = changes(pod.annotations(), &annotations, &cluster.pods.annotations);
    let keys = keys(cluster);
    if pod.annotations().get(SPEC_KEYS) != keys.as_ref() {
        annotations.insert(SPEC_KEYS.into(), keys.into());
    }
    let changed = !labels.is_empty() || !annotations.is_empty();
    changed.then(|| json!({"metadata": {"labels": labels, "annotations": annotations}}))
}

/// The entries to set, and those to take off as null. What is ours is never taken off, whatever the pod says.
fn changes(
    has: &BTreeMap<String, String>,
    had: &BTreeSet<String>,
    wanted: &BTreeMap<String, String>,
) -> Map<String, Value> {
    let new = wanted.iter().filter(|(key, value)| has.get(*key) != Some(value));
    let new = new.map(|(key, value)| (key.clone(), Value::from(value.clone())));
    let is_ours = |key: &str| key.starts_with(PREFIX) || key.contains("kubernetes.io/");
    let old = had.iter().filter(|key| !wanted.contains_key(*key) && has.contains_key(*key) && !is_ours(key));
    new.chain(old.map(|key| (key.clone(), Value::Null))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::tests::build;
    use crate::test_support::checked;

    /// A pod as Kubernetes makes it from the template for this spec.
    fn pod(spec: &str) -> Pod {
        let mut set = build(spec).stateful_sets.remove(0);
        let mut metadata = set.spec.take().unwrap().template.metadata.unwrap();
        let theirs = ("statefulset.kubernetes.io/pod-name".to_owned(), "orders-0-0".to_owned());
        metadata.labels.as_mut().unwrap().extend([theirs]);
        Pod { metadata, ..Pod::default() }
    }

    fn patch(from: &str, to: &str) -> Option<Value> {
        relabel(&pod(from), &checked(to))
    }

    #[test]
    fn a_pod_that_is_right_is_left_alone() {
        for spec in ["{}", "{labels: {team: shop}, annotations: {example.com/a: b}}"] {
            assert_eq!(patch(spec, spec), None, "{spec}");
        }
    }

    #[test]
    fn what_is_new_is_set_and_what_is_gone_is_taken_off() {
        let patch = patch("{labels: {team: shop, tier: gold}}", "{labels: {team: cart}, annotations: {a: b}}").unwrap();
        let keys = r#"{"labels":["team"],"annotations":["a"]}"#;
        assert_eq!(
            patch,
            json!({"metadata": {
                "labels": {"team": "cart", "tier": null},
                "annotations": {"a": "b", SPEC_KEYS: keys},
            }})
        );
    }

    #[test]
    fn the_last_key_takes_its_list_along() {
        let patch = patch("{labels: {team: shop}}", "{}").unwrap();
        assert_eq!(patch, json!({"metadata": {"labels": {"team": null}, "annotations": {SPEC_KEYS: null}}}));
    }

    #[test]
    fn what_others_set_stays_and_what_is_ours_is_never_taken_off() {
        let mut pod = pod("{labels: {team: shop}}");
        let ours =
            r#"{"labels":["team","valkey.io/cluster","app.kubernetes.io/name"],"annotations":["valkey.io/template"]}"#;
        pod.annotations_mut().insert(SPEC_KEYS.into(), ours.into());
        pod.labels_mut().insert("theirs".into(), "x".into());
        let patch = relabel(&pod, &checked("{}")).unwrap();
        assert_eq!(patch, json!({"metadata": {"labels": {"team": null}, "annotations": {SPEC_KEYS: null}}}));
    }
}
