//! What an upgrade depends on, in its own words.

use jiff::SignedDuration;
use valkey_api::upgrade::ShardProgress;
use valkey_model::Version;

use super::owner::Grip;
use super::path;

/// All that an upgrade depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `None` if there is no such cluster.
    pub cluster: Option<ClusterFacts>,
    /// The upgrade of the same cluster that goes first.
    pub rival: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFacts {
    /// The tag that counts, the built-in one if the spec has none.
    pub tag: String,
    pub grip: Grip,
    pub standing: Standing,
    /// The oldest version among its nodes.
    pub running: Option<Version>,
    pub shards: i32,
    pub replicas: i32,
    /// Every pod that there is.
    pub nodes: Vec<NodeFacts>,
    pub patience: SignedDuration,
    pub on_standstill: OnStandstill,
}

/// What the cluster's own status says about its present spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The operator was asked not to touch it.
    Paused,
    Rejected(String),
    Unready(String),
    Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStandstill {
    RollBack,
    Stop,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    pub pod: String,
    pub shard: i32,
    /// The tag of the image in the pod's spec.
    pub tag: Option<String>,
    /// What the server says; `None` if it says nothing.
    pub version: Option<Version>,
    pub health: Health,
    /// Why the pod does not come up, in Kubernetes' words.
    pub trouble: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Ready,
    NotReady,
}

impl NodeFacts {
    fn is_at(&self, tag: &str) -> bool {
        let kept = self.version.is_some_and(|version| path::keeps_promise(tag, version));
        self.tag.as_deref() == Some(tag) && self.health == Health::Ready && kept
    }
}

/// The words of Kubernetes about the first pod that does not come up, if there is one.
pub fn with_trouble(words: &str, cluster: &ClusterFacts) -> String {
    let troubled = cluster.nodes.iter().find_map(|node| Some((&node.pod, node.trouble.as_ref()?)));
    troubled.map_or_else(|| words.to_owned(), |(pod, trouble)| format!("{words}; pod {pod} {trouble}"))
}

/// How many nodes of each shard are at a tag. Members that are not wanted any more do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally(Vec<ShardProgress>);

impl Tally {
    pub fn of(cluster: &ClusterFacts, tag: &str) -> Self {
        let total = cluster.replicas.saturating_add(1);
        let updated = |shard| {
            let nodes = cluster.nodes.iter().filter(|node| node.shard == shard && node.is_at(tag));
            i32::try_from(nodes.count()).unwrap_or(i32::MAX).min(total)
        };
        Self((0..cluster.shards).map(|shard| ShardProgress { shard, updated: updated(shard), total }).collect())
    }

    pub fn updated(&self) -> i32 {
        self.0.iter().map(|shard| shard.updated).sum()
    }

    pub fn total(&self) -> i32 {
        self.0.iter().map(|shard| shard.total).sum()
    }

    pub fn is_whole(&self) -> bool {
        self.updated() >= self.total()
    }

    pub fn into_shards(self) -> Vec<ShardProgress> {
        self.0
    }

    pub fn words(&self) -> String {
        format!("{} of {} nodes", self.updated(), self.total())
    }
}
