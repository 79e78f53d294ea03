//! What to do for one claim or one volume. No client, no clock, no disk.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;

use crate::quantity::bytes;

/// The name by which a `StorageClass` asks for our volumes.
pub const PROVISIONER: &str = "bench.valkey.io/directory";

/// Set by Kubernetes on a claim that no existing volume satisfies: now it is the provisioner's turn. Without waiting for
/// it we would race with Kubernetes binding the claim to a volume that was there before.
const ASKED_OF: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

#[derive(Debug, PartialEq)]
pub enum ForClaim {
    Nothing,
    Provision(Request),
    Expand { volume: String, to: Quantity },
    Refuse(&'static str),
}

/// A claim that waits for its volume, with everything the volume takes from it.
#[derive(Debug, PartialEq)]
pub struct Request {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub class: String,
    pub size: Quantity,
    pub access_modes: Vec<String>,
    pub selected_node: Option<String>,
}

pub fn for_claim(claim: &PersistentVolumeClaim) -> ForClaim {
    let Some(spec) = claim.spec.as_ref().filter(|_| claim.metadata.deletion_timestamp.is_none()) else {
        return ForClaim::Nothing;
    };
    let Some(size) = spec.resources.as_ref().and_then(|r| r.requests.as_ref()?.get("storage")) else {
        return ForClaim::Nothing;
    };
    if let Some(volume) = &spec.volume_name {
        let has = claim.status.as_ref().and_then(|s| s.capacity.as_ref()?.get("storage"));
        return match has {
            Some(has) if bytes(size) > bytes(has) => ForClaim::Expand { volume: volume.clone(), to: size.clone() },
            _ => ForClaim::Nothing, // fits, asks for less (a volume never shrinks), or is not bound yet
        };
    }
    if annotation(claim.metadata.annotations.as_ref(), ASKED_OF) != Some(PROVISIONER) {
        return ForClaim::Nothing;
    }
    if spec.volume_mode.as_deref() == Some("Block") {
        return ForClaim::Refuse("a directory cannot be a block device: ask for volumeMode Filesystem");
    }
    if spec.data_source.is_some() || spec.data_source_ref.is_some() {
        return ForClaim::Refuse("snapshots and clones are not provided: leave out dataSource");
    }
    let (meta, node) = (&claim.metadata, annotation(claim.metadata.annotations.as_ref(), SELECTED_NODE));
    match (&meta.namespace, &meta.name, &meta.uid, &spec.storage_class_name) {
        (Some(namespace), Some(name), Some(uid), Some(class)) => ForClaim::Provision(Request {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
            class: class.clone(),
            size: size.clone(),
            access_modes: spec.access_modes.clone().unwrap_or_default(),
            selected_node: node.map(Into::into),
        }),
        _ => ForClaim::Nothing,
    }
}

/// Whether a volume of this class may only be made once the scheduler has chosen a node for the first pod.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The first node, by name, that takes new pods.
pub fn first_schedulable(nodes: &[Node]) -> Option<String> {
    nodes.iter().filter(|node| is_schedulable(node)).filter_map(|node| node.metadata.name.clone()).min()
}

fn is_schedulable(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let cordoned = spec.and_then(|s| s.unschedulable).unwrap_or(false);
    let mut taints = spec.and_then(|s| s.taints.as_ref()).into_iter().flatten();
    let mut conditions = node.status.iter().filter_map(|s| s.conditions.as_ref()).flatten();
    !cordoned
        && !taints.any(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute")
        && conditions.any(|c| c.type_ == "Ready" && c.status == "True")
}

/// The directory of a volume: readable for people, unique by the claim's uid.
pub fn directory(root: &Path, request: &Request) -> PathBuf {
    let Request { namespace, name, uid, .. } = request;
    let name: String = name.chars().take(120).collect(); // a claim's name may be as long as a file name: leave room
    root.join(format!("{namespace}_{name}_{uid}"))
}

pub fn volume(request: &Request, class: &StorageClass, node: &str, directory: &Path) -> PersistentVolume {
    use k8s_openapi::api::core::v1 as core;
    let on_node = core::NodeSelectorRequirement {
        key: "kubernetes.io/hostname".into(),
        operator: "In".into(),
        values: Some(vec![node.into()]),
    };
    let term = core::NodeSelectorTerm { match_expressions: Some(vec![on_node]), ..Default::default() };
    PersistentVolume {
        metadata: kube::core::ObjectMeta {
            name: Some(format!("pvc-{}", request.uid)),
            annotations: Some([(PROVISIONED_BY.into(), PROVISIONER.into())].into()),
            ..Default::default()
        },
        spec: Some(core::PersistentVolumeSpec {
            access_modes: Some(request.access_modes.clone()),
            capacity: Some([("storage".into(), request.size.clone())].into()),
            claim_ref: Some(core::ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("PersistentVolumeClaim".into()),
                namespace: Some(request.namespace.clone()),
                name: Some(request.name.clone()),
                uid: Some(request.uid.clone()),
                ..Default::default()
            }),
            local: Some(core::LocalVolumeSource { path: directory.display().to_string(), fs_type: None }),
            node_affinity: Some(core::VolumeNodeAffinity {
                required: Some(core::NodeSelector { node_selector_terms: vec![term] }),
            }),
            persistent_volume_reclaim_policy: Some(class.reclaim_policy.clone().unwrap_or_else(|| "Delete".into())),
            storage_class_name: Some(request.class.clone()),
            volume_mode: Some("Filesystem".into()),
            ..Default::default()
        }),
        status: None,
    }
}

fn is_ours(volume: &PersistentVolume) -> bool {
    annotation(volume.metadata.annotations.as_ref(), PROVISIONED_BY) == Some(PROVISIONER)
}

#[derive(Debug, PartialEq)]
pub enum Growth {
    NotOurs,
    Raise,
    /// The volume has grown already and only its claim does not say so. It may be larger than what is asked for now: the
    /// user may have asked for more and changed his mind in between.
    Report(Quantity),
}

pub fn growth(volume: &PersistentVolume, to: &Quantity) -> Growth {
    let has = volume.spec.as_ref().and_then(|s| s.capacity.as_ref()?.get("storage"));
    match has {
        _ if !is_ours(volume) => Growth::NotOurs,
        Some(has) if bytes(has) >= bytes(to) => Growth::Report(has.clone()),
        _ => Growth::Raise,
    }
}

/// What the external resizer leaves on a claim whose volume has grown and whose file system needs nothing more.
///
/// Carries the claim's version: a condition that somebody else has added since then must not be lost.
pub fn expanded(claim: &PersistentVolumeClaim, to: &Quantity) -> serde_json::Value {
    let conditions = claim.status.iter().filter_map(|s| s.conditions.as_ref()).flatten();
    let others: Vec<_> = conditions.filter(|c| !is_about_resizing(&c.type_)).collect();
    json!({
        "metadata": { "resourceVersion": claim.metadata.resource_version },
        "status": {
            "capacity": { "storage": to },
            "allocatedResources": { "storage": to },
            "allocatedResourceStatuses": { "storage": null },
            "conditions": others,
        },
    })
}

fn is_about_resizing(condition: &str) -> bool {
    matches!(condition, "Resizing" | "FileSystemResizePending" | "ControllerResizeError" | "NodeResizeError")
}

#[derive(Debug, PartialEq)]
pub enum ForVolume {
    Keep,
    Remove(PathBuf),
    Refuse(String),
}

/// A volume goes when its claim is gone and its policy says so; only ever with a directory directly under `root`.
pub fn for_volume(volume: &PersistentVolume, root: &Path) -> ForVolume {
    let phase = volume.status.as_ref().and_then(|s| s.phase.as_deref());
    let spec = volume.spec.as_ref();
    let policy = spec.and_then(|s| s.persistent_volume_reclaim_policy.as_deref());
    if !is_ours(volume) || phase != Some("Released") || policy != Some("Delete") {
        return ForVolume::Keep;
    }
    let path = spec.and_then(|s| s.local.as_ref()).map(|local| Path::new(&local.path));
    match path {
        Some(path) if is_directly_under(root, path) => ForVolume::Remove(path.into()),
        Some(path) => ForVolume::Refuse(format!("{} is not under {}", path.display(), root.display())),
        None => ForVolume::Refuse("it has no local path".into()),
    }
}

fn is_directly_under(root: &Path, path: &Path) -> bool {
    let Ok(rest) = path.strip_prefix(root) else {
        return false;
    };
    let mut parts = rest.components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
}

fn annotation<'a>(all: Option<&'a std::collections::BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    all?.get(key).map(String::as_str)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
