//! The witness: a client load over all slots that remembers every acknowledged write and reads it back.
//!
//! ```no_run
//! # async fn example(endpoint: e2e::Endpoint) -> anyhow::Result<()> {
//! let witness = e2e::Witness::of(endpoint).rate(1500).start().await?;
//! // … do to the cluster what must not hurt …
//! let verdict = witness.stop().await?;
//! verdict.expect_no_lost_write().expect_no_error().expect_pause_below(e2e::ms(500));
//! # Ok(()) }
//! ```
//!
//! Each slot has one key and each key one writer, which sends `SET key value GET` one after the other: the value that
//! comes back must be the last acknowledged one. So a lost write is noticed when its key is written next, never hidden
//! by later writes, and nothing but the last acknowledged write of each key has to be remembered.

mod gaps;
mod ledger;
mod link;
mod read_back;
mod slots;
mod verdict;
mod writer;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

pub use gaps::Pause;
pub use ledger::{Acknowledged, Delivery, Found, Key, Ledger, LostWrite, Sequence, Write};
pub use slots::Slot;
pub use verdict::{Shard, Verdict};
pub use writer::WriteError;

use gaps::Gaps;
use link::{Atlas, Link};
use writer::{Books, Lane, Run, Writer};

use crate::endpoint::Endpoint;

/// At most this many writes a second are asked from one writer, so that a slow answer does not lower the rate.
const WRITES_PER_WRITER: u32 = 200;
/// A shard's writers. At least two, so that one that waits does not look like a pause of the shard.
const WRITERS_PER_SHARD: std::ops::RangeInclusive<u32> = 2..=32;
/// How often the noise of the machine is sampled.
const TICK: Duration = Duration::from_millis(5);
/// How often the addresses of the cluster are learned anew.
const LOOK: Duration = Duration::from_secs(1);

/// A witness that has not begun.
#[derive(Clone, Debug)]
pub struct Settings {
    endpoint: Endpoint,
    rate: u32,
    value_size: usize,
    patience: Duration,
    reading: Duration,
}

impl Settings {
    /// Writes a second over all shards together; 1500 unless told.
    #[must_use]
    pub fn rate(mut self, writes_per_second: u32) -> Self {
        self.rate = writes_per_second;
        self
    }

    /// Bytes of each value; 64 unless told. Small values still carry their sequence number and run.
    #[must_use]
    pub fn value_size(mut self, bytes: usize) -> Self {
        self.value_size = bytes;
        self
    }

    /// How long a write is retried before it counts as an error; 5 s unless told.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long reading everything back may take at the end; 60 s unless told.
    #[must_use]
    pub fn reading(mut self, limit: Duration) -> Self {
        self.reading = limit;
        self
    }

    /// Connects, gives each shard its writers and begins.
    pub async fn start(self) -> Result<Witness> {
        ensure!(self.rate > 0, "a witness needs a rate above zero");
        let endpoint = Arc::new(self.endpoint.clone());
        let atlas = Arc::new(Atlas::default());
        let scout = Link::open(Arc::clone(&endpoint), Arc::clone(&atlas), self.patience).await?;
        let owners = scout.owners().await.context("the witness cannot read the slot map")?;
        let links = owners.iter().map(|_| Link::open(Arc::clone(&endpoint), Arc::clone(&atlas), self.patience));
        let links = try_join_all(links).await?;

        Slot::prepare_tags();
        let name = format!("{:x}", Timestamp::now().as_microsecond());
        let run = Arc::new(Run { name, started: Instant::now(), value_size: self.value_size });
        let lanes: Vec<_> = owners
            .into_iter()
            .zip(links)
            .map(|(owner, link)| Arc::new(Lane::new(owner.address, owner.slots, link, run.now())))
            .collect();

        let (stop, stopped) = watch::channel(false);
        let mut writers = JoinSet::new();
        for writer in share(&run, &lanes, self.rate) {
            writers.spawn(writer.write(stopped.clone()));
        }
        let noise = tokio::spawn(listen(Arc::clone(&run), stopped.clone()));
        let mut helpers = JoinSet::new();
        helpers.spawn(look_around(scout));
        Ok(Witness { settings: self, began: Timestamp::now(), run, lanes, stop, writers, noise, helpers })
    }
}

/// Deals slots and rate out: the same rate for every shard, whatever its size.
fn share(run: &Arc<Run>, lanes: &[Arc<Lane>], rate: u32) -> Vec<Writer> {
    let shards = u32::try_from(lanes.len()).unwrap_or(1).max(1);
    let per_shard = (rate / shards / WRITES_PER_WRITER + 1).clamp(*WRITERS_PER_SHARD.start(), *WRITERS_PER_SHARD.end());
    let every = Duration::from_secs(1) * per_shard * shards / rate;
    let writers = usize::try_from(per_shard).unwrap_or(2);
    let mut all = Vec::new();
    for lane in lanes {
        let scattered = Slot::scattered(lane.slots.iter().copied());
        for turn in 0..writers.min(scattered.len()) {
            let slots = scattered.iter().copied().skip(turn).step_by(writers).collect();
            let first = run.started + every * u32::try_from(turn).unwrap_or(0) / per_shard;
            all.push(Writer { run: Arc::clone(run), lane: Arc::clone(lane), slots, every, first });
        }
    }
    all
}

/// The longest time that a task which only wants to wake up had to wait for it: what the machine itself adds.
async fn listen(run: Arc<Run>, mut stop: watch::Receiver<bool>) -> Gaps {
    let mut gaps = Gaps::starting_at(run.now());
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = stop.changed() => return gaps,
            _ = ticks.tick() => gaps.seen(run.now()),
        }
    }
}

/// Keeps the addresses fresh for those who must reconnect. What fails here is noticed by the writers.
async fn look_around(scout: Link) {
    loop {
        sleep(LOOK).await;
        drop(scout.owners().await);
    }
}

/// A witness at work. Dropping it ends the load without a verdict.
#[derive(Debug)]
#[must_use = "a witness that is not stopped gives no verdict"]
pub struct Witness {
    settings: Settings,
    began: Timestamp,
    run: Arc<Run>,
    lanes: Vec<Arc<Lane>>,
    stop: watch::Sender<bool>,
    writers: JoinSet<Books>,
    noise: JoinHandle<Gaps>,
    helpers: JoinSet<()>,
}

impl Witness {
    /// A witness of the cluster at this endpoint.
    pub fn of(endpoint: Endpoint) -> Settings {
        let (rate, value_size) = (1500, 64);
        Settings { endpoint, rate, value_size, patience: Duration::from_secs(5), reading: Duration::from_mins(1) }
    }

    /// Writes that were acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.acknowledged.load(Ordering::Relaxed)).sum()
    }

    /// Waits until this many more writes are acknowledged in every shard.
    pub async fn writes_in_every_shard(&self, more: u64, within: Duration) -> Result<()> {
        let count = |lane: &Arc<Lane>| lane.acknowledged.load(Ordering::Relaxed);
        let goals: Vec<_> = self.lanes.iter().map(|lane| (lane, count(lane) + more)).collect();
        let reached = async {
            while goals.iter().any(|(lane, goal)| count(lane) < *goal) {
                sleep(TICK).await;
            }
        };
        timeout(within, reached).await.ok().with_context(|| {
            let missing = goals.iter().filter(|(lane, goal)| count(lane) < *goal).map(|(lane, _)| &lane.shard);
            format!("waited {within:?} for {more} more writes in {:?}", missing.collect::<Vec<_>>())
        })
    }

    /// Ends the load, reads back every key that was ever acknowledged, and says what it has seen.
    pub async fn stop(mut self) -> Result<Verdict> {
        let ran_for = self.run.now();
        self.stop.send_replace(true);
        let mut books = Books::default();
        while let Some(finished) = self.writers.join_next().await {
            books.merge(finished.context("a writer of the witness broke down")?);
        }
        let noise = self.noise.await.context("the noise meter of the witness broke down")?;
        self.helpers.abort_all();
        let unread = read_back::all(&self.run, &self.lanes, &mut books.ledger, self.settings.reading).await;

        let shards = self.lanes.iter().map(|lane| Shard {
            name: lane.shard.clone(),
            slots: lane.slots.clone(),
            acknowledged: lane.acknowledged.load(Ordering::Relaxed),
            pause: lane.pause(ran_for),
            slowest_write: lane.slowest(),
        });
        let Books { ledger, mut errors, errors_in_all, resent } = books;
        errors.sort_by_key(|error| error.began);
        let key_name = |key| self.run.key(key);
        Ok(Verdict {
            began: self.began,
            ran_for,
            shards: shards.collect(),
            acknowledged: ledger.acknowledged(),
            resent,
            read_back: ledger.to_read_back().len(),
            unread: unread.into_iter().map(key_name).collect(),
            lost_in_all: ledger.lost_in_all(),
            lost: ledger.into_lost().into_iter().map(|lost| (key_name(lost.key), lost)).collect(),
            errors_in_all,
            errors,
            noise: noise.until(ran_for),
        })
    }
}
