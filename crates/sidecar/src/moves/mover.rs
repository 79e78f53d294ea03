//! Moves one slot in the classic way.
//!
//! Whatever goes wrong, the slot stays as it is: open, with keys on both sides, which clients are led to. The next attempt goes
//! on from there. It is never called stable again: that would hide the keys that are on the other side already.

use std::net::SocketAddr;
use std::time::Duration;

use valkey_engine::{Entry, Error, Login, Node, SlotMark, Table};
use valkey_model::{NodeId, PeerHealth, Role};

use crate::context::{Context, ReachError};

/// A server passes on to its replicas what it is told about a slot, for up to two seconds.
const DEADLINE: Duration = Duration::from_secs(5);
/// The server answers nobody while it sends so many.
const KEYS: u16 = 100;

#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error("this server says: {0}")]
    Here(#[source] Error),
    #[error("the target says: {0}")]
    There(#[source] Error),
    #[error("this server is a replica now: order the move from the primary of its shard")]
    Replica,
    #[error("this server does not know the target: wait until the nodes have met, or choose another one")]
    UnknownTarget,
    #[error("the target is a replica now: choose the primary of its shard")]
    ReplicaTarget,
    #[error("the target does not answer its peers: wait until it is back or replaced")]
    FailedTarget,
    #[error("at the target's address is {0} now: wait until the nodes know where the target is")]
    Stranger(NodeId),
    #[error("the slot belongs to another node")]
    NotOurs,
    #[error("the slot is open towards {0}, where some of its keys may be: move it there first")]
    OpenElsewhere(NodeId),
    #[error("the target claims the slot, but no move was begun here: wait until the nodes agree whose it is")]
    Disputed,
    #[error("its keys do not go away, {0:?} for example: see whether the server is in import mode")]
    Stuck(String),
    #[error("it was closed while its keys were moved: see who else moves slots, then move it again")]
    Closed,
}

/// The server of this pod, and the one that its slots go to.
pub struct Mover {
    pub(super) source: Node,
    pub(super) target: Node,
    pub(super) address: SocketAddr,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    /// As whom the server shows itself to the target.
    pub(super) login: Login,
}

impl Mover {
    pub async fn connect(context: &Context, to: NodeId) -> Result<Self, MoveError> {
        let mut source = context.server_within(DEADLINE).await?;
        let table = source.table().await.map_err(MoveError::Here)?;
        let peers = context.peers()?;
        let peer = peers.connect_within(DEADLINE, known(&table, to)?).await.map_err(MoveError::There)?;
        let login = context.mounts.replication_login().map_err(ReachError::from)?;
        Ok(Self { source, target: peer.node, address: peer.address, from: table.myself.id, to, login })
    }

    pub fn to(&self) -> NodeId {
        self.to
    }

    pub async fn move_slot(&mut self, slot: u16) -> Result<(), MoveError> {
        let ours = self.source.table().await.map_err(MoveError::Here)?;
        let theirs = self.target.table().await.map_err(MoveError::There)?;
        match judge(slot, self.to, &ours, &theirs)? {
            Stage::Moved => return Ok(()),
            Stage::Before => {
                self.open(slot).await?;
                self.move_keys(slot).await?;
                self.still_open(slot).await?;
                // From here on the slot is the target's, whoever hears of it when.
                self.target.set_slot(slot, SlotMark::Owned(self.to)).await.map_err(MoveError::There)?;
            }
            Stage::Given => {}
        }
        self.source.set_slot(slot, SlotMark::Owned(self.to)).await.map_err(MoveError::Here)
    }

    /// The target first: once the source leads clients there, it must let them in.
    async fn open(&mut self, slot: u16) -> Result<(), MoveError> {
        self.target.set_slot(slot, SlotMark::Importing(self.from)).await.map_err(MoveError::There)?;
        self.source.set_slot(slot, SlotMark::Migrating(self.to)).await.map_err(MoveError::Here)
    }

    async fn move_keys(&mut self, slot: u16) -> Result<(), MoveError> {
        let mut before = Vec::new();
        loop {
            let keys = self.source.keys_in_slot(slot, KEYS).await.map_err(MoveError::Here)?;
            match keys.first() {
                None => return Ok(()),
                Some(key) if keys == before => return Err(MoveError::Stuck(String::from_utf8_lossy(key).into_owned())),
                Some(_) => self.source.migrate_keys(self.address, &keys, &self.login).await.map_err(MoveError::Here)?,
            }
            before = keys;
        }
    }

    /// An open slot gets no new keys here. If it was closed meanwhile, or another server leads, an empty slot means nothing.
    async fn still_open(&mut self, slot: u16) -> Result<(), MoveError> {
        let table = self.source.table().await.map_err(MoveError::Here)?;
        let open = open_towards(&table, slot) == Some(self.to);
        if open && table.myself.role == Role::Primary { Ok(()) } else { Err(MoveError::Closed) }
    }
}

/// How far a slot has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its keys are still to be moved, some or all.
    Before,
    /// The target has it, but the source was not told.
    Given,
    Moved,
}

fn judge(slot: u16, to: NodeId, ours: &Table, theirs: &Table) -> Result<Stage, MoveError> {
    if ours.myself.role == Role::Replica {
        return Err(MoveError::Replica);
    }
    known(ours, to)?;
    match &theirs.myself {
        // Addresses are used again.
        other if other.id != to => return Err(MoveError::Stranger(other.id)),
        target if target.role == Role::Replica => return Err(MoveError::ReplicaTarget),
        _ => {}
    }
    let (here, there) = (ours.myself.slots.contains(slot), theirs.myself.slots.contains(slot));
    match (here, there, open_towards(ours, slot)) {
        (_, _, Some(other)) if other != to => Err(MoveError::OpenElsewhere(other)),
        (false, true, _) => Ok(Stage::Moved),
        (false, false, _) => Err(MoveError::NotOurs),
        (true, true, Some(_)) => Ok(Stage::Given),
        (true, true, None) => Err(MoveError::Disputed),
        (true, false, _) => Ok(Stage::Before),
    }
}

/// The target, if slots can go there.
fn known(table: &Table, to: NodeId) -> Result<&Entry, MoveError> {
    let target = table.others.iter().find(|other| other.id == to).ok_or(MoveError::UnknownTarget)?;
    match target.health {
        PeerHealth::Handshake => Err(MoveError::UnknownTarget),
        PeerHealth::Failed => Err(MoveError::FailedTarget),
        PeerHealth::Fine | PeerHealth::Suspected if target.role == Role::Replica => Err(MoveError::ReplicaTarget),
        PeerHealth::Fine | PeerHealth::Suspected => Ok(target),
    }
}

/// Whom the node sends the keys of a slot to.
fn open_towards(table: &Table, slot: u16) -> Option<NodeId> {
    table.myself.open.iter().find(|export| export.slots.contains(slot)).map(|export| export.to)
}

#[cfg(test)]
#[path = "mover_tests.rs"]
mod tests;
