//! Epochs for servers that nobody knows yet.
//!
//! Two primaries with the same epoch settle that between them: one takes a higher one than anybody has. If that one is about to
//! become a replica, it has a higher epoch than the primary that it follows, and two things go wrong for ever:
//! - Whoever has heard of the higher epoch takes all that the replica says later, in its primary's name, for old news, and
//!   calls it a primary for ever (seen on 9.1.2: `Ignore stale message`).
//! - A primary without slots takes a late message of it for a takeover, and follows its own replica (seen on 8.1.1).
//!
//! So every server gets an epoch of its own before it meets anybody: those who shall lead a high one, all others a low one.

use std::cmp::Reverse;

use valkey_model::{Action, Member, NodeReport, Sighting, Step};

use crate::formation::Heads;
use crate::view::ClusterView;

/// Epochs of those who shall lead begin here, above all that members have by their place.
pub(crate) const LEADING: u64 = 1 << 32;
/// More than a shard can have members.
const PLACES: u64 = 64;

/// Gives every server that knows nobody its own epoch.
pub(crate) fn steps(view: &ClusterView, heads: &Heads) -> Vec<Step> {
    if is_unborn(view) && !view.everyone_known() {
        return Vec::new();
    }
    let leads = |member: Member| heads.get(&member.shard).is_some_and(|(head, _)| *head == member);
    let new = view.live().filter(|(member, report)| report.is_blank() && view.desired.wants(*member));
    let new: Vec<Member> = new.filter(|(m, report)| !is_early(view, *m, report)).map(|(member, _)| member).collect();
    let (heirs, others): (Vec<Member>, Vec<Member>) = new.into_iter().partition(|member| leads(*member));
    let high = heirs.into_iter().zip(last_epoch(view).max(LEADING) + 1..);
    // In a cluster that was made before this rule the low ones may be taken.
    let low = others.into_iter().map(|member| (member, place(member))).filter(|(_, epoch)| *epoch < lowest_epoch(view));
    let number =
        |(on, epoch)| Step { action: Action::SetEpoch { on, epoch }, reason: "a new server needs an epoch of its own" };
    low.chain(high).map(number).collect()
}

/// Whether a server cannot be introduced yet, since the rest of its new shard is not there.
pub(crate) fn is_early(view: &ClusterView, member: Member, report: &NodeReport) -> bool {
    !is_unborn(view) && report.is_blank() && is_led_by_nobody(view, member) && !is_complete(view, member)
}

/// Who shall lead: those who were numbered for it, then those who can be. The highest wins, whatever was meant before.
pub(crate) fn rank(epoch: u64) -> (bool, bool, Reverse<u64>) {
    (epoch < LEADING, epoch != 0, Reverse(epoch))
}

/// A low epoch that no other member has.
fn place(Member { shard, ordinal }: Member) -> u64 {
    u64::from(shard.0) * PLACES + u64::from(ordinal) + 1
}

fn is_unborn(view: &ClusterView) -> bool {
    view.owned().is_empty()
}

fn is_led_by_nobody(view: &ClusterView, member: Member) -> bool {
    view.leaders(member.shard).is_empty()
}

fn is_complete(view: &ClusterView, member: Member) -> bool {
    let mut wanted = view.shard(member.shard).filter(|(member, _)| view.desired.wants(*member));
    wanted.all(|(_, sighting)| matches!(sighting, Sighting::Known(_)))
}

/// The highest epoch that anybody has heard of.
fn last_epoch(view: &ClusterView) -> u64 {
    let heard = |report: &NodeReport| {
        let peers = report.peers.iter().map(|peer| peer.config_epoch).max();
        report.current_epoch.max(report.config_epoch).max(peers.unwrap_or_default())
    };
    view.live().map(|(_, report)| heard(report)).max().unwrap_or_default()
}

/// The lowest epoch of those who own slots.
fn lowest_epoch(view: &ClusterView) -> u64 {
    let owners = view.live().filter(|(_, report)| !report.slots.is_empty());
    owners.map(|(_, report)| report.config_epoch).min().unwrap_or(LEADING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{Fixture, actions, blank_report, member};
    use crate::{formation, introductions};

    /// Two shards, and a third one that is new.
    fn growing() -> Fixture {
        let mut cluster = Fixture::formed(2, 1);
        cluster.desired.shards = 3;
        for new in ["2-0", "2-1"] {
            cluster.see(new, Sighting::Known(Box::new(blank_report(new))));
        }
        cluster
    }

    fn numbered(cluster: &Fixture) -> Vec<Action> {
        let view = cluster.view();
        actions(&steps(&view, &formation::heads(&view)))
    }

    #[test]
    fn every_new_server_gets_an_epoch_and_who_leads_the_highest() {
        let cluster = growing();
        let set = |on, epoch| Action::SetEpoch { on: member(on), epoch };
        assert_eq!(numbered(&cluster), [set("2-0", LEADING + 1)], "an old cluster, whose epochs are low");
        let mut cluster = growing();
        for (owner, epoch) in [("0-0", LEADING + 1), ("1-0", LEADING + 2)] {
            cluster.report(owner).config_epoch = epoch;
        }
        assert_eq!(numbered(&cluster), [set("2-1", 2 * PLACES + 2), set("2-0", LEADING + 3)]);
        let heads = formation::heads(&cluster.view()).remove(&member("2-0").shard).map(|(head, _)| head);
        assert_eq!(heads, Some(member("2-0")));
    }

    #[test]
    fn who_has_the_highest_epoch_leads_whatever_was_meant_before() {
        let mut cluster = growing();
        (cluster.report("2-0").config_epoch, cluster.report("2-1").config_epoch) = (2 * PLACES + 1, LEADING + 9);
        assert_eq!(numbered(&cluster), []);
        let view = cluster.view();
        assert_eq!(formation::heads(&view).remove(&member("2-0").shard).map(|(head, _)| head), Some(member("2-1")));
    }

    #[test]
    fn in_a_new_cluster_every_replica_has_a_lower_epoch_than_any_primary() {
        let mut cluster = Fixture::blank(3, 2);
        let given = numbered(&cluster);
        let epoch = |text: &str| {
            given.iter().find_map(|action| match action {
                Action::SetEpoch { on, epoch } if *on == member(text) => Some(*epoch),
                _ => None,
            })
        };
        let all: std::collections::BTreeSet<_> = cluster.desired.members().map(|m| epoch(&m.to_string())).collect();
        assert_eq!(all.len(), 9, "{given:?}");
        for (primary, replica) in [("0-0", "2-2"), ("1-0", "1-1"), ("2-0", "2-1")] {
            assert!(epoch(primary) > epoch(replica), "{given:?}");
        }
        cluster.see("2-2", Sighting::Starting);
        assert_eq!(numbered(&cluster), []);
    }

    #[test]
    fn nobody_is_introduced_before_the_whole_new_shard_is_there() {
        let mut cluster = growing();
        let met = |cluster: &Fixture| introductions::steps(&cluster.view()).len();
        assert_ne!(met(&cluster), 0);
        cluster.see("2-1", Sighting::Starting);
        assert_eq!(met(&cluster), 0);
        assert_eq!(numbered(&cluster), []);
    }

    #[test]
    fn a_blank_server_of_a_shard_that_is_led_joins_at_once() {
        let mut cluster = Fixture::formed(2, 2);
        cluster.see("1-1", Sighting::Known(Box::new(blank_report("1-1")))).see("1-2", Sighting::Starting);
        assert_ne!(introductions::steps(&cluster.view()).len(), 0);
    }
}
