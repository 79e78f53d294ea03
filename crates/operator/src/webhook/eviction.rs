//! Somebody wants a pod to go. The budget refuses that until it is safe; here we only hear that it is wished.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use serde_json::{Value, json};
use valkey_api::labels;

#[derive(Debug, Deserialize)]
struct Review {
    request: Request,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    dry_run: Option<bool>,
}

impl Request {
    /// Whoever only wants to know what would happen wishes nothing.
    fn is_meant(&self) -> bool {
        self.dry_run != Some(true)
    }

    /// Always yes: to refuse is the budget's part, which answers 429, so `kubectl drain` and its like ask again.
    fn allowed(&self) -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": self.uid, "allowed": true},
        })
    }
}

type Answer = Result<([(HeaderName, &'static str); 1], String), StatusCode>;

/// Notes the wish on the pod, where whoever leads finds it.
pub async fn answer(State(client): State<Client>, body: Bytes) -> Answer {
    let Review { request } = serde_json::from_slice(&body).map_err(|error| {
        tracing::warn!(%error, "the API server's question cannot be read");
        StatusCode::BAD_REQUEST
    })?;
    if request.is_meant()
        && let Err(error) = note(&client, &request).await
    {
        tracing::warn!(?request, %error, "an eviction that is asked for cannot be noted");
    }
    Ok(([(CONTENT_TYPE, "application/json")], request.allowed().to_string()))
}

async fn note(client: &Client, Request { namespace, name, .. }: &Request) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let Some(pod) = pods.get_metadata_opt(name).await? else { return Ok(()) };
    let ours = pod.labels().get(labels::MANAGED_BY).is_some_and(|by| by == labels::OPERATOR)
        && pod.labels().contains_key(labels::CLUSTER);
    if !ours || pod.labels().contains_key(labels::EVICTABLE) {
        return Ok(());
    }
    tracing::info!(namespace, pod = name, "somebody asks for the eviction of this pod");
    let marks = json!({"metadata": {"annotations": {labels::EVICTION: Timestamp::now().to_string()}}});
    pods.patch_metadata(name, &PatchParams::default(), &Patch::Merge(marks)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(dry_run: &Value) -> Request {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "7", "name": "orders-0-0", "namespace": "shop", "dryRun": dry_run, "operation": "CREATE"},
        });
        serde_json::from_value::<Review>(review).unwrap().request
    }

    #[test]
    fn an_eviction_is_never_refused_here() {
        let answer = request(&Value::Null).allowed();
        assert_eq!(answer["response"], json!({"uid": "7", "allowed": true}));
    }

    #[test]
    fn a_dry_run_wishes_nothing() {
        assert!(request(&Value::Null).is_meant());
        assert!(request(&json!(false)).is_meant());
        assert!(!request(&json!(true)).is_meant());
    }
}
