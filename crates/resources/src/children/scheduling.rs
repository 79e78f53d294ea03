//! Where pods go: the members of a shard apart from each other, the cluster spread over nodes and zones.
//!
//! All of it is a wish, not a condition: with one node left a cluster must still start.

use k8s_openapi::api::core::v1::{
    Affinity, PodAffinityTerm, PodAntiAffinity, TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use valkey_api::labels::{self, Labels};
use valkey_model::ShardIndex;

use crate::checked::CheckedCluster;

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Ours, and the user's beside it.
pub fn affinity(cluster: &CheckedCluster, shard: ShardIndex) -> Affinity {
    let same_shard = labels::of_shard(cluster.names.cluster(), shard);
    let ours = [(100, HOSTNAME), (50, ZONE)].map(|(weight, topology)| apart(weight, topology, &same_shard));
    let theirs = cluster.pods.pod_anti_affinity.clone();
    let preferred = theirs.preferred_during_scheduling_ignored_during_execution.into_iter().flatten();
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(ours.into_iter().chain(preferred).collect()),
            required_during_scheduling_ignored_during_execution: theirs
                .required_during_scheduling_ignored_during_execution,
        }),
        pod_affinity: cluster.pods.pod_affinity.clone(),
        node_affinity: cluster.pods.node_affinity.clone(),
    }
}

/// The whole cluster over nodes and zones; the members of a shard are kept apart by [`affinity`], since Kubernetes takes
/// one constraint only for each topology and strictness. For the same reason a user's constraint takes the place of ours.
pub fn spread(cluster: &CheckedCluster) -> Vec<TopologySpreadConstraint> {
    let theirs = &cluster.pods.topology_spread_constraints;
    let is_taken = |ours: &TopologySpreadConstraint| {
        theirs.iter().any(|theirs| {
            (&theirs.topology_key, &theirs.when_unsatisfiable) == (&ours.topology_key, &ours.when_unsatisfiable)
        })
    };
    let pods = labels::of_cluster(cluster.names.cluster());
    let ours = [HOSTNAME, ZONE].map(|topology| evenly(topology, &pods));
    ours.into_iter().filter(|ours| !is_taken(ours)).chain(theirs.iter().cloned()).collect()
}

fn apart(weight: i32, topology: &str, pods: &Labels) -> WeightedPodAffinityTerm {
    WeightedPodAffinityTerm {
        weight,
        pod_affinity_term: PodAffinityTerm {
            topology_key: topology.into(),
            label_selector: Some(selector(pods)),
            ..Default::default()
        },
    }
}

fn evenly(topology: &str, pods: &Labels) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: topology.into(),
        when_unsatisfiable: "ScheduleAnyway".into(),
        label_selector: Some(selector(pods)),
        // A node that takes no pods must not count as an empty place.
        node_taints_policy: Some("Honor".into()),
        ..Default::default()
    }
}

fn selector(pods: &Labels) -> LabelSelector {
    LabelSelector { match_labels: Some(pods.clone()), ..Default::default() }
}
