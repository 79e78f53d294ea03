//! What an operator sees of a simulated cluster.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use valkey_model::{
    Export, Exports, Failure, Held, Member, NodeReport, Observation, Peer, PeerHealth, ReplicaLink, Role, ShardIndex,
    Sighting, Spot,
};

use super::pod::{Network, Phase, Pod};
use super::server::{Entry, Link, Server, Standing};
use super::{Millis, Simulation};

/// What is seen of a member in one look: its server and its pod at the same moment.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pod: Option<SocketAddr>,
    sighting: Sighting,
    outdated: bool,
    going: bool,
    unused: bool,
}

impl Simulation {
    /// One look at everything. What it says about a member may be from the look before, if that was a moment ago.
    pub fn observe(&mut self) -> Observation {
        let mut seen = Observation { cluster: "simulated".into(), ..Observation::default() };
        let members: Vec<Member> = self.pods.keys().copied().collect();
        for member in members {
            let fresh = self.look_at(member);
            let stale = self.random.chance(self.staleness);
            let last = self.last_seen.get(&member).filter(|(at, _)| stale && self.now <= at + 500);
            // An operator knows at least what it has told Kubernetes itself, and whether the pod is another one.
            let last = last.filter(|(_, last)| !fresh.going && last.pod == fresh.pod);
            let Look { sighting, outdated, going, unused, .. } = last.map_or(&fresh, |(_, last)| last).clone();
            self.last_seen.insert(member, (self.now, fresh));
            seen.members.insert(member, sighting);
            seen.outdated.extend(outdated.then_some(member));
            seen.going.extend(going.then_some(member));
            seen.unused.extend(unused.then_some(member));
            if let Some(pod) = self.pods.get(&member) {
                seen.spots.insert(member, Spot { host: pod.host.clone(), zone: String::new() });
            }
        }
        seen.workloads.clone_from(&self.workloads);
        self.ask_kubernetes(&mut seen);
        self.note_headless(&seen);
        self.note_unsynced(&mut seen);
        let emptied = seen.emptied(self.desired);
        self.emptied_since.retain(|shard, _| emptied.contains(shard));
        for shard in emptied {
            let since = *self.emptied_since.entry(shard).or_insert(self.now);
            seen.emptied_for.insert(shard, Duration::from_millis(self.now - since));
        }
        let since = self.headless_since.iter();
        seen.headless_for = since.map(|(shard, at)| (*shard, Duration::from_millis(self.now - at))).collect();
        seen
    }

    fn note_headless(&mut self, seen: &Observation) {
        let shards: BTreeSet<ShardIndex> = self.pods.keys().map(|member| member.shard).collect();
        self.headless_since.retain(|shard, _| shards.contains(shard));
        for shard in shards {
            let led = seen.reports().any(|(m, r)| m.shard == shard && r.role == Role::Primary && !r.slots.is_empty());
            if led {
                self.headless_since.remove(&shard);
            } else {
                self.headless_since.entry(shard).or_insert(self.now);
            }
        }
    }

    fn note_unsynced(&mut self, seen: &mut Observation) {
        let synced = seen.in_sync();
        self.unsynced_since.retain(|member, _| seen.members.contains_key(member) && !synced.contains(member));
        for member in seen.members.keys().filter(|member| !synced.contains(member)) {
            self.unsynced_since.entry(*member).or_insert(self.now);
        }
        let since = self.unsynced_since.iter();
        seen.unsynced_for = since.map(|(member, at)| (*member, Duration::from_millis(self.now - at))).collect();
    }

    fn look_at(&self, member: Member) -> Look {
        let pod = self.pods.get(&member);
        Look {
            pod: pod.map(|pod| pod.address),
            sighting: self.sighting(member),
            outdated: pod.is_some_and(|pod| self.is_outdated(pod)),
            going: pod.is_some_and(|pod| pod.ends.is_some()),
            unused: pod.is_some_and(|pod| !pod.used),
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
        max_memory: 0,
        version: server.version,
        node_timeout: Duration::from_millis(server.node_timeout),
        peers: me.table.iter().map(|(id, entry)| peer(*id, entry)).collect(),
        exports: exports(server, now),
        settings: None,
    }
}

fn exports(server: &Server, now: Millis) -> Exports {
    let running = server.exports.running();
    let is_open = |slot: u16| !running.iter().any(|export| export.slots.contains(slot));
    let open = server.me.open.iter().filter(|(slot, _)| is_open(**slot));
    let open = open.filter_map(|(slot, to)| Some(Export { slots: slot.to_string().parse().ok()?, to: *to })).collect();
    let failed =
        |(message, at): (&str, Millis)| Failure { message: message.into(), ago: Duration::from_millis(now - at) };
    Exports { running, open, failures: server.exports.failures, last_failure: server.exports.last_failure.map(failed) }
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
