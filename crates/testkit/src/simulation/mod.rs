//! A simulated Valkey cluster on simulated pods: good enough to break a planner, small enough to be understood.
//!
//! Everything in it happens by chance, and the same seed gives the same run. Servers have their own, often outdated views;
//! messages are late or lost; a replica throws its data away when it copies its primary's, which is how real data is
//! destroyed. It has what decides about the safety of a plan, and nothing of the speed of the real thing.

mod bus;
mod commands;
mod observation;
mod pod;
mod random;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use valkey_model::{Desired, Member, NodeId, Role, ShardIndex, Sighting, SlotSet};

use self::bus::Envelope;
use self::pod::{Files, Phase, Pod};
use self::server::Link;

pub use self::commands::Refusal;
pub use self::pod::{Answer, Applicant, Guard, Network, Past, Volume};
pub use self::random::Random;

type Millis = u64;

/// How often the simulated world moves.
const STEP: Millis = 50;
/// The time-out with which new servers start.
const FORMING_TIMEOUT: Millis = 1000;

/// What of the data is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    None,
    /// Now and then.
    Snapshots,
    /// Every write.
    Log,
}

/// How bad the world is.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Messages of a hundred that are lost.
    pub loss: u64,
    /// The longest delay of a message.
    pub delay: Duration,
    /// Sightings of a hundred that are from the look before.
    pub staleness: u64,
}

impl Weather {
    pub const FINE: Self = Self { loss: 0, delay: Duration::from_millis(50), staleness: 0 };
    pub const ROUGH: Self = Self { loss: 10, delay: Duration::from_millis(300), staleness: 20 };
}

/// The simulated world.
pub struct Simulation {
    desired: Desired,
    persistence: Persistence,
    guard: Box<dyn Guard>,
    random: Random,
    loss: u64,
    delay: Millis,
    staleness: u64,
    node_timeout: Millis,
    now: Millis,
    pods: BTreeMap<Member, Pod>,
    post: Vec<(Millis, Envelope)>,
    addresses: u32,
    headless_since: BTreeMap<ShardIndex, Millis>,
    last_seen: BTreeMap<Member, (Millis, Sighting)>,
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("now", &self.now).field("pods", &self.pods).finish_non_exhaustive()
    }
}

impl Simulation {
    /// Pods that are about to start, without any past.
    pub fn new(desired: Desired, persistence: Persistence, weather: Weather, guard: Box<dyn Guard>, seed: u64) -> Self {
        let millis = |duration: Duration| Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX);
        let mut random = Random::new(seed);
        let hosts = random.between(1, 4);
        let mut addresses = 0;
        let mut place = |member: Member| {
            addresses += 1;
            let pod = Pod {
                address: pod::make_address(addresses),
                host: format!("host-{}", random.between(1, hosts)),
                network: Network::Whole,
                phase: Phase::Absent { until: random.between(0, 2000) },
                files: Files::default(),
                released: false,
            };
            (member, pod)
        };
        let pods = desired.members().map(&mut place).collect();
        Self {
            desired,
            persistence,
            guard,
            random,
            loss: weather.loss,
            delay: millis(weather.delay),
            staleness: weather.staleness,
            node_timeout: millis(desired.node_timeout),
            now: 0,
            pods,
            post: Vec::new(),
            addresses,
            headless_since: BTreeMap::new(),
            last_seen: BTreeMap::new(),
        }
    }

    pub fn now(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    /// Lets the world move on.
    pub fn tick(&mut self, time: Duration) {
        let end = self.now + Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX);
        while self.now < end {
            self.now += STEP;
            self.start_pods();
            self.deliver();
            self.beat();
            self.replicate();
            self.take_snapshots();
        }
    }

    /// A client's write. True if the primary of the shard acknowledged it.
    pub fn write(&mut self, shard: ShardIndex, write: u32) -> bool {
        let now = self.now;
        let servers = self.pods.iter_mut().filter(|(member, pod)| member.shard == shard && pod.active(now).is_some());
        let primary = servers.filter_map(|(_, pod)| pod.server_mut()).find(|server| server.votes());
        primary.is_some_and(|primary| {
            primary.offset += 1;
            primary.data.insert(write)
        })
    }

    /// What a client can read from a shard: the data of everybody who leads it.
    pub fn read(&self, shard: ShardIndex) -> BTreeSet<u32> {
        let of_shard = self.pods.iter().filter(|(member, _)| member.shard == shard);
        let leaders = of_shard.filter_map(|(_, pod)| pod.server()).filter(|server| server.votes());
        leaders.flat_map(|server| server.data.iter().copied()).collect()
    }

    /// Who leads a shard in truth.
    pub fn leader(&self, shard: ShardIndex) -> Option<Member> {
        let leads = |pod: &Pod| pod.server().is_some_and(server::Server::votes);
        self.pods.iter().find(|(member, pod)| member.shard == shard && leads(pod)).map(|(member, _)| *member)
    }

    /// Everybody who claims slots, running or on disk: the truth that no single observer has.
    pub fn owners(&self) -> Vec<(Member, NodeId, SlotSet)> {
        let claim = |(member, pod): (&Member, &Pod)| {
            let me = pod.server().map(|server| &server.me).or(pod.files.nodes_conf.as_ref())?;
            (me.role == Role::Primary && !me.slots.is_empty()).then(|| (*member, me.id, me.slots.clone()))
        };
        self.pods.iter().filter_map(claim).collect()
    }

    /// The ids of all servers that run or that can run again.
    pub fn ids(&self) -> BTreeSet<NodeId> {
        let id = |pod: &Pod| pod.server().map(|server| server.me.id).or(pod.files.nodes_conf.as_ref().map(|me| me.id));
        self.pods.values().filter_map(id).collect()
    }

    fn post(&mut self, letters: Vec<Envelope>) {
        for letter in letters {
            if !self.random.chance(self.loss) {
                let due = self.now + self.random.between(1, self.delay);
                self.post.push((due, letter));
            }
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.post).into_iter().partition(|(at, _)| *at <= now);
        self.post = later;
        let due: Vec<(Millis, Envelope)> = due;
        for (_, letter) in due {
            let mut random = self.random.clone();
            let at_home = |pod: &&mut Pod| pod.address == letter.to && pod.active(now).is_some();
            let pod = self.pods.values_mut().find(at_home);
            let answers = pod.and_then(Pod::server_mut).map(|server| server.hear(now, &letter, &mut random));
            self.random = random;
            self.post(answers.unwrap_or_default());
        }
    }

    fn beat(&mut self) {
        let now = self.now;
        let mut said = Vec::new();
        for pod in self.pods.values_mut().filter(|pod| pod.active(now).is_some()) {
            said.extend(pod.server_mut().map(|server| server.beat(now, &mut self.random)).unwrap_or_default());
        }
        self.post(said);
        // Who is cut off talks to nobody, but it beats: it loses faith in the others.
        for pod in self.pods.values_mut().filter(|pod| pod.network == Network::Cut) {
            if let Some(server) = pod.server_mut() {
                server.beat(now, &mut self.random);
            }
        }
    }

    fn replicate(&mut self) {
        let members: Vec<Member> = self.pods.keys().copied().collect();
        for member in members {
            let now = self.now;
            let source = self.source_of(member);
            let copying = now + self.random.between(50, 600);
            let Some(server) = self.pods.get_mut(&member).and_then(Pod::server_mut) else { continue };
            server.link = match (server.link, source) {
                (link @ Link::Down { .. }, None) => link,
                (_, None) => Link::Down { since: now },
                (Link::Down { .. }, Some(_)) => Link::Syncing { until: copying },
                (link @ Link::Syncing { until }, Some(_)) if now < until => link,
                (Link::Syncing { .. } | Link::Up, Some((data, offset))) => {
                    (server.data, server.offset) = (data, offset);
                    Link::Up
                }
            };
        }
    }

    /// The data of the primary that a replica follows, if it reaches it.
    fn source_of(&self, member: Member) -> Option<(BTreeSet<u32>, u64)> {
        let replica = self.pods.get(&member)?.active(self.now)?;
        let id = replica.me.primary?;
        let address = replica.me.table.get(&id)?.address?;
        let source = self.pods.values().find(|pod| pod.address == address)?.active(self.now)?;
        (source.me.id == id && source.me.role == Role::Primary).then(|| (source.data.clone(), source.offset.max(1)))
    }
}

fn make_id(random: &mut Random) -> NodeId {
    let mut bytes = [0; 20];
    for part in bytes.chunks_mut(8) {
        let number = random.next_number().to_be_bytes();
        part.iter_mut().zip(number).for_each(|(byte, chosen)| *byte = chosen);
    }
    NodeId::from_bytes(bytes)
}

#[cfg(test)]
mod tests;
