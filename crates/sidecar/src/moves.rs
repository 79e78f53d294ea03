//! Moves of slots away from the server of this pod.
//!
//! In the atomic way the servers do it by themselves. In the classic way we do, some slots at a time and in the background; what
//! became of it is told in the same words.

mod mover;
mod queue;

use futures::future::join_all;
use tracing::{info, warn};
use valkey_engine::Error;
use valkey_model::{NodeId, NodeReport, Role, SlotSet};
use valkey_rpc::Event;

use self::mover::{MoveError, Mover};
pub use self::queue::{Busy, Moves, together};
use crate::context::{Context, ReachError};

#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Server(#[from] Error),
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error("this server is a replica: order the move from the primary of its shard")]
    Replica,
    #[error("slots {0} are still moved in the classic way: wait until that is done")]
    Classic(SlotSet),
    #[error("slots {0} are moved by the server itself already: wait until that is done")]
    Atomic(SlotSet),
    #[error("this server does not know {0}: wait until the nodes have met, or choose another target")]
    UnknownTarget(NodeId),
    #[error("{0} is a replica: choose the primary of its shard")]
    ReplicaTarget(NodeId),
    #[error(
        "the classic way moves database 0 only, and this server has {0} databases: move the slots in the atomic way"
    )]
    Databases(u64),
}

/// Has the servers move slots by themselves.
pub async fn order_atomic(context: &Context, slots: &SlotSet, to: NodeId) -> Result<(), OrderError> {
    let classic = context.moves.slots();
    if !classic.is_empty() {
        return Err(OrderError::Classic(classic));
    }
    let mut server = context.server().await?;
    match server.migrate_slots(slots, to).await {
        Err(Error::Refused(words)) => {
            let report = server.observe(context.address().map_err(ReachError::from)?).await?;
            if is_needless(&report, slots, to) { Ok(()) } else { Err(Error::Refused(words).into()) }
        }
        Ok(()) => {
            context.board.nudge();
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether nothing is left to order: what is still ours is on its way to the same target already.
fn is_needless(report: &NodeReport, slots: &SlotSet, to: NodeId) -> bool {
    let leaving = report.exports.running.iter().filter(|export| export.to == to);
    let left = leaving.fold(slots.intersection(&report.slots), |left, export| left.minus(&export.slots));
    report.role == Role::Primary && left.is_empty()
}

/// Has us move slots, key by key.
pub async fn order_classic(context: &Context, slots: &SlotSet, to: NodeId) -> Result<(), OrderError> {
    let mut server = context.server().await?;
    let report = server.observe(context.address().map_err(ReachError::from)?).await?;
    let ours = due(&report, server.databases().await?, slots, to)?;
    Ok(context.moves.order(&ours, to)?)
}

/// What is left to move: slots that are not ours any more have moved.
///
/// A slot looks empty when its keys are in another database than the first: they would be left behind, and deleted.
fn due(report: &NodeReport, databases: u64, slots: &SlotSet, to: NodeId) -> Result<SlotSet, OrderError> {
    if report.role == Role::Replica {
        return Err(OrderError::Replica);
    }
    let ours = slots.intersection(&report.slots);
    let atomic = report.exports.running.iter().fold(SlotSet::EMPTY, |all, export| all.union(&export.slots));
    match report.peer(to) {
        _ if ours.is_empty() => Ok(ours),
        _ if databases != 1 => Err(OrderError::Databases(databases)),
        // Also if they are other slots: a target refuses all of them while one comes in key by key.
        _ if !atomic.is_empty() => Err(OrderError::Atomic(atomic)),
        None => Err(OrderError::UnknownTarget(to)),
        Some(target) if target.role == Role::Replica => Err(OrderError::ReplicaTarget(to)),
        Some(_) => Ok(ours),
    }
}

/// A server writes its table to disk with everything that it is told about a slot, but only once for all that it is told at the
/// same time. One slot after the other took ten times as long; with twelve at a time clients got half of their writes through.
const AT_ONCE: usize = 8;

/// Moves what was ordered, for as long as the future lives.
pub async fn work(context: &Context) {
    loop {
        context.moves.ordered().await;
        join_all((0..AT_ONCE).map(|_| work_off(context))).await;
        info!("no slots are left to be moved");
        context.outbox.send(Event::StateChanged);
    }
}

/// Moves one slot after the other until none is left, or one fails.
async fn work_off(context: &Context) {
    let mut kept: Option<Mover> = None;
    while let Some((slot, to)) = context.moves.begin() {
        let outcome: Result<Mover, MoveError> = async {
            let mut mover = match kept.take() {
                Some(mover) if mover.to() == to => mover,
                _ => Mover::connect(context, to).await?,
            };
            mover.move_slot(slot).await?;
            Ok(mover)
        }
        .await;
        match outcome {
            Ok(mover) => kept = Some(mover),
            Err(error) => {
                warn!(slot, %to, %error, "a slot did not move");
                context.moves.failed(slot, format!("slot {slot} did not move to {to}: {error}"));
                return;
            }
        }
        context.moves.moved(slot);
    }
}

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
