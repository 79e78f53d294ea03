//! The mark on the leading pod by which the Service for reports finds it.
//!
//! Best effort: without it sidecars' reports are lost, and watches and time do their work more slowly.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use valkey_api::labels;

pub async fn set(client: &Client, namespace: &str, pod: &str) {
    write(client, namespace, pod, json!("true")).await;
}

/// A container that starts again in a pod which led before must not get reports until it leads again.
pub async fn remove(client: &Client, namespace: &str, pod: &str) {
    write(client, namespace, pod, Value::Null).await;
}

async fn write(client: &Client, namespace: &str, pod: &str, value: Value) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({"metadata": {"labels": {labels::LEADER: value}}}));
    match pods.patch(pod, &PatchParams::default(), &patch).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            tracing::debug!(pod, "not in a pod; nothing to label");
        }
        Err(error) => {
            tracing::warn!(%error, "the pod cannot be labelled as leader; reports of sidecars will not arrive");
        }
    }
}
