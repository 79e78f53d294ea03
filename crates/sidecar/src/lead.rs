//! Makes the server of this pod lead its shard, in agreement with the present primary: no write is lost.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use valkey_engine::{Error, Node};
use valkey_model::{NodeReport, ReplicaLink, Role, Version};

/// Below the operator's own, so that it hears from us what is wrong.
const PATIENCE: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(10);
/// For how long a failover is tried that finds no majority: the primary takes no writes meanwhile.
const ATTEMPT: &str = "2000";
/// The first that lets us say so; older ones try for five seconds.
const KNOWS_ATTEMPT: Version = Version::new(8, 1, 0);

#[derive(Debug, thiserror::Error)]
pub enum LeadError {
    #[error(transparent)]
    Server(#[from] Error),
    #[error("the replica is still loading its data: wait until it is done, or choose another one")]
    Loading,
    #[error("the replica has no link to its primary ({0:?}): wait until it is in step, or choose another one")]
    NotLinked(ReplicaLink),
    #[error(
        "the replica did not become primary within {PATIENCE:?}: see whether most of the primaries answer, then try again"
    )]
    TooLate,
}

/// Done when this server leads; at once if it does already.
pub async fn lead(server: &mut Node, address: SocketAddr) -> Result<(), LeadError> {
    let report = server.observe(address).await?;
    if report.role == Role::Primary {
        return Ok(());
    }
    check(&report)?;
    if report.version >= KNOWS_ATTEMPT {
        server.config_set(&[("cluster-manual-failover-timeout", ATTEMPT)]).await?;
    }
    server.failover().await?;
    timeout(PATIENCE, until_primary(server)).await.map_err(|_| LeadError::TooLate)??;
    Ok(())
}

async fn until_primary(server: &mut Node) -> Result<(), Error> {
    while server.role().await? != Role::Primary {
        sleep(LOOK).await;
    }
    Ok(())
}

/// Valkey would accept the order all the same, and hold up the primary's writes for a failover that cannot be.
fn check(replica: &NodeReport) -> Result<(), LeadError> {
    match replica.link {
        _ if replica.loading => Err(LeadError::Loading),
        ReplicaLink::Up => Ok(()),
        link => Err(LeadError::NotLinked(link)),
    }
}

#[cfg(test)]
#[path = "lead_tests.rs"]
mod tests;
