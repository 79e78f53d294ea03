//! Looks at the server all the time, so that probes and reports never have to wait for it.

use std::time::{Duration, Instant};

use tokio::select;
use tokio::time::sleep;
use tracing::debug;
use valkey_engine::Node;
use valkey_model::NodeReport;

use crate::context::{Context, ReachError};
use crate::view::{Phase, View};

/// Before the first answer, which others wait for.
const SOON: Duration = Duration::from_millis(100);
/// While something is about to change.
const OFTEN: Duration = Duration::from_millis(250);
/// While the server moves slots: the next ones wait for it.
const MOVING: Duration = Duration::from_millis(50);
const STEADY: Duration = Duration::from_secs(1);

pub async fn watch(context: &Context) {
    let mut connection = None;
    loop {
        let life = context.board.view().life;
        match look(context, connection.take()).await {
            Ok((node, report)) => {
                for event in context.board.replied(life, report) {
                    context.outbox.send(event);
                }
                connection = Some(node);
            }
            Err(error) => debug!(%error, "no reply from the server"),
        }
        select! {
            () = sleep(until_next(&context.board.view())) => {}
            () = context.board.nudged() => {}
        }
    }
}

fn until_next(view: &View) -> Duration {
    match view.phase {
        Phase::Up { .. } if view.moves_slots() => MOVING,
        Phase::Up { .. } if view.ready(Instant::now()).is_ok() => STEADY,
        Phase::Up { .. } => OFTEN,
        Phase::Unknown | Phase::Held { .. } | Phase::Starting => SOON,
    }
}

/// Asks the server. An answer that is an error is a sign of life, but no report.
async fn look(context: &Context, connection: Option<Node>) -> Result<(Node, Option<NodeReport>), ReachError> {
    let mut node = match connection {
        Some(node) => node,
        None => context.server().await?,
    };
    match node.observe(context.address()?).await {
        Ok(report) => Ok((node, Some(report))),
        Err(error) if error.is_a_reply() => {
            debug!(%error, "the server does not tell its state");
            Ok((node, None))
        }
        Err(error) => Err(error.into()),
    }
}
