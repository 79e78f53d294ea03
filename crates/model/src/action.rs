//! What to do next, as data.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::{Member, NodeId, Settings, SlotSet};

/// One small thing to do. Doing it twice does no harm, and not doing it only means that the next look finds it again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Gives a blank node its place in the order of epochs, so that no two primaries claim the same one.
    SetEpoch {
        on: Member,
        epoch: u64,
    },
    /// Makes a node the owner of slots that nobody owns.
    AddSlots {
        on: Member,
        slots: SlotSet,
    },
    /// Introduces a node to another one, or tells it the other's new address.
    Meet {
        on: Member,
        address: SocketAddr,
    },
    /// Makes a node a replica.
    Replicate {
        on: Member,
        primary: NodeId,
    },
    /// Makes a replica the primary of its shard without a vote. Only for a shard whose primary is proven not to run.
    TakeOver {
        on: Member,
    },
    /// Makes a replica the primary of its shard in agreement with the present one, so that no write is lost.
    HandOver {
        on: Member,
    },
    /// Moves slots with their keys to another primary. It goes on by itself: what became of it is told by
    /// [`NodeReport::exports`](crate::NodeReport::exports).
    Migrate {
        on: Member,
        slots: SlotSet,
        to: NodeId,
        way: Way,
    },
    /// Strikes a node that is gone for good from a table.
    Forget {
        on: Member,
        id: NodeId,
    },
    SetNodeTimeout {
        on: Member,
        timeout: Duration,
    },
    /// Gives a running server other settings, all of them or none.
    Configure {
        on: Member,
        settings: Settings,
    },
    /// Lets a server start that the launch guard holds.
    Release {
        on: Member,
    },
}

impl Action {
    /// The member that carries it out.
    pub fn on(&self) -> Member {
        match self {
            Self::SetEpoch { on, .. }
            | Self::AddSlots { on, .. }
            | Self::Meet { on, .. }
            | Self::Replicate { on, .. }
            | Self::TakeOver { on }
            | Self::HandOver { on }
            | Self::Migrate { on, .. }
            | Self::Forget { on, .. }
            | Self::SetNodeTimeout { on, .. }
            | Self::Configure { on, .. }
            | Self::Release { on } => *on,
        }
    }

    /// A short word for logs, events and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::SetEpoch { .. } => "SetEpoch",
            Self::AddSlots { .. } => "AddSlots",
            Self::Meet { .. } => "Meet",
            Self::Replicate { .. } => "Replicate",
            Self::TakeOver { .. } => "TakeOver",
            Self::HandOver { .. } => "HandOver",
            Self::Migrate { .. } => "Migrate",
            Self::Forget { .. } => "Forget",
            Self::SetNodeTimeout { .. } => "SetNodeTimeout",
            Self::Configure { .. } => "Configure",
            Self::Release { .. } => "Release",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetEpoch { on, epoch } => write!(f, "set epoch {epoch} on {on}"),
            Self::AddSlots { on, slots } => write!(f, "give slots {slots} to {on}"),
            Self::Meet { on, address } => write!(f, "introduce {address} to {on}"),
            Self::Replicate { on, primary } => write!(f, "make {on} a replica of {primary}"),
            Self::TakeOver { on } => write!(f, "make {on} the primary of its shard"),
            Self::HandOver { on } => write!(f, "hand the shard over to {on}"),
            Self::Migrate { on, slots, to, way: _ } => write!(f, "move slots {slots} from {on} to {to}"),
            Self::Forget { on, id } => write!(f, "strike {id} from the table of {on}"),
            Self::SetNodeTimeout { on, timeout } => write!(f, "set the node timeout of {on} to {timeout:?}"),
            Self::Configure { on, settings } => write!(f, "give settings {} to {on}", settings.mark),
            Self::Release { on } => write!(f, "let {on} start"),
        }
    }
}

/// How slots are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// By the servers themselves, all slots of a move at the same instant. Both must be 9.0 or newer.
    Atomic,
    /// Slot by slot and key by key.
    Classic,
}

/// An action and why it is taken: what a human reads in the log and in the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub action: Action,
    pub reason: &'static str,
}
