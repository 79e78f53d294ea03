//! Small clusters for the tests of single decisions.

use std::net::SocketAddr;
use std::time::Duration;

use valkey_model::{
    Action, Desired, Export, Exports, Held, LocalData, Member, NodeId, NodeReport, Observation, Peer, PeerHealth,
    ReplicaLink, Role, ShardIndex, Sighting, SlotSet, Spot, Step, Version, partition,
};

use crate::view::ClusterView;

/// A cluster as it was seen, to be damaged by a test.
pub(crate) struct Fixture {
    pub desired: Desired,
    pub seen: Observation,
}

/// Something that a test does to a cluster, and what to call it.
pub(crate) type Damage<'a> = (&'a str, &'a dyn Fn(&mut Fixture));

pub(crate) fn member(text: &str) -> Member {
    text.parse().unwrap()
}

/// The id of the server that a member has had since the cluster was made.
pub(crate) fn id(text: &str) -> NodeId {
    let Member { shard: ShardIndex(shard), ordinal } = member(text);
    let mut bytes = [0; 20];
    bytes[..2].copy_from_slice(&shard.to_be_bytes());
    bytes[2..4].copy_from_slice(&ordinal.to_be_bytes());
    NodeId::from_bytes(bytes)
}

/// An id that no member has.
pub(crate) fn stranger(number: u8) -> NodeId {
    NodeId::from_bytes([200 + number; 20])
}

pub(crate) fn address(text: &str) -> SocketAddr {
    let Member { shard: ShardIndex(shard), ordinal } = member(text);
    format!("10.0.{shard}.{ordinal}:6379").parse().unwrap()
}

pub(crate) fn actions(steps: &[Step]) -> Vec<Action> {
    steps.iter().map(|step| step.action.clone()).collect()
}

impl Fixture {
    /// All servers are up and know nothing.
    pub fn blank(shards: u16, replicas: u16) -> Self {
        let desired = Desired { shards, replicas, node_timeout: Duration::from_secs(5) };
        let blank = |member: Member| (member, Sighting::Known(Box::new(blank_report(&member.to_string()))));
        let members = desired.members().map(blank).collect();
        let workloads = (0..shards).map(|shard| (ShardIndex(shard), replicas + 1)).collect();
        Self { desired, seen: Observation { cluster: "orders".into(), members, workloads, ..Default::default() } }
    }

    /// A healthy cluster with data, led by the first member of each shard.
    pub fn formed(shards: u16, replicas: u16) -> Self {
        Self::spread(&partition(shards), replicas)
    }

    /// The same, but each shard has these slots.
    pub fn with_slots(parts: &[&str], replicas: u16) -> Self {
        let parts: Vec<SlotSet> = parts.iter().map(|part| part.parse().unwrap()).collect();
        Self::spread(&parts, replicas)
    }

    fn spread(parts: &[SlotSet], replicas: u16) -> Self {
        let mut cluster = Self::blank(u16::try_from(parts.len()).unwrap(), replicas);
        let members: Vec<_> = cluster.desired.members().collect();
        for member in &members {
            let led_by = format!("{}-0", member.shard);
            let shard = usize::from(member.shard.0);
            let report = cluster.report(&member.to_string());
            report.config_epoch = u64::from(member.shard.0) + 1;
            (report.keys, report.offset, report.serving) = (100, 1000, true);
            if parts[shard].is_empty() {
                report.keys = 0;
            }
            report.node_timeout = Duration::from_secs(5);
            if member.ordinal == 0 {
                report.slots = parts[shard].clone();
            } else {
                (report.role, report.primary, report.link) = (Role::Replica, Some(id(&led_by)), ReplicaLink::Up);
            }
        }
        let all: Vec<_> = members.iter().map(|member| peer_of(cluster.report(&member.to_string()))).collect();
        for member in members {
            let report = cluster.report(&member.to_string());
            report.peers = all.iter().filter(|peer| peer.id != report.id).cloned().collect();
        }
        cluster
    }

    pub fn view(&self) -> ClusterView<'_> {
        ClusterView::new(self.desired, &self.seen)
    }

    pub fn report(&mut self, text: &str) -> &mut NodeReport {
        match self.seen.members.get_mut(&member(text)) {
            Some(Sighting::Known(report)) => report,
            other => panic!("{text} is {other:?}"),
        }
    }

    pub fn see(&mut self, text: &str, sighting: Sighting) -> &mut Self {
        self.seen.members.insert(member(text), sighting);
        self
    }

    /// The launch guard holds a primary.
    pub fn hold(&mut self, text: &str, data: LocalData) -> &mut Self {
        let slots = self.report(text).slots.clone();
        self.see(text, Sighting::Held(Held { id: id(text), slots, data }))
    }

    /// A pod came back without its volume: a new, blank server.
    pub fn replace(&mut self, text: &str, new: NodeId) -> &mut Self {
        let report = NodeReport { id: new, ..blank_report(text) };
        self.see(text, Sighting::Known(Box::new(report)))
    }

    /// What one server's table says about an id.
    pub fn peer(&mut self, by: &str, about: NodeId) -> &mut Peer {
        self.report(by).peers.iter_mut().find(|peer| peer.id == about).unwrap()
    }

    /// Changes what everybody's table says about an id.
    pub fn everywhere(&mut self, about: NodeId, change: impl Fn(&mut Peer)) -> &mut Self {
        for sighting in self.seen.members.values_mut() {
            if let Sighting::Known(report) = sighting {
                report.peers.iter_mut().filter(|peer| peer.id == about).for_each(&change);
            }
        }
        self
    }

    pub fn spot(&mut self, text: &str, host: &str, zone: &str) -> &mut Self {
        self.seen.spots.insert(member(text), Spot { host: host.to_owned(), zone: zone.to_owned() });
        self
    }

    /// Asks for another shape.
    pub fn want(&mut self, shards: u16, replicas: u16) -> &mut Self {
        (self.desired.shards, self.desired.replicas) = (shards, replicas);
        self
    }

    pub fn outdate(&mut self, members: &[&str]) -> &mut Self {
        self.seen.outdated.extend(members.iter().map(|text| member(text)));
        self
    }

    /// Slots are moving from one member to another.
    pub fn moving(&mut self, from: &str, slots: &str, to: &str) -> &mut Self {
        let export = Export { slots: slots.parse().unwrap(), to: id(to) };
        self.report(from).exports.running.push(export);
        self
    }

    /// A classic move has left slots open.
    pub fn open(&mut self, from: &str, slots: &str, to: NodeId) -> &mut Self {
        self.report(from).exports.open.push(Export { slots: slots.parse().unwrap(), to });
        self
    }

    /// Nothing has been in these shards for a while.
    pub fn emptied(&mut self, shards: &[u16]) -> &mut Self {
        let long = Duration::from_secs(10);
        self.seen.emptied_for.extend(shards.iter().map(|shard| (ShardIndex(*shard), long)));
        self
    }

    /// Another member leads its shard, as everybody knows.
    pub fn lead(&mut self, text: &str) -> &mut Self {
        let shard = member(text).shard;
        let is_leader = |(m, r): &(Member, &NodeReport)| m.shard == shard && r.role == Role::Primary;
        let former = self.seen.reports().find(is_leader).map(|(m, _)| m.to_string()).unwrap();
        let slots = std::mem::take(&mut self.report(&former).slots);
        let epoch = self.report(&former).config_epoch + 100;
        let members: Vec<String> =
            self.seen.reports().map(|(m, _)| m).filter(|m| m.shard == shard).map(|m| m.to_string()).collect();
        for member in members {
            let report = self.report(&member);
            if member == text {
                (report.role, report.primary, report.slots, report.config_epoch) =
                    (Role::Primary, None, slots.clone(), epoch);
            } else {
                (report.role, report.primary, report.link) = (Role::Replica, Some(id(text)), ReplicaLink::Up);
            }
            let known = peer_of(report);
            self.everywhere(known.id, |peer| *peer = known.clone());
        }
        self
    }

    pub fn headless_for(&mut self, shard: u16, seconds: u64) -> &mut Self {
        self.seen.headless_for.insert(ShardIndex(shard), Duration::from_secs(seconds));
        self
    }
}

pub(crate) fn peer_of(report: &NodeReport) -> Peer {
    Peer {
        id: report.id,
        address: Some(report.address),
        role: report.role,
        primary: report.primary,
        slots: report.slots.clone(),
        config_epoch: report.config_epoch,
        health: PeerHealth::Fine,
        connected: true,
    }
}

pub(crate) fn blank_report(text: &str) -> NodeReport {
    NodeReport {
        id: id(text),
        address: address(text),
        role: Role::Primary,
        primary: None,
        slots: SlotSet::EMPTY,
        config_epoch: 0,
        current_epoch: 0,
        serving: false,
        loading: false,
        link: ReplicaLink::Down,
        offset: 0,
        keys: 0,
        memory: 0,
        max_memory: 0,
        version: Version::new(9, 1, 2),
        node_timeout: Duration::from_secs(1),
        peers: Vec::new(),
        exports: Exports::default(),
        settings: None,
    }
}
