//! Servers of a new shard, on their way into a cluster that exists.
//!
//! Two primaries with the same epoch settle that between them: one takes a higher one. If it is about to follow the other one, a
//! message from before may arrive after the news. The other one, which has no slots yet, takes it for a takeover by somebody of
//! its own shard, and follows its own replica; each then waits for the other for ever (seen on 8.1.1). So every new server gets an
//! epoch of its own before anybody knows it, and who shall lead gets the highest of its shard.

use valkey_model::{Action, Member, NodeReport, Sighting, Step};

use crate::formation::Heads;
use crate::view::ClusterView;

/// Gives every server of a complete new shard its own epoch.
pub(crate) fn steps(view: &ClusterView, heads: &Heads) -> Vec<Step> {
    if is_unborn(view) {
        return Vec::new(); // a new cluster gets epochs together with its slots
    }
    let blank = view.live().filter(|(member, report)| report.is_blank() && view.desired.wants(*member));
    let mut new: Vec<Member> = blank
        .map(|(member, _)| member)
        .filter(|member| is_led_by_nobody(view, *member) && is_complete(view, *member))
        .collect();
    new.sort_by_key(|member| heads.get(&member.shard).is_some_and(|(head, _)| head == member));
    let epochs = last_epoch(view) + 1..;
    let number =
        |(on, epoch)| Step { action: Action::SetEpoch { on, epoch }, reason: "a new server needs an epoch of its own" };
    new.into_iter().zip(epochs).map(number).collect()
}

/// Whether a server cannot be introduced yet, since the rest of its new shard is not there.
pub(crate) fn is_early(view: &ClusterView, member: Member, report: &NodeReport) -> bool {
    !is_unborn(view) && report.is_blank() && is_led_by_nobody(view, member) && !is_complete(view, member)
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
        assert_eq!(numbered(&cluster), [set("2-1", 3), set("2-0", 4)]);
        let heads = formation::heads(&cluster.view()).remove(&member("2-0").shard).map(|(head, _)| head);
        assert_eq!(heads, Some(member("2-0")));
    }

    #[test]
    fn who_has_the_highest_epoch_leads_whatever_was_meant_before() {
        let mut cluster = growing();
        (cluster.report("2-0").config_epoch, cluster.report("2-1").config_epoch) = (3, 4);
        assert_eq!(numbered(&cluster), []);
        let view = cluster.view();
        assert_eq!(formation::heads(&view).remove(&member("2-0").shard).map(|(head, _)| head), Some(member("2-1")));
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
        assert_eq!(numbered(&cluster), []);
        assert_ne!(introductions::steps(&cluster.view()).len(), 0);
    }
}
