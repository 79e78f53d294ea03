//! A cluster whose spec was read, filled up with defaults and found good. Everything after the check speaks in these words.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    NodeAffinity, PodAffinity, PodAntiAffinity, PodSecurityContext, ResourceRequirements, Toleration,
    TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use secrecy::SecretString;
use valkey_api::ChildNames;
use valkey_api::cluster::{AppendFsync, PullPolicy, Retain, SidecarImage};
use valkey_model::{Member, Release, ShardIndex, Version};

use crate::amount::Bytes;
use crate::series::Series;
use crate::spec_error::SpecWarning;
use crate::valkey_conf::NODE_TIMEOUT_MS;

/// Only made by [`check`](crate::check), so whoever has one need not ask again.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CheckedCluster {
    pub names: ChildNames,
    pub masters: u16,
    pub replicas_per_master: u16,
    pub series: Series,
    pub image: Image,
    /// What the user wants instead of the operator's own sidecar.
    pub sidecar: SidecarImage,
    pub encryption: Encryption,
    pub access: Access,
    /// `None`: the data lives and dies with its pod.
    pub storage: Option<Storage>,
    pub replicating: Replicating,
    /// `None`: there is no memory limit to derive it from, so the server has none either.
    pub max_memory: Option<Bytes>,
    /// The user's parameters: known to the server, not ours, with good values.
    pub config: BTreeMap<String, String>,
    pub pods: Pods,
    pub read_service: ReadAccess,
    pub warnings: Vec<SpecWarning>,
}

impl CheckedCluster {
    pub fn shards(&self) -> impl Iterator<Item = ShardIndex> + use<> {
        (0..self.masters).map(ShardIndex)
    }

    /// `cluster-node-timeout` of the formed cluster.
    pub fn node_timeout(&self) -> Duration {
        let asked = self.config.get("cluster-node-timeout").and_then(|value| value.parse().ok());
        Duration::from_millis(asked.unwrap_or(NODE_TIMEOUT_MS))
    }

    /// The releases of the image, if its tag says so.
    pub fn release(&self) -> Option<Release> {
        let reference = self.image.reference.split('@').next()?;
        let (_, tag) = reference.rsplit_once(':')?;
        tag.parse::<Version>().ok().map(Release::from)
    }

    /// The pods of one shard.
    pub fn members(&self, shard: ShardIndex) -> impl Iterator<Item = Member> + use<> {
        (0..=self.replicas_per_master).map(move |ordinal| Member { shard, ordinal })
    }
}

/// A container image and how to get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub reference: String,
    pub pull_policy: Option<PullPolicy>,
    pub pull_secrets: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    Tls,
    Plain,
}

/// How applications get in.
#[derive(Debug, Clone)]
pub enum Access {
    /// Without a password.
    Open,
    /// As user `default`, with the user's own password.
    Default(SecretString),
    /// As user `app`, with a password that the operator makes.
    App,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadAccess {
    /// A Service reaches replicas only.
    Service,
    None,
}

/// A volume for each pod, and what is written to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Storage {
    pub size: Quantity,
    pub class: Option<String>,
    pub retain: Retain,
    /// The save points; `None`: no snapshots.
    pub save: Option<String>,
    pub append_only: Option<AppendOnly>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendOnly {
    pub fsync: AppendFsync,
    pub rewrite_percentage: Option<u32>,
    pub rewrite_min_size: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicating {
    pub diskless: bool,
    pub min_replicas_to_write: u16,
    pub min_replicas_max_lag: u16,
}

/// What the user says about pods, as Kubernetes takes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pods {
    pub resources: Option<ResourceRequirements>,
    pub pod_anti_affinity: PodAntiAffinity,
    pub pod_affinity: Option<PodAffinity>,
    pub node_affinity: Option<NodeAffinity>,
    pub node_selector: Option<BTreeMap<String, String>>,
    pub tolerations: Option<Vec<Toleration>>,
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    pub priority_class_name: Option<String>,
    pub service_account_name: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub security_context: Option<PodSecurityContext>,
}
