//! All objects that a cluster consists of, in one struct: whoever adds a child here is told by the compiler where it is
//! forgotten.

mod config_map;
mod network_policy;
mod pod;
mod pod_disruption_budget;
mod scheduling;
mod service;
mod stateful_set;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use valkey_api::ValkeyCluster;
use valkey_api::labels::{self, Component};
use valkey_model::{Settings, ShardIndex};

pub use self::config_map::VALKEY_CONF;
pub(crate) use self::pod::RESIZABLE;
pub use self::pod::{DATA_VOLUME, SIDECAR_CONTAINER, VALKEY_CONTAINER};
use crate::checked::{CheckedCluster, ReadAccess};
use crate::hash::fingerprint;

/// The `ValkeyCluster` that the children belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub name: String,
    pub namespace: String,
    pub uid: String,
}

impl Owner {
    pub(crate) fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: ValkeyCluster::api_version(&()).into(),
            kind: ValkeyCluster::kind(&()).into(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            // Nothing of ours holds up the deletion of a cluster.
            block_owner_deletion: Some(false),
        }
    }
}

/// What the operator tells its sidecars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wiring {
    /// The image of the operator's own release, with its tag.
    pub sidecar_image: String,
    pub operator_namespace: String,
    pub trust_domain: String,
    /// Where sidecars report to.
    pub report_url: String,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(
        "a child of the cluster cannot be written as JSON ({0}): this is a defect of the operator, please report it"
    )]
    Json(#[from] serde_json::Error),
}

/// Everything that is applied for a cluster, Secrets apart: those are made of values that only the operator has.
#[derive(Debug, Clone, PartialEq)]
pub struct Children {
    pub config_map: ConfigMap,
    pub nodes_service: Service,
    pub client_service: Service,
    pub read_service: Option<Service>,
    pub network_policy: NetworkPolicy,
    pub pod_disruption_budget: PodDisruptionBudget,
    /// One for each shard.
    pub stateful_sets: Vec<StatefulSet>,
}

impl Children {
    /// `workloads` says how many members each shard has at present: shards and replicas come and go one after the other.
    /// `live` are the settings that pods start with, of those that a running server takes: what every server took last.
    pub fn build(
        cluster: &CheckedCluster,
        owner: &Owner,
        wiring: &Wiring,
        workloads: &BTreeMap<ShardIndex, u16>,
        live: &Settings,
    ) -> Result<Self, BuildError> {
        let stateful_sets =
            workloads.iter().map(|(shard, members)| stateful_set::shard(cluster, owner, wiring, *shard, *members));
        Ok(Self {
            config_map: config_map::config(cluster, owner, live),
            nodes_service: service::nodes(cluster, owner),
            client_service: service::client(cluster, owner),
            read_service: match cluster.read_service {
                ReadAccess::Service => Some(service::read(cluster, owner)),
                ReadAccess::None => None,
            },
            network_policy: network_policy::ingress(cluster, owner, wiring),
            pod_disruption_budget: pod_disruption_budget::closed(cluster, owner),
            stateful_sets: stateful_sets.collect::<Result<_, _>>()?,
        })
    }

    /// The objects in the order in which they are best applied: a pod finds everything that it mounts.
    pub fn into_objects(self) -> Result<Vec<DynamicObject>, BuildError> {
        let Self {
            config_map,
            nodes_service,
            client_service,
            read_service,
            network_policy,
            pod_disruption_budget,
            stateful_sets,
        } = self;
        let mut objects = vec![object(config_map)?, object(nodes_service)?, object(client_service)?];
        if let Some(read_service) = read_service {
            objects.push(object(read_service)?);
        }
        objects.push(object(network_policy)?);
        objects.push(object(pod_disruption_budget)?);
        for stateful_set in stateful_sets {
            objects.push(object(stateful_set)?);
        }
        Ok(objects)
    }
}

/// The mark that an up-to-date pod of this shard has in its annotation [`labels::TEMPLATE`].
pub fn template_mark(cluster: &CheckedCluster, wiring: &Wiring, shard: ShardIndex) -> Result<String, BuildError> {
    pod::template_hash(cluster, &pod::spec(cluster, wiring, shard))
}

/// An object ready to be applied, stamped with a fingerprint of itself by which drift is seen.
pub fn object<K: Resource + Serialize>(mut child: K) -> Result<DynamicObject, BuildError> {
    let fingerprint = fingerprint(&child)?;
    child.annotations_mut().insert(labels::DESIRED.into(), fingerprint);
    Ok(serde_json::from_value(serde_json::to_value(&child)?)?)
}

/// Name, labels, marks and owner of a child.
pub fn child_meta(owner: &Owner, name: String, component: Component) -> ObjectMeta {
    let marks = [(labels::CR, owner.name.as_str()), (labels::LOCKED, "true")];
    ObjectMeta {
        name: Some(name),
        namespace: Some(owner.namespace.clone()),
        labels: Some(labels::common(&owner.name, component)),
        annotations: Some(marks.map(|(key, value)| (key.into(), value.into())).into()),
        owner_references: Some(vec![owner.reference()]),
        ..Default::default()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
pub(crate) mod tests;
