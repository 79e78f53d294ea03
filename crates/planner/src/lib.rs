//! Decisions about a Valkey cluster, without I/O and without a clock.
//!
//! [`plan`] looks at everything that was seen of a cluster and says what to do next; [`guard`] says whether a server that
//! wants to start may do so. Every decision is made afresh from what is seen, never from what was done before, so a
//! crash of the operator is just another starting point.

mod forget;
mod formation;
pub mod guard;
mod introductions;
mod progress;
mod replicas;
mod settle;
mod takeover;
mod view;

#[cfg(test)]
mod fixtures;

use std::fmt;
use std::time::Duration;

use valkey_model::{Desired, Observation, ShardIndex, Step, blemishes};

use crate::progress::Activity;
use crate::takeover::Succession;
use crate::view::ClusterView;

/// What to do next, and what to tell about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// All steps of a round are over, well or badly, before the next round begins. Steps on one member keep their order.
    pub rounds: Vec<Vec<Step>>,
    pub state: State,
    /// Data that is gone for good, and that this plan stops waiting for.
    pub losses: Vec<Loss>,
    again: Option<Duration>,
}

impl Plan {
    /// When to look again if no event comes first. `None` if only an event can bring news.
    pub fn look_again(&self) -> Option<Duration> {
        self.again
    }

    /// Every step of the plan, in the order of its rounds.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.rounds.iter().flatten()
    }
}

/// Where a cluster stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Exactly what was asked for, in the eyes of every node.
    Healthy,
    /// There is something to do.
    Working(Progress),
    /// There is nothing to do but to wait.
    Waiting(Progress),
    /// Nothing will change until a human helps; the message says how.
    Stuck(Progress),
}

/// How far the way to a healthy cluster has been walked, in words for humans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub operation: Operation,
    pub done: usize,
    pub of: usize,
    pub message: String,
    pub waiting_for: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Forming,
    Healing,
}

/// Data of a shard that nobody has any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    pub shard: ShardIndex,
    pub what: Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    AllButSnapshot,
    AllCopies,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shard, what } = self;
        match what {
            Lost::AllButSnapshot => write!(f, "shard {shard} lost its latest writes: only a snapshot survived"),
            Lost::AllCopies => write!(f, "shard {shard} lost its data: all copies are gone"),
        }
    }
}

/// Decides what to do next about a cluster.
///
/// One bounded batch, in the order in which repairs help each other: a shard gets a primary before anybody is introduced
/// to it, and a node is introduced to its primary before it follows it.
pub fn plan(desired: Desired, seen: &Observation) -> Plan {
    let blemishes = blemishes(desired, seen);
    if blemishes.is_empty() {
        return Plan { rounds: Vec::new(), state: State::Healthy, losses: Vec::new(), again: None };
    }
    let view = ClusterView::new(desired, seen);
    let successions = takeover::successions(&view);
    let lost = forget::lost_shards(&view);

    let mut first = successions.iter().filter_map(Succession::step).collect::<Vec<_>>();
    first.extend(lost.iter().flat_map(|lost| lost.steps.clone()));
    first.extend(forget::ghosts(&view));
    first.extend(formation::steps(&view));
    let rounds = [first, introductions::steps(&view), replicas::steps(&view), settle::steps(&view, &blemishes)];
    let rounds: Vec<Vec<Step>> = rounds.into_iter().filter(|round| !round.is_empty()).collect();

    let activity = if rounds.is_empty() { Activity::Idle } else { Activity::Acting };
    let (state, again) = progress::report(&view, &blemishes, &successions, activity);
    let given_up = lost.into_iter().flat_map(forget::LostShards::losses);
    let losses = successions.iter().filter_map(Succession::loss).chain(given_up).collect();
    Plan { rounds, state, losses, again }
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
