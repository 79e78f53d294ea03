//! Tells the operator what happens here, as soon as it happens. That nobody listens is normal.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, timeout_at};
use tracing::debug;
use valkey_rpc::{Event, Report, Reporter};

use crate::context::Context;

const HEARTBEAT: Duration = Duration::from_secs(30);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Where events are put to be reported.
#[derive(Debug)]
pub struct Outbox(UnboundedSender<Event>);

impl Outbox {
    pub fn new() -> (Self, UnboundedReceiver<Event>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    pub fn send(&self, event: Event) {
        let _ = self.0.send(event); // nobody reports if there is nobody to report to
    }
}

pub async fn report(context: Arc<Context>, reporter: Reporter, mut events: UnboundedReceiver<Event>) {
    let mut pending = Pending::default();
    let mut heartbeat = Instant::now() + jittered(HEARTBEAT);
    loop {
        let wake = pending.retry_at().unwrap_or(heartbeat).min(heartbeat);
        match timeout_at(wake, events.recv()).await {
            Ok(Some(event)) => pending.add(event),
            Ok(None) => return,
            Err(_) if Instant::now() >= heartbeat => {
                pending.add(Event::Heartbeat);
                heartbeat = Instant::now() + jittered(HEARTBEAT);
            }
            Err(_) => {}
        }
        if pending.is_due(Instant::now()) {
            deliver(&context, &reporter, &mut pending).await;
        }
    }
}

/// In the order in which it happened, up to the first that does not get through.
async fn deliver(context: &Context, reporter: &Reporter, pending: &mut Pending) {
    while let Some(event) = pending.events.front() {
        let report = Report {
            namespace: context.pod.namespace.clone(),
            cluster: context.pod.cluster.clone(),
            pod: context.pod.name.clone(),
            event: event.clone(),
            summary: context.board.view().summary(),
        };
        match reporter.post(&report).await {
            Ok(()) => pending.delivered(),
            Err(error) => {
                debug!(%error, event = ?report.event, "not reported");
                pending.failed(Instant::now());
                return;
            }
        }
    }
}

/// What the operator does not know yet.
#[derive(Debug, Default)]
struct Pending {
    events: VecDeque<Event>,
    retry: Option<Retry>,
}

#[derive(Clone, Copy, Debug)]
struct Retry {
    at: Instant,
    delay: Duration,
}

impl Pending {
    /// A newer event of the same kind takes the place of the older one: only the last word counts.
    fn add(&mut self, event: Event) {
        self.events.retain(|old| discriminant(old) != discriminant(&event));
        self.events.push_back(event);
    }

    fn is_due(&self, now: Instant) -> bool {
        !self.events.is_empty() && self.retry.is_none_or(|retry| retry.at <= now)
    }

    fn retry_at(&self) -> Option<Instant> {
        self.retry.map(|retry| retry.at)
    }

    fn delivered(&mut self) {
        self.events.pop_front();
        self.retry = None;
    }

    fn failed(&mut self, now: Instant) {
        let delay = self.retry.map_or(FIRST_RETRY, |retry| (retry.delay * 2).min(LAST_RETRY));
        self.retry = Some(Retry { at: now + jittered(delay), delay });
    }
}

/// A little more than that, so that thousands of sidecars do not speak all at once.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    time + time.mul_f64(f64::from(u8::try_from(random % 20).unwrap_or_default()) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_same_kind_only_the_last_event_is_kept() {
        let mut pending = Pending::default();
        for event in [
            Event::Held { reason: "one".into() },
            Event::ServerUp,
            Event::Heartbeat,
            Event::Held { reason: "two".into() },
            Event::Heartbeat,
        ] {
            pending.add(event);
        }
        let kept: Vec<_> = pending.events.into_iter().collect();
        assert_eq!(kept, [Event::ServerUp, Event::Held { reason: "two".into() }, Event::Heartbeat]);
    }

    #[test]
    fn an_operator_that_is_away_is_asked_less_and_less_often() {
        let (mut pending, now) = (Pending::default(), Instant::now());
        pending.add(Event::ServerUp);
        assert!(pending.is_due(now));
        let mut delays = Vec::new();
        for _ in 0..8 {
            pending.failed(now);
            assert!(!pending.is_due(now));
            delays.push(pending.retry.unwrap().delay.as_secs());
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30, 30]);
        pending.delivered();
        assert!(pending.retry.is_none() && pending.events.is_empty());
    }
}
