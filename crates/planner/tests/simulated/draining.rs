//! Machines are emptied under load, and lose nothing.

use std::time::Duration;

use proptest::prelude::*;
use valkey_model::{Member, Version};
use valkey_testkit::simulation::{Disks, Image, Persistence, Weather};

use crate::faults::{any_fault, any_persistence, any_weather};
use crate::world::{World, config, desired};

const BOUND: Duration = Duration::from_mins(10);
const MACHINES: u64 = 3;

fn any_disks() -> impl Strategy<Value = Disks> {
    prop_oneof![Just(Disks::Roaming), Just(Disks::Bound)]
}

fn spread(mut world: World, disks: Disks) -> World {
    world.simulation.spread_over(MACHINES, disks);
    world.write_during_passes();
    world
}

/// Waits until nobody is left on the machines that are being emptied.
fn until_empty(world: &mut World) {
    let end = world.simulation.now() + BOUND;
    while !world.simulation.unwelcome().is_empty() {
        let plan = world.pass();
        world.evict();
        assert!(world.simulation.now() < end, "not empty: {:?} {:?}", world.simulation.unwelcome(), plan.state);
    }
}

/// The promise of `kubectl drain`: each machine in turn, and everything is in order before the next.
#[test]
fn machines_are_emptied_one_after_the_other() {
    for (shards, replicas, persistence, disks) in [
        (3, 1, Persistence::None, Disks::Roaming),
        (3, 1, Persistence::Log, Disks::Bound),
        (2, 2, Persistence::Snapshots, Disks::Bound),
        (3, 0, Persistence::Log, Disks::Roaming),
        (3, 0, Persistence::Log, Disks::Bound),
    ] {
        let mut world = spread(World::formed(desired(shards, replicas), persistence, Weather::FINE, 1), disks);
        for machine in world.simulation.machines() {
            world.simulation.close(&machine);
            until_empty(&mut world);
            world.simulation.open(&machine);
            world.settle(BOUND);
        }
    }
}

/// Nobody comes to evict: the pods stay where they are, and the cluster is no worse for it.
#[test]
fn a_machine_that_is_closed_and_never_emptied_does_no_harm() {
    let mut world = spread(World::formed(desired(3, 1), Persistence::Log, Weather::FINE, 1), Disks::Bound);
    world.simulation.close("host-1");
    world.run_for(Duration::from_mins(1));
    let plan = world.pass();
    assert!(plan.state.is_sound() && plan.let_go.len() == 1, "{plan:?}");
    world.want(4, 1);
    world.run_for(Duration::from_mins(2));
    world.simulation.open("host-1");
    world.settle(BOUND);
}

proptest! {
    #![proptest_config(config(16))]

    /// Two machines at once, while pods are made anew, slots move and pods die.
    #[test]
    fn machines_are_emptied_whatever_else_is_going_on(
        seed in any::<u64>(), shards in 1..=4_u16, replicas in 1..=2_u16, weather in any_weather(), disks in any_disks(),
        persistence in any_persistence(), crashes in 0..=10_u64, roll in any::<bool>(), patience in 0..=3_u64,
        faults in prop::collection::vec((any_fault(), 0..=3_u16, 0..=2_u16, 0..=40_u32), 0..4),
        closed in prop::collection::vec((0..3_usize, 0..3_usize, 5..=60_u32), 1..4),
    ) {
        let mut world = spread(World::formed(desired(3, replicas), persistence, weather, seed), disks);
        world.crash_after(crashes);
        world.want(shards, replicas);
        if roll {
            world.want_image(Image { version: Version::new(9, 1, 3), works: true });
        }
        let machines = world.simulation.machines();
        let mut faults = faults.into_iter();
        for (one, other, passes) in closed {
            world.simulation.close(&machines[one]);
            world.simulation.close(&machines[other]);
            for pass in 0..passes {
                world.pass();
                if u64::from(pass) % (patience + 1) == 0 {
                    world.evict();
                }
            }
            if let Some((fault, shard, ordinal, passes)) = faults.next() {
                fault.hit(&mut world, Member::new(shard, ordinal));
                for _ in 0..passes {
                    world.pass();
                    world.evict();
                }
                world.mend();
            }
            if disks == Disks::Roaming {
                until_empty(&mut world);
            }
            world.simulation.open(&machines[one]);
            world.simulation.open(&machines[other]);
        }
        world.settle(BOUND);
    }
}
