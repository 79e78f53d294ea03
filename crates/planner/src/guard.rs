//! Whether a server may start: the launch guard.
//!
//! A primary that comes back with less data than its replicas have makes them throw their copies away (F12). So it starts
//! only when that cannot happen. The sidecar asks this while the operator may be away; nothing here needs it.

#[path = "guard_unreadable.rs"]
mod unreadable;

use std::fmt;
use std::time::Duration;

pub use unreadable::{AsideReason, Copied, Leader, Remedy, remedy};
use valkey_model::{LocalData, NodeId, Role, SlotSet};

/// How long a primary with less than all of its data waits for word from its replicas.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// How long one that knows of no replica waits for peers to say whether there is one: a primary that was just made so may not have
/// heard who follows it.
const COURTESY: Duration = Duration::from_secs(5);

/// A server that wants to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// `None` at the first start.
    pub was: Option<Past>,
    pub data: LocalData,
}

/// What the server was when it last wrote its `nodes.conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    pub id: NodeId,
    pub role: Role,
    pub slots: SlotSet,
    /// Those who followed it.
    pub replicas: Vec<NodeId>,
    pub config_epoch: u64,
}

/// What one of the peers of the past says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerWord {
    Silent,
    Says {
        owner_of_my_slots: Option<NodeId>,
        /// The epoch of that ownership.
        epoch: u64,
        is_my_replica: bool,
        /// Whether it has a copy of the data. One that is still loading has.
        has_data: bool,
    },
}

/// Whether the operator allowed this start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    ByOperator,
    NotYet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Go(GoReason),
    Hold(HoldReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoReason {
    FirstStart,
    WasReplica,
    HadNoSlots,
    DataComplete,
    HadNoReplicas,
    Succeeded,
    Released,
    NobodyHasMore,
}

impl fmt::Display for GoReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstStart => "this server starts for the first time",
            Self::WasReplica => "it was a replica, and will copy its primary's data",
            Self::HadNoSlots => "it owned no slots",
            Self::DataComplete => "every write is on its disk",
            Self::HadNoReplicas => "it had no replicas that could have more data",
            Self::Succeeded => "its shard has a new primary, which it will follow",
            Self::Released => "the operator released it",
            Self::NobodyHasMore => "none of its replicas came with data for a minute",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    ReplicaHasMore,
    WaitingForReplicas,
    Unreadable,
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReplicaHasMore => {
                "it led its shard and lost data that a replica still has: it waits until that one has taken over"
            }
            Self::WaitingForReplicas => "it led its shard and lost data: it waits for word from its replicas",
            Self::Unreadable => {
                "its data was written by a newer Valkey than this one, which cannot read it, and nobody is known to have another \
                 copy: it waits for a primary of its shard to copy from; if there is none, set the newer version again"
            }
        })
    }
}

/// Decides whether a server may start now. Asked again and again until it may.
pub fn judge(launch: &Launch, peers: &[PeerWord], waited: Duration, released: Released) -> Verdict {
    if launch.was.is_some() && launch.data == LocalData::Unreadable {
        return Verdict::Hold(HoldReason::Unreadable); // what can be done about it is for `remedy` to say
    }
    if let Some(reason) = harmless(launch).or_else(|| allowed(launch, peers, released)) {
        return Verdict::Go(reason);
    }
    if peers.iter().any(is_replica_with_data) {
        return Verdict::Hold(HoldReason::ReplicaHasMore);
    }
    let everyone_spoke = !peers.contains(&PeerWord::Silent);
    if knows_of_no_replica(launch) && (everyone_spoke || waited >= COURTESY) {
        return Verdict::Go(GoReason::HadNoReplicas);
    }
    if waited < PATIENCE { Verdict::Hold(HoldReason::WaitingForReplicas) } else { Verdict::Go(GoReason::NobodyHasMore) }
}

/// Why this server can do no harm, whatever the others have.
pub fn harmless(launch: &Launch) -> Option<GoReason> {
    let Some(past) = &launch.was else { return Some(GoReason::FirstStart) };
    match past.role {
        Role::Replica => Some(GoReason::WasReplica),
        Role::Primary if past.slots.is_empty() => Some(GoReason::HadNoSlots),
        Role::Primary if launch.data == LocalData::Complete => Some(GoReason::DataComplete),
        Role::Primary => None,
    }
}

/// Not so one that comes back with nothing: if there is no replica either, the operator must have the time to say that the data is
/// gone.
fn knows_of_no_replica(launch: &Launch) -> bool {
    launch.data == LocalData::Old && launch.was.as_ref().is_some_and(|past| past.replicas.is_empty())
}

fn allowed(launch: &Launch, peers: &[PeerWord], released: Released) -> Option<GoReason> {
    if released == Released::ByOperator {
        return Some(GoReason::Released);
    }
    let past = launch.was.as_ref()?;
    // An owner with an older epoch is one from before this server's time: a peer that has not heard of it.
    let succeeded = |word: &PeerWord| {
        matches!(word, PeerWord::Says { owner_of_my_slots: Some(owner), epoch, .. }
            if *owner != past.id && *epoch > past.config_epoch)
    };
    peers.iter().any(succeeded).then_some(GoReason::Succeeded)
}

fn is_replica_with_data(word: &PeerWord) -> bool {
    matches!(word, PeerWord::Says { is_my_replica: true, has_data: true, .. })
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
