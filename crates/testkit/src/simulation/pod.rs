//! Pods: where servers live, die, and come back.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use valkey_model::{LocalData, Member, NodeId, Role, SlotSet};

use super::moves::Exporting;
use super::server::{Identity, Link, Server};
use super::{Millis, Persistence, Simulation, Write};

/// Decides whether a server may start, as the launch guard of the pod does.
pub trait Guard {
    fn may_start(&self, applicant: &Applicant) -> bool;
}

/// A server that wants to start.
#[derive(Clone, Debug)]
pub struct Applicant {
    /// `None` at its first start.
    pub past: Option<Past>,
    pub data: LocalData,
    pub waited: std::time::Duration,
    pub released: bool,
    /// What those say who answer.
    pub answers: Vec<Answer>,
    /// How many others it knew that do not.
    pub silent: usize,
}

/// What it was before.
#[derive(Clone, Debug)]
pub struct Past {
    pub id: NodeId,
    pub role: Role,
    pub slots: SlotSet,
    pub replicas: Vec<NodeId>,
    pub epoch: u64,
}

/// What another server says about the applicant.
#[derive(Clone, Debug)]
pub struct Answer {
    pub owner: Option<NodeId>,
    pub epoch: u64,
    pub is_replica: bool,
    pub has_data: bool,
}

/// What becomes of a pod's files when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volume {
    Kept,
    Lost,
}

/// Whether a pod reaches the others, and they it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Whole,
    Cut,
}

#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub address: SocketAddr,
    pub host: String,
    pub network: Network,
    pub phase: Phase,
    pub files: Files,
    pub released: bool,
    /// What it was made from, by its number.
    pub image: usize,
    /// A server has run in it.
    pub used: bool,
    /// When it ends, if it was told to.
    pub ends: Option<Millis>,
    /// Its volume goes with it.
    pub doomed: bool,
    pub place: Place,
    pub readiness: Readiness,
}

/// What a pod's machine has to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Protected,
    /// The disruption budget leaves it out.
    Evictable,
    /// There is no machine for it.
    None,
}

/// Whether Kubernetes sends clients to a pod: it learns some time later that its server is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    NeverYet,
    NotNow,
    /// It will be heard of then.
    Soon {
        at: Millis,
        first: bool,
    },
    Ready,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    Absent { until: Millis },
    Starting { until: Millis },
    Guarded { since: Millis },
    Running(Box<Server>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    pub nodes_conf: Option<Identity>,
    pub data: Option<Arc<BTreeSet<Write>>>,
}

impl Pod {
    /// One that will be there soon.
    pub fn new(host: String, until: Millis) -> Self {
        Self {
            address: make_address(0),
            host,
            network: Network::Whole,
            phase: Phase::Absent { until },
            files: Files::default(),
            released: false,
            image: 0,
            used: false,
            ends: None,
            doomed: false,
            place: Place::Protected,
            readiness: Readiness::NeverYet,
        }
    }

    pub fn server(&self) -> Option<&Server> {
        match &self.phase {
            Phase::Running(server) => Some(server),
            _ => None,
        }
    }

    pub fn server_mut(&mut self) -> Option<&mut Server> {
        match &mut self.phase {
            Phase::Running(server) => Some(server),
            _ => None,
        }
    }

    /// A server that takes part in the life of the cluster.
    pub fn active(&self, now: Millis) -> Option<&Server> {
        self.server().filter(|server| self.network == Network::Whole && !server.is_loading(now))
    }
}

impl Simulation {
    /// The process dies and is started again in the same pod: same address, same files, nothing else.
    pub fn kill(&mut self, member: Member) {
        let until = self.now + self.random.between(100, 1000);
        let persistence = self.persistence;
        self.last_seen.remove(&member);
        if let Some(pod) = self.pods.get_mut(&member) {
            save(pod, persistence);
            pod.readiness = Readiness::NotNow;
            pod.phase = Phase::Starting { until };
        }
    }

    /// The pod is deleted and made again, at another address.
    pub fn delete_pod(&mut self, member: Member, volume: Volume) {
        self.kill(member);
        let until = self.now + self.random.between(500, 3000);
        self.addresses += 1;
        let address = make_address(self.addresses);
        let image = self.images.len() - 1;
        if let Some(pod) = self.pods.get_mut(&member) {
            let lost = volume == Volume::Lost || pod.doomed;
            let files = if lost { Files::default() } else { std::mem::take(&mut pod.files) };
            let network = pod.network;
            *pod = Pod { address, network, files, image, ..Pod::new(std::mem::take(&mut pod.host), until) };
        }
    }

    /// Cuts a pod off from everybody, or brings it back.
    pub fn set_network(&mut self, member: Member, network: Network) {
        self.last_seen.remove(&member);
        if let Some(pod) = self.pods.get_mut(&member) {
            pod.network = network;
        }
    }

    /// Brings pods that are on their way up one step further.
    pub(super) fn start_pods(&mut self) {
        let members: Vec<Member> = self.pods.keys().copied().collect();
        for member in members {
            let starting = self.now + self.random.between(100, 1500);
            let now = self.now;
            let Some(pod) = self.pods.get_mut(&member) else { continue };
            let works = self.images.get(pod.image).is_some_and(|image| image.works);
            match pod.phase {
                Phase::Starting { .. } if !works || pod.place == Place::None => {}
                Phase::Absent { until } if now >= until => pod.phase = Phase::Starting { until: starting },
                Phase::Starting { until } if now >= until => {
                    pod.phase = Phase::Guarded { since: now };
                    pod.released = false;
                }
                Phase::Guarded { since } => {
                    let may_start = self.applicant(member, since).is_some_and(|a| self.guard.may_start(&a));
                    if may_start {
                        self.start_server(member);
                    }
                }
                _ => {}
            }
        }
    }

    fn applicant(&self, member: Member, since: Millis) -> Option<Applicant> {
        let pod = self.pods.get(&member)?;
        let past = pod.files.nodes_conf.as_ref().map(|me| Past {
            id: me.id,
            role: me.role,
            slots: me.slots.clone(),
            replicas: me.table.iter().filter(|(_, e)| e.primary == Some(me.id)).map(|(id, _)| *id).collect(),
            epoch: me.epoch,
        });
        let reached = self.pods.values().filter(|other| other.network == Network::Whole).filter_map(Pod::server);
        let heard = past.iter().flat_map(|past| reached.clone().map(|server| answer_about(past, server)));
        let answers: Vec<Answer> = if pod.network == Network::Whole { heard.collect() } else { Vec::new() };
        let known = pod.files.nodes_conf.as_ref().map_or(0, |me| me.table.len());
        Some(Applicant {
            data: self.local_data(pod),
            waited: std::time::Duration::from_millis(self.now - since),
            released: pod.released,
            silent: known.saturating_sub(answers.len()),
            answers,
            past,
        })
    }

    pub(super) fn local_data(&self, pod: &Pod) -> LocalData {
        match (self.persistence, &pod.files.data) {
            (Persistence::Log, Some(_)) => LocalData::Complete,
            (Persistence::Snapshots, Some(_)) => LocalData::Old,
            _ => LocalData::Gone,
        }
    }

    fn start_server(&mut self, member: Member) {
        let id = super::make_id(&mut self.random);
        let loading = self.random.between(0, 800);
        let now = self.now;
        let known = self.pods.values().filter_map(|p| p.server().map(|s| &s.me).or(p.files.nodes_conf.as_ref()));
        let awaited: BTreeSet<(u16, NodeId)> = known.flat_map(|me| me.open.iter().map(|(s, to)| (*s, *to))).collect();
        let Some(pod) = self.pods.get_mut(&member) else { return };
        let Some(image) = self.images.get(pod.image) else { return };
        let node_timeout = if pod.files.nodes_conf.is_some() { self.node_timeout } else { super::FORMING_TIMEOUT };
        let mut me = pod.files.nodes_conf.clone().unwrap_or_else(|| Identity::new(id));
        for entry in me.table.values_mut() {
            entry.heard = now;
            entry.doubts.clear();
        }
        let mut data = pod.files.data.clone().unwrap_or_default();
        if me.role == Role::Primary {
            // A snapshot may be older than a move: keys of slots that are not its own are deleted, as by the real server.
            let is_own = |slot| me.slots.contains(slot) || awaited.contains(&(slot, me.id));
            Arc::make_mut(&mut data).retain(|write| is_own(write.slot));
        }
        let server = Server {
            me,
            address: pod.address,
            shard: member.shard,
            version: image.version,
            started: now,
            loading_until: if data.is_empty() { now } else { now + loading },
            data,
            offset: 0,
            link: Link::Down { since: None },
            node_timeout,
            election: None,
            votes_given: std::collections::BTreeMap::new(),
            bans: std::collections::BTreeMap::new(),
            outnumbered: now,
            serves: false,
            paused_until: 0,
            exports: Exporting::default(),
        };
        pod.used = true;
        pod.files.nodes_conf = Some(server.me.clone());
        pod.phase = Phase::Running(Box::new(server));
    }

    /// From time to time a snapshot is taken.
    pub(super) fn take_snapshots(&mut self) {
        for pod in self.pods.values_mut() {
            if self.persistence == Persistence::Snapshots && self.random.chance(1) {
                pod.files.data = pod.server().map(|server| server.data.clone()).or(pod.files.data.take());
            }
        }
    }
}

pub(super) fn make_address(number: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from_bits(0x0a00_0000 + number), 6379))
}

/// What is on the disk when a process dies without a word.
fn save(pod: &mut Pod, persistence: Persistence) {
    let Some(server) = pod.server() else { return };
    let mut conf = server.me.clone();
    conf.table.retain(|_, entry| entry.is_met());
    let log = (persistence == Persistence::Log).then(|| server.data.clone());
    pod.files.nodes_conf = Some(conf);
    if log.is_some() {
        pod.files.data = log;
    }
}

fn answer_about(past: &Past, server: &Server) -> Answer {
    let mine = |slots: &SlotSet| slots.intersects(&past.slots);
    let itself = mine(&server.me.slots).then_some((server.me.id, server.me.epoch));
    let known = || server.me.table.iter().find(|(_, e)| mine(&e.slots)).map(|(id, e)| (*id, e.epoch));
    let owner = itself.or_else(known);
    Answer {
        owner: owner.map(|(id, _)| id),
        epoch: owner.map_or(0, |(_, epoch)| epoch),
        is_replica: server.me.primary == Some(past.id),
        has_data: server.offset > 0 || !server.data.is_empty(),
    }
}
