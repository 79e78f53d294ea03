//! Who has to follow whom.

use valkey_model::{Action, Member, NodeId, NodeReport, PeerHealth, Role, Step};

use crate::formation::Heads;
use crate::view::ClusterView;

/// Makes every member that leads nothing a replica of the primary of its shard.
///
/// A server that becomes a replica throws its data away, so this is never asked of one that has slots or keys of its own,
/// and a replica is only taken from a primary of its shard if that one is proven gone: a failover may be under way. A surplus
/// member of a wanted shard copies nothing any more: it goes.
pub(crate) fn steps(view: &ClusterView, heads: &Heads) -> Vec<Step> {
    let staying = view.ready().filter(|(member, _)| !view.is_surplus(*member));
    staying.filter_map(|(member, report)| follow(view, heads, member, report)).collect()
}

fn follow(view: &ClusterView, heads: &Heads, on: Member, report: &NodeReport) -> Option<Step> {
    let head = view.leader(on.shard).or_else(|| heads.get(&on.shard).copied());
    let (_, leader) = head.filter(|(member, leader)| *member != on && !leader.loading)?;
    let reason = match (report.role, report.primary) {
        (Role::Primary, _) if report.is_empty_primary() => "a new member follows the primary of its shard",
        (Role::Replica, Some(followed)) if followed != leader.id && is_free_to_leave(view, on, followed) => {
            "it follows somebody who does not lead its shard"
        }
        (Role::Replica, None) => "it follows nobody",
        _ => return None,
    };
    let accepts = report.peer(leader.id).is_some_and(|peer| {
        peer.health != PeerHealth::Handshake && peer.role == Role::Primary // the server refuses anybody else
    });
    accepts.then_some(Step { action: Action::Replicate { on, primary: leader.id }, reason })
}

fn is_free_to_leave(view: &ClusterView, member: Member, followed: NodeId) -> bool {
    match (view.report_of(followed), view.home_of(followed)) {
        (Some(_), Some(home)) if home.shard != member.shard => true,
        (Some(report), _) => report.slots.is_empty(),
        (None, _) => view.is_proven_gone(followed, member.shard),
    }
}

#[cfg(test)]
#[path = "replicas_tests.rs"]
mod tests;
