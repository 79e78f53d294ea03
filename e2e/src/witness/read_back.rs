//! Reading everything back at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use redis::cmd;
use tokio::time::{Instant, sleep, timeout_at};

use super::ledger::{Key, Ledger};
use super::slots::Slot;
use super::writer::{Lane, Run};

/// Reads under way at the same time: the client puts them into few packets, and a node is not flooded.
const AT_ONCE: usize = 128;
/// How often a long reading tells how far it is.
const TELL: Duration = Duration::from_secs(5);

/// How long to wait before keys are asked for again whose shard did not answer.
const AGAIN: Duration = Duration::from_millis(500);

/// Reads every key and tells the ledger; returns the keys that could not be read within the limit.
///
/// A key that cannot be read is not a lost write, but nobody may call it kept either.
pub async fn all(run: &Run, lanes: &[Arc<Lane>], ledger: &mut Ledger, limit: Duration) -> Vec<Key> {
    let lane_of: BTreeMap<Slot, &Arc<Lane>> =
        lanes.iter().flat_map(|lane| lane.slots.iter().map(move |slot| (*slot, lane))).collect();
    let mut unread: BTreeSet<Key> = ledger.to_read_back().into_iter().collect();
    let all = unread.len();
    let end = Instant::now() + limit;
    let mut tell = Instant::now() + TELL;
    loop {
        let due: Vec<Key> = unread.iter().copied().collect();
        let reads = due.into_iter().filter_map(|key| lane_of.get(&key.slot).map(|lane| (key, *lane)));
        let mut answers = stream::iter(reads)
            .map(async |(key, lane)| (key, lane.link.call(cmd("GET").arg(run.key(key))).await))
            .buffer_unordered(AT_ONCE);
        while let Ok(Some((key, answer))) = timeout_at(end, answers.next()).await {
            if let Ok(answer) = answer {
                ledger.read_back(key, run.found(&answer.value), run.now());
                unread.remove(&key);
            }
            if Instant::now() > tell {
                eprintln!("witness: {} of {all} keys read back", all - unread.len());
                tell += TELL;
            }
        }
        if unread.is_empty() || Instant::now() + AGAIN >= end {
            return unread.into_iter().collect();
        }
        sleep(AGAIN).await;
    }
}
