//! A simulated Valkey cluster on simulated pods: good enough to break a planner, small enough to be understood.
//!
//! Everything in it happens by chance, and the same seed gives the same run. Servers have their own, often outdated views;
//! messages are late or lost; a replica throws its data away when it copies its primary's, which is how real data is
//! destroyed. It has what decides about the safety of a plan, and nothing of the speed of the real thing.

mod bus;
mod commands;
mod machines;
mod moves;
mod observation;
mod pod;
mod random;
mod server;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use valkey_model::{Desired, Member, NodeId, Role, ShardIndex, SlotSet, Version};

use self::bus::Envelope;
use self::pod::Pod;
use self::server::Link;

pub use self::commands::Refusal;
pub use self::machines::Disks;
pub use self::pod::{Answer, Applicant, Guard, Network, Past, Volume};
pub use self::random::Random;
pub use self::workloads::Image;

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

/// Something that a client wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    pub slot: u16,
    pub number: u32,
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
    /// Moves of slots and changes of primaries of a hundred that fail for no reason.
    pub failures: u64,
}

impl Weather {
    pub const FINE: Self = Self { loss: 0, delay: Duration::from_millis(50), staleness: 0, failures: 0 };
    pub const ROUGH: Self = Self { loss: 10, delay: Duration::from_millis(300), staleness: 20, failures: 10 };
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
    failures: u64,
    node_timeout: Millis,
    now: Millis,
    hosts: u64,
    machines: machines::Machines,
    workloads: BTreeMap<ShardIndex, u16>,
    images: Vec<Image>,
    pods: BTreeMap<Member, Pod>,
    post: Vec<(Millis, Envelope)>,
    addresses: u32,
    headless_since: BTreeMap<ShardIndex, Millis>,
    emptied_since: BTreeMap<ShardIndex, Millis>,
    unsynced_since: BTreeMap<Member, Millis>,
    last_seen: BTreeMap<Member, (Millis, observation::Look)>,
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
        let mut simulation = Self {
            desired,
            persistence,
            guard,
            random,
            loss: weather.loss,
            delay: millis(weather.delay),
            staleness: weather.staleness,
            failures: weather.failures,
            node_timeout: millis(desired.node_timeout),
            now: 0,
            hosts,
            machines: machines::Machines::default(),
            workloads: BTreeMap::new(),
            images: vec![Image { version: Version::new(9, 1, 2), works: true }],
            pods: BTreeMap::new(),
            post: Vec::new(),
            addresses: 0,
            headless_since: BTreeMap::new(),
            emptied_since: BTreeMap::new(),
            unsynced_since: BTreeMap::new(),
            last_seen: BTreeMap::new(),
        };
        let workloads = (0..desired.shards).map(|shard| (ShardIndex(shard), desired.replicas + 1));
        simulation.set_workloads(&workloads.collect());
        simulation
    }

    /// What the operator wants from now on.
    pub fn want(&mut self, desired: Desired) {
        self.desired = desired;
    }

    pub fn now(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    /// Lets the world move on.
    pub fn tick(&mut self, time: Duration) {
        let end = self.now + Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX);
        while self.now < end {
            self.now += STEP;
            self.end_pods();
            self.place_pods();
            self.start_pods();
            self.deliver();
            self.beat();
            self.move_slots();
            self.replicate();
            self.take_snapshots();
            self.note_readiness();
        }
    }

    /// A client's write. The member that acknowledged it, if anybody did.
    pub fn write(&mut self, write: Write) -> Option<Member> {
        let (member, _) = self.owner_of(write.slot)?;
        let primary = self.pods.get_mut(&member).and_then(Pod::server_mut)?;
        // Where the keys of an open slot are moving from, new ones are sent on to where they go.
        let moving = primary.me.open.get(&write.slot).copied();
        if let Some(target) = moving {
            let (member, target) = self.server_with(target)?;
            target.offset += 1;
            Arc::make_mut(&mut target.data).insert(write);
            return Some(member);
        }
        primary.offset += 1;
        Arc::make_mut(&mut primary.data).insert(write);
        Some(member)
    }

    /// The one that takes writes for a slot: clients go by the newest word.
    fn owner_of(&self, slot: u16) -> Option<(Member, u64)> {
        let now = self.now;
        let serves = |server: &server::Server| {
            server.votes() && server.me.slots.contains(slot) && server.is_serving(now) && now >= server.paused_until
        };
        let owners =
            self.pods.iter().filter_map(|(member, pod)| Some((*member, pod.active(now).filter(|s| serves(s))?)));
        owners.map(|(member, server)| (member, server.me.epoch)).max_by_key(|(_, epoch)| *epoch)
    }

    fn server_with(&mut self, id: NodeId) -> Option<(Member, &mut server::Server)> {
        let now = self.now;
        let mut active = self.pods.iter_mut().filter(|(_, pod)| pod.active(now).is_some());
        active.find_map(|(member, pod)| Some((*member, pod.server_mut().filter(|server| server.me.id == id)?)))
    }

    /// Whether a client can read what was written: its slot's owner has it, or the one that the slot's keys move to.
    pub fn can_read(&self, write: Write) -> bool {
        let servers = || self.pods.values().filter_map(Pod::server);
        let owners = || servers().filter(|server| server.votes() && server.me.slots.contains(write.slot));
        let targets: Vec<NodeId> = owners().filter_map(|server| server.me.open.get(&write.slot).copied()).collect();
        let sent_on = servers().filter(|server| targets.contains(&server.me.id));
        owners().chain(sent_on).any(|server| server.data.contains(&write))
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
                (Link::Down { since } | Link::Syncing { since, .. }, None) => Link::Down { since },
                (Link::Up, None) => Link::Down { since: Some(now) },
                (Link::Down { since }, Some(_)) => Link::Syncing { since, until: copying },
                (link @ Link::Syncing { until, .. }, Some(_)) if now < until => link,
                (Link::Syncing { .. } | Link::Up, Some(source)) => {
                    server.copy(source);
                    Link::Up
                }
            };
        }
    }

    /// What the primary that a replica follows has, if it reaches it.
    fn source_of(&self, member: Member) -> Option<Source> {
        let replica = self.pods.get(&member)?.active(self.now)?;
        let id = replica.me.primary?;
        let address = replica.me.table.get(&id)?.address?;
        let source = self.pods.values().find(|pod| pod.address == address)?.active(self.now)?;
        let me = &source.me;
        (me.id == id && me.role == Role::Primary).then(|| Source {
            id,
            data: source.data.clone(),
            offset: source.offset.max(1),
            slots: me.slots.clone(),
            epoch: me.epoch,
            open: me.open.clone(),
        })
    }
}

/// What a replica gets from its primary: its data, and news of slots that have moved.
struct Source {
    id: NodeId,
    data: Arc<BTreeSet<Write>>,
    offset: u64,
    slots: SlotSet,
    epoch: u64,
    open: BTreeMap<u16, NodeId>,
}

impl server::Server {
    fn copy(&mut self, source: Source) {
        let Source { id, data, offset, slots, epoch, open } = source;
        (self.data, self.offset, self.me.open) = (data, offset, open);
        // What its primary said before it wrote this was heard before.
        self.me.current_epoch = self.me.current_epoch.max(epoch);
        let known = self.me.table.get(&id).is_some_and(|entry| entry.slots == slots && entry.epoch == epoch);
        if known {
            return;
        }
        for entry in self.me.table.values_mut().filter(|entry| entry.epoch < epoch) {
            entry.slots = entry.slots.minus(&slots);
        }
        if let Some(entry) = self.me.table.get_mut(&id) {
            (entry.slots, entry.disowned, entry.epoch) = (slots, SlotSet::EMPTY, epoch);
        }
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
