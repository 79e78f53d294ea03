//! The simulated servers behave like the real ones where it matters.

use valkey_model::{Action, NodeReport, Step, partition};

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
    world.tick(Duration::from_secs(2));
    for shard in (0..shards).map(ShardIndex) {
        assert!(world.write(shard, 1));
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
    assert_eq!(world.read(ShardIndex(0)), BTreeSet::new());
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
    assert_eq!(world.read(ShardIndex(0)), BTreeSet::from([1]));
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
