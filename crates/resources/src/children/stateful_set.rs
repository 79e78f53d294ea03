//! One `StatefulSet` for each shard: a stable name and volume for each of its members, and nothing more. Who leads, and when
//! a pod is replaced, is decided by the operator.

use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec, StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PodTemplateSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use valkey_api::cluster::Retain;
use valkey_api::labels::{self, Component};
use valkey_model::ShardIndex;

use super::{BuildError, Owner, Wiring, child_meta, pod};
use crate::checked::{CheckedCluster, Storage};
use crate::relabel;

pub fn shard(
    cluster: &CheckedCluster,
    owner: &Owner,
    wiring: &Wiring,
    shard: ShardIndex,
    members: u16,
) -> Result<StatefulSet, BuildError> {
    let selector = labels::of_shard(cluster.names.cluster(), shard);
    let mut metadata = child_meta(owner, cluster.names.stateful_set(shard), Component::Node);
    metadata.labels.get_or_insert_default().extend(selector.clone());
    metadata.annotations.get_or_insert_default().insert(labels::MEMBERS.into(), members.to_string());
    Ok(StatefulSet {
        metadata,
        spec: Some(StatefulSetSpec {
            replicas: Some(members.into()),
            service_name: Some(cluster.names.nodes_service()),
            selector: LabelSelector { match_labels: Some(selector), ..Default::default() },
            template: template(cluster, wiring, shard)?,
            volume_claim_templates: cluster.storage.as_ref().map(|storage| vec![claim(cluster, owner, shard, storage)]),
            persistent_volume_claim_retention_policy: cluster.storage.as_ref().map(|_| never_with_the_set()),
            // Nodes find together when all are there; one after the other would wait for readiness that cannot come.
            pod_management_policy: Some("Parallel".into()),
            // The operator replaces pods, since only it knows who leads.
            update_strategy: Some(StatefulSetUpdateStrategy { type_: Some("OnDelete".into()), ..Default::default() }),
            ..Default::default()
        }),
        status: None,
    })
}

/// The role of a node is not in here: it moves while the pod stays.
fn template(cluster: &CheckedCluster, wiring: &Wiring, shard: ShardIndex) -> Result<PodTemplateSpec, BuildError> {
    let spec = pod::spec(cluster, wiring, shard);
    let mut labels = cluster.pods.labels.clone();
    labels.extend(labels::common(cluster.names.cluster(), Component::Node));
    labels.extend(labels::of_shard(cluster.names.cluster(), shard));
    let mut annotations = cluster.pods.annotations.clone();
    annotations.extend(relabel::keys(cluster).map(|keys| (labels::SPEC_KEYS.into(), keys)));
    annotations.insert(labels::TEMPLATE.into(), pod::template_hash(cluster, &spec)?);
    let metadata = ObjectMeta { labels: Some(labels), annotations: Some(annotations), ..Default::default() };
    Ok(PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) })
}

/// A volume that is to go with the cluster is owned by the cluster, from the moment it is made.
///
/// Not by its `StatefulSet`, as Kubernetes' own policy would have it: whoever deletes a set by hand would delete the data of the
/// shard with it. And Kubernetes would write that owner right after it made the claim, just when the scheduler writes to it
/// too, which costs the pod a second.
fn claim(cluster: &CheckedCluster, owner: &Owner, shard: ShardIndex, storage: &Storage) -> PersistentVolumeClaim {
    let owners = match storage.retain {
        Retain::Delete => Some(vec![owner.reference()]),
        Retain::Retain => None,
    };
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(pod::DATA_VOLUME.into()),
            labels: Some(labels::of_shard(cluster.names.cluster(), shard)),
            owner_references: owners,
            ..Default::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            storage_class_name: storage.class.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".into(), storage.size.clone())].into()),
                limits: None,
            }),
            ..Default::default()
        }),
        status: None,
    }
}

/// Neither a set that is gone nor a smaller one takes a volume along: what is on it may be the last copy.
fn never_with_the_set() -> StatefulSetPersistentVolumeClaimRetentionPolicy {
    StatefulSetPersistentVolumeClaimRetentionPolicy {
        when_deleted: Some("Retain".into()),
        when_scaled: Some("Retain".into()),
    }
}
