//! Somebody wishes another primary.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use valkey_model::{Member, ShardIndex, Version, Wish};
use valkey_testkit::simulation::{Image, Persistence};

use crate::faults::{any_persistence, any_weather};
use crate::world::{World, config, desired};

const BOUND: Duration = Duration::from_mins(8);

proptest! {
    #![proptest_config(config(16))]

    #[test]
    fn wishes_are_fulfilled_whatever_else_is_going_on(
        seed in any::<u64>(), weather in any_weather(), persistence in any_persistence(), crashes in 0..=10_u64,
        shards in 1..=4_u16, passes in 0..=40_u32, wishes in prop::collection::vec((0..=3_u16, 0..=1_u16), 1..4),
    ) {
        let mut world = World::formed(desired(2, 1), persistence, weather, seed);
        world.write_during_passes();
        world.crash_after(crashes);
        world.want(shards, 1);
        world.want_image(Image { version: Version::new(9, 1, 3), works: true });
        for _ in 0..passes {
            world.pass();
        }
        let mut wished = BTreeSet::new();
        let leaders = wishes.into_iter().map(|(shard, ordinal)| Member::new(shard % shards, ordinal));
        world.wishes = leaders.filter(|member| wished.insert(member.shard)).map(Wish::Lead).collect();
        world.settle(BOUND);
        for wish in world.wishes.clone() {
            let (Wish::Lead(member) | Wish::Resign(member)) = wish;
            prop_assert_eq!(world.simulation.leader(member.shard), Some(member));
        }
    }

    /// All primaries are asked to resign, as if their machines were to be switched off.
    #[test]
    fn who_is_to_resign_does_and_stays_away(
        seed in any::<u64>(), weather in any_weather(), shards in 1..=3_u16, replicas in 1..=2_u16, roll in any::<bool>(),
    ) {
        let mut world = World::formed(desired(shards, replicas), Persistence::Log, weather, seed);
        world.write_during_passes();
        let leaders: Vec<Member> = (0..shards).filter_map(|shard| world.simulation.leader(ShardIndex(shard))).collect();
        world.wishes = leaders.iter().copied().map(Wish::Resign).collect();
        if roll {
            world.want_image(Image { version: Version::new(9, 1, 3), works: true });
            world.run_for(Duration::from_mins(1));
            world.wishes.clear();
        }
        world.settle(BOUND);
        for member in leaders.into_iter().filter(|_| !roll) {
            prop_assert_ne!(world.simulation.leader(member.shard), Some(member));
        }
    }
}
