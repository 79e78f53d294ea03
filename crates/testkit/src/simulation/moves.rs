//! Slots on their way from one server to another.

use std::collections::VecDeque;
use std::sync::Arc;

use valkey_model::{Export, Member, NodeId, Role, SlotSet, Version, Way};

use super::bus::Word;
use super::commands::Refusal;
use super::pod::Pod;
use super::server::Server;
use super::{Millis, Simulation, Write};

/// Slots that a classic move moves in one go.
const PIECE: u16 = 512;
const ATOMIC_SINCE: Version = Version::new(9, 0, 0);

/// What a server knows about slots that it sends away.
#[derive(Clone, Debug, Default)]
pub(super) struct Exporting {
    jobs: VecDeque<Job>,
    pub failures: u32,
    pub last_failure: Option<(&'static str, Millis)>,
}

#[derive(Clone, Debug)]
struct Job {
    slots: SlotSet,
    to: NodeId,
    way: Way,
    begun: Option<Begun>,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    /// When its next piece is done.
    due: Millis,
    /// When the process began that it is connected to.
    target_started: Option<Millis>,
}

impl Exporting {
    pub fn running(&self) -> Vec<Export> {
        self.jobs.iter().map(|job| Export { slots: job.slots.clone(), to: job.to }).collect()
    }

    pub fn goes_to(&self, id: NodeId) -> bool {
        self.jobs.iter().any(|job| job.to == id)
    }

    fn fail(&mut self, why: &'static str, now: Millis) {
        self.jobs.pop_front();
        self.failures += 1;
        self.last_failure = Some((why, now));
    }
}

impl Server {
    /// Slots are its own from now on, and nobody else's.
    fn own(&mut self, slots: &SlotSet) {
        self.me.slots = self.me.slots.union(slots);
        self.me.table.values_mut().for_each(|entry| entry.slots = entry.slots.minus(slots));
    }

    pub(super) fn migrate(&mut self, slots: &SlotSet, to: NodeId, way: Way) -> Result<(), Refusal> {
        self.me.table.get(&to).filter(|entry| entry.is_met()).ok_or(Refusal::UnknownNode)?;
        if self.me.role == Role::Replica {
            return Err(Refusal::IsReplica);
        }
        if !slots.minus(&self.me.slots).is_empty() {
            return Err(Refusal::NotOwner);
        }
        let open = self
            .me
            .open
            .keys()
            .any(|slot| way == Way::Atomic || (slots.contains(*slot) && self.me.open.get(slot) != Some(&to)));
        if open || self.exports.jobs.iter().any(|job| job.slots.intersects(slots)) {
            return Err(Refusal::Busy);
        }
        self.exports.jobs.push_back(Job { slots: slots.clone(), to, way, begun: None });
        Ok(())
    }
}

impl Simulation {
    pub(super) fn move_slots(&mut self) {
        for member in self.pods.keys().copied().collect::<Vec<_>>() {
            self.move_slots_of(member);
        }
    }

    fn move_slots_of(&mut self, member: Member) {
        let now = self.now;
        let due = now + self.random.between(50, 600);
        let source = self.pods.get(&member).and_then(Pod::server);
        let Some(Job { slots, to, way, .. }) = source.and_then(|source| source.exports.jobs.front().cloned()) else {
            return;
        };
        let target_started = self.server_with(to).map(|(_, target)| target.started);
        let Some(server) = self.pods.get_mut(&member).and_then(Pod::server_mut) else { return };
        let Some(job) = server.exports.jobs.front_mut() else { return };
        let begun = *job.begun.get_or_insert(Begun { due, target_started });
        if now < begun.due {
            return;
        }
        let piece = if way == Way::Classic { slots.first(PIECE) } else { slots };
        let connected = begun.target_started.is_some() && begun.target_started == target_started;
        let target =
            self.target_of(member, to, way).and_then(|t| connected.then_some(t).ok_or("the connection is lost"));
        let outcome = target.and_then(|target| self.send(member, target, &piece, way));
        let Some(server) = self.pods.get_mut(&member).and_then(Pod::server_mut) else { return };
        match (outcome, server.exports.jobs.front_mut()) {
            (Err(why), _) => server.exports.fail(why, now),
            (Ok(()), Some(job)) => {
                job.slots = job.slots.minus(&piece);
                job.begun = None;
                if job.slots.is_empty() {
                    server.exports.jobs.pop_front();
                    server.exports.failures = 0;
                }
            }
            (Ok(()), None) => {}
        }
    }

    fn target_of(&self, from: Member, to: NodeId, way: Way) -> Result<Member, &'static str> {
        let source = self.pods.get(&from).and_then(|pod| pod.active(self.now)).ok_or("the source is gone")?;
        let mut others = self.pods.iter().filter_map(|(member, pod)| Some((*member, pod.active(self.now)?)));
        let (member, target) = others.find(|(_, server)| server.me.id == to).ok_or("the target does not answer")?;
        let reached = source.me.table.get(&to).is_some_and(|entry| entry.address == Some(target.address));
        let old = way == Way::Atomic && source.version.min(target.version) < ATOMIC_SINCE;
        match (target.me.role, reached, old) {
            (Role::Primary, true, false) => Ok(member),
            (Role::Replica, _, _) => Err("the target is a replica"),
            (_, false, _) => Err("the target is elsewhere"),
            (_, _, true) => Err("unknown subcommand"),
        }
    }

    /// Hands a piece over, or fails: a classic move then leaves a slot open, with some of its keys on either side.
    fn send(&mut self, from: Member, to: Member, slots: &SlotSet, way: Way) -> Result<(), &'static str> {
        let fails = self.random.chance(self.failures);
        let half = fails && way == Way::Classic;
        let Some(source) = self.pods.get_mut(&from).and_then(Pod::server_mut) else { return Err("the source is gone") };
        if !slots.minus(&source.me.slots).is_empty() {
            return Err("the slots are not served by this node");
        }
        let open = if half { slots.first(1) } else { SlotSet::EMPTY };
        let goes = |write: &Write| {
            if fails { open.contains(write.slot) && write.number.is_multiple_of(2) } else { slots.contains(write.slot) }
        };
        let moved: Vec<Write> = source.data.iter().copied().filter(goes).collect();
        Arc::make_mut(&mut source.data).retain(|write| !moved.contains(write));
        let epoch = source.me.current_epoch;
        if !fails {
            source.me.slots = source.me.slots.minus(slots);
            source.me.open.retain(|slot, _| !slots.contains(*slot));
        }
        let Some(target) = self.pods.get_mut(&to).and_then(Pod::server_mut) else { return Err("the target is gone") };
        target.offset += 1;
        Arc::make_mut(&mut target.data).extend(moved);
        let target_id = target.me.id;
        if fails {
            let opened: Vec<_> = open.ranges().map(|range| (range.first(), target_id)).collect();
            if let Some(source) = self.pods.get_mut(&from).and_then(Pod::server_mut) {
                source.me.open.extend(opened);
            }
            return Err("it failed by chance");
        }
        target.me.current_epoch = target.me.current_epoch.max(epoch) + 1;
        target.me.epoch = target.me.current_epoch;
        target.own(slots);
        let (epoch, owned, random) = (target.me.epoch, target.me.slots.clone(), &mut self.random);
        let said = target.announce(&Word::Pong, random);
        // A move is over for its source when that has heard the target say so, and with it what else the target owns and what not.
        if let Some(source) = self.pods.get_mut(&from).and_then(Pod::server_mut) {
            source.me.current_epoch = source.me.current_epoch.max(epoch);
            source.me.table.values_mut().for_each(|entry| entry.slots = entry.slots.minus(slots));
            if let Some(entry) = source.me.table.get_mut(&target_id) {
                entry.disowned = entry.slots.minus(&owned);
                (entry.slots, entry.epoch) = (entry.slots.union(slots), epoch);
            }
        }
        self.post(said);
        Ok(())
    }

    /// Lets a replica lead in agreement with its primary: that one takes no more writes, and the replica gets the last.
    pub(super) fn hand_over(&mut self, on: Member) -> Result<(), Refusal> {
        let (now, fails) = (self.now, self.random.chance(self.failures));
        let mut random = self.random.clone();
        let replica = self.commanded(on)?;
        if replica.me.role == Role::Primary {
            return Err(Refusal::IsPrimary);
        }
        let primary = replica.me.primary.ok_or(Refusal::UnknownNode)?;
        if !matches!(replica.link, super::server::Link::Up) || replica.is_troubled() {
            return Err(Refusal::NotInSync);
        }
        let epochs = self.pods.values().filter_map(Pod::server).map(|server| server.me.current_epoch).max();
        let (_, primary) = self.server_with(primary).ok_or(Refusal::NoAnswer)?;
        if fails || primary.me.role == Role::Replica {
            return Err(Refusal::TimedOut);
        }
        primary.paused_until = now + 5000;
        let (data, offset, slots) = (primary.data.clone(), primary.offset, primary.me.slots.clone());
        let open = primary.me.open.clone();
        let replica = self.commanded(on)?;
        (replica.data, replica.offset, replica.me.open) = (data, offset, open);
        let said = replica.lead(epochs.unwrap_or_default() + 1, &mut random);
        replica.own(&slots);
        self.random = random;
        self.post(said);
        Ok(())
    }
}
