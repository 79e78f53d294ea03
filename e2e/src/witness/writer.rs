//! A writer: owns some slots of one shard and writes them one after the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Value, cmd};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::gaps::{Gaps, Pause};
use super::ledger::{Delivery, Found, Key, Ledger, REMEMBERED, Sequence, Write};
use super::link::{Answer, Failure, Link};
use super::slots::Slot;

/// What all writers of a run agree on.
#[derive(Debug)]
pub struct Run {
    /// Part of every key and value, so that two runs on one cluster do not take each other's writes for their own.
    pub name: String,
    pub started: Instant,
    pub value_size: usize,
}

impl Run {
    /// The time since the start of the run.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn key(&self, key: Key) -> String {
        format!("{{{}}}:witness:{}:{}", key.slot.tag(), self.name, key.generation)
    }

    /// `<sequence>:<run>:` and dots up to the size that was asked for.
    fn value(&self, sequence: Sequence) -> String {
        let head = format!("{}:{}:", sequence.0, self.name);
        format!("{head:.<width$}", width = self.value_size)
    }

    /// What a value that was read says about who wrote it.
    pub fn found(&self, value: &Value) -> Found {
        let bytes = match value {
            Value::Nil => return Found::Nothing,
            Value::BulkString(bytes) => bytes.as_slice(),
            other => return Found::Foreign(format!("{other:?}").chars().take(60).collect()),
        };
        let text = String::from_utf8_lossy(bytes);
        let mut parts = text.splitn(3, ':');
        match (parts.next().and_then(|first| first.parse().ok()), parts.next()) {
            (Some(sequence), Some(run)) if run == self.name => Found::Written(Sequence(sequence)),
            _ => Found::Foreign(text.chars().take(60).collect()),
        }
    }
}

/// A shard as it was at the start: its client, and the clock of its acknowledgements.
#[derive(Debug)]
pub struct Lane {
    pub shard: String,
    pub slots: Vec<Slot>,
    pub link: Link,
    pub acknowledged: AtomicU64,
    clock: Mutex<Clock>,
}

#[derive(Debug)]
struct Clock {
    acknowledgements: Gaps,
    slowest: Duration,
}

impl Lane {
    pub fn new(shard: String, slots: Vec<Slot>, link: Link, start: Duration) -> Self {
        let clock = Clock { acknowledgements: Gaps::starting_at(start), slowest: Duration::ZERO };
        Self { shard, slots, link, acknowledged: AtomicU64::new(0), clock: Mutex::new(clock) }
    }

    fn acknowledge(&self, at: Duration, took: Duration) {
        let mut clock = self.clock();
        clock.acknowledgements.seen(at);
        clock.slowest = clock.slowest.max(took);
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    /// The longest time without an acknowledgement, up to `end`.
    pub fn pause(&self, end: Duration) -> Pause {
        self.clock().acknowledgements.until(end)
    }

    /// The longest time that one write took.
    pub fn slowest(&self) -> Duration {
        self.clock().slowest
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write that was not answered within the patience.
#[derive(Clone, Debug)]
pub struct WriteError {
    pub key: String,
    pub slot: Slot,
    /// The shard that owned the slot at the start.
    pub shard: String,
    /// When the write was begun, since the start of the run.
    pub began: Duration,
    pub tried_for: Duration,
    pub attempts: u32,
    pub message: String,
}

/// What a writer hands in at the end.
#[derive(Debug, Default)]
pub struct Books {
    pub ledger: Ledger,
    pub errors: Vec<WriteError>,
    pub errors_in_all: u64,
    /// Writes that may have reached the server more than once.
    pub resent: u64,
}

impl Books {
    pub fn merge(&mut self, other: Self) {
        let Self { ledger, errors, errors_in_all, resent } = other;
        self.ledger.merge(ledger);
        self.errors.extend(errors);
        self.errors_in_all += errors_in_all;
        self.resent += resent;
    }
}

#[derive(Debug)]
pub struct Writer {
    pub run: Arc<Run>,
    pub lane: Arc<Lane>,
    pub slots: Vec<Slot>,
    pub every: Duration,
    /// When to begin, so that the writers of a lane take turns.
    pub first: Instant,
}

impl Writer {
    /// Writes until it is told to stop. A write that is under way then is still finished, and counted.
    pub async fn write(self, mut stop: watch::Receiver<bool>) -> Books {
        let mut books = Books::default();
        let mut ticks = interval_at(self.first, self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        for slot in self.slots.iter().cycle() {
            tokio::select! {
                biased;
                _ = stop.changed() => break,
                _ = ticks.tick() => {}
            }
            let write = books.ledger.begin(*slot);
            let began = self.run.now();
            match self.send(write).await {
                Ok(answer) => self.acknowledge(&mut books, write, &answer),
                Err(failure) => self.give_up(&mut books, write, began, failure),
            }
        }
        books
    }

    async fn send(&self, write: Write) -> Result<Answer, Failure> {
        let mut set = cmd("SET");
        set.arg(self.run.key(write.key)).arg(self.run.value(write.sequence)).arg("GET");
        self.lane.link.call(&set).await
    }

    fn acknowledge(&self, books: &mut Books, write: Write, answer: &Answer) {
        let at = self.run.now();
        self.lane.acknowledge(at, answer.took);
        let previous = self.run.found(&answer.value);
        let delivery = if answer.perhaps_sent_again() || previous == Found::Written(write.sequence) {
            books.resent += 1;
            Delivery::PerhapsAgain
        } else {
            Delivery::Once
        };
        books.ledger.acknowledge(write, previous, at, delivery);
    }

    fn give_up(&self, books: &mut Books, write: Write, began: Duration, failure: Failure) {
        books.ledger.give_up(write);
        books.errors_in_all += 1;
        if books.errors.len() < REMEMBERED {
            let Failure { last_error: message, took: tried_for, attempts } = failure;
            let (key, slot, shard) = (self.run.key(write.key), write.key.slot, self.lane.shard.clone());
            books.errors.push(WriteError { key, slot, shard, began, tried_for, attempts, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> Run {
        Run { name: name.into(), started: Instant::now(), value_size: 64 }
    }

    #[test]
    fn a_value_tells_its_run_and_its_place() {
        let ours = run("a1");
        let value = ours.value(Sequence(42));
        assert_eq!(value.len(), 64);
        let value = Value::BulkString(value.into_bytes());
        assert_eq!(ours.found(&value), Found::Written(Sequence(42)));
        assert!(matches!(run("b2").found(&value), Found::Foreign(_)));
        assert_eq!(ours.found(&Value::Nil), Found::Nothing);
        assert!(matches!(ours.found(&Value::BulkString(b"42".to_vec())), Found::Foreign(_)));
    }

    #[test]
    fn a_key_lies_in_its_slot() {
        let slot = Slot::new(12_345).unwrap();
        assert_eq!(Slot::of(run("a1").key(Key { slot, generation: 3 }).as_bytes()), slot);
    }
}
