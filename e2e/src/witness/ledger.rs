//! The ledger: what was acknowledged, and what a value that is found later means.
//!
//! Plain and synchronous, without a client and without a clock, because everything else in the witness only matters if
//! this part is right. One rule carries it: a key may hold anything from its last acknowledged write up to its last
//! attempted one. Anything older, nothing at all, or somebody else's value is a lost write.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::slots::Slot;

/// How many lost writes and errors are kept word for word; beyond that only their number is.
pub const REMEMBERED: usize = 10_000;

/// The place of a write among the writes of its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub u64);

/// A key of the witness. A slot has one key at a time; a new generation is begun when the old key may still change
/// behind our back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub slot: Slot,
    pub generation: u32,
}

/// A write that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: Key,
    pub sequence: Sequence,
}

/// What was seen under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Written(Sequence),
    /// A value that no writer of this run has written.
    Foreign(String),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Written(sequence) => write!(f, "write {}", sequence.0),
            Self::Foreign(value) => write!(f, "a foreign value {value:?}"),
        }
    }
}

/// Whether a write reached the server exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    Once,
    /// The client may have sent it again, so a copy may still be under way and arrive after later writes.
    PerhapsAgain,
}

/// The last write of a key that the server said OK to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    pub sequence: Sequence,
    /// Since the start of the run.
    pub at: Duration,
}

/// An acknowledged write that is not there any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostWrite {
    pub key: Key,
    pub acknowledged: Acknowledged,
    pub found: Found,
    /// Since the start of the run.
    pub noticed: Duration,
}

/// What is known about one key.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    acknowledged: Option<Acknowledged>,
    attempted: Sequence,
}

impl Page {
    /// The one rule. `Some` is the acknowledged write that `found` proves lost.
    fn lost(&self, found: &Found) -> Option<Acknowledged> {
        let acknowledged = self.acknowledged?;
        let kept = matches!(found, Found::Written(s) if (acknowledged.sequence..=self.attempted).contains(s));
        (!kept).then_some(acknowledged)
    }
}

/// The books of one writer, or of all of them after [`Ledger::merge`].
///
/// Its size depends on the number of slots and of mishaps, not on the number of writes: a run may last for hours.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The keys that are being written.
    open: BTreeMap<Slot, (u32, Page)>,
    /// The keys that nobody writes any more, but which were acknowledged at least once.
    closed: BTreeMap<Key, Page>,
    lost: Vec<LostWrite>,
    lost_in_all: u64,
    acknowledged: u64,
}

impl Ledger {
    /// The next write of a slot's key. Exactly one of [`Self::acknowledge`] and [`Self::give_up`] must follow before
    /// the next write of the same slot.
    pub fn begin(&mut self, slot: Slot) -> Write {
        let (generation, page) = self.open.entry(slot).or_default();
        page.attempted.0 += 1;
        Write { key: Key { slot, generation: *generation }, sequence: page.attempted }
    }

    /// The server said OK, and gave the value that was there before.
    ///
    /// That one must be the last acknowledged value, or this write's own: then an earlier copy of it had arrived. (In
    /// that case nobody knows what the copy replaced; the rule gives it the benefit of the doubt.)
    pub fn acknowledge(&mut self, write: Write, previous: Found, at: Duration, delivery: Delivery) {
        let Some((generation, page)) = self.open.get_mut(&write.key.slot) else {
            return;
        };
        let lost = page.lost(&previous);
        page.acknowledged = Some(Acknowledged { sequence: write.sequence, at });
        self.acknowledged += 1;
        if delivery == Delivery::PerhapsAgain {
            // A late copy must find a key that holds its own value already, never a newer one.
            self.closed.insert(write.key, std::mem::take(page));
            *generation += 1;
        }
        self.note(write.key, lost, previous, at);
    }

    /// Nobody knows what became of the write: its key is left alone from here on, with either outcome allowed.
    pub fn give_up(&mut self, write: Write) {
        let Some((generation, page)) = self.open.get_mut(&write.key.slot) else {
            return;
        };
        let page = std::mem::take(page);
        *generation += 1;
        if page.acknowledged.is_some() {
            self.closed.insert(write.key, page);
        }
    }

    /// Every key that was ever acknowledged, to be read once more at the end.
    pub fn to_read_back(&self) -> Vec<Key> {
        let open = self.open.iter().filter(|(_, (_, page))| page.acknowledged.is_some());
        let open = open.map(|(slot, (generation, _))| Key { slot: *slot, generation: *generation });
        self.closed.keys().copied().chain(open).collect()
    }

    /// What a key held at the end.
    pub fn read_back(&mut self, key: Key, found: Found, at: Duration) {
        let open = self.open.get(&key.slot).filter(|(generation, _)| *generation == key.generation);
        let page = open.map(|(_, page)| page).or_else(|| self.closed.get(&key));
        let lost = page.and_then(|page| page.lost(&found));
        self.note(key, lost, found, at);
    }

    fn note(&mut self, key: Key, lost: Option<Acknowledged>, found: Found, noticed: Duration) {
        let Some(acknowledged) = lost else { return };
        self.lost_in_all += 1;
        if self.lost.len() < REMEMBERED {
            self.lost.push(LostWrite { key, acknowledged, found, noticed });
        }
    }

    /// Puts the books of writers together that owned different slots.
    pub fn merge(&mut self, other: Self) {
        let Self { open, closed, lost, lost_in_all, acknowledged } = other;
        self.open.extend(open);
        self.closed.extend(closed);
        self.lost.extend(lost);
        self.lost.truncate(REMEMBERED);
        self.lost_in_all += lost_in_all;
        self.acknowledged += acknowledged;
    }

    /// The lost writes in the order in which they were noticed, at most [`REMEMBERED`].
    pub fn into_lost(mut self) -> Vec<LostWrite> {
        self.lost.sort_by_key(|lost| lost.noticed);
        self.lost
    }

    pub fn lost_in_all(&self) -> u64 {
        self.lost_in_all
    }

    /// How many writes the server said OK to.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
