//! Who can take a shard over from its living primary without losing a write.

use std::cmp::Reverse;

use valkey_model::{Action, Member, NodeReport, ReplicaLink, Role, ShardIndex, Step};

use crate::view::ClusterView;

/// The primary stops taking writes until its heir has them all, so the heir must not have much to catch up on.
const CLOSE: u64 = 1_000_000;

/// Who is asked to lead, or why nobody can be.
pub(crate) type Choice = Result<Member, Obstacle>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Another change is not finished yet.
    Moving(ShardIndex),
    /// Somebody does not answer who may be doing anything.
    Unreachable(Member),
    /// Nobody leads, or nobody knows yet who.
    Headless(ShardIndex),
    /// Two primaries have the same epoch. One of them is about to take a newer one: if it has just been succeeded without having
    /// heard of it, that one is newer than its successor's, and it gets everything back (F20).
    SameEpoch(ShardIndex),
    NotInSync(Member),
    NobodyInSync(ShardIndex),
    NoReplicas(ShardIndex),
}

impl Obstacle {
    /// What has to come before a shard can be handed over.
    pub fn waits_for(self, view: &ClusterView) -> String {
        match self {
            Self::Moving(shard) => format!("the slots that are moving from or to shard {shard}"),
            Self::Unreachable(member) => format!("{} to answer", view.pod(member)),
            Self::Headless(shard) => format!("shard {shard} to have a primary"),
            Self::SameEpoch(shard) => format!("shard {shard} to have an epoch of its own"),
            Self::NotInSync(member) => format!("{} to be in sync with its primary", view.pod(member)),
            Self::NobodyInSync(shard) => format!("a replica of shard {shard} to be in sync with its primary"),
            Self::NoReplicas(shard) => format!("a replica of shard {shard}, which has none"),
        }
    }
}

/// The best of the replicas that may lead.
pub(crate) fn choose(view: &ClusterView, shard: ShardIndex, may_lead: impl Fn(Member) -> bool) -> Choice {
    let (_, leader) = present_leader(view, shard)?;
    let mut replicas = view.live_in(shard).filter(|(_, report)| report.role == Role::Replica).peekable();
    if replicas.peek().is_none() && view.desired.replicas == 0 {
        return Err(Obstacle::NoReplicas(shard));
    }
    let fit = replicas.filter(|(member, report)| may_lead(*member) && is_fit(view, *member, report, leader));
    let lasts = |member| (!view.shall_resign(member), !view.is_outdated(member));
    let best = fit.max_by_key(|(member, report)| (lasts(*member), report.offset, Reverse(*member)));
    best.map(|(member, _)| member).ok_or(Obstacle::NobodyInSync(shard))
}

/// A certain replica, if it may lead.
pub(crate) fn check(view: &ClusterView, heir: Member) -> Choice {
    let (_, leader) = present_leader(view, heir.shard)?;
    let report = view.live_in(heir.shard).find(|(member, _)| *member == heir).map(|(_, report)| report);
    let fit = report.is_some_and(|report| is_fit(view, heir, report, leader));
    if fit { Ok(heir) } else { Err(Obstacle::NotInSync(heir)) }
}

/// A new primary in the middle of a move of slots would split their ownership (F20).
fn present_leader<'a>(view: &ClusterView<'a>, shard: ShardIndex) -> Result<(Member, &'a NodeReport), Obstacle> {
    if view.is_moving(shard) {
        return Err(Obstacle::Moving(shard));
    }
    if let Some(member) = view.anyone_unreachable() {
        return Err(Obstacle::Unreachable(member)); // it may be moving slots from or to this shard
    }
    let leader = view.leader(shard).filter(|(_, leader)| leader.serving && !leader.loading);
    let (member, report) = leader.ok_or(Obstacle::Headless(shard))?;
    let is_rival = |other: &NodeReport| other.role == Role::Primary && !other.slots.is_empty() && other.id != report.id;
    if view.live().any(|(_, other)| is_rival(other) && other.config_epoch == report.config_epoch) {
        return Err(Obstacle::SameEpoch(shard));
    }
    Ok((member, report))
}

fn is_fit(view: &ClusterView, member: Member, report: &NodeReport, leader: &NodeReport) -> bool {
    let follows = report.role == Role::Replica && report.primary == Some(leader.id) && report.link == ReplicaLink::Up;
    let close = report.offset.saturating_add(CLOSE) > leader.offset;
    let stays = !view.is_surplus(member) && !view.is_going(member) && !view.is_evictable(member);
    follows && close && report.serving && !report.loading && stays
}

pub(crate) fn step(on: Member, reason: &'static str) -> Step {
    Step { action: Action::HandOver { on }, reason }
}
