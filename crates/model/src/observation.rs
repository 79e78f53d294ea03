//! What is wanted, and what was seen.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::{Member, NodeId, Role, ShardIndex, SlotSet, Version};

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
}

/// Everything that one pass saw of one cluster. A member without an entry is [`Sighting::Missing`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    pub members: BTreeMap<Member, Sighting>,
    pub spots: BTreeMap<Member, Spot>,
    /// For how long each shard that is without a primary has been seen so. A hint for patience, never a proof.
    pub headless_for: BTreeMap<ShardIndex, Duration>,
}

impl Observation {
    pub fn sighting(&self, member: Member) -> &Sighting {
        self.members.get(&member).unwrap_or(&Sighting::Missing)
    }

    pub fn report(&self, member: Member) -> Option<&NodeReport> {
        match self.sighting(member) {
            Sighting::Known(report) => Some(report),
            _ => None,
        }
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
    pub version: Version,
    pub node_timeout: Duration,
    /// All other nodes in its table.
    pub peers: Vec<Peer>,
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
