use valkey_model::{LocalData, PeerHealth, ReplicaLink, Wish};

use super::*;
use crate::fixtures::{Damage, Fixture, id, member};
use crate::{Operation, State};

/// A cluster with pods on machines that are being emptied.
fn emptying(shards: u16, replicas: u16, unwelcome: &[&str]) -> Fixture {
    let mut cluster = Fixture::formed(shards, replicas);
    cluster.seen.unwelcome = unwelcome.iter().map(|text| member(text)).collect();
    cluster.seen.wishes = cluster.seen.unwelcome.iter().copied().map(Wish::Resign).collect();
    cluster
}

fn drained(cluster: &Fixture) -> Drain {
    next(&cluster.view(), &valkey_model::blemishes(cluster.desired, &cluster.seen), Activity::Idle)
}

fn freed(cluster: &Fixture) -> Vec<Member> {
    drained(cluster).let_go.into_iter().collect()
}

fn awaited(cluster: &Fixture) -> String {
    match drained(cluster) {
        Drain { intent: Intent::Wait(on), let_go, .. } if let_go.is_empty() => on,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nobody_is_let_go_unless_somebody_is_to_leave() {
    let drain = drained(&Fixture::formed(3, 1));
    assert_eq!((drain.let_go, drain.intent, drain.reserved), (BTreeSet::new(), Intent::Nothing, BTreeSet::new()));
}

#[test]
fn replicas_go_one_at_a_time_and_stay_free_until_they_are_gone() {
    let mut cluster = emptying(3, 1, &["0-1", "2-1"]);
    assert_eq!(freed(&cluster), [member("0-1")]);
    cluster.seen.evictable.insert(member("0-1"));
    cluster.report("1-1").link = ReplicaLink::Down;
    assert_eq!(freed(&cluster), [member("0-1")], "whatever happens elsewhere");
    cluster.report("1-1").link = ReplicaLink::Up;
    cluster.seen.evictable.clear();
    cluster.seen.going.insert(member("0-1"));
    assert_eq!(awaited(&cluster), "pod orders-0-1 to end");
    cluster.seen.going.clear();
    cluster.seen.unwelcome.remove(&member("0-1"));
    cluster.seen.unready.insert(member("0-1"));
    assert_eq!(awaited(&cluster), "pod orders-0-1 to be ready");
    cluster.seen.unready.clear();
    assert_eq!(freed(&cluster), [member("2-1")]);
}

#[test]
fn a_primary_hands_over_first() {
    let mut cluster = emptying(3, 1, &["1-0"]);
    assert_eq!(awaited(&cluster), "shard 1 to be handed over by orders-1-0");
    cluster.lead("1-1");
    assert_eq!(freed(&cluster), [member("1-0")]);
}

#[test]
fn who_comes_to_lead_is_protected_again_before_anybody_else_goes() {
    let mut cluster = emptying(3, 1, &["0-1", "1-1"]);
    cluster.seen.evictable.insert(member("0-1"));
    cluster.lead("0-1");
    assert_eq!(awaited(&cluster), "pod orders-0-1 to be protected from eviction again");
    cluster.seen.evictable.clear();
    assert_eq!(freed(&cluster), [member("1-1")]);
}

#[test]
fn who_is_welcome_again_is_protected_again() {
    let mut cluster = emptying(3, 1, &["1-1"]);
    cluster.seen.evictable.insert(member("0-1"));
    assert_eq!(awaited(&cluster), "pod orders-0-1 to be protected from eviction again");
}

#[test]
fn nobody_is_let_go_while_anything_is_wrong_elsewhere() {
    let damages: [Damage; 8] = [
        ("a pod goes", &|c| {
            c.seen.going.insert(member("2-1"));
        }),
        ("a pod is not ready", &|c| {
            c.seen.unready.insert(member("2-1"));
        }),
        ("a pod is not there", &|c| {
            c.see("2-1", Sighting::Missing);
        }),
        ("somebody does not answer", &|c| {
            c.see("2-1", Sighting::Unreachable);
        }),
        ("somebody is held", &|c| {
            c.hold("2-0", LocalData::Gone);
        }),
        ("somebody copies", &|c| c.report("2-1").link = ReplicaLink::Syncing),
        ("its primary does not serve", &|c| c.report("0-0").serving = false),
        ("nodes do not reach each other", &|c| c.peer("1-0", id("2-0")).health = PeerHealth::Suspected),
    ];
    for (what, damage) in damages {
        let mut cluster = emptying(3, 1, &["0-1"]);
        damage(&mut cluster);
        assert_eq!(freed(&cluster), [], "{what}");
    }
    let cluster = emptying(3, 1, &["0-1"]);
    let drain = next(&cluster.view(), &[], Activity::Acting);
    assert_eq!(drain.let_go, BTreeSet::new(), "repairs are under way");
}

/// It may be why the machine is emptied.
#[test]
fn who_is_not_well_itself_may_go() {
    let mut cluster = emptying(3, 1, &["0-1"]);
    cluster.report("0-1").link = ReplicaLink::Down;
    assert_eq!(freed(&cluster), [member("0-1")]);
    cluster.see("0-1", Sighting::Starting);
    assert_eq!(freed(&cluster), [member("0-1")]);
    cluster.see("0-1", Sighting::Unreachable);
    assert_eq!(freed(&cluster), [], "it may be doing anything");
}

#[test]
fn slots_that_move_are_awaited_and_no_new_moves_begin_until_then() {
    let mut cluster = emptying(3, 1, &["0-1"]);
    cluster.moving("1-0", "9000", "0-0");
    let drain = drained(&cluster);
    assert_eq!((drain.let_go, drain.reserved), (BTreeSet::new(), BTreeSet::from([ShardIndex(0)])));
    let mut cluster = emptying(3, 1, &["0-1"]);
    cluster.moving("1-0", "9000", "2-0").peer("1-1", id("2-0")).slots = "16000".parse().unwrap();
    assert_eq!(freed(&cluster), [member("0-1")], "moves and news elsewhere never end");
}

#[test]
fn a_shard_is_led_from_a_machine_that_stays_before_another_copy_goes() {
    let cluster = emptying(3, 2, &["0-0", "0-1"]);
    assert_eq!(awaited(&cluster), "shard 0 to be handed over by orders-0-0");
    let mut cluster = emptying(3, 1, &["0-0", "0-1"]);
    assert_eq!(freed(&cluster), [member("0-1")], "there is no choice");
    cluster.seen.unwelcome.remove(&member("0-1"));
    assert_eq!(freed(&cluster), []);
}

#[test]
fn a_pod_without_a_machine_keeps_its_own_shard_only() {
    let mut cluster = emptying(3, 2, &["0-2", "1-2"]);
    cluster.see("0-1", Sighting::Starting).seen.stranded.insert(member("0-1"));
    assert_eq!(freed(&cluster), [member("1-2")]);
    cluster.seen.unwelcome.remove(&member("1-2"));
    assert_eq!(awaited(&cluster), "pod orders-0-1 to find a machine");
}

#[test]
fn the_only_copy_is_let_go_if_its_data_stays() {
    let mut cluster = emptying(3, 0, &["1-0"]);
    let Intent::Refuse(why) = drained(&cluster).intent else { panic!("{:?}", drained(&cluster)) };
    assert!(why.contains("only copy") && why.contains("Ask for a replica, or delete the pod yourself"), "{why}");
    cluster.seen.durable.insert(member("1-0"));
    assert_eq!(freed(&cluster), [member("1-0")]);
    cluster.seen.evictable.insert(member("1-0"));
    assert_eq!(freed(&cluster), [member("1-0")]);
}

#[test]
fn a_drain_is_told_and_no_illness() {
    let cluster = emptying(3, 1, &["1-1"]);
    let plan = crate::plan(cluster.desired, &cluster.seen);
    let State::Waiting(progress) = &plan.state else { panic!("{plan:?}") };
    assert_eq!((progress.operation, plan.state.is_sound()), (Operation::Draining, true));
    assert_eq!(progress.message, "1 pod is on a machine that is being emptied; pod orders-1-1 may be evicted");
    assert_eq!(progress.waiting_for.as_deref(), Some("pod orders-1-1 to be evicted"));
    assert_eq!(plan.let_go, BTreeSet::from([member("1-1")]));

    let cluster = emptying(3, 0, &["1-0"]);
    let plan = crate::plan(cluster.desired, &cluster.seen);
    assert!(
        matches!(&plan.state, State::Stuck(p) if p.operation == Operation::Draining && plan.state.is_sound()),
        "{plan:?}"
    );
}

#[test]
fn nothing_is_rolled_while_somebody_is_let_go() {
    let mut cluster = emptying(3, 1, &["1-1"]);
    cluster.outdate(&["0-0", "0-1", "1-1"]);
    let plan = crate::plan(cluster.desired, &cluster.seen);
    assert_eq!((plan.replace.len(), plan.let_go.len()), (0, 1));
    cluster.seen.unwelcome.clear();
    cluster.seen.evictable.insert(member("1-1"));
    let plan = crate::plan(cluster.desired, &cluster.seen);
    assert_eq!((plan.replace.len(), plan.let_go.len()), (0, 0), "the door is still open");
}

/// Its server fails in it, and the new template may help: it is made anew rather than let go.
#[test]
fn a_pod_that_is_about_to_be_replaced_is_not_let_go() {
    let mut cluster = emptying(3, 1, &["1-1"]);
    cluster.outdate(&["1-1"]).see("1-1", Sighting::Starting);
    let plan = crate::plan(cluster.desired, &cluster.seen);
    assert_eq!((plan.replace.len(), plan.let_go.len()), (1, 0));
    cluster.seen.evictable.insert(member("1-1"));
    let plan = crate::plan(cluster.desired, &cluster.seen);
    assert_eq!((plan.replace.len(), plan.let_go.len()), (0, 1), "the door is open already");
}

#[test]
fn nobody_is_handed_a_shard_who_may_be_evicted() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.seen.wishes = vec![Wish::Lead(member("1-1"))];
    cluster.seen.evictable.insert(member("1-1"));
    assert_eq!(crate::plan(cluster.desired, &cluster.seen).steps().count(), 0);
}
