//! What the witness has to say, and what a test may expect of it.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::gaps::Pause;
use super::ledger::LostWrite;
use super::slots::Slot;
use super::writer::WriteError;

/// How many single mishaps a message lists.
const LISTED: usize = 10;

/// What happened between the start and the stop of a witness. Durations named as moments are since the start.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub began: Timestamp,
    pub ran_for: Duration,
    pub shards: Vec<Shard>,
    /// Writes that the servers said OK to.
    pub acknowledged: u64,
    /// Writes that may have reached a server more than once, because the first try was not answered in time.
    pub resent: u64,
    /// Keys that had to be read back at the end.
    pub read_back: usize,
    /// Those of them that could not be read.
    pub unread: Vec<String>,
    /// Lost writes with their keys, in the order in which they were noticed. Long lists are cut.
    pub lost: Vec<(String, LostWrite)>,
    pub lost_in_all: u64,
    /// Writes whose errors outlived the client's patience. Long lists are cut.
    pub errors: Vec<WriteError>,
    pub errors_in_all: u64,
    /// The longest time for which the machine did not let a waiting task run: pauses below it mean nothing.
    pub noise: Pause,
}

/// A shard as it was at the start, and how it fared.
#[derive(Clone, Debug)]
pub struct Shard {
    /// The address of its primary at the start.
    pub name: String,
    /// The slots it owned at the start; what happened to them later is counted here, whoever owns them then.
    pub slots: Vec<Slot>,
    pub acknowledged: u64,
    /// The longest time without an acknowledged write.
    pub pause: Pause,
    /// The longest time that a single acknowledged write took.
    pub slowest_write: Duration,
}

impl Verdict {
    /// # Panics
    /// Unless every acknowledged write was still there, and could be read.
    #[track_caller]
    pub fn expect_no_lost_write(&self) -> &Self {
        let lost = list(&self.lost, self.lost_in_all, |(key, lost)| {
            let (write, at) = (lost.acknowledged.sequence.0, self.clock(lost.acknowledged.at));
            let (found, noticed) = (&lost.found, self.clock(lost.noticed));
            format!(
                "{key} (slot {}): write {write} was acknowledged at {at}; found {found} at {noticed}",
                lost.key.slot
            )
        });
        assert!(self.lost_in_all == 0, "{} acknowledged writes were lost:\n{lost}\n{self}", self.lost_in_all);
        let unread = list(&self.unread, self.unread.len(), Clone::clone);
        assert!(
            self.unread.is_empty(),
            "no lost write was seen, but {} of {} keys could not be read back, so nobody knows:\n{unread}\n{self}",
            self.unread.len(),
            self.read_back
        );
        self
    }

    /// # Panics
    /// Unless all but so many acknowledged writes were still there, and could be read: what a primary that is killed had not
    /// sent to its replica yet is gone with it.
    #[track_caller]
    pub fn expect_lost_writes_at_most(&self, tail: u64) -> &Self {
        assert!(
            self.lost_in_all <= tail,
            "{} acknowledged writes were lost, more than {tail}\n{self}",
            self.lost_in_all
        );
        assert!(self.unread.is_empty(), "{} keys could not be read back\n{self}", self.unread.len());
        self
    }

    /// # Panics
    /// Unless every write was acknowledged within the client's patience.
    #[track_caller]
    pub fn expect_no_error(&self) -> &Self {
        let errors = list(&self.errors, self.errors_in_all, |error| {
            let WriteError { key, slot, shard, began, tried_for, attempts, message } = error;
            format!(
                "{key} (slot {slot} of {shard}): begun at {}, {attempts} attempts in {tried_for:.0?}: {message}",
                self.clock(*began)
            )
        });
        assert!(self.errors_in_all == 0, "{} writes failed for good:\n{errors}\n{self}", self.errors_in_all);
        self
    }

    /// # Panics
    /// If a shard went without an acknowledged write for this long.
    #[track_caller]
    pub fn expect_pause_below(&self, limit: Duration) -> &Self {
        let worst = self.longest_pause();
        assert!(
            worst.is_some_and(|shard| shard.pause.length < limit),
            "a shard acknowledged nothing for longer than {limit:.0?} (the machine's own noise was {:.0?}):\n{self}",
            self.noise.length
        );
        self
    }

    /// The shard that went without an acknowledged write for longest.
    pub fn longest_pause(&self) -> Option<&Shard> {
        self.shards.iter().max_by_key(|shard| shard.pause.length)
    }

    /// The shard whose primary had this address at the start.
    pub fn shard(&self, name: &str) -> Option<&Shard> {
        self.shards.iter().find(|shard| shard.name == name)
    }

    /// Acknowledged writes a second.
    pub fn throughput(&self) -> f64 {
        let acknowledged = u32::try_from(self.acknowledged).unwrap_or(u32::MAX);
        f64::from(acknowledged) / self.ran_for.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The wall clock at a moment of the run, to be compared with logs and events.
    fn clock(&self, moment: Duration) -> String {
        let at = self.began + SignedDuration::try_from(moment).unwrap_or(SignedDuration::ZERO);
        format!("{at:.3}")
    }
}

fn list<T>(all: &[T], in_all: impl TryInto<usize>, line: impl Fn(&T) -> String) -> String {
    let mut text = String::new();
    for item in all.iter().take(LISTED) {
        text.extend(["  ", &line(item), "\n"]);
    }
    match in_all.try_into().unwrap_or(usize::MAX).saturating_sub(LISTED) {
        0 => text,
        more => format!("{text}  and {more} more\n"),
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { began, ran_for, acknowledged, resent, read_back, unread, lost_in_all, errors_in_all, noise, .. } =
            self;
        let rate = self.throughput();
        writeln!(f, "witness: {acknowledged} writes acknowledged in {ran_for:.1?} from {began:.0} ({rate:.0}/s)")?;
        writeln!(
            f,
            "  {lost_in_all} lost, {errors_in_all} failed, {resent} perhaps sent again, {read_back} keys read back, {} unread",
            unread.len()
        )?;
        writeln!(f, "  noise of the machine: {:.1?} at {}", noise.length, self.clock(noise.began))?;
        for Shard { name, slots, acknowledged, pause, slowest_write } in &self.shards {
            writeln!(
                f,
                "  {name}: {} slots, {acknowledged} writes, longest pause {:.1?} at {}, slowest write {slowest_write:.1?}",
                slots.len(),
                pause.length,
                self.clock(pause.began)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{Acknowledged, Found, Key, Sequence};
    use super::*;

    fn slot() -> Slot {
        Slot::new(42).unwrap()
    }

    fn fine() -> Verdict {
        let pause = |milliseconds| Pause { began: Duration::from_secs(1), length: Duration::from_millis(milliseconds) };
        let shard = |name: &str, milliseconds| Shard {
            name: name.into(),
            slots: vec![slot()],
            acknowledged: 10,
            pause: pause(milliseconds),
            slowest_write: Duration::ZERO,
        };
        Verdict {
            began: "2026-11-15T12:00:00Z".parse().unwrap(),
            ran_for: Duration::from_secs(10),
            shards: vec![shard("10.0.0.1:6379", 20), shard("10.0.0.2:6379", 80)],
            acknowledged: 20,
            resent: 0,
            read_back: 2,
            unread: Vec::new(),
            lost: Vec::new(),
            lost_in_all: 0,
            errors: Vec::new(),
            errors_in_all: 0,
            noise: pause(7),
        }
    }

    #[test]
    fn a_fine_run_meets_every_expectation() {
        fine().expect_no_lost_write().expect_no_error().expect_pause_below(Duration::from_millis(100));
    }

    #[test]
    #[should_panic(
        expected = "k (slot 42): write 7 was acknowledged at 2026-11-15T12:00:02.500Z; found write 6 at 2026"
    )]
    fn a_lost_write_is_told_with_what_was_acknowledged_when_and_what_was_found() {
        let lost = LostWrite {
            key: Key { slot: slot(), generation: 0 },
            acknowledged: Acknowledged { sequence: Sequence(7), at: Duration::from_millis(2500) },
            found: Found::Written(Sequence(6)),
            noticed: Duration::from_secs(3),
        };
        Verdict { lost: vec![("k".into(), lost)], lost_in_all: 1, ..fine() }.expect_no_lost_write();
    }

    #[test]
    #[should_panic(expected = "1 of 2 keys could not be read back, so nobody knows")]
    fn a_key_that_cannot_be_read_is_not_called_kept() {
        Verdict { unread: vec!["k".into()], ..fine() }.expect_no_lost_write();
    }

    #[test]
    #[should_panic(expected = "a shard acknowledged nothing for longer than 50ms (the machine's own noise was 7ms)")]
    fn the_worst_shard_decides_about_pauses() {
        fine().expect_pause_below(Duration::from_millis(50));
    }

    #[test]
    #[should_panic(
        expected = "25 writes failed for good:\n  k (slot 42 of s): begun at 2026-11-15T12:00:01.000Z, 3 attempts"
    )]
    fn errors_are_counted_and_the_first_ones_told() {
        let error = WriteError {
            key: "k".into(),
            slot: slot(),
            shard: "s".into(),
            began: Duration::from_secs(1),
            tried_for: Duration::from_secs(5),
            attempts: 3,
            message: "CLUSTERDOWN".into(),
        };
        Verdict { errors: vec![error; 25], errors_in_all: 25, ..fine() }.expect_no_error();
    }
}
