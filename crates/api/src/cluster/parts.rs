//! The parts of a `ValkeyCluster`'s spec.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Valkey server to run.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyImage {
    /// The image without its tag. Default: `docker.io/valkey/valkey`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The tag, which begins with the version unless the image has another way to say it. Default: `9.1.2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Default: as Kubernetes chooses by the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_policy: Option<PullPolicy>,
    /// Secrets, in the same namespace, with which the images of a pod are pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<PullSecret>>,
}

/// The sidecar beside each server.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SidecarImage {
    /// The image without its tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_policy: Option<PullPolicy>,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// A Secret, in the same namespace, that opens a registry.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct PullSecret {
    pub name: String,
}

/// Encryption between clients and nodes, and among nodes.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Certificates come from the operator's own CA. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Who may connect.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// `false` opens the cluster to everybody who reaches it. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The password of the user `default`. Without it that user is off, and a user `app` with a generated password is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKey>,
}

/// One key of a Secret in the same namespace.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    pub name: String,
    /// Default: `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// What is kept on disk.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Persistence {
    /// A volume for each pod. Without it the data is gone with the pod. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The size of each volume, which may grow later and never shrinks. Default: `1Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub size: Option<String>,
    /// Default: the cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// What happens to the volumes when the cluster is deleted. Default: `Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain: Option<Retain>,
    /// Snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdb: Option<Rdb>,
    /// The log of writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aof: Option<Aof>,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Retain {
    #[default]
    Delete,
    Retain,
}

impl Retain {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "Delete",
            Self::Retain => "Retain",
        }
    }
}

/// Snapshots.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Rdb {
    /// Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// When to take one, in pairs of seconds and changed keys. Default: `3600 1 300 100 60 10000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]* [0-9]+( [1-9][0-9]* [0-9]+)*$')").message(
        "spec.persistence.rdb.save must be pairs of seconds and changes, such as 3600 1 300 100; to have no snapshots set \
         rdb.enabled: false"
    ))]
    pub save: Option<String>,
}

/// The log of writes.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Aof {
    /// Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How soon a write is on disk. Default: `everysec`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub appendfsync: Option<AppendFsync>,
    /// By how much the log grows before it is rewritten, in percent; 0 is never. Default: Valkey's, 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(
        "spec.persistence.aof.autoAofRewritePercentage must be 0 or more; 0 stops rewriting, 100 waits for twice the size"
    ))]
    pub auto_aof_rewrite_percentage: Option<i32>,
    /// Below this size the log is not rewritten. Default: Valkey's, `64mb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^[0-9]+(b|k|kb|m|mb|g|gb)?$')").message(
        "spec.persistence.aof.autoAofRewriteMinSize must be a size in Valkey's units, such as 64mb: this is none"
    ))]
    pub auto_aof_rewrite_min_size: Option<String>,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum AppendFsync {
    Always,
    #[default]
    Everysec,
    No,
}

impl AppendFsync {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Everysec => "everysec",
            Self::No => "no",
        }
    }
}

/// How primaries feed their replicas.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Replication {
    /// A full copy goes over the network without touching the primary's disk. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diskless_sync: Option<bool>,
    /// A primary with fewer replicas in touch refuses writes: safety for availability. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(
        "spec.replication.minReplicasToWrite must be 0 or more; 0 lets a primary write without replicas"
    ))]
    pub min_replicas_to_write: Option<i32>,
    /// How many seconds a replica may be silent and still counts as in touch. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 3600").message(
        "spec.replication.minReplicasMaxLag must be 1 to 3600 seconds: replicas report once a second; leave it out for 10"
    ))]
    pub min_replicas_max_lag: Option<i32>,
}

/// How another image of the servers is judged, whether a `ValkeyUpgrade` or somebody's edit of `valkeyImage` brought it.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// How long an upgrade may go on without one more node that runs the new version and is healthy. A node must load and copy
    /// its data in this time. Default: 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 86400").message(
        "spec.upgrade.validationTimeoutSeconds must be 1 to 86400: it is the time in which one node must be updated; leave it out \
         for 300"
    ))]
    pub validation_timeout_seconds: Option<i32>,
    /// Whether the former version comes back by itself when that time is over. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_rollback: Option<bool>,
}

/// A Service that reaches replicas only.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ReadService {
    /// Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}
