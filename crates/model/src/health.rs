//! What keeps a cluster from being exactly what was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::{
    Desired, Member, NodeId, NodeReport, Observation, PeerHealth, ReplicaLink, Role, SLOTS, ShardIndex, Sighting,
    SlotSet,
};

/// One difference between the cluster and its desired shape. A cluster without any is healthy, and only such a cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blemish {
    Missing(Member),
    Starting(Member),
    Held(Member),
    Unreachable(Member),
    Loading(Member),
    /// A shard that nobody leads.
    Headless(ShardIndex),
    /// A shard with slots at more than one member.
    TwoPrimaries(ShardIndex),
    SlotsMissing(u16),
    /// A replica that follows somebody outside of its shard, or nobody.
    Astray(Member),
    LinkDown(Member),
    Syncing(Member),
    NotServing(Member),
    /// A node that does not know all of the others, or knows others than those.
    KnowsOthers {
        by: Member,
        known: usize,
    },
    /// A node that sees another one's role, slots or health differently from that one itself.
    Disagrees {
        by: Member,
        about: Member,
    },
    /// A node that still has the short time-out of formation.
    Unsettled(Member),
}

/// A blemish of a certain cluster, with members called by their pods' names.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    blemish: &'a Blemish,
    cluster: &'a str,
}

impl Blemish {
    pub fn told_of<'a>(&'a self, cluster: &'a str) -> Told<'a> {
        Told { blemish: self, cluster }
    }
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pod = |member: &Member| format!("{}-{member}", self.cluster);
        match self.blemish {
            Blemish::Missing(member) => write!(f, "{} has no pod", pod(member)),
            Blemish::Starting(member) => write!(f, "{} is starting", pod(member)),
            Blemish::Held(member) => {
                write!(f, "{} waits for another primary of its shard, which has more data", pod(member))
            }
            Blemish::Unreachable(member) => write!(f, "{} does not answer", pod(member)),
            Blemish::Loading(member) => write!(f, "{} is loading its data", pod(member)),
            Blemish::Headless(shard) => write!(f, "shard {shard} has no primary"),
            Blemish::TwoPrimaries(shard) => write!(f, "shard {shard} has more than one primary"),
            Blemish::SlotsMissing(count) => write!(f, "{count} slots have no owner"),
            Blemish::Astray(member) => write!(f, "{} does not follow the primary of its shard", pod(member)),
            Blemish::LinkDown(member) => write!(f, "{} has no link to its primary", pod(member)),
            Blemish::Syncing(member) => write!(f, "{} is copying its primary's data", pod(member)),
            Blemish::NotServing(member) => write!(f, "{} does not serve queries yet", pod(member)),
            Blemish::KnowsOthers { by, known } => write!(f, "{} knows {known} other nodes", pod(by)),
            Blemish::Disagrees { by, about } => write!(f, "{} has not heard the news about {}", pod(by), pod(about)),
            Blemish::Unsettled(member) => write!(f, "{} has not got its final time-out", pod(member)),
        }
    }
}

/// Every difference between what was asked for and what was seen, the graver ones first.
pub fn blemishes(desired: Desired, seen: &Observation) -> Vec<Blemish> {
    let members: BTreeSet<Member> = desired.members().collect();
    let live: BTreeMap<Member, &NodeReport> = seen.reports().filter(|(member, _)| members.contains(member)).collect();
    let mut found = Vec::new();
    found.extend(members.iter().filter_map(|member| presence(*member, seen.sighting(*member))));
    found.extend(ownership(desired, &live));
    found.extend(live.iter().flat_map(|(member, report)| itself(desired, *member, report, &live)));
    found.extend(live.iter().flat_map(|(member, report)| views(desired, *member, report, &live)));
    found
}

fn presence(member: Member, sighting: &Sighting) -> Option<Blemish> {
    match sighting {
        Sighting::Missing => Some(Blemish::Missing(member)),
        Sighting::Starting => Some(Blemish::Starting(member)),
        Sighting::Held(_) => Some(Blemish::Held(member)),
        Sighting::Unreachable => Some(Blemish::Unreachable(member)),
        Sighting::Known(report) => report.loading.then_some(Blemish::Loading(member)),
    }
}

fn ownership(desired: Desired, live: &BTreeMap<Member, &NodeReport>) -> Vec<Blemish> {
    let owners =
        |shard| live.iter().filter(move |(m, r)| m.shard == shard && r.role == Role::Primary && !r.slots.is_empty());
    let mut found: Vec<_> = (0..desired.shards)
        .map(ShardIndex)
        .filter_map(|shard| match owners(shard).count() {
            0 => Some(Blemish::Headless(shard)),
            1 => None,
            _ => Some(Blemish::TwoPrimaries(shard)),
        })
        .collect();
    let primaries = live.values().filter(|report| report.role == Role::Primary);
    let owned = primaries.fold(SlotSet::EMPTY, |all, report| all.union(&report.slots)).len();
    if owned < SLOTS {
        found.push(Blemish::SlotsMissing(SLOTS - owned));
    }
    found
}

/// What a node says about itself.
fn itself(desired: Desired, member: Member, report: &NodeReport, live: &BTreeMap<Member, &NodeReport>) -> Vec<Blemish> {
    let mut found = Vec::new();
    match report.role {
        Role::Replica => {
            let leads =
                |id: NodeId| live.iter().any(|(m, r)| r.id == id && m.shard == member.shard && r.role == Role::Primary);
            if !report.primary.is_some_and(leads) {
                found.push(Blemish::Astray(member));
            }
            match report.link {
                ReplicaLink::Up => {}
                ReplicaLink::Syncing => found.push(Blemish::Syncing(member)),
                ReplicaLink::Down => found.push(Blemish::LinkDown(member)),
            }
        }
        Role::Primary if report.slots.is_empty() => found.push(Blemish::Astray(member)),
        Role::Primary => {}
    }
    if !report.serving {
        found.push(Blemish::NotServing(member));
    }
    if report.node_timeout != desired.node_timeout {
        found.push(Blemish::Unsettled(member));
    }
    found
}

/// What a node says about the others, against what they say themselves.
fn views(desired: Desired, by: Member, report: &NodeReport, live: &BTreeMap<Member, &NodeReport>) -> Vec<Blemish> {
    let mut found = Vec::new();
    let strangers = report.peers.iter().any(|peer| !live.values().any(|other| other.id == peer.id));
    if report.peers.len() + 1 != desired.size() || strangers {
        found.push(Blemish::KnowsOthers { by, known: report.peers.len() });
    }
    for (about, other) in live.iter().filter(|(about, _)| **about != by) {
        let agrees = |peer: &crate::Peer| {
            peer.role == other.role
                && peer.primary == other.primary
                && peer.health == PeerHealth::Fine
                && peer.connected
                && (peer.role == Role::Replica || peer.slots == other.slots)
        };
        if report.peer(other.id).is_some_and(|peer| !agrees(peer)) {
            found.push(Blemish::Disagrees { by, about: *about });
        }
    }
    found
}
