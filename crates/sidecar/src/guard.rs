//! The launch guard: gathers what the decision needs, and asks it again until the server may start.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::info;
use valkey_engine::{DEADLINE, Entry, Error, Table, TableError};
use valkey_model::{Held, LocalData, NodeId, NodeReport, Role, SlotSet};
use valkey_planner::guard::{
    Copied, HoldReason, Launch, Leader, Past, PeerWord, Released, Remedy, Verdict, harmless, judge, remedy,
};
use valkey_rpc::Event;

use crate::conf;
use crate::context::{Context, Peers, ReachError};
use crate::files::named;
use crate::set_aside::{is_too_new, set_aside};
use crate::view::Phase;

const AGAIN: Duration = Duration::from_millis(500);

/// Why the server cannot start yet, for reasons that are nobody's data.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    #[error(transparent)]
    Files(#[from] io::Error),
    #[error("nodes.conf cannot be read: {0}")]
    Table(#[from] TableError),
    #[error(transparent)]
    Reach(#[from] ReachError),
}

/// A start that is asked for.
pub struct Guard<'a> {
    context: &'a Context,
    since: Instant,
    reported: Option<HoldReason>,
}

impl<'a> Guard<'a> {
    pub fn new(context: &'a Context) -> Self {
        context.released.send_replace(Released::NotYet); // what was allowed last time is not allowed now
        Self { context, since: Instant::now(), reported: None }
    }

    /// `None` if the server may start now, else why not.
    pub async fn ask(&mut self) -> Result<Option<HoldReason>, GuardError> {
        let nodes = self.context.data.join("nodes.conf");
        let table = table(&nodes)?;
        let conf = self.context.mounts.valkey_conf()?;
        let mut launch = Launch { was: table.as_ref().map(past), data: self.local_data(&conf)? };
        let released = *self.context.released.borrow();
        if let (LocalData::Unreadable, Some(table), Some(past)) = (launch.data, &table, &launch.was) {
            match remedy(past, &self.leaders(table).await?, *self.context.released.borrow()) {
                Remedy::Hold(reason) => {
                    self.hold(Held { id: past.id, slots: past.slots.clone(), data: launch.data }, reason);
                    return Ok(Some(reason));
                }
                Remedy::SetAside(reason) => {
                    let folder = set_aside(&self.context.data)?;
                    info!(?reason, folder = %folder.display(), "data of a newer release is put aside");
                    launch.data = LocalData::Gone;
                }
            }
        }
        // Nobody needs to be asked about a start that does no harm, or is allowed.
        let needless = harmless(&launch).is_some() || released == Released::ByOperator;
        let words = match (&table, &launch.was) {
            (Some(table), Some(past)) if !needless => ask_peers(&self.context.peers()?, &table.others, past).await,
            _ => Vec::new(),
        };
        let verdict = judge(&launch, &words, self.since.elapsed(), *self.context.released.borrow());
        match (verdict, launch.was) {
            (Verdict::Hold(reason), Some(past)) => {
                self.hold(Held { id: past.id, slots: past.slots, data: launch.data }, reason);
                Ok(Some(reason))
            }
            (verdict, _) => {
                info!(?verdict, "the server may start");
                Ok(None)
            }
        }
    }

    /// What the server will have when it starts. Without knowing its release, data is taken for readable, as the server will say itself.
    fn local_data(&self, conf: &str) -> io::Result<LocalData> {
        let folder = &self.context.data;
        match self.context.server_version() {
            Some(version) if is_too_new(folder, conf, version)? => Ok(LocalData::Unreadable),
            _ => local_data(folder, conf),
        }
    }

    /// Who leads this server's shard and says so itself.
    async fn leaders(&self, table: &Table) -> Result<Vec<Leader>, GuardError> {
        let reports = ask_all(&self.context.peers()?, &table.others).await;
        Ok(reports.iter().flatten().filter_map(|report| leader(table, report)).collect())
    }

    fn hold(&mut self, held: Held, reason: HoldReason) {
        self.context.board.set(Phase::Held { held, reason });
        if self.reported.replace(reason) != Some(reason) {
            info!(%reason, "the server may not start yet");
            self.context.outbox.send(Event::Held { reason: reason.to_string() });
        }
    }

    /// Until it is worth asking again: soon, or at once when the operator says so.
    pub async fn pause(&self) {
        let mut released = self.context.released.subscribe();
        let _ = timeout(AGAIN, released.wait_for(|released| *released == Released::ByOperator)).await;
    }
}

/// The server's table of last time, if it was ever up.
fn table(path: &Path) -> Result<Option<Table>, GuardError> {
    match std::fs::read_to_string(path) {
        // A server that was killed before it first wrote its table never was part of anything.
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(Table::parse(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(named(path, &error).into()),
    }
}

fn past(table: &Table) -> Past {
    let Entry { id, role, ref slots, config_epoch, .. } = table.myself;
    let replicas = table.others.iter().filter(|other| other.primary == Some(id)).map(|other| other.id).collect();
    Past { id, role, slots: slots.clone(), replicas, config_epoch }
}

/// With a log of writes the server reads that and nothing else, so a snapshot beside it does not count.
fn local_data(folder: &Path, conf: &str) -> io::Result<LocalData> {
    if !conf::logs_writes(conf) {
        let snapshot = conf::saves_snapshots(conf) && folder.join("dump.rdb").exists();
        return Ok(if snapshot { LocalData::Old } else { LocalData::Gone });
    }
    let logs = match std::fs::read_dir(folder.join("appendonlydir")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LocalData::Gone),
        logs => logs?,
    };
    for log in logs {
        if Path::new(&log?.file_name()).extension().is_some_and(|extension| extension == "manifest") {
            return Ok(LocalData::Complete);
        }
    }
    Ok(LocalData::Gone)
}

async fn ask_peers(peers: &Peers, others: &[Entry], past: &Past) -> Vec<PeerWord> {
    let reports = ask_all(peers, others).await;
    reports.iter().map(|report| report.as_ref().map_or(PeerWord::Silent, |report| word(past, report))).collect()
}

/// Asks all of them at once, so that the dead ones cost one deadline together (F07). `None` for each that does not answer.
async fn ask_all(peers: &Peers, others: &[Entry]) -> Vec<Option<NodeReport>> {
    let mut asking = JoinSet::new();
    for other in others {
        let (peers, other) = (peers.clone(), other.clone());
        asking.spawn(async move { timeout(DEADLINE, ask(&peers, &other)).await.ok()?.ok() });
    }
    asking.join_all().await
}

/// What a peer is that leads our shard: it owns the slots that we or our primary had, or it is our primary.
fn leader(table: &Table, peer: &NodeReport) -> Option<Leader> {
    let primary = table.myself.primary;
    let ours = table.entries().filter(|entry| entry.id == table.myself.id || Some(entry.id) == primary);
    let slots = ours.fold(SlotSet::EMPTY, |all, entry| all.union(&entry.slots));
    let leads = peer.role == Role::Primary && (peer.slots.intersects(&slots) || Some(peer.id) == primary);
    let copy = if !peer.loading && (peer.keys > 0 || peer.offset > 0) { Copied::Yes } else { Copied::NotProven };
    leads.then_some(Leader { id: peer.id, config_epoch: peer.config_epoch, copy })
}

async fn ask(peers: &Peers, other: &Entry) -> Result<NodeReport, Error> {
    peers.connect(other).await?.observe().await
}

/// What a peer's report means for us.
fn word(past: &Past, peer: &NodeReport) -> PeerWord {
    let itself = (peer.id, peer.role, &peer.slots, peer.config_epoch);
    let others = peer.peers.iter().map(|other| (other.id, other.role, &other.slots, other.config_epoch));
    let owners =
        others.chain([itself]).filter(|(_, role, slots, _)| *role == Role::Primary && slots.intersects(&past.slots));
    let owner: Option<(NodeId, u64)> = owners.map(|(id, _, _, epoch)| (id, epoch)).max_by_key(|(_, epoch)| *epoch);
    PeerWord::Says {
        owner_of_my_slots: owner.map(|(id, _)| id),
        epoch: owner.map_or(0, |(_, epoch)| epoch),
        is_my_replica: peer.primary == Some(past.id),
        has_data: peer.keys > 0 || peer.loading,
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
