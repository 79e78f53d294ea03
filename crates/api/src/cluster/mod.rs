//! `ValkeyCluster`: a sharded cluster.
//!
//! Everything in its spec is optional and stays as the user wrote it: the API server adds no defaults, so that defaults can
//! come from elsewhere later. Only the number of shards has one, without which nothing that scales could read it. Read the spec through
//! the accessors (`master_count()`, …), which know the built-in ones.

mod effective;
mod parts;
mod status;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeAffinity, PodAffinity, PodAntiAffinity, PodSecurityContext, ResourceRequirements, Toleration,
    TopologySpreadConstraint,
};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

pub use parts::{
    Aof, AppendFsync, Auth, Persistence, PullPolicy, PullSecret, Rdb, ReadService, Replication, Retain, SecretKey,
    SidecarImage, Tls, Upgrade, ValkeyImage,
};
pub use status::{
    CertificateStatus, ClusterStatus, Endpoints, Image, LastFailure, Moves, Operation, Phase, RolledBack, TlsStatus,
};

/// What a user may ask of a cluster. `{}` gives a working, secure cluster of three primaries with a replica each.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "valkey.io",
    version = "v1alpha1",
    kind = "ValkeyCluster",
    plural = "valkeyclusters",
    shortname = "vc",
    category = "valkey",
    namespaced,
    status = "ClusterStatus",
    scale(
        spec_replicas_path = ".spec.masterCount",
        status_replicas_path = ".status.masters",
        label_selector_path = ".status.selector"
    ),
    derive = "PartialEq",
    derive = "Default",
    doc = "A sharded Valkey cluster. `spec: {}` gives a working, secure one.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Masters", type_ = "integer", json_path = ".status.masters"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes"),
    printcolumn(name = "Doing", type_ = "string", json_path = ".status.operation.message"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.valkeyVersion"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 40").message(
        "metadata.name is longer than 40 characters: pods and Services carry it with a suffix; choose a shorter one"
    ),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message(
        "metadata.name must begin with a letter and have only a-z, 0-9 and '-', no dots: Services are called like it"
    ),
    validation = Rule::new("!self.metadata.name.endsWith('-nodes') && !self.metadata.name.endsWith('-read')").message(
        "metadata.name must not end in -nodes or -read: Services of another cluster are called so; choose another one"
    )
)]
// Texts are compared with `has` and not with `orValue`: of an optional text the API server's estimate of a rule's cost does not
// see the length, and would refuse the whole definition.
#[x_kube(
    validation = Rule::new(
        "self.?masterCount.orValue(3) >= 3 || (self.?masterCount.orValue(3) == 1 && self.?allowUnsafeTopology.orValue(false))"
    ).message(
        "spec.masterCount must be at least 3: fewer primaries cannot agree on a failover; set 3 or more, or 1 together with \
         allowUnsafeTopology: true"
    ).field_path(".masterCount"),
    validation = Rule::new("self.?replication.?minReplicasToWrite.orValue(0) <= self.?replicasPerMaster.orValue(1)").message(
        "spec.replication.minReplicasToWrite is larger than replicasPerMaster, so every write would be refused; lower it or \
         add replicas"
    ).field_path(".replication.minReplicasToWrite"),
    validation = Rule::new("self.?tls.?enabled.orValue(true) == oldSelf.?tls.?enabled.orValue(true)").message(
        "spec.tls.enabled cannot change yet: nodes with TLS and nodes without cannot talk to each other; create a new cluster"
    ).field_path(".tls"),
    validation = Rule::new("self.?persistence.?enabled.orValue(true) == oldSelf.?persistence.?enabled.orValue(true)").message(
        "spec.persistence.enabled cannot change: volumes cannot be added to or taken from running pods; create a new cluster"
    ).field_path(".persistence"),
    validation = Rule::new(
        "(has(self.persistence) && has(self.persistence.storageClassName) ? self.persistence.storageClassName : '') == \
         (has(oldSelf.persistence) && has(oldSelf.persistence.storageClassName) ? oldSelf.persistence.storageClassName : '')"
    ).message(
        "spec.persistence.storageClassName cannot change: volumes cannot move between classes; create a new cluster"
    ).field_path(".persistence"),
    validation = Rule::new(
        "!isQuantity((has(self.persistence) && has(self.persistence.size) ? self.persistence.size : '1Gi')) || \
         !isQuantity((has(oldSelf.persistence) && has(oldSelf.persistence.size) ? oldSelf.persistence.size : '1Gi')) || \
         quantity((has(self.persistence) && has(self.persistence.size) ? self.persistence.size : '1Gi')).compareTo(quantity( \
         (has(oldSelf.persistence) && has(oldSelf.persistence.size) ? oldSelf.persistence.size : '1Gi'))) >= 0"
    ).message(
        "spec.persistence.size can grow and not shrink: no volume gives back what it has; create a new cluster"
    ).field_path(".persistence")
)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyClusterSpec {
    /// The Valkey server to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valkey_image: Option<ValkeyImage>,

    /// The sidecar beside each server. Default: the operator's own release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar_image: Option<SidecarImage>,

    /// How many shards, so primaries, the cluster has: 3 to 500, or 1 with `allowUnsafeTopology`. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 500").message(
        "spec.masterCount must be 1 to 500: larger clusters spend their time on gossip; use several clusters"
    ))]
    #[schemars(extend("default" = 3))]
    pub master_count: Option<i32>,

    /// How many replicas each primary has: 0 to 5. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 5").message(
        "spec.replicasPerMaster must be 0 to 5: each replica costs its primary memory and bandwidth; choose 1 or 2"
    ))]
    pub replicas_per_master: Option<i32>,

    /// Allows a single primary, which nothing replaces on its own if it fails. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_unsafe_topology: Option<bool>,

    /// Encryption between clients and nodes, and among nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,

    /// Who may connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,

    /// What is kept on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<Persistence>,

    /// How primaries feed their replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,

    /// The memory for data per node: `auto`, a safe share of the memory limit, or a size such as `2gb`. Default: `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self == 'auto' || self.matches('^[1-9][0-9]*(b|k|kb|m|mb|g|gb)?$')").message(
        "spec.maxMemory must be auto or a size in Valkey's units, such as 2gb or 512mb: this is none of them"
    ))]
    pub max_memory: Option<String>,

    /// Parameters of valkey.conf by name. What the operator owns is refused, with the reason. Running servers get those that they
    /// take, one as a trial and then all; if one refuses them all keep what they had. The others restart pods, one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self.size() <= 200").message(
        "spec.config has more than 200 entries, which is nearly every parameter there is; leave out those at their default"
    ))]
    pub config: Option<BTreeMap<String, String>>,

    /// CPU and memory of the Valkey container; without a word about CPU it requests 100m. Running pods get other amounts where
    /// Kubernetes can; a request or limit that comes or goes restarts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Added to the operator's own terms, which keep the members of a shard on different nodes and zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_anti_affinity: Option<PodAntiAffinity>,

    /// Pods that the cluster's pods should be near to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_affinity: Option<PodAffinity>,

    /// Nodes that the pods may or should go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,

    /// Labels that a node must have to take a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,

    /// Taints that do not keep the pods away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,

    /// Added to the operator's own constraints, which spread the cluster over nodes and zones; takes the place of one for the
    /// same topology and strictness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,

    /// The `PriorityClass` of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,

    /// The `ServiceAccount` of the pods. Its token is not mounted: nothing in them talks to the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// Labels of the pods, beside the operator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,

    /// Annotations of the pods, beside the operator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,

    /// Laid over the operator's own, field by field: not root, user and group 999, the runtime's seccomp profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<PodSecurityContext>,

    /// A Service that reaches replicas only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_service: Option<ReadService>,

    /// How another image of the servers is judged, whether a `ValkeyUpgrade` or somebody's edit of `valkeyImage` brought it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,

    /// The operator looks but does not touch. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}
