//! `ValkeyClusterStatus`: every node of one cluster, in an object of its own.
//!
//! A cluster of a thousand nodes would not fit into the status of its `ValkeyCluster`, and its readers rarely want it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind has no spec: nobody asks for anything with it. It is owned by its `ValkeyCluster`, and called like it.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "valkey.io",
    version = "v1alpha1",
    kind = "ValkeyClusterStatus",
    plural = "valkeyclusterstatuses",
    shortname = "vcs",
    category = "valkey",
    namespaced,
    no_spec,
    status = "Topology",
    derive = "PartialEq",
    derive = "Default",
    doc = "Every node of one ValkeyCluster as the operator last saw it. Made by the operator; called like the cluster.",
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.summary"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct ValkeyClusterStatusSpec {}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// How many nodes are ready, of how many: `6/6`.
    pub summary: String,
    /// Every node, in the order of its pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Node>,
    /// When the operator saw the cluster change into this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<Time>,
}

/// One Valkey node. What could not be found out is absent, not zero.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub pod: String,
    pub shard: i32,
    pub state: NodeState,
    /// The Kubernetes node that the pod is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The zone of that Kubernetes node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The node's id in the Valkey cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<NodeRole>,
    /// The slots that it serves, such as `0-5460`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<String>,
    /// The id of the primary that it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
    /// How far replication has come, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    /// How far it is behind its primary, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<i64>,
    /// The memory that it uses, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The SHA-256 of the certificate that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_thumbprint: Option<String>,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum NodeRole {
    Primary,
    Replica,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// Part of the cluster, and answers.
    Ready,
    /// There, but loads, syncs or is not joined yet.
    Starting,
    /// Kept from starting, since its data is behind that of its shard.
    Held,
    /// Its pod is there but does not answer.
    Unreachable,
    /// It has no pod.
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_without_a_spec_is_read_and_written_without_one() {
        let text = r#"{"apiVersion":"valkey.io/v1alpha1","kind":"ValkeyClusterStatus","metadata":{"name":"orders"},"status":{"summary":"6/6"}}"#;
        let object: ValkeyClusterStatus = serde_json::from_str(text).unwrap();
        assert_eq!(object.status.as_ref().unwrap().summary, "6/6");
        assert_eq!(serde_json::to_string(&object).unwrap(), text);
    }
}
