//! Wishes about who leads a shard.

use std::collections::BTreeSet;

use valkey_model::{Member, ShardIndex, Sighting, Wish};

use crate::change::Intent;
use crate::handover::{self, Choice, Obstacle, step};
use crate::view::ClusterView;

/// Fulfils one wish, or says what is in the way of the first that is not fulfilled.
pub(crate) fn next(view: &ClusterView) -> Intent {
    Intent::best_of(view.seen().wishes.iter().map(|wish| of_wish(view, *wish)))
}

/// Shards that somebody wishes another primary for, and that only moves of slots keep from it: no new ones may begin there.
pub(crate) fn reserved(view: &ClusterView) -> BTreeSet<ShardIndex> {
    let shard = |wish: &Wish| match wish {
        Wish::Lead(member) | Wish::Resign(member) => member.shard,
    };
    let is_pending = |wish: &&Wish| match of_wish(view, **wish) {
        Intent::Act(_) => true,
        Intent::Wait(_) => view.is_moving(shard(wish)),
        Intent::Nothing | Intent::Refuse(_) => false,
    };
    view.seen().wishes.iter().filter(is_pending).map(shard).collect()
}

fn of_wish(view: &ClusterView, wish: Wish) -> Intent {
    match wish {
        Wish::Lead(member) => lead(view, member),
        Wish::Resign(member) => resign(view, member),
    }
}

fn lead(view: &ClusterView, member: Member) -> Intent {
    if leads(view, member) {
        return Intent::Nothing;
    }
    let pod = view.pod(member);
    if !view.desired.wants(member) {
        return Intent::Refuse(format!("{pod} cannot lead: it is not wanted any more. Wish for somebody else"));
    }
    if let Some(other) = first_choice(view, member).filter(|first| *first != member) {
        return Intent::Refuse(format!(
            "{pod} cannot lead, since {} is wished to lead the same shard. Take one of the wishes back",
            view.pod(other)
        ));
    }
    if view.shall_resign(member) {
        return Intent::Refuse(format!(
            "{pod} cannot lead: it is wished not to, or its machine is being emptied. Wish for somebody else"
        ));
    }
    if !matches!(view.seen().sighting(member), Sighting::Known(_)) {
        return Intent::Wait(format!("{pod} to come up"));
    }
    // The roll would take the lead from it again at once.
    if view.is_outdated(member) {
        return Intent::Wait(format!("pod {pod}, which is outdated, to be made anew"));
    }
    intent(view, handover::check(view, member), "it is wished to lead its shard")
}

fn resign(view: &ClusterView, member: Member) -> Intent {
    if !leads(view, member) {
        return Intent::Nothing;
    }
    // Whether it may be evicted all the same is for `draining` to say.
    if view.desired.replicas == 0 && view.seen().unwelcome.contains(&member) {
        return Intent::Nothing;
    }
    let choice = handover::choose(view, member.shard, |heir| !view.shall_resign(heir));
    intent(view, choice, "the primary of its shard is wished to lead no more")
}

fn intent(view: &ClusterView, choice: Choice, reason: &'static str) -> Intent {
    match choice {
        Ok(heir) => Intent::Act(vec![step(heir, reason)]),
        Err(Obstacle::NoReplicas(shard)) => Intent::Refuse(format!(
            "shard {shard} has no replica that could lead it, and its data must not be lost. Ask for a replica at least"
        )),
        Err(obstacle) => Intent::Wait(obstacle.waits_for(view)),
    }
}

fn leads(view: &ClusterView, member: Member) -> bool {
    view.leader(member.shard).is_some_and(|(leader, _)| leader == member)
}

/// Who is wished to lead a member's shard first: two such wishes would be fulfilled in turns for ever.
fn first_choice(view: &ClusterView, member: Member) -> Option<Member> {
    view.seen().wishes.iter().find_map(|wish| match wish {
        Wish::Lead(first) if first.shard == member.shard => Some(*first),
        _ => None,
    })
}

#[cfg(test)]
#[path = "switchover_tests.rs"]
mod tests;
