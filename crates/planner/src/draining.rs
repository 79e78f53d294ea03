//! Whose pod may be evicted, while machines are emptied.
//!
//! The disruption budget is closed, so an eviction waits until its pod is let go here: one pod of the cluster at a time, never
//! one that leads, and only while everybody else is well. Who is let go stays so until it is gone, or its machine is not to be
//! emptied any more, or its shard needs it: so whoever drains finds an open door when he comes again.
//!
//! A pod that finds no machine after it was evicted, because its volume is bound to the one that is closed, comes back when that
//! one is opened again. It keeps its own shard from losing another copy, and nobody else from leaving.

use std::collections::BTreeSet;

use valkey_model::{Blemish, Member, ShardIndex, Sighting};

use crate::change::Intent;
use crate::handover::Obstacle;
use crate::measure::concerns;
use crate::progress::{Activity, on_its_way};
use crate::settle::is_news;
use crate::view::ClusterView;

/// What is decided about pods that are to leave their machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drain {
    /// All pods that may be evicted now.
    pub let_go: BTreeSet<Member>,
    /// What is awaited, or why a pod cannot be let go.
    pub intent: Intent,
    /// Shards in which no new moves of slots may begin: somebody of them could be let go but for those.
    pub reserved: BTreeSet<ShardIndex>,
}

pub(crate) fn next(view: &ClusterView, blemishes: &[Blemish], repairs: Activity) -> Drain {
    let unwelcome: Vec<Member> = view.members().map(|(m, _)| m).filter(|member| is_to_leave(view, *member)).collect();
    let kept = unwelcome.iter().copied().find(|member| view.is_evictable(*member) && can_be_missed(view, *member));
    let open = view.members().map(|(member, _)| member).find(|member| view.is_evictable(*member));
    if let Some(member) = kept {
        return let_go(view, member, Stage::Before);
    }
    if let Some(closing) = open.filter(|open| !view.is_going(*open)) {
        return wait(format!("pod {} to be protected from eviction again", view.pod(closing)));
    }
    let judged: Vec<(Member, Verdict)> =
        unwelcome.into_iter().map(|member| (member, judge(view, blemishes, repairs, member))).collect();
    if let Some((member, _)) = judged.iter().find(|(_, verdict)| *verdict == Verdict::Free) {
        return let_go(view, *member, Stage::Now);
    }
    let reserved = judged.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Moving(_)));
    let reserved = reserved.map(|(member, _)| member.shard).collect();
    let intents = judged.into_iter().map(|(_, verdict)| verdict.intent(view));
    Drain { let_go: BTreeSet::new(), intent: Intent::best_of(intents), reserved }
}

/// Since when a pod is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Before,
    Now,
}

fn let_go(view: &ClusterView, member: Member, stage: Stage) -> Drain {
    // A shard can move slots while a replica of it waits to be evicted, which may take for ever.
    let reserved =
        if stage == Stage::Now || leads(view, member) { BTreeSet::from([member.shard]) } else { BTreeSet::new() };
    let intent = Intent::Wait(format!("pod {} to be evicted", view.pod(member)));
    Drain { let_go: BTreeSet::from([member]), intent, reserved }
}

fn wait(on: String) -> Drain {
    Drain { let_go: BTreeSet::new(), intent: Intent::Wait(on), reserved: BTreeSet::new() }
}

/// What is in the way of letting one pod go.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Free,
    Moving(ShardIndex),
    Wait(String),
    Refuse(String),
}

impl Verdict {
    fn intent(self, view: &ClusterView) -> Intent {
        match self {
            Self::Free => Intent::Nothing,
            Self::Moving(shard) => Intent::Wait(Obstacle::Moving(shard).waits_for(view)),
            Self::Wait(on) => Intent::Wait(on),
            Self::Refuse(why) => Intent::Refuse(why),
        }
    }
}

fn judge(view: &ClusterView, blemishes: &[Blemish], repairs: Activity, member: Member) -> Verdict {
    let shard = member.shard;
    if leads(view, member) && !is_alone_by_desire(view) {
        return Verdict::Wait(format!("shard {shard} to be handed over by {}", view.pod(member)));
    }
    if leads(view, member) && !view.seen().durable.contains(&member) {
        return Verdict::Refuse(format!(
            "pod {} has the only copy of the data of shard {shard}, and would lose it with an eviction. Ask for a \
             replica, or delete the pod yourself",
            view.pod(member)
        ));
    }
    if !can_be_missed(view, member) {
        return Verdict::Wait(Obstacle::Headless(shard).waits_for(view));
    }
    let obstacle = other_leader_first(view, member)
        .or_else(|| view.members().find_map(|(other, _)| absence(view, member, other)))
        .or_else(|| {
            blemishes.iter().find(|blemish| counts(view, member, blemish)).map(|blemish| on_its_way(view, blemish))
        });
    match obstacle {
        Some(on) => Verdict::Wait(on),
        None if repairs == Activity::Acting => Verdict::Wait("the repairs that are under way".to_owned()),
        None if view.is_moving(shard) => Verdict::Moving(shard),
        None => Verdict::Free,
    }
}

/// A pod that runs on a machine which is to be emptied. One that waits for a machine needs nobody's leave to go.
fn is_to_leave(view: &ClusterView, member: Member) -> bool {
    let seen = view.seen();
    seen.unwelcome.contains(&member) && !view.is_going(member) && !seen.stranded.contains(&member)
}

fn leads(view: &ClusterView, member: Member) -> bool {
    view.leaders(member.shard).iter().any(|(leader, _)| *leader == member)
}

/// No shard is meant to have a second copy.
fn is_alone_by_desire(view: &ClusterView) -> bool {
    view.desired.replicas == 0
}

/// Its shard is served without it, or its data waits for its return.
fn can_be_missed(view: &ClusterView, member: Member) -> bool {
    let leader = view.leader(member.shard).filter(|(_, report)| report.serving && !report.loading);
    match leader {
        Some((leader, _)) if leader == member => is_alone_by_desire(view) && view.seen().durable.contains(&member),
        Some(_) => !leads(view, member),
        None => false,
    }
}

/// If somebody could lead the shard from a machine that stays, he should before another one goes.
fn other_leader_first(view: &ClusterView, member: Member) -> Option<String> {
    let shard = member.shard;
    let (leader, _) = view.leader(shard).filter(|(leader, _)| *leader != member)?;
    let settled = |other: Member| !view.seen().unwelcome.contains(&other) && view.desired.wants(other);
    let choice = view.live_in(shard).any(|(other, _)| other != leader && settled(other));
    let unwelcome = view.seen().unwelcome.contains(&leader) && choice;
    (unwelcome || view.is_surplus(leader)).then(|| format!("shard {shard} to be led by a pod that stays"))
}

/// Why another pod's absence keeps this one here.
fn absence(view: &ClusterView, member: Member, other: Member) -> Option<String> {
    let seen = view.seen();
    match other {
        _ if other == member => None,
        _ if view.is_going(other) => Some(format!("pod {} to end", view.pod(other))),
        _ if seen.stranded.contains(&other) => {
            (other.shard == member.shard).then(|| format!("pod {} to find a machine", view.pod(other)))
        }
        _ if seen.unready.contains(&other) && view.desired.wants(other) => {
            Some(format!("pod {} to be ready", view.pod(other)))
        }
        _ => None,
    }
}

/// Whether something that is wrong keeps a pod here. What is wrong with itself does not, nor what comes from pods that find no
/// machine, nor news about other shards: those never end while slots move.
fn counts(view: &ClusterView, member: Member, blemish: &Blemish) -> bool {
    let is_away = |other: Member| other == member || view.seen().stranded.contains(&other);
    let is_down = |other: Member| is_away(other) && !matches!(view.seen().sighting(other), Sighting::Known(_));
    match blemish {
        Blemish::Held(_) | Blemish::Unreachable(_) | Blemish::Headless(_) | Blemish::TwoPrimaries(_) => true,
        Blemish::KnowsOthers { .. } => !view.members().any(|(other, _)| is_down(other)),
        Blemish::Disagrees { by, .. } if *by == member => false,
        Blemish::Disagrees { about, .. } if *about == member => is_news(view, blemish),
        Blemish::Disagrees { about, .. } => !is_news(view, blemish) || about.shard == member.shard,
        blemish => !view.members().any(|(other, _)| is_away(other) && concerns(blemish, other)),
    }
}

#[cfg(test)]
#[path = "draining_tests.rs"]
mod tests;
