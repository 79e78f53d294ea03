//! Who manages the tag in a cluster's spec.
//!
//! The API server remembers for each field who set it. An owner that will set it again by itself (a Git repository that is synced, a manifest
//! that is applied again) would undo an upgrade at the worst moment, so it has to make the change itself. One that set it once, such as
//! `kubectl edit`, will not come back.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::ObjectMeta;
use serde_json::Value;

/// The field manager of what upgrades write.
pub const MANAGER: &str = "valkey-upgrade";

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Who holds the tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grip {
    /// Nobody: the spec has none.
    Free,
    /// An upgrade, and nobody else.
    Ours,
    /// Somebody who set it once, by hand.
    OneOff,
    /// Somebody who will set it again.
    Managed(Manager),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    pub name: String,
    /// Where the change has to be made.
    pub place: String,
}

pub fn grip(meta: &ObjectMeta) -> Grip {
    let owners: Vec<&ManagedFieldsEntry> =
        meta.managed_fields.iter().flatten().filter(|entry| owns_tag(entry)).collect();
    if let Some(manager) = owners.iter().find_map(|owner| will_return(owner)).or_else(|| manifest(meta)) {
        return Grip::Managed(manager);
    }
    match owners.as_slice() {
        [] => Grip::Free,
        owners if owners.iter().all(|owner| is_ours(owner)) => Grip::Ours,
        _ => Grip::OneOff,
    }
}

fn owns_tag(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry.fields_v1.as_ref();
    fields.is_some_and(|fields| fields.0.pointer("/f:spec/f:valkeyImage/f:tag").is_some())
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
}

/// The owner, if it is one that sets its fields again and again. Whoever is not known to set them once is taken for such a one.
fn will_return(entry: &ManagedFieldsEntry) -> Option<Manager> {
    let name = entry.manager.as_deref().unwrap_or("somebody without a name");
    let applies = entry.operation.as_deref() == Some("Apply");
    let once = matches!(name, "kubectl-edit" | "kubectl-patch" | "kubectl-create" | "kubectl-set");
    if is_ours(entry) || (once && !applies) {
        return None;
    }
    Some(Manager { name: name.into(), place: place(name) })
}

/// A manifest that was applied by `kubectl apply` and names the tag will be applied again, even if somebody has edited the tag since.
fn manifest(meta: &ObjectMeta) -> Option<Manager> {
    let text = meta.annotations.as_ref()?.get(LAST_APPLIED)?;
    let applied: Value = serde_json::from_str(text).ok()?;
    applied.pointer("/spec/valkeyImage/tag")?;
    let name = "kubectl-client-side-apply";
    Some(Manager { name: name.into(), place: place(name) })
}

fn place(name: &str) -> String {
    match name {
        "kubectl-client-side-apply" | "kubectl" => "in the manifest that is given to kubectl apply".into(),
        name if name.starts_with("argocd") => "in the Git repository that Argo CD syncs from".into(),
        "kustomize-controller" | "helm-controller" => "in the Git repository that Flux syncs from".into(),
        "helm" => "in the values of the Helm release".into(),
        name => format!("where {name} takes it from"),
    }
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// Metadata in which these managers, with their operations, own the tag.
    pub fn owned_by(owners: &[(&str, &str)]) -> ObjectMeta {
        let entry = |(manager, operation): &(&str, &str)| {
            json!({"manager": manager, "operation": operation, "apiVersion": "valkey.io/v1alpha1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:valkeyImage": {".": {}, "f:tag": {}}}}})
        };
        let entries: Vec<_> = owners.iter().map(entry).collect();
        serde_json::from_value(json!({"managedFields": entries})).unwrap()
    }

    fn name(grip: Grip) -> String {
        match grip {
            Grip::Managed(manager) => manager.name,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn who_applies_the_tag_again_and_again_manages_it() {
        for (manager, operation) in [
            ("kubectl-client-side-apply", "Update"),
            ("kubectl", "Apply"),
            ("argocd-controller", "Apply"),
            ("kubectl-edit", "Apply"),
            ("kustomize-controller", "Apply"),
            ("helm", "Update"),
            ("a-script-of-ours", "Update"),
        ] {
            assert_eq!(name(grip(&owned_by(&[(manager, operation), (MANAGER, "Apply")]))), manager);
        }
    }

    #[test]
    fn who_set_the_tag_once_by_hand_does_not_manage_it() {
        for manager in ["kubectl-edit", "kubectl-patch", "kubectl-create"] {
            assert_eq!(grip(&owned_by(&[(manager, "Update")])), Grip::OneOff);
        }
    }

    #[test]
    fn a_tag_that_nobody_set_is_free_and_one_that_we_applied_is_ours() {
        assert_eq!(grip(&ObjectMeta::default()), Grip::Free);
        let other_field = json!({"managedFields": [{"manager": "argocd-controller", "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:masterCount": {}, "f:valkeyImage": {"f:name": {}}}}}]});
        assert_eq!(grip(&serde_json::from_value(other_field).unwrap()), Grip::Free);
        assert_eq!(grip(&owned_by(&[(MANAGER, "Apply")])), Grip::Ours);
        assert_eq!(grip(&owned_by(&[(MANAGER, "Apply"), ("kubectl-edit", "Update")])), Grip::OneOff);
    }

    #[test]
    fn a_tag_that_was_edited_is_still_managed_if_a_manifest_names_it() {
        let mut meta = owned_by(&[("kubectl-edit", "Update")]);
        let with = |spec: &str| Some([(LAST_APPLIED.into(), format!(r#"{{"spec":{spec}}}"#))].into());
        meta.annotations = with("{}");
        assert_eq!(grip(&meta), Grip::OneOff);
        meta.annotations = with(r#"{"valkeyImage":{"tag":"8.1.4"}}"#);
        assert_eq!(name(grip(&meta)), "kubectl-client-side-apply");
    }
}
