//! Which pods of a cluster may be evicted.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use valkey_api::labels::{self, Component};

use super::{Owner, child_meta};
use crate::checked::CheckedCluster;

/// None, but for the one that the operator has made ready for it and marked: an eviction is refused with "try again", so
/// `kubectl drain` waits while mastership is handed over. Its successor has no mark, so it is covered again.
pub fn closed(cluster: &CheckedCluster, owner: &Owner) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: child_meta(owner, cluster.names.pod_disruption_budget(), Component::Node),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(0)),
            selector: Some(LabelSelector {
                match_labels: Some(labels::of_cluster(cluster.names.cluster())),
                match_expressions: Some(vec![LabelSelectorRequirement {
                    key: labels::EVICTABLE.into(),
                    operator: "DoesNotExist".into(),
                    values: None,
                }]),
            }),
            ..Default::default()
        }),
        status: None,
    }
}
