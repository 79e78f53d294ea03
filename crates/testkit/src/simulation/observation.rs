//! What an operator sees of a simulated cluster.

use std::time::Duration;

use valkey_model::{
    Held, Member, NodeReport, Observation, Peer, PeerHealth, ReplicaLink, Role, ShardIndex, Sighting, Spot, Version,
};

use super::pod::{Network, Phase, Pod};
use super::server::{Entry, Link, Server, Standing};
use super::{Millis, Simulation};

impl Simulation {
    /// One look at everything. What it says about a member may be from the look before, if that was a moment ago.
    pub fn observe(&mut self) -> Observation {
        let mut seen = Observation::default();
        let members: Vec<Member> = self.pods.keys().copied().collect();
        for member in members {
            let fresh = self.sighting(member);
            let stale = self.random.chance(self.staleness);
            let last = self.last_seen.get(&member).filter(|(at, _)| stale && self.now <= at + 500);
            let sighting = if let Some((_, last)) = last { last.clone() } else { fresh.clone() };
            self.last_seen.insert(member, (self.now, fresh));
            seen.members.insert(member, sighting);
            if let Some(pod) = self.pods.get(&member) {
                seen.spots.insert(member, Spot { host: pod.host.clone(), zone: String::new() });
            }
        }
        self.note_headless(&seen);
        let since = self.headless_since.iter();
        seen.headless_for = since.map(|(shard, at)| (*shard, Duration::from_millis(self.now - at))).collect();
        seen
    }

    fn note_headless(&mut self, seen: &Observation) {
        for shard in (0..self.desired.shards).map(ShardIndex) {
            let led = seen.reports().any(|(m, r)| m.shard == shard && r.role == Role::Primary && !r.slots.is_empty());
            if led {
                self.headless_since.remove(&shard);
            } else {
                self.headless_since.entry(shard).or_insert(self.now);
            }
        }
    }

    fn sighting(&self, member: Member) -> Sighting {
        let Some(pod) = self.pods.get(&member) else { return Sighting::Missing };
        match &pod.phase {
            Phase::Absent { .. } => Sighting::Missing,
            _ if pod.network == Network::Cut => Sighting::Unreachable,
            Phase::Starting { .. } => Sighting::Starting,
            Phase::Guarded { .. } => self.held(pod).map_or(Sighting::Starting, Sighting::Held),
            Phase::Running(server) => Sighting::Known(Box::new(report(server, self.now))),
        }
    }

    fn held(&self, pod: &Pod) -> Option<Held> {
        let conf = pod.files.nodes_conf.as_ref().filter(|conf| !pod.released && !conf.slots.is_empty())?;
        Some(Held { id: conf.id, slots: conf.slots.clone(), data: self.local_data(pod) })
    }
}

fn report(server: &Server, now: Millis) -> NodeReport {
    let me = &server.me;
    let keys = u64::try_from(server.data.len()).unwrap_or(u64::MAX);
    NodeReport {
        id: me.id,
        address: server.address,
        role: me.role,
        primary: me.primary,
        slots: me.slots.clone(),
        config_epoch: me.epoch,
        current_epoch: me.current_epoch,
        serving: server.is_serving(now),
        loading: server.is_loading(now),
        link: match server.link {
            Link::Down { .. } => ReplicaLink::Down,
            Link::Syncing { .. } => ReplicaLink::Syncing,
            Link::Up => ReplicaLink::Up,
        },
        offset: server.offset,
        keys,
        memory: keys,
        version: Version::new(9, 1, 2),
        node_timeout: Duration::from_millis(server.node_timeout),
        peers: me.table.iter().map(|(id, entry)| peer(*id, entry)).collect(),
    }
}

fn peer(id: valkey_model::NodeId, entry: &Entry) -> Peer {
    Peer {
        id,
        address: entry.address,
        role: entry.role,
        primary: entry.primary,
        slots: entry.slots.clone(),
        config_epoch: entry.epoch,
        health: match entry.standing {
            Standing::Greeting { .. } => PeerHealth::Handshake,
            Standing::Fine => PeerHealth::Fine,
            Standing::Suspected => PeerHealth::Suspected,
            Standing::Failed { .. } => PeerHealth::Failed,
        },
        connected: entry.standing == Standing::Fine && entry.address.is_some(),
    }
}
