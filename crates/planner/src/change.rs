//! Planned changes: what each of them would do next, and whose turn it is.

use valkey_model::{Blemish, Step};

use crate::draining::{self, Drain};
use crate::formation::Heads;
use crate::progress::Activity;
use crate::rollout::{self, Roll};
use crate::view::ClusterView;
use crate::{Operation, Replacement, leaving, scaling, switchover};

/// What a planned change would do next, if nothing of a higher rank had something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// There is nothing of the kind to do.
    Nothing,
    Act(Vec<Step>),
    /// It goes on when this has come.
    Wait(String),
    /// It does not go on unless somebody helps; the sentence says why and how.
    Refuse(String),
}

impl Intent {
    /// Of several equal ones the first that can act, or else one that tells what is in the way.
    pub fn best_of(intents: impl IntoIterator<Item = Self>) -> Self {
        let rank = |intent: &Self| match intent {
            Self::Act(_) => 0,
            Self::Wait(_) => 1,
            Self::Refuse(_) => 2,
            Self::Nothing => 3,
        };
        intents.into_iter().min_by_key(rank).unwrap_or(Self::Nothing)
    }

    pub fn steps(&self) -> Option<&[Step]> {
        match self {
            Self::Act(steps) => Some(steps),
            Self::Nothing | Self::Wait(_) | Self::Refuse(_) => None,
        }
    }
}

/// What all planned changes would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Intents {
    /// Somebody's wish about who leads.
    pub wish: Intent,
    /// Open slots go on to where they were going.
    pub finish: Intent,
    /// Somebody who stays leads where somebody who goes did.
    pub heir: Intent,
    pub drain: Drain,
    pub roll: Roll,
    pub begin: Intent,
}

pub(crate) fn intents(view: &ClusterView, heads: &Heads, blemishes: &[Blemish], repairs: Activity) -> Intents {
    let drain = draining::next(view, blemishes, repairs);
    let roll = rollout::next(view, blemishes, &drain.let_go);
    let reserved = switchover::reserved(view).into_iter().chain(drain.reserved.iter().copied()).chain(roll.reserved());
    let reserved = reserved.collect();
    Intents {
        wish: switchover::next(view),
        finish: scaling::finish(view, heads),
        heir: leaving::hand_over(view),
        roll,
        begin: scaling::begin(view, heads, &reserved),
        drain,
    }
}

/// What is done by plan now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deed {
    pub operation: Operation,
    pub steps: Vec<Step>,
    pub replaced: Option<Replacement>,
}

impl Intents {
    /// The one that acts: the first by rank that can. See [`plan`](crate::plan) for the ranks and their reasons.
    pub fn deed(&self) -> Option<Deed> {
        let act = |operation, intent: &Intent| {
            let steps = intent.steps()?.to_vec();
            Some(Deed { operation, steps, replaced: None })
        };
        let roll = || match &self.roll {
            Roll::Replace(replaced) => {
                Some(Deed { operation: Operation::Rolling, steps: Vec::new(), replaced: Some(*replaced) })
            }
            Roll::HandOver(step) => {
                Some(Deed { operation: Operation::Rolling, steps: vec![step.clone()], replaced: None })
            }
            Roll::Done | Roll::Soon | Roll::Wait(_) | Roll::WaitForMoves(..) | Roll::Held(_) => None,
        };
        act(Operation::Switching, &self.wish)
            .or_else(|| act(Operation::Scaling, &self.finish))
            .or_else(|| act(Operation::Scaling, &self.heir))
            .or_else(roll)
            .or_else(|| act(Operation::Scaling, &self.begin).filter(|_| self.roll != Roll::Soon))
    }

    /// The first that needs a human.
    pub fn refusal(&self) -> Option<(Operation, &str)> {
        self.by_rank().find_map(|(operation, intent)| match intent {
            Intent::Refuse(why) => Some((operation, why.as_str())),
            Intent::Nothing | Intent::Act(_) | Intent::Wait(_) => None,
        })
    }

    /// The first that waits, and for what.
    pub fn wait(&self) -> Option<(Operation, &str)> {
        let roll = match &self.roll {
            Roll::Wait(on) | Roll::WaitForMoves(_, on) => Some((Operation::Rolling, on.as_str())),
            Roll::Soon => Some((Operation::Rolling, "the news to reach every node")),
            Roll::Done | Roll::Replace(_) | Roll::HandOver(_) | Roll::Held(_) => None,
        };
        let waits = self.by_rank().find_map(|(operation, intent)| match intent {
            Intent::Wait(on) => Some((operation, on.as_str())),
            Intent::Nothing | Intent::Act(_) | Intent::Refuse(_) => None,
        });
        let first = waits.filter(|(operation, _)| matches!(operation, Operation::Switching | Operation::Draining));
        first.or(roll).or(waits)
    }

    /// Why the roll does not go on, if nothing but somebody's word keeps it.
    pub fn held(&self) -> Option<&str> {
        match &self.roll {
            Roll::Held(why) => Some(why),
            Roll::Done | Roll::Replace(_) | Roll::HandOver(_) | Roll::Soon | Roll::Wait(_) | Roll::WaitForMoves(..) => {
                None
            }
        }
    }

    fn by_rank(&self) -> impl Iterator<Item = (Operation, &Intent)> {
        let Self { wish, finish, heir, drain, roll: _, begin } = self;
        let moves = [finish, heir, begin].map(|intent| (Operation::Scaling, intent));
        [(Operation::Switching, wish), (Operation::Draining, &drain.intent)].into_iter().chain(moves)
    }
}
