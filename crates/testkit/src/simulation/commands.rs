//! The commands of an operator, with the refusals of the real server.

use std::fmt;
use std::net::SocketAddr;

use valkey_model::{Action, Member, NodeId, Role, SlotSet, Step};

use super::pod::{Network, Phase};
use super::server::{FirstWord, Link, Server};
use super::{Millis, Simulation};

/// Why a command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NoAnswer,
    Loading,
    KnowsOthers,
    Busy,
    IsReplica,
    IsPrimary,
    UnknownNode,
    NotEmpty,
    NotAPrimary,
    OwnPrimary,
    NotHeld,
    NotOwner,
    NotInSync,
    TimedOut,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAnswer => "nobody answers",
            Self::Loading => "it is loading",
            Self::KnowsOthers => "an epoch can only be given to a node that knows nobody",
            Self::Busy => "a slot has an owner",
            Self::IsReplica => "it is a replica",
            Self::IsPrimary => "it is a primary",
            Self::UnknownNode => "it does not know that node",
            Self::NotEmpty => "it has slots or keys",
            Self::NotAPrimary => "that node is no primary",
            Self::OwnPrimary => "a replica cannot forget its primary",
            Self::NotHeld => "nobody holds it",
            Self::NotOwner => "the slots are not served by this node",
            Self::NotInSync => "it is not in sync with its primary",
            Self::TimedOut => "it was not done in time",
        })
    }
}

impl std::error::Error for Refusal {}

impl Simulation {
    /// Carries out one step as an executor would. Whoever has done what it was told is not seen as it was before: the operator asks
    /// it again on its next look.
    pub fn carry_out(&mut self, step: &Step) -> Result<(), Refusal> {
        let on = step.action.on();
        self.command(on, step)?;
        self.last_seen.remove(&on);
        Ok(())
    }

    fn command(&mut self, on: Member, step: &Step) -> Result<(), Refusal> {
        match step.action {
            Action::Release { .. } => return self.release(on),
            Action::HandOver { .. } => return self.hand_over(on),
            _ => {}
        }
        let now = self.now;
        let mut random = self.random.clone();
        let server = self.commanded(on)?;
        let said = match &step.action {
            Action::SetEpoch { epoch, .. } => server.set_epoch(*epoch).map(|()| Vec::new()),
            Action::AddSlots { slots, .. } => server.add_slots(slots).map(|()| Vec::new()),
            Action::Meet { address, .. } => {
                server.meet(*address, now, &mut random);
                Ok(Vec::new())
            }
            Action::Replicate { primary, .. } => server.replicate(*primary, now).map(|()| Vec::new()),
            Action::Forget { id, .. } => server.forget(*id, now).map(|()| Vec::new()),
            Action::SetNodeTimeout { timeout, .. } => {
                server.node_timeout = Millis::try_from(timeout.as_millis()).unwrap_or(Millis::MAX);
                Ok(Vec::new())
            }
            Action::TakeOver { .. } if server.me.role == Role::Primary => Err(Refusal::IsPrimary),
            Action::TakeOver { .. } => {
                let epoch = server.me.current_epoch + 1;
                Ok(server.lead(epoch, &mut random))
            }
            Action::Migrate { slots, to, way, .. } => server.migrate(slots, *to, *way).map(|()| Vec::new()),
            Action::Configure { .. } => Ok(Vec::new()), // simulated servers have no settings
            Action::Release { .. } | Action::HandOver { .. } => Err(Refusal::NotHeld),
        };
        self.random = random;
        self.post(said?);
        Ok(())
    }

    pub(super) fn commanded(&mut self, on: Member) -> Result<&mut Server, Refusal> {
        let now = self.now;
        let pod = self.pods.get_mut(&on).filter(|pod| pod.network == Network::Whole).ok_or(Refusal::NoAnswer)?;
        let server = pod.server_mut().ok_or(Refusal::NoAnswer)?;
        if server.is_loading(now) { Err(Refusal::Loading) } else { Ok(server) }
    }

    fn release(&mut self, on: Member) -> Result<(), Refusal> {
        let pod = self.pods.get_mut(&on).filter(|pod| pod.network == Network::Whole).ok_or(Refusal::NoAnswer)?;
        let Phase::Guarded { .. } = pod.phase else { return Err(Refusal::NotHeld) };
        pod.released = true;
        Ok(())
    }
}

impl Server {
    fn set_epoch(&mut self, epoch: u64) -> Result<(), Refusal> {
        if !self.me.table.is_empty() || self.me.epoch != 0 {
            return Err(Refusal::KnowsOthers);
        }
        self.me.epoch = epoch;
        self.me.current_epoch = self.me.current_epoch.max(epoch);
        Ok(())
    }

    fn add_slots(&mut self, slots: &SlotSet) -> Result<(), Refusal> {
        if self.me.role == Role::Replica {
            return Err(Refusal::IsReplica);
        }
        let taken = self.me.table.values().map(|entry| &entry.slots).chain([&self.me.slots]);
        if taken.into_iter().any(|taken| taken.intersects(slots)) {
            return Err(Refusal::Busy);
        }
        self.me.slots = self.me.slots.union(slots);
        Ok(())
    }

    fn meet(&mut self, address: SocketAddr, now: Millis, random: &mut super::Random) {
        let greeting = self.me.table.values().any(|entry| !entry.is_met() && entry.address == Some(address));
        if !greeting {
            self.greet(address, FirstWord::Meet, now, random);
        }
    }

    fn replicate(&mut self, primary: NodeId, now: Millis) -> Result<(), Refusal> {
        let entry = self.me.table.get(&primary).filter(|entry| entry.is_met()).ok_or(Refusal::UnknownNode)?;
        if entry.role == Role::Replica {
            return Err(Refusal::NotAPrimary);
        }
        if self.me.role == Role::Primary && !(self.me.slots.is_empty() && self.data.is_empty()) {
            return Err(Refusal::NotEmpty);
        }
        if self.me.primary != Some(primary) || matches!(self.link, Link::Down { .. }) {
            self.follow(primary, now);
        }
        Ok(())
    }

    fn forget(&mut self, id: NodeId, now: Millis) -> Result<(), Refusal> {
        if self.me.primary == Some(id) {
            return Err(Refusal::OwnPrimary);
        }
        self.me.table.remove(&id).ok_or(Refusal::UnknownNode)?;
        self.ban(id, now);
        Ok(())
    }
}
