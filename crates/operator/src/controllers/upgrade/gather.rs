//! Reads what an upgrade depends on. Read anew each time and not from a watch: a watch may be behind our own last write.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use valkey_api::topology::{Node, NodeState};
use valkey_api::{ConditionStatus, ConditionType, ValkeyCluster, ValkeyClusterStatus, ValkeyUpgrade, conditions};
use valkey_model::Member;
use valkey_resources::VALKEY_CONTAINER;

use super::facts::{ClusterFacts, Facts, Health, NodeFacts, OnStandstill, Standing};
use super::owner::grip;
use super::queue::rival;
use crate::context::Context;
use crate::controllers::cluster::observe::{is_ready, trouble};

/// The facts, and the edition of the cluster that they speak of.
pub async fn gather(
    context: &Context,
    namespace: &str,
    upgrade: &ValkeyUpgrade,
) -> kube::Result<(Facts, Option<String>)> {
    let name = &upgrade.spec.cluster_ref.name;
    let clusters: Api<ValkeyCluster> = Api::namespaced(context.client.clone(), namespace);
    let topologies: Api<ValkeyClusterStatus> = Api::namespaced(context.client.clone(), namespace);
    let (cluster, topology) = tokio::try_join!(clusters.get_opt(name), topologies.get_opt(name))?;
    let others = context.stores.upgrades.state();
    let rival = rival(upgrade, others.iter().filter_map(|other| other.0.as_ref().ok()));
    let seen = topology.and_then(|topology| topology.status).map(|topology| topology.nodes).unwrap_or_default();
    let pods = context.stores.pods_of(namespace, name);
    let edition = cluster.as_ref().and_then(ResourceExt::resource_version);
    let cluster = cluster.filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
    let cluster = cluster.map(|cluster| of_cluster(&cluster, &seen, pods.iter().map(AsRef::as_ref)));
    Ok((Facts { cluster, rival }, edition))
}

fn of_cluster<'a>(cluster: &ValkeyCluster, seen: &[Node], pods: impl Iterator<Item = &'a Pod>) -> ClusterFacts {
    let spec = &cluster.spec;
    let seen: BTreeMap<&str, &Node> = seen.iter().map(|node| (node.pod.as_str(), node)).collect();
    let status = cluster.status.as_ref();
    let name = cluster.name_any();
    let mut nodes: Vec<NodeFacts> = pods.filter_map(|pod| of_pod(&name, pod, &seen)).collect();
    nodes.sort_by(|one, other| one.pod.cmp(&other.pod));
    ClusterFacts {
        tag: spec.valkey_image().tag().to_owned(),
        grip: grip(&cluster.metadata),
        standing: standing(cluster),
        running: status.and_then(|status| status.valkey_version.as_ref()?.parse().ok()),
        shards: spec.master_count(),
        replicas: spec.replicas_per_master(),
        nodes,
        patience: SignedDuration::from_secs(spec.upgrade().validation_timeout_seconds().into()),
        on_standstill: if spec.upgrade().rolls_back() { OnStandstill::RollBack } else { OnStandstill::Stop },
    }
}

fn of_pod(cluster: &str, pod: &Pod, seen: &BTreeMap<&str, &Node>) -> Option<NodeFacts> {
    let name = pod.name_any();
    let shard = Member::of_pod(cluster, &name).ok()?.shard;
    let node = seen.get(name.as_str());
    // What the operator saw last may be of the pod before this one: this one is not ready yet then.
    let stays = pod.metadata.deletion_timestamp.is_none() && is_ready(pod);
    let healthy = stays && node.is_some_and(|node| node.state == NodeState::Ready);
    Some(NodeFacts {
        tag: image(pod).and_then(tag_of),
        version: node.and_then(|node| node.version.as_ref()?.parse().ok()),
        health: if healthy { Health::Ready } else { Health::NotReady },
        trouble: trouble(pod),
        shard: shard.0.into(),
        pod: name,
    })
}

fn image(pod: &Pod) -> Option<&str> {
    let containers = &pod.spec.as_ref()?.containers;
    containers.iter().find(|container| container.name == VALKEY_CONTAINER)?.image.as_deref()
}

/// A registry may have a port, so only a colon after the last slash begins a tag.
fn tag_of(image: &str) -> Option<String> {
    let last = image.rsplit('/').next()?;
    last.split_once(':').map(|(_, tag)| tag.to_owned())
}

fn standing(cluster: &ValkeyCluster) -> Standing {
    if cluster.spec.is_paused() {
        return Standing::Paused;
    }
    let status = cluster.status.clone().unwrap_or_default();
    if status.observed_generation != cluster.metadata.generation {
        return Standing::Unready("the operator has not looked at its present spec yet".into());
    }
    let words = |kind| conditions::get(&status.conditions, kind).map(|found| found.message.clone()).unwrap_or_default();
    let says = |kind, what: ConditionStatus| {
        conditions::get(&status.conditions, kind).is_some_and(|found| found.status == what.as_str())
    };
    if says(ConditionType::Accepted, ConditionStatus::False) {
        return Standing::Rejected(words(ConditionType::Accepted));
    }
    if says(ConditionType::Ready, ConditionStatus::True) && !says(ConditionType::Degraded, ConditionStatus::True) {
        return Standing::Ready;
    }
    Standing::Unready(words(ConditionType::Ready))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value)] // literals read better without an ampersand
    fn cluster(spec: Value, status: Value) -> ValkeyCluster {
        let object = json!({"metadata": {"name": "orders", "generation": 3}, "spec": spec, "status": status});
        serde_json::from_value(object).unwrap()
    }

    fn saying(generation: i64, accepted: &str, ready: &str) -> Value {
        let condition = |kind, status| {
            json!({"type": kind, "status": status, "reason": "R", "message": format!("{kind} {status}"),
                "lastTransitionTime": "2026-11-16T00:00:00Z"})
        };
        let conditions = [condition("Accepted", accepted), condition("Ready", ready)];
        json!({"observedGeneration": generation, "conditions": conditions, "valkeyVersion": "8.1.4"})
    }

    fn pod(name: &str, image: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "valkey", "image": image}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn node(pod: &str, version: &str) -> Node {
        serde_json::from_value(json!({"pod": pod, "shard": 0, "state": "Ready", "version": version})).unwrap()
    }

    #[test]
    fn a_status_about_another_spec_says_nothing_about_this_one() {
        assert!(matches!(standing(&cluster(json!({}), saying(2, "True", "True"))), Standing::Unready(_)));
        assert_eq!(standing(&cluster(json!({}), saying(3, "True", "True"))), Standing::Ready);
        assert_eq!(standing(&cluster(json!({}), saying(3, "True", "False"))), Standing::Unready("Ready False".into()));
        assert_eq!(
            standing(&cluster(json!({}), saying(3, "False", "True"))),
            Standing::Rejected("Accepted False".into())
        );
        assert_eq!(standing(&cluster(json!({"paused": true}), saying(3, "True", "True"))), Standing::Paused);
        let mut wounded = saying(3, "True", "True");
        let degraded = json!({"type": "Degraded", "status": "True", "reason": "R", "message": "a replica is missing",
            "lastTransitionTime": "2026-11-16T00:00:00Z"});
        wounded["conditions"].as_array_mut().unwrap().push(degraded);
        assert!(matches!(standing(&cluster(json!({}), wounded)), Standing::Unready(_)));
    }

    #[test]
    fn a_cluster_that_says_nothing_has_the_built_in_tag_and_times() {
        let facts = of_cluster(&cluster(json!({}), json!({})), &[], [].into_iter());
        assert_eq!((facts.tag.as_str(), facts.shards, facts.replicas), ("9.1.2", 3, 1));
        assert_eq!((facts.patience.as_secs(), facts.on_standstill), (300, OnStandstill::RollBack));
        let spec = json!({"upgrade": {"validationTimeoutSeconds": 20, "autoRollback": false}});
        let facts = of_cluster(&cluster(spec, json!({})), &[], [].into_iter());
        assert_eq!((facts.patience.as_secs(), facts.on_standstill), (20, OnStandstill::Stop));
    }

    #[test]
    fn what_was_seen_of_the_pod_before_does_not_make_this_one_healthy() {
        let seen = [node("orders-0-0", "9.1.2")];
        let health = |pod: Pod| of_cluster(&cluster(json!({}), json!({})), &seen, [&pod].into_iter()).nodes[0].health;
        assert_eq!(health(pod("orders-0-0", "valkey:9.1.2", "True")), Health::Ready);
        assert_eq!(health(pod("orders-0-0", "valkey:9.1.2", "False")), Health::NotReady);
        assert_eq!(health(pod("orders-0-1", "valkey:9.1.2", "True")), Health::NotReady, "never seen");
        let mut leaving = pod("orders-0-0", "valkey:9.1.2", "True");
        leaving.metadata.deletion_timestamp = Some(node_time());
        assert_eq!(health(leaving), Health::NotReady);
    }

    fn node_time() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_tag_is_what_follows_the_colon_of_the_name() {
        assert_eq!(tag_of("registry:5000/valkey/valkey:9.1.2-alpine"), Some("9.1.2-alpine".into()));
        assert_eq!(tag_of("registry:5000/valkey/valkey"), None);
    }
}
