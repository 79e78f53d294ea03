//! What is to be moved in the classic way, and what became of it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::sleep;
use valkey_model::{Export, Exports, Failure, NodeId, SlotRange, SlotSet};

const LOOK: Duration = Duration::from_millis(10);

/// Slots cannot go to two nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("slots {slots} are on their way to {to} already: wait until they are there")]
pub struct Busy {
    slots: SlotSet,
    to: NodeId,
}

#[derive(Debug, Default)]
pub struct Moves {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Export>,
    /// Those of the queue that are under way.
    begun: BTreeSet<u16>,
    failures: u32,
    last_failure: Option<(Instant, String)>,
}

impl Moves {
    /// Queues slots; those that are queued for the same target already are left where they are.
    pub fn order(&self, slots: &SlotSet, to: NodeId) -> Result<(), Busy> {
        let mut state = self.state();
        if let Some(other) = state.queue.iter().find(|export| export.to != to && export.slots.intersects(slots)) {
            return Err(Busy { slots: other.slots.intersection(slots), to: other.to });
        }
        let slots = state.queue.iter().fold(slots.clone(), |left, export| left.minus(&export.slots));
        if !slots.is_empty() {
            state.queue.push_back(Export { slots, to });
        }
        self.news.notify_one();
        Ok(())
    }

    /// Waits until there is something to do.
    pub async fn ordered(&self) {
        while self.is_idle() {
            self.news.notified().await;
        }
    }

    fn is_idle(&self) -> bool {
        self.state().queue.is_empty()
    }

    /// The next slot that nobody has begun with, to be begun with now.
    pub fn begin(&self) -> Option<(u16, NodeId)> {
        let mut state = self.state();
        let begun = single(state.begun.iter().copied());
        let waiting = |export: &Export| Some((export.slots.minus(&begun).ranges().next()?.first(), export.to));
        let (slot, to) = state.queue.iter().find_map(waiting)?;
        state.begun.insert(slot);
        Some((slot, to))
    }

    pub fn moved(&self, slot: u16) {
        let mut state = self.state();
        (state.failures, state.last_failure) = (0, None);
        state.begun.remove(&slot);
        let moved = single([slot]);
        for export in &mut state.queue {
            export.slots = export.slots.minus(&moved);
        }
        state.queue.retain(|export| !export.slots.is_empty());
    }

    /// Forgets what waits: what kept one slot from moving may keep the others too, and whoever ordered them shall look again.
    /// Those that are under way come to their own end.
    pub fn failed(&self, slot: u16, message: String) {
        let mut state = self.state();
        state.begun.remove(&slot);
        state.keep_only_begun();
        state.failures = state.failures.saturating_add(1);
        state.last_failure = Some((Instant::now(), message));
    }

    /// Everything that is queued.
    pub fn slots(&self) -> SlotSet {
        self.state().queue.iter().fold(SlotSet::EMPTY, |all, export| all.union(&export.slots))
    }

    /// Begins no other slot, and waits until those under way have moved or failed.
    pub async fn leave_off(&self) {
        self.state().keep_only_begun();
        while !self.is_idle() {
            sleep(LOOK).await;
        }
    }

    /// Our moves in the words in which a server tells its own.
    pub fn exports(&self, now: Instant) -> Exports {
        let state = self.state();
        let failure = |(at, message): &(Instant, String)| Failure {
            message: message.clone(),
            ago: now.saturating_duration_since(*at),
        };
        Exports {
            running: state.queue.iter().cloned().collect(),
            open: Vec::new(),
            failures: state.failures,
            last_failure: state.last_failure.as_ref().map(failure),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep_only_begun(&mut self) {
        let begun = single(self.begun.iter().copied());
        for export in &mut self.queue {
            export.slots = export.slots.intersection(&begun);
        }
        self.queue.retain(|export| !export.slots.is_empty());
    }
}

/// Single slots as a set.
fn single(slots: impl IntoIterator<Item = u16>) -> SlotSet {
    slots.into_iter().filter_map(|slot| SlotRange::new(slot, slot).ok()).collect()
}

/// The server's moves and ours together.
pub fn together(servers: Exports, ours: Exports) -> Exports {
    let Exports { mut running, mut open, failures, last_failure } = servers;
    running.extend(ours.running);
    open.extend(ours.open);
    let failed = [last_failure, ours.last_failure].into_iter().flatten();
    Exports {
        running,
        open,
        failures: failures.saturating_add(ours.failures),
        last_failure: failed.min_by_key(|failure| failure.ago),
    }
}
