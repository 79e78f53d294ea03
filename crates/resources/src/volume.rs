//! Volumes that follow the spec: they grow, and learn whether they go with the cluster.
//!
//! A `StatefulSet` writes its template on a claim once, when it makes it, and its template can never change. From then on the claim is
//! ours.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use valkey_api::cluster::Retain;

use crate::amount::Bytes;
use crate::checked::Storage;
use crate::children::Owner;

/// How a volume compares with what the spec asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// As large as asked for, or larger: no volume shrinks.
    Enough,
    /// Its claim has to ask for more.
    Small,
    /// Its claim asks for it; with what Kubernetes says about it.
    Growing(Option<String>),
}

pub fn room(claim: &PersistentVolumeClaim, storage: &Storage) -> Room {
    let wanted = Bytes::of_quantity(&storage.size.0);
    let asked = claim.spec.as_ref().and_then(|spec| size(spec.resources.as_ref()?.requests.as_ref()));
    let status = claim.status.as_ref();
    let has = status.and_then(|status| size(status.capacity.as_ref()));
    // Before it is bound it cannot change, and nobody knows how large it will be.
    if status.is_none_or(|status| status.phase.as_deref() != Some("Bound")) {
        return Room::Enough;
    }
    match has {
        has if has >= wanted => Room::Enough,
        _ if asked < wanted => Room::Small,
        _ => Room::Growing(status.and_then(said)),
    }
}

fn size(amounts: Option<&BTreeMap<String, Quantity>>) -> Option<Bytes> {
    Bytes::of_quantity(&amounts?.get("storage")?.0)
}

fn said(status: &PersistentVolumeClaimStatus) -> Option<String> {
    let standing = status.conditions.iter().flatten().filter(|condition| condition.status == "True");
    standing.filter_map(|condition| condition.message.clone()).find(|message| !message.is_empty())
}

/// What makes a claim ask for as much as the spec does.
pub fn larger(storage: &Storage) -> Value {
    json!({"spec": {"resources": {"requests": {"storage": storage.size}}}})
}

/// What makes a claim go with the cluster, or stay when that goes; `None` if it says the right thing already.
pub fn belonging(claim: &PersistentVolumeClaim, owner: &Owner, storage: &Storage) -> Option<Value> {
    let mut owners = claim.metadata.owner_references.clone().unwrap_or_default();
    let is_owned = owners.iter().any(|reference| reference.uid == owner.uid);
    match storage.retain {
        Retain::Delete if !is_owned => owners.push(owner.reference()),
        Retain::Retain if is_owned => owners.retain(|reference| reference.uid != owner.uid),
        Retain::Delete | Retain::Retain => return None,
    }
    let edition = &claim.metadata.resource_version; // the list is written as a whole: nobody else's entry may get lost
    Some(json!({"metadata": {"ownerReferences": owners, "resourceVersion": edition}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(phase: &str, asked: &str, has: &str) -> PersistentVolumeClaim {
        let said = json!([{"type": "Resizing", "status": "True", "message": "the disk is busy"}]);
        let status = json!({"phase": phase, "capacity": {"storage": has}, "conditions": said});
        let spec = json!({"resources": {"requests": {"storage": asked}}});
        serde_json::from_value(json!({"metadata": {"resourceVersion": "7"}, "spec": spec, "status": status})).unwrap()
    }

    fn storage(size: &str, retain: Retain) -> Storage {
        Storage { size: Quantity(size.into()), class: None, retain, save: None, append_only: None }
    }

    #[test]
    fn a_volume_grows_and_never_shrinks() {
        let growing = Room::Growing(Some("the disk is busy".into()));
        for (phase, asked, has, room_is) in [
            ("Bound", "1Gi", "1Gi", Room::Small),
            ("Bound", "2Gi", "1Gi", growing),
            ("Bound", "2Gi", "2Gi", Room::Enough),
            ("Bound", "2048Mi", "2048Mi", Room::Enough),
            ("Bound", "5Gi", "5Gi", Room::Enough),
            // The provider gave more than was asked for.
            ("Bound", "1Gi", "4Gi", Room::Enough),
            ("Pending", "1Gi", "0", Room::Enough),
        ] {
            let found = room(&claim(phase, asked, has), &storage("2Gi", Retain::Delete));
            assert_eq!(found, room_is, "{phase}, asks for {asked}, has {has}");
        }
    }

    #[test]
    fn a_volume_learns_whether_it_goes_with_the_cluster() {
        let owner = Owner { name: "orders".into(), namespace: "shop".into(), uid: "1".into() };
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "2"});
        let free = claim("Bound", "1Gi", "1Gi");
        let mut bound = free.clone();
        bound.metadata.owner_references = Some(vec![owner.reference(), serde_json::from_value(other).unwrap()]);
        let [delete, retain] = [Retain::Delete, Retain::Retain].map(|retain| storage("1Gi", retain));
        let owners =
            |patch: Option<Value>| patch.map(|patch| patch["metadata"]["ownerReferences"].as_array().unwrap().len());
        assert_eq!(owners(belonging(&free, &owner, &delete)), Some(1));
        assert_eq!(owners(belonging(&bound, &owner, &retain)), Some(1), "somebody else owns it, too");
        assert_eq!(belonging(&free, &owner, &retain), None);
        assert_eq!(belonging(&bound, &owner, &delete), None);
    }
}
