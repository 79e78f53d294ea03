//! Pods are made anew one after the other, under load and whatever happens on the way.

use std::time::Duration;

use proptest::prelude::*;
use valkey_model::{Member, Version, blemishes};
use valkey_planner::State;
use valkey_testkit::simulation::{Image, Persistence, Weather};

use crate::faults::{any_fault, any_persistence, any_weather};
use crate::world::{World, config, desired};

const BOUND: Duration = Duration::from_mins(10);
const NEW: Image = Image { version: Version::new(9, 1, 3), works: true };
const BROKEN: Image = Image { version: Version::new(9, 9, 9), works: false };

#[test]
fn every_pod_is_replaced_once_and_nothing_is_lost() {
    for (shards, replicas, persistence) in
        [(1, 1, Persistence::None), (3, 1, Persistence::None), (2, 2, Persistence::Log), (3, 0, Persistence::Log)]
    {
        let mut world = World::formed(desired(shards, replicas), persistence, Weather::FINE, 1);
        world.write_during_passes();
        world.want_image(NEW);
        world.settle(BOUND);
        assert_eq!(world.replaced, world.desired.size());
    }
}

#[test]
fn an_image_that_does_not_work_stops_at_its_first_pod_and_can_be_taken_back() {
    let mut world = World::formed(desired(3, 1), Persistence::None, Weather::FINE, 1);
    world.write_during_passes();
    world.want_image(BROKEN);
    world.run_for(Duration::from_mins(5));
    assert_eq!(world.replaced, 1);
    world.want_image(NEW);
    world.settle(Duration::from_mins(3));
}

/// A paused upgrade: what has begun is finished, nothing else is made anew, and everything else goes on.
#[test]
fn a_roll_that_is_held_stops_and_goes_on_when_it_may() {
    let mut world = World::formed(desired(3, 1), Persistence::Log, Weather::ROUGH, 1);
    world.write_during_passes();
    world.want_image(NEW);
    world.run_for(Duration::from_secs(10));
    let begun = world.replaced;
    world.hold = Some("the upgrade is paused".into());
    world.want(4, 1);
    world.run_for(Duration::from_mins(2));
    assert!(begun > 0 && world.replaced == begun, "{begun} {}", world.replaced);
    assert!(world.simulation.leader(valkey_model::ShardIndex(3)).is_some(), "scaling goes on");
    world.hold = None;
    world.settle(BOUND);
}

/// A pod that does not come up keeps nobody from taking back what was asked for at the same time.
#[test]
fn a_stuck_roll_does_not_keep_a_shard_from_leaving() {
    let mut world = World::formed(desired(3, 1), Persistence::None, Weather::FINE, 1);
    world.write_during_passes();
    world.want(4, 1);
    world.settle(BOUND);
    world.want_image(BROKEN);
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.replaced, 1, "the roll has begun");
    world.want(2, 1);
    world.run_for(Duration::from_mins(1));
    let left: Vec<_> = world.simulation.members().into_iter().filter(|member| member.shard.0 == 3).collect();
    let plan = world.pass();
    assert!(left.is_empty() || world.simulation.leader(valkey_model::ShardIndex(3)).is_some(), "{plan:?}");
    world.want_image(NEW);
    world.settle(BOUND);
}

proptest! {
    #![proptest_config(config(16))]

    #[test]
    fn faults_in_the_middle_of_a_roll_lose_nothing(
        seed in any::<u64>(), shards in 1..=3_u16, replicas in 1..=2_u16, weather in any_weather(),
        persistence in any_persistence(), crashes in 0..=20_u64,
        faults in prop::collection::vec((any_fault(), 0..=2_u16, 0..=2_u16, 0..=40_u32), 2..8),
    ) {
        let mut world = World::formed(desired(shards, replicas), persistence, weather, seed);
        world.write_during_passes();
        world.crash_after(crashes);
        world.want_image(NEW);
        for (fault, shard, ordinal, passes) in faults {
            for _ in 0..passes {
                world.pass();
            }
            fault.hit(&mut world, Member::new(shard % shards, ordinal % (replicas + 1)));
        }
        world.mend();
        world.settle(BOUND);
    }

    /// New pods, other numbers of shards and replicas, images that do not work: all at the same time.
    #[test]
    fn everything_at_once_comes_out_well(
        seed in any::<u64>(), weather in any_weather(), persistence in any_persistence(), crashes in 0..=10_u64,
        orders in prop::collection::vec((1..=4_u16, 1..=2_u16, 0..=3_u8, 0..=50_u32), 1..5),
    ) {
        let mut world = World::formed(desired(2, 1), persistence, weather, seed);
        world.write_during_passes();
        world.crash_after(crashes);
        for (shards, replicas, image, passes) in orders {
            world.want(shards, replicas);
            match image {
                0 => {}
                1 => world.want_image(BROKEN),
                patch => world.want_image(Image { version: Version::new(8, 1, patch.into()), works: true }),
            }
            for _ in 0..passes {
                world.pass();
            }
        }
        world.want_image(NEW);
        world.settle(BOUND);
    }
}

/// Clients are served all the time, and as long as it is known that there is a roll the cluster is called sound.
#[test]
fn a_healthy_roll_is_no_illness() {
    let mut world = World::formed(desired(3, 1), Persistence::Log, Weather::FINE, 1);
    world.want_image(NEW);
    loop {
        let seen = world.simulation.observe();
        let felt = blemishes(world.desired, &seen).into_iter().filter(|blemish| blemish.is_felt(&seen)).count();
        let plan = world.pass();
        assert!(felt == 0 && plan.state.is_sound(), "{:?}", plan.state);
        if plan.state == State::Healthy {
            break;
        }
    }
    assert_eq!(world.replaced, 6);
}
