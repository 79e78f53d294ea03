//! How many pods of a cluster may be evicted at a time.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use valkey_api::labels::{self, Component};

use super::{Owner, child_meta};
use crate::checked::CheckedCluster;

/// One pod of the whole cluster, not of each shard: two shards without a replica are twice the risk.
pub fn one_at_a_time(cluster: &CheckedCluster, owner: &Owner) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: child_meta(owner, cluster.names.pod_disruption_budget(), Component::Node),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(labels::of_cluster(cluster.names.cluster())),
                ..Default::default()
            }),
            ..Default::default()
        }),
        status: None,
    }
}
