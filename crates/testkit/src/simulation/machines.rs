//! Machines that are emptied, and what Kubernetes knows about the pods on them.

use std::collections::BTreeSet;

use valkey_model::{Member, Observation};

use super::pod::{Phase, Place, Pod, Readiness};
use super::server::Link;
use super::{Persistence, Simulation};

/// Whether a pod finds its files on every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disks {
    /// They follow it.
    #[default]
    Roaming,
    /// They stay on their machine, and it with them.
    Bound,
}

/// Machines that take no new pods, and how pods depend on machines.
#[derive(Clone, Debug, Default)]
pub(super) struct Machines {
    closed: BTreeSet<String>,
    disks: Disks,
}

impl Simulation {
    /// Another number of machines: pods are spread over them.
    pub fn spread_over(&mut self, machines: u64, disks: Disks) {
        (self.hosts, self.machines.disks) = (machines, disks);
        for (pod, number) in self.pods.values_mut().zip((1..=machines).cycle()) {
            pod.host = name(number);
        }
    }

    pub fn machines(&self) -> Vec<String> {
        (1..=self.hosts).map(name).collect()
    }

    /// The machine takes no new pods, and those on it are to leave.
    pub fn close(&mut self, machine: &str) {
        self.machines.closed.insert(machine.to_owned());
    }

    pub fn open(&mut self, machine: &str) {
        self.machines.closed.remove(machine);
    }

    /// Members whose pods are on a machine that is to be emptied.
    pub fn unwelcome(&self) -> Vec<Member> {
        let is_closed = |pod: &Pod| self.machines.closed.contains(&pod.host);
        let placed =
            self.pods.iter().filter(|(_, pod)| pod.place != Place::None && !matches!(pod.phase, Phase::Absent { .. }));
        placed.filter(|(_, pod)| is_closed(pod)).map(|(member, _)| *member).collect()
    }

    pub fn is_stranded(&self, member: Member) -> bool {
        self.pods.get(&member).is_some_and(|pod| pod.place == Place::None)
    }

    /// Lets the disruption budget leave out these pods and no others.
    pub fn set_evictable(&mut self, members: &BTreeSet<Member>) {
        let there = self.pods.iter_mut().filter(|(_, pod)| !matches!(pod.phase, Phase::Absent { .. }));
        for (member, pod) in there.filter(|(_, pod)| pod.place != Place::None) {
            pod.place = if members.contains(member) { Place::Evictable } else { Place::Protected };
        }
    }

    /// Pods that an eviction would end.
    pub fn evictable(&self) -> Vec<Member> {
        let open = self.pods.iter().filter(|(_, pod)| pod.place == Place::Evictable && pod.ends.is_none());
        open.map(|(member, _)| *member).collect()
    }

    pub fn is_ready(&self, member: Member) -> bool {
        self.pods.get(&member).is_some_and(|pod| pod.readiness == Readiness::Ready && pod.ends.is_none())
    }

    /// Finds a machine for every pod that has none.
    pub(super) fn place_pods(&mut self) {
        let open: Vec<String> =
            self.machines().into_iter().filter(|host| !self.machines.closed.contains(host)).collect();
        for pod in self.pods.values_mut() {
            let is_new = matches!(pod.phase, Phase::Absent { until } if self.now >= until) || pod.place == Place::None;
            if !is_new {
                continue;
            }
            let bound = self.machines.disks == Disks::Bound && pod.files.nodes_conf.is_some();
            let fits = |host: &String| !bound && !self.machines.closed.is_empty() || *host == pod.host;
            let candidates: Vec<String> = open.iter().filter(|host| fits(host)).cloned().collect();
            match self.random.pick(&candidates) {
                Some(host) => (pod.host, pod.place) = (host.clone(), Place::Protected),
                None => pod.place = Place::None,
            }
        }
    }

    /// Kubernetes hears of a server that is well some time later, and at once of one that is not.
    pub(super) fn note_readiness(&mut self) {
        for pod in self.pods.values_mut() {
            let now = self.now;
            let is_well =
                pod.active(now).is_some_and(|s| s.is_serving(now) && (s.me.primary.is_none() || s.link == Link::Up));
            let at = now + self.random.between(50, 1500);
            pod.readiness = match (pod.readiness, is_well) {
                (Readiness::NeverYet | Readiness::Soon { first: true, .. }, false) => Readiness::NeverYet,
                (_, false) => Readiness::NotNow,
                (Readiness::NeverYet, true) => Readiness::Soon { at, first: true },
                (Readiness::NotNow, true) => Readiness::Soon { at, first: false },
                (Readiness::Soon { at, .. }, true) if now >= at => Readiness::Ready,
                (known @ (Readiness::Soon { .. } | Readiness::Ready), true) => known,
            };
        }
    }

    /// What Kubernetes says about pods and machines.
    pub(super) fn ask_kubernetes(&self, seen: &mut Observation) {
        let there = || self.pods.iter().filter(|(_, pod)| !matches!(pod.phase, Phase::Absent { .. }));
        let those = |is: fn(&Pod) -> bool| there().filter(|(_, pod)| is(pod)).map(|(member, _)| *member).collect();
        seen.unwelcome = self.unwelcome().into_iter().collect();
        seen.evictable = those(|pod| pod.place == Place::Evictable);
        seen.stranded = those(|pod| pod.place == Place::None);
        seen.unready = those(|pod| pod.readiness != Readiness::Ready);
        seen.fresh = those(|pod| matches!(pod.readiness, Readiness::NeverYet | Readiness::Soon { first: true, .. }));
        if self.persistence == Persistence::Log {
            seen.durable = those(|_| true);
        }
    }
}

fn name(number: u64) -> String {
    format!("host-{number}")
}
