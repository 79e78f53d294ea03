//! What the operator says about a `ValkeyCluster`.
//!
//! Nothing in here changes while a cluster is quiet: what moves with every second (lag, memory) is a metric, not status.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// What the cluster is doing, in a word. Computed from all the rest; nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The generation of the spec that this status speaks about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Primaries that serve slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masters: Option<i32>,
    /// Replicas that follow a primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Selects the pods, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Nodes that are ready for clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_nodes: Option<i32>,
    /// Nodes that the spec asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_nodes: Option<i32>,
    /// `readyNodes` of `totalNodes`, such as `6/6`: for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// Slots that have a primary, of 16384.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots_assigned: Option<i32>,
    /// The oldest version among the running nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valkey_version: Option<String>,
    /// One for each shard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stateful_sets: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsStatus>,
    /// When the cluster was whole for the first time. From then on it has data to lose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formed_at: Option<Time>,
    /// Where and how to connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Endpoints>,
    /// What the operator is busy with; absent when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// The image of the servers with which all was well last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// An image that did not come up and was given up, for as long as the spec asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<RolledBack>,
    /// What went wrong last, and what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
    /// `Accepted`, `Ready`, `Progressing`, `Degraded`, `TLSConfigured`, `DataLost`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Without its tag.
    pub name: String,
    pub tag: String,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.tag)
    }
}

/// A way back from an image that did not come up.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RolledBack {
    pub from: Image,
    pub to: Image,
    pub reason: String,
    /// When it was given up.
    pub at: Time,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Seen, but nothing is made yet.
    Pending,
    /// Pods start and find together.
    Creating,
    /// All is as it should be.
    Running,
    /// Slots move between shards, or members come and go; it serves meanwhile.
    Scaling,
    /// Pods are made anew, one after the other, or a shard gets another primary; it serves meanwhile.
    Updating,
    /// It works, but something is missing.
    Degraded,
    /// It cannot go on without a human: see `lastFailure`.
    Failed,
    /// Asked not to touch it.
    Paused,
    /// On its way out.
    Deleting,
}

impl Phase {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Creating => "Creating",
            Self::Running => "Running",
            Self::Scaling => "Scaling",
            Self::Updating => "Updating",
            Self::Degraded => "Degraded",
            Self::Failed => "Failed",
            Self::Paused => "Paused",
            Self::Deleting => "Deleting",
        }
    }
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TlsStatus {
    pub certificate_status: CertificateStatus,
    /// When the first of the certificates in use expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateStatus {
    /// Not every node has one yet.
    Pending,
    Valid,
    Expired,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    pub host: String,
    pub port: i32,
    /// The Secret with everything that an application needs.
    pub connection_secret: String,
    /// The Secret with the certificate to trust, if TLS is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<String>,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<i32>,
    pub message: String,
    /// What has to happen before it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// What is moved between shards, if slots are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<Moves>,
}

/// How far a move of slots has got. Keys and bytes are estimates.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Moves {
    /// When the first slot began to move.
    pub started_at: Time,
    /// All that were to be moved, with those that joined while it went on.
    pub slots: i32,
    pub slots_left: i32,
    pub keys_left: i64,
    /// What all of these slots take, by the memory that their servers use.
    pub bytes: i64,
    pub bytes_left: i64,
    /// On average since it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<i64>,
    /// By the pace so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<i64>,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LastFailure {
    pub reason: String,
    pub message: String,
    /// What a human can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// When it went wrong.
    pub at: Time,
}
