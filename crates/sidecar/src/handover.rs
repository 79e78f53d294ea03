//! Before the pod goes: gives the shard to a replica that has all the data, so that no write is lost and none waits long. Then it
//! stays for a moment to tell clients who leads now.

use std::cmp::Reverse;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use valkey_engine::{Entry, Error, Node, Table};
use valkey_model::{NodeReport, PeerHealth, ReplicaLink, Role};

use crate::context::{Context, Peer, Peers, ReachError};

/// Below the launcher's own patience, and with it well within the pod's grace period.
const PATIENCE: Duration = Duration::from_secs(10);
/// After this a failover that did not happen is given up by Valkey too.
const ATTEMPT: Duration = Duration::from_secs(5);
const LEAVING_OFF: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);
const BREATH: Duration = Duration::from_millis(200);

/// Tries until somebody else leads, nobody can, or time is up. The server ends afterwards in any case.
pub async fn hand_over(context: &Context) {
    let begun = Instant::now();
    match timeout(PATIENCE, until_done(context)).await {
        Ok(Ok(outcome)) => {
            info!(?outcome, took = ?begun.elapsed(), "ready to stop");
            if outcome != Outcome::Impossible {
                sleep(context.board.view().farewell(std::time::Instant::now())).await;
            }
        }
        Ok(Err(error)) => warn!(%error, "the server cannot be asked: it stops without a handover"),
        Err(_) => warn!("no replica took over in time: the server stops all the same"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Needless,
    Impossible,
}

async fn until_done(context: &Context) -> Result<Outcome, ReachError> {
    // A slot that is half moved here would be so at the heir, too. It would be no harm, so it is not worth missing the handover.
    let _ = timeout(LEAVING_OFF, context.moves.leave_off()).await;
    let mut server = context.server().await?;
    loop {
        let table = server.table().await?;
        if table.myself.role == Role::Replica || table.myself.slots.is_empty() {
            return Ok(Outcome::Needless);
        }
        let heirs = heirs(&context.peers()?, &table).await;
        if heirs.is_empty() {
            return Ok(Outcome::Impossible);
        }
        for heir in heirs {
            let address = heir.peer.address;
            match attempt(&mut server, heir.peer).await {
                Ok(()) => return Ok(Outcome::Done),
                Err(error) => warn!(heir = %address, %error, "did not take over"),
            }
        }
        sleep(BREATH).await;
    }
}

/// A replica that could lead.
#[derive(Debug)]
struct Heir {
    peer: Peer,
    offset: u64,
}

/// The replicas that say that they are linked to us, the one with most data first.
///
/// They are asked themselves. What the server knows about its replicas are the addresses that they seem to come from, and
/// those can be anybody's where the network translates them.
async fn heirs(peers: &Peers, table: &Table) -> Vec<Heir> {
    let mut asking = JoinSet::new();
    for entry in replicas(table) {
        let (peers, entry) = (peers.clone(), entry.clone());
        asking.spawn(async move {
            let mut peer = peers.connect(&entry).await?;
            let report = peer.observe().await?;
            Ok::<_, Error>(is_fit(&report).then_some(Heir { peer, offset: report.offset }))
        });
    }
    let mut heirs: Vec<Heir> = asking.join_all().await.into_iter().flatten().flatten().collect();
    heirs.sort_by_key(|heir| Reverse(heir.offset));
    heirs
}

fn replicas(table: &Table) -> impl Iterator<Item = &Entry> {
    table.others.iter().filter(|other| other.primary == Some(table.myself.id) && other.health != PeerHealth::Failed)
}

fn is_fit(report: &NodeReport) -> bool {
    report.role == Role::Replica && report.link == ReplicaLink::Up && !report.loading
}

async fn attempt(server: &mut Node, mut heir: Peer) -> Result<(), Error> {
    heir.node.failover().await?;
    let changed = async {
        while server.role().await? == Role::Primary {
            sleep(LOOK).await;
        }
        Ok(())
    };
    timeout(ATTEMPT, changed).await.map_err(|_| Error::Deadline(ATTEMPT))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::report;

    #[test]
    fn own_replicas_that_are_not_given_up_are_asked() {
        let line = |byte: &str, rest: &str| format!("{} 10.0.0.1:6379@16379,h {rest}\n", byte.repeat(20));
        let me = "01".repeat(20);
        let text = line("01", "myself,master - 0 0 1 connected 0-9")
            + &line("02", &format!("slave {me} 0 0 1 connected"))
            + &line("03", &format!("slave,fail {me} 0 0 1 disconnected"))
            + &line("04", "master - 0 0 2 connected 10-19")
            + &line("05", &format!("slave {} 0 0 2 connected", "04".repeat(20)));
        let table = Table::parse(&text).unwrap();
        let asked: Vec<_> = replicas(&table).map(|entry| entry.id.to_string()).collect();
        assert_eq!(asked, ["02".repeat(20)]);
    }

    #[test]
    fn only_a_linked_replica_is_fit_to_lead() {
        let replica = |link| NodeReport { role: Role::Replica, link, ..report() };
        assert!(is_fit(&replica(ReplicaLink::Up)));
        assert!(!is_fit(&replica(ReplicaLink::Syncing)));
        assert!(!is_fit(&replica(ReplicaLink::Down)));
        assert!(!is_fit(&NodeReport { loading: true, ..replica(ReplicaLink::Up) }));
        assert!(!is_fit(&report()));
    }
}
