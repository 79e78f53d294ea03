//! Clusters grow and shrink under load, whatever happens on the way, and lose nothing.

use std::time::Duration;

use proptest::prelude::*;
use valkey_model::{Member, Version};
use valkey_testkit::simulation::{Image, Persistence, Weather};

use crate::faults::{any_fault, any_persistence, any_weather};
use crate::world::{World, config, desired};

const BOUND: Duration = Duration::from_mins(8);

#[test]
fn a_cluster_grows_and_shrinks_again() {
    for replicas in 0..=2 {
        let mut world = World::formed(desired(3, replicas), Persistence::None, Weather::FINE, 1);
        world.write_during_passes();
        for shards in [5, 3, 1, 4] {
            world.want(shards, replicas);
            world.settle(BOUND);
        }
    }
}

/// Moves in the classic way, which leave slots open when they fail.
#[test]
fn a_cluster_of_an_older_version_grows_and_shrinks_as_well() {
    for seed in 0..4 {
        let mut world = World::formed(desired(3, 1), Persistence::Log, Weather::ROUGH, seed);
        world.want_image(Image { version: Version::new(8, 1, 4), works: true });
        world.run_until_healthy(BOUND);
        world.write_during_passes();
        for shards in [5, 3] {
            world.want(shards, 1);
            world.settle(BOUND);
        }
    }
}

proptest! {
    #![proptest_config(config(24))]

    /// Whatever is asked for, and however soon something else: what was asked for last is what comes.
    #[test]
    fn targets_that_change_in_the_middle_are_heeded(
        seed in any::<u64>(), weather in any_weather(), crashes in 0..=20_u64, persistence in any_persistence(),
        targets in prop::collection::vec((1..=5_u16, 0..=2_u16, 0..=60_u32), 1..5),
    ) {
        let mut world = World::formed(desired(3, 1), persistence, weather, seed);
        world.write_during_passes();
        world.crash_after(crashes);
        for (shards, replicas, passes) in targets {
            world.want(shards, replicas);
            for _ in 0..passes {
                world.pass();
            }
        }
        world.settle(BOUND);
    }

    /// Pods die while slots move, and members come and go; never the last that has its shard's data.
    #[test]
    fn faults_in_the_middle_lose_nothing(
        seed in any::<u64>(), weather in any_weather(), crashes in 0..=10_u64, persistence in any_persistence(),
        targets in prop::collection::vec((1..=5_u16, 1..=2_u16), 1..4),
        faults in prop::collection::vec((any_fault(), 0..=4_u16, 0..=2_u16, 0..=25_u32), 4..12),
    ) {
        let mut world = World::formed(desired(3, 1), persistence, weather, seed);
        world.write_during_passes();
        world.crash_after(crashes);
        let each = faults.len().div_ceil(targets.len());
        for ((shards, replicas), faults) in targets.into_iter().zip(faults.chunks(each)) {
            world.want(shards, replicas);
            for (fault, shard, ordinal, passes) in faults {
                for _ in 0..*passes {
                    world.pass();
                }
                fault.hit(&mut world, Member::new(*shard, *ordinal));
            }
        }
        world.mend();
        world.settle(BOUND);
    }
}
