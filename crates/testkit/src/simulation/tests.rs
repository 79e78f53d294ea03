//! The simulated servers behave like the real ones where it matters.

use valkey_model::{Action, NodeReport, Step, Way, partition};

use super::*;

/// Everybody may start at once.
struct Always;

impl Guard for Always {
    fn may_start(&self, _: &Applicant) -> bool {
        true
    }
}

fn simulation(shards: u16, replicas: u16) -> Simulation {
    let desired = Desired { shards, replicas, node_timeout: Duration::from_secs(5) };
    let mut simulation = Simulation::new(desired, Persistence::None, Weather::FINE, Box::new(Always), 7);
    simulation.tick(Duration::from_secs(5));
    simulation
}

fn report(simulation: &mut Simulation, member: Member) -> NodeReport {
    simulation.observe().report(member).unwrap().clone()
}

fn order(simulation: &mut Simulation, action: Action) -> Result<(), Refusal> {
    simulation.carry_out(&Step { action, reason: "a test" })
}

/// The first slot of every shard.
fn firsts(shards: u16) -> Vec<u16> {
    partition(shards).iter().filter_map(|part| part.ranges().next()).map(valkey_model::SlotRange::first).collect()
}

/// A cluster with a write in every shard, led by the first members.
fn formed(shards: u16, replicas: u16) -> Simulation {
    let mut world = simulation(shards, replicas);
    for (shard, slots) in (0..shards).zip(partition(shards)) {
        let on = Member::new(shard, 0);
        order(&mut world, Action::SetEpoch { on, epoch: u64::from(shard) + 1 }).unwrap();
        order(&mut world, Action::AddSlots { on, slots }).unwrap();
    }
    let members: Vec<_> = world.desired.members().collect();
    let hub = report(&mut world, members[0]).address;
    for on in &members[1..] {
        order(&mut world, Action::Meet { on: *on, address: hub }).unwrap();
    }
    world.tick(Duration::from_secs(5));
    for on in members.into_iter().filter(|member| member.ordinal > 0) {
        let primary = report(&mut world, Member::new(on.shard.0, 0)).id;
        order(&mut world, Action::Replicate { on, primary }).unwrap();
    }
    world.tick(Duration::from_secs(6));
    for slot in firsts(shards) {
        assert!(world.write(Write { slot, number: 1 }).is_some());
    }
    world.tick(Duration::from_secs(1));
    world
}

#[test]
fn gossip_introduces_everybody_to_everybody() {
    let mut world = formed(3, 1);
    for member in world.desired.members() {
        let report = report(&mut world, member);
        assert_eq!((report.peers.len(), report.serving), (5, true), "{member}");
    }
}

#[test]
fn commands_are_refused_like_by_the_real_server() {
    let mut world = formed(2, 1);
    let (on, replica) = (Member::new(0, 0), Member::new(0, 1));
    let own_primary = report(&mut world, on).id;
    let other_replica = report(&mut world, Member::new(1, 1)).id;
    let nobody = NodeId::from_bytes([0; 20]);
    for (action, refusal) in [
        (Action::SetEpoch { on, epoch: 9 }, Refusal::KnowsOthers),
        (Action::AddSlots { on, slots: SlotSet::all() }, Refusal::Busy),
        (Action::AddSlots { on: replica, slots: SlotSet::all() }, Refusal::IsReplica),
        (Action::Replicate { on: replica, primary: nobody }, Refusal::UnknownNode),
        (Action::Replicate { on: replica, primary: other_replica }, Refusal::NotAPrimary),
        (Action::Replicate { on: Member::new(1, 0), primary: own_primary }, Refusal::NotEmpty),
        (Action::TakeOver { on }, Refusal::IsPrimary),
        (Action::Forget { on: replica, id: own_primary }, Refusal::OwnPrimary),
        (Action::Forget { on, id: nobody }, Refusal::UnknownNode),
        (Action::Release { on }, Refusal::NotHeld),
    ] {
        assert_eq!(order(&mut world, action.clone()), Err(refusal), "{action}");
    }
}

#[test]
fn three_primaries_elect_a_successor_and_two_never_do() {
    for (shards, elected) in [(3, true), (2, false)] {
        let mut world = formed(shards, 1);
        world.set_network(Member::new(0, 0), Network::Cut);
        world.tick(Duration::from_secs(20));
        let heir = report(&mut world, Member::new(0, 1));
        assert_eq!(heir.role == Role::Primary, elected, "{shards} shards");
    }
}

#[test]
fn a_primary_that_comes_back_empty_wipes_its_replica() {
    let mut world = formed(3, 1);
    world.kill(Member::new(0, 0));
    world.tick(Duration::from_secs(4));
    assert!(!world.can_read(Write { slot: 0, number: 1 }));
    assert_eq!(report(&mut world, Member::new(0, 1)).keys, 0);
}

#[test]
fn one_that_is_taken_over_from_comes_back_as_a_replica() {
    let mut world = formed(2, 1);
    world.set_network(Member::new(0, 0), Network::Cut);
    order(&mut world, Action::TakeOver { on: Member::new(0, 1) }).unwrap();
    world.tick(Duration::from_secs(10));
    world.set_network(Member::new(0, 0), Network::Whole);
    world.tick(Duration::from_secs(10));
    assert_eq!(world.leader(ShardIndex(0)), Some(Member::new(0, 1)));
    assert_eq!(report(&mut world, Member::new(0, 0)).role, Role::Replica);
    assert!(world.can_read(Write { slot: 0, number: 1 }));
}

#[test]
fn addresses_that_all_changed_are_never_found_again_by_themselves() {
    let mut world = formed(3, 0);
    for member in world.desired.members() {
        world.delete_pod(member, Volume::Kept);
    }
    world.tick(Duration::from_mins(1));
    assert!(!report(&mut world, Member::new(0, 0)).serving);
}

#[test]
fn the_same_seed_gives_the_same_world() {
    assert_eq!(formed(3, 1).observe(), formed(3, 1).observe());
}

#[test]
fn slots_move_with_what_was_written_to_them() {
    let mut world = formed(2, 1);
    let (from, to) = (Member::new(0, 0), Member::new(1, 0));
    let target = report(&mut world, to).id;
    let slots: SlotSet = "0-99".parse().unwrap();
    order(&mut world, Action::Migrate { on: from, slots: slots.clone(), to: target, way: Way::Atomic }).unwrap();
    assert_eq!(report(&mut world, from).exports.running.len(), 1);
    world.tick(Duration::from_secs(2));
    assert_eq!(report(&mut world, from).keys, 0);
    assert!(report(&mut world, to).slots.intersects(&slots) && world.can_read(Write { slot: 0, number: 1 }));
    assert_eq!(report(&mut world, Member::new(1, 1)).keys, 2, "the replica has it, too");
    for member in world.desired.members() {
        let seen = report(&mut world, member);
        let owner = if member == to { seen.slots } else { seen.peer(target).unwrap().slots.clone() };
        assert!(owner.intersects(&slots), "{member} has not heard of it");
    }
}

#[test]
fn a_move_to_a_server_that_dies_fails_and_changes_nothing() {
    let mut world = formed(2, 0);
    let (from, to) = (Member::new(0, 0), Member::new(1, 0));
    let target = report(&mut world, to).id;
    let slots = "0-99".parse().unwrap();
    order(&mut world, Action::Migrate { on: from, slots, to: target, way: Way::Atomic }).unwrap();
    world.kill(to);
    world.tick(Duration::from_secs(1));
    let exports = report(&mut world, from).exports;
    assert_eq!((exports.running.len(), exports.failures), (0, 1));
    assert!(world.can_read(Write { slot: 0, number: 1 }));
}

#[test]
fn a_shard_is_handed_over_with_the_last_write() {
    let mut world = formed(3, 1);
    let last = Write { slot: 0, number: 2 };
    assert!(world.write(last).is_some());
    order(&mut world, Action::HandOver { on: Member::new(0, 1) }).unwrap();
    assert!(world.can_read(last));
    world.tick(Duration::from_secs(3));
    assert_eq!(world.leader(ShardIndex(0)), Some(Member::new(0, 1)));
    assert_eq!(report(&mut world, Member::new(0, 0)).role, Role::Replica);
    assert!(world.can_read(last));
}

#[test]
fn pods_are_made_and_ended_as_their_workloads_ask() {
    let mut world = formed(2, 1);
    world.set_workloads(&[(ShardIndex(0), 3), (ShardIndex(1), 1)].into());
    assert!(world.observe().going.contains(&Member::new(1, 1)));
    world.tick(Duration::from_secs(5));
    let seen = world.observe();
    assert!(seen.report(Member::new(0, 2)).is_some_and(NodeReport::is_blank));
    assert_eq!(seen.members.get(&Member::new(1, 1)), None);
}
