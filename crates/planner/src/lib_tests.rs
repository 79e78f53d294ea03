use valkey_model::{Action, ReplicaLink};

use super::*;
use crate::fixtures::{Fixture, actions, member};

#[test]
fn a_healthy_cluster_is_left_alone() {
    for (shards, replicas) in [(1, 0), (1, 2), (3, 0), (3, 1), (6, 2)] {
        let cluster = Fixture::formed(shards, replicas);
        let plan = plan(cluster.desired, &cluster.seen);
        assert_eq!((plan.state.clone(), plan.steps().count(), plan.look_again()), (State::Healthy, 0, None));
    }
}

#[test]
fn slots_are_given_before_anybody_is_introduced() {
    let cluster = Fixture::blank(3, 1);
    let plan = plan(cluster.desired, &cluster.seen);
    let [first, second] = plan.rounds.as_slice() else { panic!("{plan:?}") };
    assert_eq!((first.len(), second.len()), (9, 15));
    assert!(second.iter().all(|step| matches!(step.action, Action::Meet { .. })));
}

#[test]
fn time_outs_are_settled_last() {
    let mut cluster = Fixture::formed(1, 1);
    cluster.report("0-1").node_timeout = Duration::from_secs(1);
    let timeout = cluster.desired.node_timeout;
    let settled = plan(cluster.desired, &cluster.seen).rounds.concat();
    assert_eq!(actions(&settled), [Action::SetNodeTimeout { on: member("0-1"), timeout }]);
    cluster.report("0-1").link = ReplicaLink::Syncing;
    assert_eq!(plan(cluster.desired, &cluster.seen).steps().count(), 0);
}
