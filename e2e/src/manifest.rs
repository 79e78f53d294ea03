//! Objects as users write them: YAML with one or more documents.

use anyhow::{Context, Result, ensure};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};

/// Who we are to the API server.
const MANAGER: &str = "e2e";

/// Reads YAML with one or more documents; empty ones are left out.
pub fn read(yaml: &str) -> Result<Vec<DynamicObject>> {
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(yaml).context("this is not YAML")?;
    let documents = documents.into_iter().filter(|document| !document.is_null());
    documents.map(|document| serde_json::from_value(document).context("this is not a Kubernetes object")).collect()
}

/// Server-side apply of one object; one that has no namespace of its own goes into the given one.
pub async fn apply(client: &Client, namespace: &str, object: &DynamicObject) -> Result<DynamicObject> {
    let types = object.types.as_ref().context("an object without apiVersion and kind")?;
    let gvk = GroupVersionKind::try_from(types).context("an object with a strange apiVersion")?;
    let (resource, capabilities) =
        pinned_kind(client, &gvk).await.with_context(|| format!("this Kubernetes knows no {}", gvk.kind))?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let own = object.metadata.namespace.as_deref().unwrap_or(namespace);
            Api::namespaced_with(client.clone(), own, &resource)
        }
    };
    let name = object.name_any();
    ensure!(!name.is_empty(), "a {} without a name", gvk.kind);
    let applied = api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await;
    applied.with_context(|| format!("cannot apply {} {name}", gvk.kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_that_is_not_empty_is_an_object() {
        let yaml = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\n";
        let names: Vec<_> = read(yaml).unwrap().iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert!(read("just text").is_err());
        assert!(read("a: [").is_err());
    }
}
