//! Labels and annotations: on what they are, who sets them, and the sets that belong together.

use std::collections::BTreeMap;

use valkey_model::ShardIndex;

pub const NAME: &str = "app.kubernetes.io/name";
pub const INSTANCE: &str = "app.kubernetes.io/instance";
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub const COMPONENT: &str = "app.kubernetes.io/component";

/// The cluster that an object belongs to. On every child and pod.
pub const CLUSTER: &str = "valkey.io/cluster";
/// The shard that a pod, its `StatefulSet` or its Secret belongs to.
pub const SHARD: &str = "valkey.io/shard";
/// What a node is right now, [`PRIMARY`] or [`REPLICA`]. Set on the live pod by the operator, never in a template: roles move.
pub const ROLE: &str = "valkey.io/role";

/// `"true"` on a pod that may be evicted now: the disruption budget leaves it out. Set on the live pod by the operator.
pub const EVICTABLE: &str = "valkey.io/evictable";
/// Annotation of a pod: when somebody last asked for its eviction. Set by the webhook; it counts for some minutes.
pub const EVICTION: &str = "valkey.io/eviction-asked";

pub const PRIMARY: &str = "primary";
pub const REPLICA: &str = "replica";

/// The operator pod that leads, in its own namespace. Set by that pod on itself, so that reports find it.
pub const LEADER: &str = "valkey.io/leader";

/// Annotation: the custom resource that an object was made for.
pub const CR: &str = "valkey.io/cr";
/// Annotation: `"true"` on what nobody but the operator should change.
pub const LOCKED: &str = "valkey.io/locked";
/// Annotation: a hash of the object as the operator wants it, to see drift without comparing field by field.
pub const DESIRED: &str = "valkey.io/desired";
/// Annotation of a pod template: a hash of what a pod must be restarted for.
pub const TEMPLATE: &str = "valkey.io/template";
/// Annotation of a pod: the keys of those of its labels and annotations that come from the spec, so that they can be taken off
/// again.
pub const SPEC_KEYS: &str = "valkey.io/spec-keys";
/// Annotation of a shard's `StatefulSet`: how many members it asks for, for those who watch metadata only.
pub const MEMBERS: &str = "valkey.io/members";
/// Annotation of a cluster: a pod that shall lead its shard, or one that shall not lead it any more with a `!` before its name.
/// The operator removes it when it is done.
pub const SWITCHOVER: &str = "valkey.io/switchover";
/// Annotation of a custom resource definition: whose it is, since others define kinds of the same name.
pub const CRD_OWNER: &str = "valkey.io/crd-owner";

/// The value of [`NAME`].
pub const VALKEY: &str = "valkey";
/// The value of [`MANAGED_BY`] and [`CRD_OWNER`], and the field manager of everything the operator applies.
pub const OPERATOR: &str = "valkey-operator";

/// What all labels and annotations of ours begin with; a user's own may not.
pub const PREFIX: &str = "valkey.io/";

/// The value of [`COMPONENT`]: what an object is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// Valkey nodes and what makes them run.
    Node,
    /// The way of clients to the nodes.
    Access,
    /// Certificates and keys.
    Certificates,
}

impl Component {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Access => "access",
            Self::Certificates => "certificates",
        }
    }
}

pub type Labels = BTreeMap<String, String>;

/// The labels of every child of a cluster.
pub fn common(cluster: &str, component: Component) -> Labels {
    let mut labels = of_cluster(cluster);
    labels.insert(MANAGED_BY.into(), OPERATOR.into());
    labels.insert(COMPONENT.into(), component.as_str().into());
    labels.insert(CLUSTER.into(), cluster.into());
    labels
}

/// Selects all of a cluster's pods. Part of a `StatefulSet`'s selector, so it can never change.
pub fn of_cluster(cluster: &str) -> Labels {
    [(NAME, VALKEY), (INSTANCE, cluster), (CLUSTER, cluster)].map(|(key, value)| (key.into(), value.into())).into()
}

/// Selects the pods of one shard.
pub fn of_shard(cluster: &str, shard: ShardIndex) -> Labels {
    let mut labels = of_cluster(cluster);
    labels.insert(SHARD.into(), shard.to_string());
    labels
}

/// A set of labels as a selector in a list or watch call.
pub fn selector(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_labels_hold_everything_that_selects_it() {
        let child = common("orders", Component::Node);
        assert!(of_cluster("orders").iter().all(|(key, value)| child.get(key) == Some(value)));
    }

    #[test]
    fn a_selector_names_each_label_once_in_order() {
        assert_eq!(
            selector(&of_shard("orders", ShardIndex(2))),
            "app.kubernetes.io/instance=orders,app.kubernetes.io/name=valkey,valkey.io/cluster=orders,valkey.io/shard=2"
        );
    }
}
