//! Decisions about a Valkey cluster, without I/O and without a clock.
//!
//! [`plan`] looks at everything that was seen of a cluster and says what to do next; [`guard`] says whether a server that
//! wants to start may do so. Every decision is made afresh from what is seen, never from what was done before, so a
//! crash of the operator is just another starting point.

mod balance;
mod change;
mod draining;
mod forget;
mod formation;
pub mod guard;
mod handover;
mod introductions;
mod leaving;
mod measure;
mod memory;
mod newcomers;
mod progress;
mod replicas;
mod rollout;
mod scaling;
mod settings;
mod settle;
mod switchover;
mod takeover;
mod view;
mod volumes;

#[cfg(test)]
mod fixtures;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use valkey_model::{Blemish, Desired, Member, Observation, ShardIndex, Step, blemishes};

use crate::change::Deed;
use crate::formation::Heads;
use crate::progress::{Activity, Story};
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
    /// How many members the workload of each shard should ask for now; a shard without an entry should have none.
    pub workloads: BTreeMap<ShardIndex, u16>,
    /// Pods to delete, so that their workloads make them anew.
    pub replace: Vec<Replacement>,
    /// All pods that may be evicted now. Everybody else has to be protected from it before anybody new is let go.
    pub let_go: BTreeSet<Member>,
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

/// A pod that has to be made anew, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    pub member: Member,
    pub reason: &'static str,
}

/// Where a cluster stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Exactly what was asked for, in the eyes of every node, and nothing is left to be changed.
    Healthy,
    /// There is something to do.
    Working(Progress),
    /// There is nothing to do but to wait.
    Waiting(Progress),
    /// A human should help; the message says how. What can be tried is tried on.
    Stuck(Progress),
}

impl State {
    /// Whether clients are served as well as ever: nothing is wrong that a planned change does not bring with it.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Healthy => true,
            Self::Working(progress) | Self::Waiting(progress) | Self::Stuck(progress) => {
                matches!(
                    progress.operation,
                    Operation::Scaling
                        | Operation::Rolling
                        | Operation::Switching
                        | Operation::Draining
                        | Operation::Configuring
                        | Operation::Growing
                )
            }
        }
    }
}

/// How far the way to a healthy cluster has been walked, in words for humans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub operation: Operation,
    pub done: usize,
    pub of: usize,
    pub message: String,
    pub waiting_for: Option<String>,
    /// What is still to be moved, if slots are.
    pub load: Option<Load>,
}

/// Slots with what is in them. Keys and bytes are an estimate: those of a shard are taken to be spread evenly over its slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub slots: u16,
    pub keys: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Forming,
    /// Something is wrong that no planned change explains.
    Healing,
    /// Slots are moved, or members come and go.
    Scaling,
    /// Pods are made anew.
    Rolling,
    /// A shard gets another primary because somebody wishes so.
    Switching,
    /// Pods leave machines that are being emptied.
    Draining,
    /// Running servers get other settings.
    Configuring,
    /// Volumes become larger.
    Growing,
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

/// Decides what to do next about a cluster: one bounded batch, then everything is looked at again.
///
/// Repairs come before any planned change. They are taken in the order in which they help each other: a shard gets a primary
/// before anybody is introduced to it, and a node is introduced to its primary before it follows it.
///
/// Of the planned changes one acts at a time, the first of these that can; none waits for one that cannot:
///
/// 1. *Pods that are outdated and run nothing* are replaced even during repairs: they may be what has to be repaired (F31).
/// 2. *Wishes* about who leads. Somebody waits for them, often a machine that is about to be switched off, and they take
///    milliseconds. They wait for moves that run in their shard, and no new ones begin there until they are fulfilled.
/// 3. *Open slots*, left behind by a move that was interrupted: their keys are in two places, and nothing else can be done with
///    the two shards until they are in one.
/// 4. *Leaders that are to leave* a shard which stays hand it over, for the same reason as 6.
/// 5. *Pods on machines that are being emptied* are let go, one at a time. The roll waits for them, since somebody waits there, too.
/// 6. *The roll* comes before new moves: slots should move to pods that stay as they are, and a roll takes minutes where moves
///    may take hours. It waits for moves that run, and no new ones begin in the shard that it waits for. While it waits for a pod
///    to come up, moves begin elsewhere, so a pod that never comes up keeps no shard from leaving.
/// 7. *New moves* of slots.
///
/// Workloads grow at once, and shrink when nothing is left that would be missed, whatever else is going on.
pub fn plan(desired: Desired, seen: &Observation) -> Plan {
    let blemishes = blemishes(desired, seen);
    let view = ClusterView::new(desired, seen);
    let heads = formation::heads(&view);
    let Repairs { mut rounds, successions, losses } = repairs(&view, &heads, &blemishes);

    let repairing = if rounds.is_empty() { Activity::Idle } else { Activity::Acting };
    let mut replace = rollout::stuck(&view, &blemishes);
    let missed = replace.iter().any(|stuck| !seen.unused.contains(&stuck.member));
    let healing = if successions.is_empty() && !missed { repairing } else { Activity::Acting };
    let intents = change::intents(&view, &heads, &blemishes, healing);
    let deed = intents.deed().filter(|_| healing == Activity::Idle);
    if let Some(Deed { operation: _, steps, replaced }) = &deed {
        rounds.extend((!steps.is_empty()).then(|| steps.clone()));
        replace.extend(replaced.filter(|replaced| replace.iter().all(|stuck| stuck.member != replaced.member)));
    }
    // In nobody's way, and nobody's in theirs.
    let configure = if repairing == Activity::Idle { settings::steps(&view) } else { Vec::new() };
    rounds.extend((!configure.is_empty()).then_some(configure));
    let story = Story {
        view: &view,
        heads: &heads,
        blemishes: &blemishes,
        successions: &successions,
        repairs: repairing,
        intents: &intents,
        deed: deed.as_ref(),
    };
    let aside = settings::progress(&view).or_else(|| volumes::progress(&view));
    let (state, again) = match (progress::report(story), aside) {
        ((State::Healthy, _), Some(progress)) => (State::Working(progress), Some(progress::CHANGING)),
        (told, _) => told,
    };
    let workloads = leaving::workloads(&view, &blemishes);
    Plan { rounds, state, losses, workloads, replace, let_go: intents.drain.let_go, again }
}

/// What has to be done because something is wrong. Nothing is done about a cluster that is whole.
#[derive(Debug, Default)]
struct Repairs {
    rounds: Vec<Vec<Step>>,
    successions: Vec<Succession>,
    losses: Vec<Loss>,
}

fn repairs(view: &ClusterView, heads: &Heads, blemishes: &[Blemish]) -> Repairs {
    if blemishes.is_empty() {
        return Repairs::default();
    }
    let successions = takeover::successions(view);
    let lost = forget::lost_shards(view);
    let mut first = successions.iter().filter_map(Succession::step).collect::<Vec<_>>();
    first.extend(lost.iter().flat_map(|lost| lost.steps.clone()));
    first.extend(forget::ghosts(view));
    first.extend(newcomers::steps(view, heads));
    first.extend(formation::steps(view, heads));
    let introductions = introductions::steps(view);
    let rounds = [first, introductions, replicas::steps(view, heads), settle::steps(view, blemishes)];
    let rounds = rounds.into_iter().filter(|round| !round.is_empty()).collect();
    let given_up = lost.into_iter().flat_map(forget::LostShards::losses);
    let losses = successions.iter().filter_map(Succession::loss).chain(given_up).collect();
    Repairs { rounds, successions, losses }
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
