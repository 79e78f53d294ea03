//! From nothing to a healthy cluster, whatever happens on the way.

use std::time::Duration;

use proptest::prelude::*;
use valkey_testkit::simulation::{Persistence, Weather};

use crate::world::{World, config, desired};

#[test]
fn clusters_of_every_shape_form() {
    for (shards, replicas) in (1..=6).flat_map(|shards| (0..=2).map(move |replicas| (shards, replicas))) {
        let mut world = World::new(desired(shards, replicas), Persistence::None, Weather::FINE, 1);
        world.run_until_healthy(Duration::from_secs(20));
        assert_eq!(world.losses, []);
    }
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn clusters_form_in_rough_weather_and_with_an_operator_that_keeps_dying(
        seed in any::<u64>(), shards in 1..=6_u16, replicas in 0..=2_u16, crashes in 0..=30_u64,
    ) {
        let mut world = World::new(desired(shards, replicas), Persistence::None, Weather::ROUGH, seed);
        world.crash_after(crashes);
        world.run_until_healthy(Duration::from_mins(3));
        prop_assert_eq!(world.losses, []);
    }
}
