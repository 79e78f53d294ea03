//! What Kubernetes does for a cluster: it makes as many pods as it is asked for, and makes anew what was deleted.

use std::collections::BTreeMap;

use valkey_model::{Member, ShardIndex, SlotSet, Version};

use super::pod::{Phase, Pod, Volume, make_address};
use super::server::{Link, Server};
use super::{Persistence, Simulation};

/// What pods are made from.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    pub version: Version,
    /// Servers come up with it.
    pub works: bool,
}

impl Simulation {
    /// From now on pods are made from this. Those that are there stay as they are.
    pub fn set_image(&mut self, image: Image) {
        self.images.push(image);
    }

    /// Asks for so many members of each shard. Members that are asked for no more end, and their volumes with them.
    pub fn set_workloads(&mut self, workloads: &BTreeMap<ShardIndex, u16>) {
        self.workloads = workloads.clone();
        let asked = workloads.iter().flat_map(|(shard, count)| (0..*count).map(|ordinal| (*shard, ordinal)));
        let asked: Vec<Member> = asked.map(|(shard, ordinal)| Member { shard, ordinal }).collect();
        for member in asked {
            self.addresses += 1;
            let (address, image) = (make_address(self.addresses), self.images.len() - 1);
            let host = format!("host-{}", self.random.between(1, self.hosts));
            let until = self.now + self.random.between(0, 2000);
            self.pods.entry(member).or_insert_with(|| Pod { address, image, ..Pod::new(host, until) });
        }
        self.pods.retain(|member, pod| is_asked(workloads, *member) || !matches!(pod.phase, Phase::Absent { .. }));
        let surplus: Vec<Member> = self.pods.keys().copied().filter(|member| !is_asked(workloads, *member)).collect();
        for member in surplus {
            self.end(member);
            if let Some(pod) = self.pods.get_mut(&member) {
                pod.doomed = true;
            }
        }
    }

    /// Tells a pod to end. Its server runs on for a moment, and then dies without handing anything over: the worst case.
    pub fn end(&mut self, member: Member) {
        let at = self.now + self.random.between(0, 500);
        if let Some(pod) = self.pods.get_mut(&member).filter(|pod| !matches!(pod.phase, Phase::Absent { .. })) {
            pod.ends.get_or_insert(at);
        }
    }

    pub(super) fn end_pods(&mut self) {
        let now = self.now;
        let over = self.pods.iter().filter(|(_, pod)| pod.ends.is_some_and(|at| now >= at));
        for member in over.map(|(member, _)| *member).collect::<Vec<_>>() {
            if is_asked(&self.workloads, member) {
                let volume = if self.persistence == Persistence::None { Volume::Lost } else { Volume::Kept };
                self.delete_pod(member, volume);
            } else {
                self.pods.remove(&member);
            }
        }
    }

    /// Everybody who has a pod, or will have one.
    pub fn members(&self) -> Vec<Member> {
        self.pods.keys().copied().collect()
    }

    /// Whether a member's server runs, has all of its shard's data, and is not about to end.
    pub fn is_well(&self, member: Member) -> bool {
        let pod = self.pods.get(&member).filter(|pod| pod.ends.is_none());
        let server = pod.and_then(|pod| pod.active(self.now));
        server.is_some_and(|server| server.me.primary.is_none() || server.link == Link::Up)
    }

    /// Whether a server runs there.
    pub fn is_running(&self, member: Member) -> bool {
        self.pods.get(&member).is_some_and(|pod| pod.server().is_some())
    }

    /// Whether a fault may hit a member: another one of its shard has all that it has, will keep it, and is known to follow it if
    /// it leads. One that has led for a moment only and lost its memory would not know that anybody has more (guard).
    pub fn can_be_spared(&self, member: Member) -> bool {
        let Some(pod) = self.pods.get(&member) else { return true };
        let Some(data) = pod.server().map(|server| &server.data).or(pod.files.data.as_ref()) else { return true };
        let others = self.pods.iter().filter(|(other, _)| other.shard == member.shard && **other != member);
        let mut others = others.filter(|(_, pod)| pod.ends.is_none()).filter_map(|(_, pod)| pod.active(self.now));
        let follows = |other: &Server, leader: &Server| {
            let known = leader.me.table.get(&other.me.id).is_some_and(|entry| entry.primary == Some(leader.me.id));
            known && other.link == Link::Up && other.me.primary == Some(leader.me.id)
        };
        others.any(|other| match pod.server().filter(|server| server.me.primary.is_none()) {
            Some(leader) => follows(other, leader) && other.data.is_superset(data),
            None => other.me.primary.is_none() && other.data.is_superset(data),
        })
    }

    /// The slots that nobody else has by a newer claim: the truth about what would go with a member.
    pub fn slots_of(&self, member: Member) -> SlotSet {
        let claim = |pod: &Pod| {
            let me = pod.server().map(|server| &server.me).or(pod.files.nodes_conf.as_ref())?;
            me.primary.is_none().then(|| (me.slots.clone(), me.epoch))
        };
        let Some((slots, epoch)) = self.pods.get(&member).and_then(claim) else { return SlotSet::EMPTY };
        let others = self.pods.iter().filter(|(other, _)| **other != member).filter_map(|(_, pod)| claim(pod));
        others.filter(|(_, other)| *other > epoch).fold(slots, |left, (taken, _)| left.minus(&taken))
    }

    /// Whether slots are on their way to a member.
    pub fn is_target(&self, member: Member) -> bool {
        let Some(id) = self.pods.get(&member).and_then(Pod::server).map(|server| server.me.id) else { return false };
        let servers = self.pods.values().filter_map(Pod::server);
        servers.into_iter().any(|server| server.exports.goes_to(id) || server.me.open.values().any(|to| *to == id))
    }

    pub(super) fn is_outdated(&self, pod: &Pod) -> bool {
        pod.image + 1 != self.images.len() && !matches!(pod.phase, Phase::Absent { .. })
    }
}

fn is_asked(workloads: &BTreeMap<ShardIndex, u16>, member: Member) -> bool {
    workloads.get(&member.shard).is_some_and(|count| member.ordinal < *count)
}
