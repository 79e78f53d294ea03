//! What is known about the server at this moment, in one place that everybody reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use valkey_model::{Held, NodeReport, ReplicaLink, Role};
use valkey_planner::guard::HoldReason;
use valkey_rpc::{Event, Summary};

/// Longer than a fork or a slow command keeps a healthy server from answering.
const SILENCE: Duration = Duration::from_secs(5);
/// For how long one that has led tells clients who leads now, before it ends. Some meet a closed port otherwise, or an address that
/// nobody has any more, and then a client spends seconds on trying to connect.
const FAREWELL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default)]
pub struct View {
    pub phase: Phase,
    /// Counts what was told about the server from outside: a start, an end.
    pub life: u64,
    /// What it said last; `None` if it answers but does not tell.
    pub report: Option<Arc<NodeReport>>,
    /// When it was last known to own slots.
    led: Option<Instant>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nobody asked to start it, as far as we know: we may have been restarted beside a running server.
    #[default]
    Unknown,
    Held {
        held: Held,
        reason: HoldReason,
    },
    /// The launcher may start it, but it has not answered yet.
    Starting,
    Up {
        last_reply: Instant,
    },
}

/// Whether something is as it should be, and if not, why.
pub type Judgement = Result<(), &'static str>;

impl View {
    /// Whether the process is fit to live. Only a server that did answer and stopped to is not: before that it starts, is
    /// held or loads, and killing it would only begin that again.
    pub fn live(&self, now: Instant) -> Judgement {
        match self.phase {
            Phase::Up { last_reply } if now.duration_since(last_reply) > SILENCE => Err("the server gives no reply"),
            _ => Ok(()),
        }
    }

    /// Whether this node itself can serve. What it thinks of the others is the operator's business, or one bad node would
    /// take all of them out of service (F71).
    pub fn ready(&self, now: Instant) -> Judgement {
        match self.phase {
            Phase::Unknown => return Err("the server was not started yet"),
            Phase::Held { .. } => return Err("the launch guard holds the server"),
            Phase::Starting => return Err("the server does not answer yet"),
            Phase::Up { .. } => self.live(now)?,
        }
        let report = self.report.as_ref().ok_or("the server does not tell its state")?;
        match report.role {
            _ if report.loading => Err("the server is loading its data"),
            Role::Primary if !report.serving => Err("the cluster does not serve"),
            Role::Replica if report.link != ReplicaLink::Up => Err("the replica has no link to its primary"),
            Role::Primary | Role::Replica => Ok(()),
        }
    }

    /// Whether the server itself moves slots away.
    pub fn moves_slots(&self) -> bool {
        self.report.as_ref().is_some_and(|report| !report.exports.running.is_empty())
    }

    fn owns_slots(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.role == Role::Primary && !report.slots.is_empty())
    }

    /// For how long a server that does not lead now has to stay for those who have not heard it.
    pub fn farewell(&self, now: Instant) -> Duration {
        match self.led {
            Some(led) if !self.owns_slots() => FAREWELL.saturating_sub(now.duration_since(led)),
            Some(_) => FAREWELL, // it has changed since we looked
            None => Duration::ZERO,
        }
    }

    pub fn summary(&self) -> Option<Summary> {
        let report = self.report.as_ref()?;
        Some(Summary {
            id: report.id.to_string(),
            role: report.role.into(),
            state_ok: report.serving,
            loading: report.loading,
            link: report.link.into(),
            config_epoch: report.config_epoch,
        })
    }

    /// The view after the server answered, and what is new in it.
    pub fn after_reply(&self, report: Option<NodeReport>, now: Instant) -> (Self, Vec<Event>) {
        let mut news = Vec::new();
        if !matches!(self.phase, Phase::Up { .. }) {
            news.push(Event::ServerUp);
        } else if let (Some(before), Some(after)) = (&self.report, &report) {
            news.extend(changes(before, after));
        }
        let mut after =
            Self { phase: Phase::Up { last_reply: now }, life: self.life, report: report.map(Arc::new), led: self.led };
        if self.owns_slots() || after.owns_slots() {
            after.led = Some(now);
        }
        (after, news)
    }
}

fn changes(before: &NodeReport, after: &NodeReport) -> Vec<Event> {
    let role = (before.role != after.role || before.primary != after.primary).then_some(Event::RoleChanged);
    let link = (after.role == Role::Replica && before.link != after.link).then_some(Event::LinkChanged);
    // A small move may be over before anybody saw it run.
    let gave = || after.exports.running.is_empty() && !before.slots.minus(&after.slots).is_empty();
    let moved = after.exports.running.len() < before.exports.running.len() || gave();
    let state = before.serving != after.serving || before.loading != after.loading || moved;
    let state = state.then_some(Event::StateChanged);
    [role, link, state].into_iter().flatten().collect()
}

/// The place where the view is kept.
#[derive(Debug, Default)]
pub struct Board {
    kept: watch::Sender<View>,
    nudge: Notify,
}

impl Board {
    pub fn view(&self) -> View {
        self.kept.borrow().clone()
    }

    /// Has the server looked at as soon as can be: something about it is about to change.
    pub fn nudge(&self) {
        self.nudge.notify_one();
    }

    pub async fn nudged(&self) {
        self.nudge.notified().await;
    }

    pub fn set(&self, phase: Phase) {
        self.kept.send_modify(|view| *view = View { phase, life: view.life.wrapping_add(1), ..View::default() });
    }

    /// Takes note of a reply, and says what is new. A reply from a life that is over, on its way while the server ended, is
    /// none.
    pub fn replied(&self, life: u64, report: Option<NodeReport>) -> Vec<Event> {
        let mut news = Vec::new();
        self.kept.send_if_modified(|view| {
            let current = view.life == life;
            if current {
                (*view, news) = view.after_reply(report, Instant::now());
            }
            current
        });
        news
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
pub mod tests;
