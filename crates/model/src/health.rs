//! What is wrong with a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::{
    Desired, Member, NodeId, NodeReport, Observation, Peer, PeerHealth, ReplicaLink, Role, ShardIndex, Sighting,
    SlotSet,
};

/// One thing that is wrong with a cluster. One that is whole has none, whatever is planned for it.
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
    /// Whether clients may notice it: a slot is served badly or not at all.
    pub fn is_felt(&self, seen: &Observation) -> bool {
        let owns = |member: &Member| seen.report(*member).is_some_and(|report| !report.slots.is_empty());
        match self {
            Self::SlotsMissing(_) | Self::TwoPrimaries(_) | Self::Held(_) => true,
            Self::NotServing(member) | Self::Loading(member) => owns(member),
            // The slots of a shard that lost its primary are missing, and so are those of one that does not answer, unless its peers
            // vouch for it. A shard that has no primary yet is not missed.
            Self::Headless(_)
            | Self::Unreachable(_)
            | Self::Missing(_)
            | Self::Starting(_)
            | Self::Astray(_)
            | Self::LinkDown(_)
            | Self::Syncing(_)
            | Self::KnowsOthers { .. }
            | Self::Disagrees { .. }
            | Self::Unsettled(_) => false,
        }
    }

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

/// Everything that is wrong with a cluster, the graver things first.
///
/// That a cluster is about to change is not wrong: members that are not wanted any more, slots that have to move and pods that
/// have to be made anew are the planner's matter. Who leaves is looked at for as long as slots are in its shard.
pub fn blemishes(desired: Desired, seen: &Observation) -> Vec<Blemish> {
    let cluster = Cluster::new(desired, seen);
    let examined = || cluster.live.iter().filter(|(member, _)| cluster.examined.contains(member));
    let mut found = Vec::new();
    found.extend(cluster.examined.iter().filter_map(|member| presence(*member, seen.sighting(*member))));
    found.extend(cluster.ownership());
    found.extend(examined().flat_map(|(member, report)| cluster.itself(*member, report)));
    found.extend(examined().flat_map(|(member, report)| cluster.views(*member, report)));
    // Nobody notices those, and they are settled when all else is.
    let unsettled = examined().filter(|(_, report)| report.node_timeout != desired.node_timeout);
    found.extend(unsettled.map(|(member, _)| Blemish::Unsettled(*member)));
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

struct Cluster<'a> {
    desired: Desired,
    seen: &'a Observation,
    /// Every server that answered, also those that are not wanted any more.
    live: BTreeMap<Member, &'a NodeReport>,
    homes: BTreeMap<NodeId, Member>,
    /// Who has to be well.
    examined: BTreeSet<Member>,
}

impl<'a> Cluster<'a> {
    fn new(desired: Desired, seen: &'a Observation) -> Self {
        let leaving = seen.leaving(desired);
        let counts = |member: &Member| desired.wants(*member) || leaving.contains(member);
        let live: BTreeMap<_, _> = seen.reports().filter(|(member, _)| counts(member)).collect();
        let homes = live.iter().map(|(member, report)| (report.id, *member)).collect();
        let mut cluster = Self { desired, seen, live, homes, examined: desired.members().collect() };
        let needed: BTreeSet<ShardIndex> = leaving.iter().map(|member| member.shard).collect();
        let needed: BTreeSet<ShardIndex> = needed.into_iter().filter(|shard| cluster.is_needed(*shard)).collect();
        cluster.examined.extend(leaving.into_iter().filter(|member| needed.contains(&member.shard)));
        cluster
    }

    /// Whether slots are, or may be, in a shard that is not wanted any more.
    fn is_needed(&self, shard: ShardIndex) -> bool {
        let owns = |id: NodeId| {
            let told = self.live.values().filter_map(|report| report.peer(id));
            told.into_iter().any(|peer| !peer.slots.is_empty())
        };
        let has_slots = |sighting: &Sighting| match sighting {
            Sighting::Held(_) => true,
            Sighting::Known(report) => !report.slots.is_empty() || report.primary.is_some_and(owns),
            Sighting::Missing | Sighting::Starting | Sighting::Unreachable => false,
        };
        let mut members = self.seen.members.iter().filter(|(member, _)| member.shard == shard);
        shard.0 >= self.desired.shards && members.any(|(_, sighting)| has_slots(sighting))
    }

    fn live_in(&self, shard: ShardIndex) -> impl Iterator<Item = (Member, &'a NodeReport)> {
        self.live.iter().filter(move |(member, _)| member.shard == shard).map(|(member, report)| (*member, *report))
    }

    fn ownership(&self) -> Vec<Blemish> {
        let owners =
            |shard| self.live_in(shard).filter(|(_, r)| r.role == Role::Primary && !r.slots.is_empty()).count();
        let shards: BTreeSet<ShardIndex> = self.examined.iter().map(|member| member.shard).collect();
        let of_shard = |shard: ShardIndex| match owners(shard) {
            0 => self.head_without_slots(shard).is_none().then_some(Blemish::Headless(shard)),
            1 => None,
            _ => Some(Blemish::TwoPrimaries(shard)),
        };
        let mut found: Vec<_> = shards.into_iter().filter_map(of_shard).collect();
        let primaries = self.live.values().filter(|report| report.role == Role::Primary);
        let owned: SlotSet = primaries.flat_map(|report| report.slots.ranges()).collect();
        let missing = SlotSet::all().minus(&owned);
        let missing =
            if missing.is_empty() { missing } else { missing.minus(&self.passed_on()).minus(&self.vouched_for()) };
        if !missing.is_empty() {
            found.push(Blemish::SlotsMissing(missing.len()));
        }
        found
    }

    /// Slots that somebody says a primary that is here and serves has. It was perhaps asked a moment before it got them, and whom it
    /// got them from a moment after.
    fn passed_on(&self) -> SlotSet {
        let serves = |id: NodeId| {
            let report = self.homes.get(&id).and_then(|home| self.live.get(home));
            report.is_some_and(|report| report.role == Role::Primary && report.serving)
        };
        let told = self.live.values().flat_map(|report| &report.peers);
        let told = told.filter(|peer| peer.health == PeerHealth::Fine && serves(peer.id));
        told.flat_map(|peer| peer.slots.ranges()).collect()
    }

    /// Slots of servers that do not answer us, but all of their peers. A sidecar may be slow, or the way to it: clients have another.
    fn vouched_for(&self) -> SlotSet {
        let silent = self.seen.members.values().filter(|sighting| matches!(sighting, Sighting::Unreachable)).count();
        let told = || self.live.values().flat_map(|r| &r.peers).filter(|peer| !self.homes.contains_key(&peer.id));
        let doubtful = |peer: &Peer| peer.health != PeerHealth::Fine || !peer.connected;
        let doubted: BTreeSet<NodeId> = told().filter(|peer| doubtful(peer)).map(|peer| peer.id).collect();
        let well: Vec<&Peer> = told().filter(|peer| !doubted.contains(&peer.id)).collect();
        let ids: BTreeSet<NodeId> = well.iter().map(|peer| peer.id).collect();
        // If there are more of them, one may be of a pod that is gone, which nobody has noticed yet.
        if ids.len() > silent || !self.live.values().all(|report| report.serving) {
            return SlotSet::EMPTY;
        }
        well.into_iter().flat_map(|peer| peer.slots.ranges()).collect()
    }

    /// The primary of a wanted shard that has no slots yet, or none any more: all of its members are here and follow it.
    fn head_without_slots(&self, shard: ShardIndex) -> Option<NodeId> {
        let members = || self.desired.members().filter(|member| member.shard == shard);
        let reports: Vec<&NodeReport> = members().filter_map(|member| self.seen.report(member)).collect();
        let owned = self.live_in(shard).any(|(_, report)| !report.slots.is_empty());
        let mut primaries = self.live_in(shard).filter(|(_, report)| report.role == Role::Primary);
        let head = primaries.find(|(_, head)| reports.iter().all(|r| r.id == head.id || r.primary == Some(head.id)));
        let complete = !reports.is_empty() && reports.len() == members().count() && !owned;
        head.filter(|_| complete).map(|(_, report)| report.id)
    }

    /// What a node says about itself.
    fn itself(&self, member: Member, report: &NodeReport) -> Vec<Blemish> {
        let mut found = Vec::new();
        match report.role {
            Role::Replica => {
                let mut shard = self.live_in(member.shard);
                let follows = shard.any(|(_, r)| Some(r.id) == report.primary && r.role == Role::Primary);
                if !follows {
                    found.push(Blemish::Astray(member));
                }
                match report.link {
                    ReplicaLink::Up => {}
                    ReplicaLink::Syncing => found.push(Blemish::Syncing(member)),
                    ReplicaLink::Down => found.push(Blemish::LinkDown(member)),
                }
            }
            Role::Primary if report.slots.is_empty() => {
                if self.head_without_slots(member.shard) != Some(report.id) {
                    found.push(Blemish::Astray(member));
                }
            }
            Role::Primary => {}
        }
        if !report.serving {
            found.push(Blemish::NotServing(member));
        }
        found
    }

    /// What a node says about the others, against what they say themselves.
    fn views(&self, by: Member, report: &NodeReport) -> Vec<Blemish> {
        let mut found = Vec::new();
        let strangers = report.peers.iter().any(|peer| !self.homes.contains_key(&peer.id));
        let homes = report.peers.iter().filter_map(|peer| self.homes.get(&peer.id));
        let wanted = homes.filter(|member| self.desired.wants(**member));
        let itself = usize::from(self.desired.wants(by));
        if wanted.count() + itself != self.desired.size() || strangers {
            found.push(Blemish::KnowsOthers { by, known: report.peers.len() });
        }
        for about in self.examined.iter().filter(|about| **about != by) {
            let Some(other) = self.live.get(about) else { continue };
            let agrees = |peer: &Peer| {
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
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
