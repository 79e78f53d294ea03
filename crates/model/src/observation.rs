//! What is wanted, and what was seen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::{Member, NodeId, Role, ShardIndex, SlotKeys, SlotSet, TakenSettings, Version, WantedSettings};

/// The shape that a cluster should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Desired {
    pub shards: u16,
    pub replicas: u16,
    /// `cluster-node-timeout` of a formed cluster. New nodes start with a shorter one, see `planner::formation`.
    pub node_timeout: Duration,
}

impl Desired {
    pub fn members(self) -> impl Iterator<Item = Member> {
        (0..self.shards).flat_map(move |shard| (0..=self.replicas).map(move |ordinal| Member::new(shard, ordinal)))
    }

    pub fn size(self) -> usize {
        usize::from(self.shards) * (usize::from(self.replicas) + 1)
    }

    pub fn wants(self, member: Member) -> bool {
        member.shard.0 < self.shards && member.ordinal <= self.replicas
    }
}

/// Everything that one pass saw of one cluster, also of members that are not wanted any more. A member without an entry is
/// [`Sighting::Missing`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The cluster's name, which its pods' names begin with.
    pub cluster: String,
    pub members: BTreeMap<Member, Sighting>,
    pub spots: BTreeMap<Member, Spot>,
    /// For how long each shard that is without a primary has been seen so. A hint for patience, never a proof.
    pub headless_for: BTreeMap<ShardIndex, Duration>,
    /// For how long each member has not been seen [`in sync`](Self::in_sync). A hint when copies of the data are compared: offsets
    /// of servers that followed another primary, or the same one before it started anew, mean nothing to each other.
    pub unsynced_for: BTreeMap<Member, Duration>,
    /// For how long each of the [`emptied`](Self::emptied) shards has been seen so. A hint for patience, never a proof.
    pub emptied_for: BTreeMap<ShardIndex, Duration>,
    /// How many members each shard's workload asks Kubernetes for. A shard without an entry has no workload.
    pub workloads: BTreeMap<ShardIndex, u16>,
    /// Pods that are not what the spec asks for now, and can only become so by being made anew.
    pub outdated: BTreeSet<Member>,
    /// Pods that Kubernetes has been told to end. A pod that we have deleted ourselves is one of them at once, even if the watch does
    /// not show it yet: else another one might be chosen in its place.
    pub going: BTreeSet<Member>,
    /// Pods in which no server has ever run: nothing is lost with them.
    pub unused: BTreeSet<Member>,
    pub wishes: Vec<Wish>,
    /// Pods on machines that are being emptied, and those whose eviction somebody has asked for.
    pub unwelcome: BTreeSet<Member>,
    /// Pods that may be evicted at present: the disruption budget leaves them out.
    pub evictable: BTreeSet<Member>,
    /// Pods that Kubernetes does not send clients to, or not yet.
    pub unready: BTreeSet<Member>,
    /// Pods that Kubernetes finds no machine for: their volume may be bound to one that is closed.
    pub stranded: BTreeSet<Member>,
    /// Pods whose data outlives them: what their server has written when it ends in good order is on a volume that stays.
    pub durable: BTreeSet<Member>,
    /// Pods that have not been ready since they were made, and whose server has not failed: they come up for the first time. For
    /// words only.
    pub fresh: BTreeSet<Member>,
    /// What is in each slot of those who were asked, which is done when slots are about to move only.
    pub weights: BTreeMap<Member, SlotKeys>,
    /// Why no pod may be made anew at present.
    pub hold: Option<String>,
    /// What running servers should be given; `None`: they are left as they are.
    pub settings: Option<WantedSettings>,
    /// Volumes that become larger. For words only.
    pub growth: Option<Growth>,
}

/// How far volumes have got on their way to a larger size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    pub to: String,
    pub done: usize,
    pub of: usize,
    pub waiting_for: Option<String>,
}

/// Somebody's wish about who leads a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wish {
    /// This member shall lead its shard.
    Lead(Member),
    /// This member shall not lead any more; who does instead is ours to choose.
    Resign(Member),
}

impl Observation {
    /// What the pod of a member is called.
    pub fn pod(&self, member: Member) -> String {
        format!("{}-{member}", self.cluster)
    }

    pub fn sighting(&self, member: Member) -> &Sighting {
        self.members.get(&member).unwrap_or(&Sighting::Missing)
    }

    pub fn report(&self, member: Member) -> Option<&NodeReport> {
        match self.sighting(member) {
            Sighting::Known(report) => Some(report),
            _ => None,
        }
    }

    /// Members that are not wanted any more, but still count: there is a pod, or a workload that would make one.
    pub fn leaving(&self, desired: Desired) -> BTreeSet<Member> {
        let there = self.members.iter().filter(|(_, sighting)| !matches!(sighting, Sighting::Missing));
        let asked_for = self.workloads.iter().flat_map(|(shard, count)| {
            let shard = *shard;
            (0..*count).map(move |ordinal| Member { shard, ordinal })
        });
        there.map(|(member, _)| *member).chain(asked_for).filter(|member| !desired.wants(*member)).collect()
    }

    /// Shards with leaving members, in which no server that answered has slots.
    pub fn emptied(&self, desired: Desired) -> BTreeSet<ShardIndex> {
        let shards: BTreeSet<ShardIndex> = self.leaving(desired).into_iter().map(|member| member.shard).collect();
        let has_slots = |shard| self.reports().any(|(m, report)| m.shard == shard && !report.slots.is_empty());
        shards.into_iter().filter(|shard| !has_slots(*shard)).collect()
    }

    /// Members that have all of their shard's data at this moment, as far as anybody knows: they lead, and nobody has heard of a
    /// newer owner of their slots, or they are in sync with somebody.
    pub fn in_sync(&self) -> BTreeSet<Member> {
        let is_newer = |report: &NodeReport, slots: &SlotSet, epoch| {
            epoch > report.config_epoch && slots.intersects(&report.slots)
        };
        let succeeded = |report: &NodeReport| {
            self.reports().any(|(_, other)| {
                let mut told = other.peers.iter().filter(|peer| peer.id != report.id);
                let itself = other.role == Role::Primary && is_newer(report, &other.slots, other.config_epoch);
                itself || told.any(|peer| is_newer(report, &peer.slots, peer.config_epoch))
            })
        };
        let is_in_sync = |report: &NodeReport| match report.role {
            Role::Primary => !report.loading && !succeeded(report),
            Role::Replica => !report.loading && report.link == ReplicaLink::Up,
        };
        self.reports().filter(|(_, report)| is_in_sync(report)).map(|(member, _)| member).collect()
    }

    /// Every server that answered.
    pub fn reports(&self) -> impl Iterator<Item = (Member, &NodeReport)> {
        self.members.keys().filter_map(|member| Some((*member, self.report(*member)?)))
    }
}

/// Where a member's pod was placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    pub host: String,
    pub zone: String,
}

/// What is known about one member at this moment.
///
/// The variants that prove that no server runs there are [`Missing`](Self::Missing) and [`Held`](Self::Held); nothing that
/// takes a role or data away may be decided about an [`Unreachable`](Self::Unreachable) one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// There is no pod.
    Missing,
    /// The pod is there, its server is not up yet.
    Starting,
    /// The launch guard keeps the server from starting, because it might lead with less data than its replicas have.
    Held(Held),
    /// The pod is there, but neither it nor its server answers: it may well be running.
    Unreachable,
    Known(Box<NodeReport>),
}

/// A server that may not start yet: what its `nodes.conf` says it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub id: NodeId,
    pub slots: SlotSet,
    pub data: LocalData,
}

/// How much of its data a server will have when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocalData {
    /// Nothing on disk.
    Gone,
    /// A snapshot from some time ago.
    Old,
    /// It was written by a newer release, and this server cannot read it. It is not gone: the newer release could. Nobody
    /// may take it for lost, nor for something to start with.
    Unreadable,
    /// A log of every write.
    Complete,
}

/// What a server says about itself and about its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    pub id: NodeId,
    /// Where its peers reach it now, by the pod's address.
    pub address: SocketAddr,
    pub role: Role,
    /// Whom it replicates, if it is a replica.
    pub primary: Option<NodeId>,
    /// The slots that it believes to own.
    pub slots: SlotSet,
    pub config_epoch: u64,
    pub current_epoch: u64,
    /// `cluster_state:ok`: it would answer queries.
    pub serving: bool,
    pub loading: bool,
    /// State of a replica's link to its primary; of no meaning on a primary.
    pub link: ReplicaLink,
    pub offset: u64,
    pub keys: u64,
    pub memory: u64,
    /// What its data may take; 0 if nothing limits it.
    pub max_memory: u64,
    pub version: Version,
    pub node_timeout: Duration,
    /// All other nodes in its table.
    pub peers: Vec<Peer>,
    pub exports: Exports,
    /// What it was given of the settings that a running server takes; `None` if its sidecar does not know of them.
    pub settings: Option<TakenSettings>,
}

/// Moves of slots away from a server. It forgets them when it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exports {
    /// Under way, or waiting for their turn.
    pub running: Vec<Export>,
    /// Slots that a move in the classic way has opened: their keys may be on both sides.
    pub open: Vec<Export>,
    /// How many moves failed since the last one that succeeded.
    pub failures: u32,
    pub last_failure: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    pub slots: SlotSet,
    pub to: NodeId,
}

/// A move that failed, in the server's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub message: String,
    pub ago: Duration,
}

impl NodeReport {
    pub fn peer(&self, id: NodeId) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.id == id)
    }

    /// A server that never was part of anything: it may be given any place.
    pub fn is_blank(&self) -> bool {
        let Self { role, slots, keys, peers, config_epoch, .. } = self;
        *role == Role::Primary && slots.is_empty() && *keys == 0 && peers.is_empty() && *config_epoch == 0
    }

    /// A primary without slots and keys: nothing is lost if it becomes a replica.
    pub fn is_empty_primary(&self) -> bool {
        self.role == Role::Primary && self.slots.is_empty() && self.keys == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaLink {
    Up,
    Syncing,
    Down,
}

/// A line in a server's table of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub id: NodeId,
    /// `None` if the server does not know it.
    pub address: Option<SocketAddr>,
    pub role: Role,
    pub primary: Option<NodeId>,
    pub slots: SlotSet,
    pub config_epoch: u64,
    pub health: PeerHealth,
    /// Whether the bus connection to it stands.
    pub connected: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerHealth {
    /// Introduced, but has not answered yet; its id is a made-up one.
    Handshake,
    Fine,
    /// This server does not reach it.
    Suspected,
    /// The majority agreed that it is gone.
    Failed,
}
