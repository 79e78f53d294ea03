//! Objects as YAML, without what is secret and without what nobody reads.

use std::fmt::Write;

use anyhow::{Context, Result};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use serde::Serialize;
use serde_json::{Value, json};

use super::folder::Folder;
use super::in_time;
use crate::bench::Bench;

/// How many kinds are listed at the same time.
const AT_ONCE: usize = 8;

/// Every listable kind of the namespace, a file each. Empty kinds leave no file.
pub async fn all(bench: &Bench, folder: &Folder) {
    let kinds = match in_time(kinds(bench)).await {
        Ok(kinds) => kinds,
        Err(error) => return folder.keep("objects/kinds.txt", Err(error)),
    };
    let listings = stream::iter(kinds).map(async |kind| {
        let api: Api<DynamicObject> = Api::namespaced_with(bench.client().clone(), bench.namespace(), &kind);
        let objects = in_time(async { Ok(api.list(&ListParams::default()).await?.items) }).await;
        if objects.as_ref().is_ok_and(Vec::is_empty) {
            return;
        }
        let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
        folder.keep(&format!("objects/{}{group}.yaml", kind.plural), objects.and_then(|all| yaml(&kind.kind, &all)));
    });
    listings.buffer_unordered(AT_ONCE).collect::<()>().await;
}

async fn kinds(bench: &Bench) -> Result<Vec<kube::core::ApiResource>> {
    let discovery = Discovery::new(bench.client().clone()).run_aggregated().await.context("cannot list the kinds")?;
    let kinds = discovery.groups().flat_map(kube::discovery::ApiGroup::recommended_resources);
    let kinds = kinds.filter(|(kind, can)| {
        // Events have a file of their own, in the order of time.
        can.scope == Scope::Namespaced && can.supports_operation(verbs::LIST) && kind.kind != "Event"
    });
    Ok(kinds.map(|(kind, _)| kind).collect())
}

pub async fn nodes(bench: &Bench) -> Result<String> {
    yaml("Node", &bench.cluster_objects::<Node>().list().await?)
}

/// The volumes that belong to claims of this namespace.
pub async fn volumes(bench: &Bench) -> Result<String> {
    let volumes = bench.cluster_objects::<PersistentVolume>().list().await?;
    let ours = volumes.into_iter().filter(|volume| {
        let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        claim.and_then(|claim| claim.namespace.as_deref()) == Some(bench.namespace())
    });
    yaml("PersistentVolume", &ours.collect::<Vec<_>>())
}

/// Events in the order in which they happened.
pub async fn events(bench: &Bench) -> Result<String> {
    let mut events = bench.objects::<Event>().list().await?;
    events.sort_by_key(happened);
    let mut text = String::new();
    for event in &events {
        let at = happened(event).map(|at| format!("{at:.3}")).unwrap_or_default();
        let subject = &event.involved_object;
        let count = event.count.filter(|count| *count > 1).map(|count| format!(" ({count} times)")).unwrap_or_default();
        writeln!(
            text,
            "{at} {} {} {}/{}: {}{count}",
            event.type_.as_deref().unwrap_or_default(),
            event.reason.as_deref().unwrap_or_default(),
            subject.kind.as_deref().unwrap_or_default(),
            subject.name.as_deref().unwrap_or_default(),
            event.message.as_deref().unwrap_or_default(),
        )?;
    }
    Ok(text)
}

fn happened(event: &Event) -> Option<jiff::Timestamp> {
    let Event { last_timestamp, event_time, first_timestamp, metadata, .. } = event;
    let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
    let precise = event_time.as_ref().map(|time| time.0);
    time(last_timestamp).or(precise).or(time(first_timestamp)).or(time(&metadata.creation_timestamp))
}

/// The kind is told apart from the objects: in a list they need not name it, and Secrets must be known for what they are.
fn yaml<K: Serialize>(kind: &str, objects: &[K]) -> Result<String> {
    let mut text = String::new();
    for object in objects {
        let mut object = serde_json::to_value(object)?;
        tidy(kind, &mut object);
        text.extend(["---\n", &serde_saphyr::to_string(&object)?, "\n"]);
    }
    Ok(text)
}

/// Takes out who set which field, and the contents of Secrets wherever they may hide.
fn tidy(kind: &str, object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.entry("kind").or_insert_with(|| json!(kind));
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if kind != "Secret" {
        return;
    }
    for part in ["data", "stringData"] {
        let values = object.get_mut(part).and_then(Value::as_object_mut);
        for value in values.into_iter().flat_map(|values| values.values_mut()) {
            *value = json!(format!("<{} characters, not shown>", value.as_str().map_or(0, str::len)));
        }
    }
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_without_its_contents() {
        let secret = json!({
            "metadata": {
                "name": "users",
                "managedFields": [{"manager": "e2e"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "cGFzc3dvcmQ="},
            },
            "data": {"password": "cGFzc3dvcmQ="},
            "stringData": {"other": "password"},
        });
        let shown = yaml("Secret", &[secret]).unwrap();
        assert!(shown.contains("users") && shown.contains("12 characters"), "{shown}");
        assert!(!shown.contains("cGFzc3dvcmQ=") && !shown.contains(": password"), "{shown}");
        assert!(!shown.contains("managedFields"), "{shown}");
    }

    #[test]
    fn other_objects_keep_their_data() {
        let shown = yaml("ConfigMap", &[json!({"data": {"valkey.conf": "port 6379"}})]).unwrap();
        assert!(shown.contains("port 6379"), "{shown}");
    }
}
