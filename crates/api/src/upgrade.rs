//! `ValkeyUpgrade`: one change of a cluster's Valkey version, with its checks, its progress and its way back.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pki::ClusterName;

/// Asks for one version once. What was asked for does not change; the next version is another object.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "valkey.io",
    version = "v1alpha1",
    kind = "ValkeyUpgrade",
    plural = "valkeyupgrades",
    shortname = "vu",
    category = "valkey",
    namespaced,
    status = "UpgradeStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Brings a ValkeyCluster to another version of Valkey, and back if that does not work.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "From", type_ = "string", json_path = ".status.fromVersion"),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.targetVersion"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.updatedNodes"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyUpgradeSpec {
    /// The `ValkeyCluster`, in the same namespace.
    #[x_kube(validation = Rule::new("self == oldSelf").message(
        "spec.clusterRef cannot change: an upgrade is of one cluster; make another ValkeyUpgrade"
    ))]
    pub cluster_ref: ClusterName,

    /// The version to bring it to, such as `9.1.2`, or `9.1.2-alpine` for an image with more to its tag: written into the
    /// cluster's `spec.valkeyImage.tag` as it is.
    #[schemars(length(max = 128))]
    #[x_kube(
        validation = Rule::new("self == oldSelf").message(
            "spec.targetVersion cannot change: what was begun is finished first; make another ValkeyUpgrade"
        ),
        validation = Rule::new("self.matches('^[0-9]+[.][0-9]+[.][0-9]+([-+_][A-Za-z0-9._+-]*)?$')").message(
            "spec.targetVersion must begin with a whole version such as 9.1.2: nobody could say when one such as 9.1 is reached"
        )
    )]
    pub target_version: String,

    /// Holds the roll where it is, after the pod that is being made anew. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

impl ValkeyUpgradeSpec {
    pub fn is_paused(&self) -> bool {
        self.paused.unwrap_or(false)
    }
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeStatus {
    /// How far it is, in a word. After `Succeeded`, `RolledBack`, `Failed` and `Refused` nothing is done any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<UpgradePhase>,
    /// The generation of the spec that this status speaks about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The tag before the upgrade, and after it if it is rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_version: Option<String>,
    /// One for each shard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<ShardProgress>,
    /// Nodes that run the version that is wanted now and are healthy, of all, such as `4/6`. During a rollback that is the
    /// former version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_nodes: Option<String>,
    /// The most nodes that were updated and healthy at the same time: more than that is progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_updated: Option<i32>,
    /// When the version was written into the cluster's spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When one more node was found updated and healthy. The time-out counts from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_progress_at: Option<Time>,
    /// When it ended, well or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
    /// What happens, or what to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `Accepted`, `Progressing`, `Succeeded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How many members of one shard run the version that is wanted now and are healthy.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ShardProgress {
    pub shard: i32,
    pub updated: i32,
    pub total: i32,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradePhase {
    /// It waits: for its cluster, or for an older upgrade.
    Pending,
    /// Pods are made anew with the new version, one after the other.
    InProgress,
    /// Asked to hold.
    Paused,
    /// Every node runs the new version.
    Succeeded,
    /// It got nowhere for too long; pods are made anew with the former version.
    RollingBack,
    /// Every node runs the former version again.
    RolledBack,
    /// It ended half way, and a human has to decide: see the message.
    Failed,
    /// It cannot be done, and nothing was touched: see the message.
    Refused,
}

impl UpgradePhase {
    /// Whether nothing is done any more, whatever happens.
    pub const fn is_over(self) -> bool {
        match self {
            Self::Pending | Self::InProgress | Self::Paused | Self::RollingBack => false,
            Self::Succeeded | Self::RolledBack | Self::Failed | Self::Refused => true,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::InProgress => "InProgress",
            Self::Paused => "Paused",
            Self::Succeeded => "Succeeded",
            Self::RollingBack => "RollingBack",
            Self::RolledBack => "RolledBack",
            Self::Failed => "Failed",
            Self::Refused => "Refused",
        }
    }
}

impl ValkeyUpgrade {
    pub fn phase(&self) -> UpgradePhase {
        self.status.as_ref().and_then(|status| status.phase).unwrap_or(UpgradePhase::Pending)
    }

    /// Whether the cluster's spec was, or is about to be, written because of it, and it has not ended.
    pub fn is_under_way(&self) -> bool {
        let begun = self.status.as_ref().is_some_and(|status| status.from_version.is_some());
        begun && !self.phase().is_over()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_read_as_people_write_it() {
        let text = r#"{"clusterRef":{"name":"orders"},"targetVersion":"9.1.2"}"#;
        let spec: ValkeyUpgradeSpec = serde_json::from_str(text).unwrap();
        assert!(!spec.is_paused());
        assert_eq!(serde_json::to_string(&spec).unwrap(), text);
    }

    #[test]
    fn an_upgrade_is_under_way_from_its_first_deed_to_its_end() {
        let mut upgrade = ValkeyUpgrade::default();
        assert!(!upgrade.is_under_way());
        let begun = UpgradeStatus { from_version: Some("8.1.4".into()), ..UpgradeStatus::default() };
        upgrade.status = Some(begun.clone());
        assert!(upgrade.is_under_way());
        upgrade.status = Some(UpgradeStatus { phase: Some(UpgradePhase::Failed), ..begun });
        assert!(!upgrade.is_under_way());
    }
}
