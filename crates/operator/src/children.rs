//! Keeps a cluster's children as they should be: applies what differs, puts back what somebody else changed, removes what is
//! no longer wanted.
//!
//! Nothing is read or written for a child that is known to be right. That it is right is known from its watch: its edition is
//! still the one that our own last apply gave it, and it carries the mark of what we want now.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use valkey_api::labels;

use crate::stores::{Metadata, Stores};

/// A child's kind and name.
pub type Key = (String, String);

/// What our own applies made of the children of one cluster.
#[derive(Debug, Default)]
pub struct Editions(BTreeMap<Key, Applied>);

#[derive(Debug)]
struct Applied {
    edition: String,
    /// The mark of what was applied.
    mark: Option<String>,
    /// What the watch showed when we applied. As long as it shows just that, it has not heard of our own apply yet.
    overtaken: Option<Overtaken>,
}

impl Applied {
    fn wants(&self, child: &DynamicObject) -> bool {
        self.mark == mark(child)
    }
}

fn mark(object: &DynamicObject) -> Option<String> {
    object.annotations().get(labels::DESIRED).cloned()
}

/// The edition that the watch showed, if the child was there at all.
#[derive(Debug, PartialEq, Eq)]
struct Overtaken(Option<String>);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", self.what())]
    Read { kind: String, name: String, source: kube::Error },
    #[error("{}: {source}", self.what())]
    Apply { kind: String, name: String, source: kube::Error },
    #[error("{}: {source}", self.what())]
    Delete { kind: String, name: String, source: kube::Error },
    #[error("{}", self.what())]
    Incomplete,
}

impl Error {
    /// What did not work, without why.
    pub fn what(&self) -> String {
        match self {
            Self::Read { kind, name, .. } => format!("{kind} {name} cannot be read"),
            Self::Apply { kind, name, .. } => format!("{kind} {name} cannot be applied"),
            Self::Delete { kind, name, .. } => format!("{kind} {name} cannot be deleted"),
            Self::Incomplete => "an object without kind, name or namespace was built".into(),
        }
    }

    /// What the API server said.
    pub fn kubernetes(&self) -> Option<&kube::Error> {
        match self {
            Self::Read { source, .. } | Self::Apply { source, .. } | Self::Delete { source, .. } => Some(source),
            Self::Incomplete => None,
        }
    }
}

/// What was done, for the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Created(Key),
    Updated(Key),
    /// Somebody else had changed or removed it; with what was different.
    PutBack(Key, String),
    Removed(Key),
}

/// Applies every child that is not known to be right, all at once. One that is refused keeps no other from being applied.
pub async fn apply(
    client: &Client,
    stores: &Stores,
    editions: &mut Editions,
    wanted: &[DynamicObject],
    changes: &mut Vec<Change>,
) -> Result<(), Error> {
    let mut due = Vec::new();
    for child in wanted {
        due.extend(editions.due(stores, child)?);
    }
    let mut outcome = Ok(());
    for brought in join_all(due.into_iter().map(|due| bring(client, due))).await {
        match brought {
            Ok((key, applied, change)) => {
                editions.0.insert(key, applied);
                changes.extend(change);
            }
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome
}

struct Due<'a> {
    key: Key,
    namespace: String,
    child: &'a DynamicObject,
    seen: Overtaken,
    /// It was there by our hand before, so that its absence is somebody else's work.
    known: bool,
}

impl Editions {
    fn due<'a>(&mut self, stores: &Stores, child: &'a DynamicObject) -> Result<Option<Due<'a>>, Error> {
        let kind = child.types.as_ref().map(|types| types.kind.clone()).ok_or(Error::Incomplete)?;
        let name = child.metadata.name.clone().ok_or(Error::Incomplete)?;
        let namespace = child.metadata.namespace.clone().ok_or(Error::Incomplete)?;
        let seen = stores.child(&kind, &namespace, &name);
        let key = (kind, name);
        let shown = Overtaken(seen.as_ref().map(Metadata::edition));
        let applied = self.0.get_mut(&key);
        let known = applied.is_some();
        let right = applied.is_some_and(|applied| {
            let ours = applied.wants(child) && applied.overtaken.as_ref() == Some(&shown);
            let arrived = seen.is_some_and(|seen| seen.edition() == applied.edition && carries(&seen, child));
            if arrived {
                applied.overtaken = None;
            }
            ours || arrived
        });
        Ok((!right).then_some(Due { key, namespace, child, seen: shown, known }))
    }
}

/// Whether labels, annotations and owners are there: for kinds with a generation, these are not part of it.
fn carries(seen: &Metadata, wanted: &DynamicObject) -> bool {
    let within = |some: &BTreeMap<String, String>, all: Option<&BTreeMap<String, String>>| {
        some.iter().all(|(key, value)| all.and_then(|all| all.get(key)) == Some(value))
    };
    let owners = wanted.metadata.owner_references.iter().flatten();
    within(wanted.labels(), seen.0.labels.as_ref())
        && within(wanted.annotations(), seen.0.annotations.as_ref())
        && owners.into_iter().all(|owner| seen.0.owner_references.iter().flatten().any(|seen| seen.uid == owner.uid))
}

async fn bring(client: &Client, due: Due<'_>) -> Result<(Key, Applied, Option<Change>), Error> {
    let Due { key: (kind, name), namespace, child, seen, known } = due;
    let types = child.types.clone().ok_or(Error::Incomplete)?;
    let resource =
        ApiResource::from_gvk(&kube::api::GroupVersionKind::try_from(&types).map_err(|_| Error::Incomplete)?);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let read = |source| Error::Read { kind: kind.clone(), name: name.clone(), source };
    let before = api.get_opt(&name).await.map_err(read)?;
    let child = &with_what_cannot_change(child, before.as_ref());
    let apply_failed = |source| Error::Apply { kind: kind.clone(), name: name.clone(), source };
    if before.as_ref().is_some_and(|before| lists_differ(&child.data, &before.data)) {
        // Server-side apply would merge our entries into somebody else's list: the list has to be ours alone first.
        let ours = Patch::Merge(&child.data);
        api.patch(&name, &PatchParams::default(), &ours).await.map_err(apply_failed)?;
    }
    let params = PatchParams::apply(labels::OPERATOR).force();
    let after = api.patch(&name, &params, &Patch::Apply(child)).await.map_err(apply_failed)?;
    // Where status is a subresource, what we say in it is not part of the apply above.
    if child.data.get("status").is_some() {
        api.patch_status(&name, &params, &Patch::Apply(child)).await.map_err(apply_failed)?;
    }
    let key = (kind, name);
    let change = change(&key, before.as_ref(), &after, child, known);
    let edition = Metadata(after.metadata).edition();
    Ok((key, Applied { edition, mark: mark(child), overtaken: Some(seen) }, change))
}

/// The templates of claims are for good, and only for claims that are made later: those that are there follow the spec by themselves.
fn with_what_cannot_change(child: &DynamicObject, before: Option<&DynamicObject>) -> DynamicObject {
    const TEMPLATES: &str = "/spec/volumeClaimTemplates";
    let mut child = child.clone();
    let found = before.and_then(|before| before.data.pointer(TEMPLATES));
    if let (Some(wanted), Some(found)) = (child.data.pointer_mut(TEMPLATES), found) {
        wanted.clone_from(found);
    }
    child
}

fn change(
    key: &Key,
    before: Option<&DynamicObject>,
    after: &DynamicObject,
    wanted: &DynamicObject,
    known: bool,
) -> Option<Change> {
    let Some(before) = before else {
        return Some(if known {
            Change::PutBack(key.clone(), "it had been deleted".into())
        } else {
            Change::Created(key.clone())
        });
    };
    if before.metadata.resource_version == after.metadata.resource_version {
        return None;
    }
    // Another mark means that we want something else than last time: nobody meddled.
    if mark(before) != mark(wanted) && mark(before).is_some() {
        return Some(Change::Updated(key.clone()));
    }
    let differences = differences(&as_value(wanted), &as_value(before), &as_value(after), "");
    Some(Change::PutBack(key.clone(), differences.join("; ")))
}

fn as_value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// The paths that we set whose value was another one before our apply than after it. Compared is what the server made of our
/// values, so a quantity that it writes differently is not a difference.
fn differences(wanted: &Value, before: &Value, after: &Value, path: &str) -> Vec<String> {
    match (wanted, after) {
        (Value::Object(fields), Value::Object(_)) => fields
            .iter()
            .flat_map(|(name, wanted)| {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                differences(
                    wanted,
                    before.get(name).unwrap_or(&Value::Null),
                    after.get(name).unwrap_or(&Value::Null),
                    &path,
                )
            })
            .collect(),
        _ if before == after => Vec::new(),
        // What is inside a Secret stays there.
        _ if path.starts_with("data") || path.starts_with("stringData") => vec![format!("{path} was different")],
        _ => vec![format!("{path} was {}, is {} again", short(before), short(after))],
    }
}

/// Whether a list that we set has other entries than ours, told by their number and by what names an entry.
fn lists_differ(wanted: &Value, before: &Value) -> bool {
    const NAMES: [&str; 2] = ["name", "port"];
    match (wanted, before) {
        (Value::Object(wanted), Value::Object(before)) => {
            wanted.iter().any(|(name, wanted)| before.get(name).is_some_and(|before| lists_differ(wanted, before)))
        }
        (Value::Array(wanted), Value::Array(before)) => {
            let other = |wanted: &Value, before: &Value| {
                let named_differently =
                    NAMES.iter().any(|name| wanted.get(name).is_some() && wanted.get(name) != before.get(name));
                named_differently || lists_differ(wanted, before)
            };
            wanted.len() != before.len() || wanted.iter().zip(before).any(|(wanted, before)| other(wanted, before))
        }
        _ => false,
    }
}

fn short(value: &Value) -> String {
    const ENOUGH: usize = 120;
    let text = if value.is_null() { "missing".to_owned() } else { value.to_string() };
    if text.chars().count() <= ENOUGH { text } else { text.chars().take(ENOUGH).chain(['…']).collect() }
}

/// Removes children of this cluster, by owner, that are not wanted any more.
pub async fn prune(
    client: &Client,
    editions: &mut Editions,
    (namespace, owner_uid): (&str, &str),
    seen: &[(&'static str, Metadata)],
    wanted: &BTreeSet<Key>,
) -> Result<Vec<Change>, Error> {
    let mut removed = Vec::new();
    for (kind, Metadata(meta)) in seen {
        let key = ((*kind).to_owned(), meta.name.clone().unwrap_or_default());
        let ours = meta.owner_references.iter().flatten().any(|owner| owner.uid == owner_uid);
        if wanted.contains(&key) || !ours || meta.deletion_timestamp.is_some() {
            continue;
        }
        let Some(resource) = resource_of(kind) else { continue };
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        // Exactly the object that we looked at: a successor of the same name is not meant.
        let preconditions = Preconditions { uid: meta.uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match api.delete(&key.1, &params).await {
            Ok(_) => removed.push(Change::Removed(key.clone())),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(source) => return Err(Error::Delete { kind: key.0, name: key.1, source }),
        }
        editions.0.remove(&key);
    }
    Ok(removed)
}

fn resource_of(kind: &str) -> Option<ApiResource> {
    use k8s_openapi::api::{
        apps::v1::StatefulSet,
        core::v1::{ConfigMap, Secret, Service},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    };
    use valkey_api::{ValkeyCertificateBinding, ValkeyCertificateBundle, ValkeyClusterStatus};
    macro_rules! among {
        ($($type:ty),*) => {[$(ApiResource::erase::<$type>(&())),*]};
    }
    let known = among![
        StatefulSet,
        Service,
        ConfigMap,
        Secret,
        PodDisruptionBudget,
        NetworkPolicy,
        ValkeyClusterStatus,
        ValkeyCertificateBundle,
        ValkeyCertificateBinding
    ];
    known.into_iter().find(|resource| resource.kind == kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_names_the_field_and_both_values() {
        let wanted = json!({"spec": {"ports": [{"port": 6379}], "type": "ClusterIP"}});
        let before = json!({"spec": {"ports": [{"port": 6380, "protocol": "TCP"}], "type": "NodePort", "extra": 1}});
        let after = json!({"spec": {"ports": [{"port": 6379, "protocol": "TCP"}], "type": "ClusterIP", "extra": 1}});
        assert_eq!(
            differences(&wanted, &before, &after, ""),
            [
                r#"spec.ports was [{"port":6380,"protocol":"TCP"}], is [{"port":6379,"protocol":"TCP"}] again"#,
                r#"spec.type was "NodePort", is "ClusterIP" again"#
            ]
        );
    }

    #[test]
    fn a_list_with_other_entries_is_told_from_one_with_other_values() {
        let wanted = json!({"spec": {"ports": [{"name": "valkey", "port": 6379}], "type": "ClusterIP"}});
        let with = |ports: Value| json!({"spec": {"ports": ports, "clusterIP": "10.0.0.1"}});
        assert!(!lists_differ(&wanted, &with(json!([{"name": "valkey", "port": 6379, "protocol": "TCP"}]))));
        assert!(lists_differ(&wanted, &with(json!([{"name": "valkey", "port": 6380}]))));
        assert!(lists_differ(&wanted, &with(json!([{"name": "valkey", "port": 6379}, {"name": "own", "port": 1}]))));
        assert!(lists_differ(&wanted, &with(json!([]))));
    }

    #[test]
    fn a_value_that_the_server_writes_differently_is_no_difference() {
        let wanted = json!({"spec": {"cpu": "1000m"}});
        let stored = json!({"spec": {"cpu": "1"}});
        assert!(differences(&wanted, &stored, &stored, "").is_empty());
    }

    #[test]
    fn templates_of_claims_stay_as_they_were_made() {
        let set = |size: &str, replicas: u32| -> DynamicObject {
            let meta = json!({"name": "orders-0"});
            let templates = json!([{"spec": {"resources": {"requests": {"storage": size}}}}]);
            let spec = json!({"replicas": replicas, "volumeClaimTemplates": templates});
            serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
        };
        let applied = with_what_cannot_change(&set("2Gi", 3), Some(&set("1Gi", 2)));
        assert_eq!(applied, set("1Gi", 3));
        assert_eq!(with_what_cannot_change(&set("2Gi", 3), None), set("2Gi", 3));
    }

    #[test]
    fn the_inside_of_a_secret_is_never_told() {
        let of = |value: &str| json!({"data": {"password": value}});
        let told = differences(&of("new"), &of("b2xk"), &of("bmV3"), "").join(" ");
        assert_eq!(told, "data.password was different");
    }
}
