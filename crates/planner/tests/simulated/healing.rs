//! A cluster with data is hurt, heals, and has not lost what somebody still had.

use std::time::Duration;

use proptest::prelude::*;
use valkey_model::{Member, ShardIndex};
use valkey_testkit::simulation::{Network, Persistence, Simulation, Volume, Weather};

use crate::world::{World, config, desired};

/// The simulation can destroy data: what the other tests prove is not for free (F12).
#[test]
fn without_the_launch_guard_a_killed_primary_takes_the_data_of_its_replicas_along() {
    let mut world = World::formed_without_guard(desired(3, 2), Persistence::None, 1);
    let primary = world.simulation.leader(ShardIndex(0)).expect("a leader");
    world.simulation.kill(primary);
    world.run_until_healthy(BOUND);
    assert_eq!(world.lost_writes().len(), 5);
}

const BOUND: Duration = Duration::from_mins(4);

/// Something that happens to one pod.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Delete(Volume),
    Cut,
}

impl Fault {
    fn hit(self, simulation: &mut Simulation, member: Member) {
        match self {
            Self::Kill => simulation.kill(member),
            Self::Delete(volume) => simulation.delete_pod(member, volume),
            Self::Cut => simulation.set_network(member, Network::Cut),
        }
    }
}

fn any_persistence() -> impl Strategy<Value = Persistence> {
    prop_oneof![Just(Persistence::None), Just(Persistence::Snapshots), Just(Persistence::Log)]
}

fn any_end() -> impl Strategy<Value = Fault> {
    prop_oneof![Just(Fault::Kill), Just(Fault::Delete(Volume::Kept)), Just(Fault::Delete(Volume::Lost))]
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![3 => any_end(), 1 => Just(Fault::Cut)]
}

fn any_weather() -> impl Strategy<Value = Weather> {
    prop_oneof![Just(Weather::FINE), Just(Weather::ROUGH)]
}

proptest! {
    #![proptest_config(config(24))]

    /// One member of every shard is hit at the same time, twice over: its replica, or its primary, has all of the data.
    #[test]
    fn one_fault_per_shard_loses_nothing(
        seed in any::<u64>(), shards in 1..=3_u16, replicas in 1..=2_u16, weather in any_weather(),
        persistence in any_persistence(), faults in prop::collection::vec((any_end(), 0..=2_u16), 6),
    ) {
        let mut world = World::formed(desired(shards, replicas), persistence, weather, seed);
        for blow in faults.chunks(3) {
            for ((fault, ordinal), shard) in blow.iter().zip(0..shards) {
                fault.hit(&mut world.simulation, Member::new(shard, ordinal % (replicas + 1)));
            }
            world.run_until_healthy(BOUND);
            prop_assert_eq!(world.lost_writes(), []);
            prop_assert_eq!(&world.losses, &[]);
            world.write_everywhere();
            world.simulation.tick(Duration::from_secs(1));
        }
    }

    /// One member of every shard is spared, and the others are hit again and again: it keeps the data for all.
    #[test]
    fn one_copy_that_is_left_alone_is_enough(
        seed in any::<u64>(), shards in 1..=3_u16, replicas in 1..=2_u16, persistence in any_persistence(),
        spared in 0..=2_u16, weather in any_weather(), crashes in 0..=20_u64,
        faults in prop::collection::vec((any_end(), 0..=2_u16, 1..=2_u16, 0..=12_u32), 1..8),
    ) {
        let mut world = World::formed(desired(shards, replicas), persistence, weather, seed);
        world.crash_after(crashes);
        for (fault, shard, other, passes) in faults {
            let ordinal = (spared + 1 + other % replicas) % (replicas + 1);
            prop_assert_ne!(ordinal, spared % (replicas + 1));
            fault.hit(&mut world.simulation, Member::new(shard % shards, ordinal));
            for _ in 0..passes {
                world.pass();
            }
        }
        world.run_until_healthy(BOUND);
        prop_assert_eq!(world.lost_writes(), []);
        prop_assert_eq!(world.losses, []);
    }

    /// All members of every shard but one are hit at the same time.
    #[test]
    fn all_copies_but_one_can_go_at_once(
        seed in any::<u64>(), shards in 1..=3_u16, replicas in 1..=2_u16, persistence in any_persistence(),
        spared in 0..=2_u16, weather in any_weather(), faults in prop::collection::vec(any_end(), 9),
    ) {
        let mut world = World::formed(desired(shards, replicas), persistence, weather, seed);
        let spared = spared % (replicas + 1);
        for (member, fault) in world.desired.members().filter(|member| member.ordinal != spared).zip(faults) {
            fault.hit(&mut world.simulation, member);
        }
        world.run_until_healthy(BOUND);
        prop_assert_eq!(world.lost_writes(), []);
        prop_assert_eq!(world.losses, []);
    }

    #[test]
    fn a_primary_that_dies_while_its_replica_is_cut_off_waits_for_it(
        seed in any::<u64>(), shards in 1..=3_u16, seconds in 1..=45_u64,
        persistence in prop_oneof![Just(Persistence::None), Just(Persistence::Snapshots)],
    ) {
        let mut world = World::formed(desired(shards, 1), persistence, Weather::FINE, seed);
        let primary = world.simulation.leader(ShardIndex(0)).expect("a leader");
        let replica = Member::new(0, 1 - primary.ordinal);
        world.simulation.set_network(replica, Network::Cut);
        world.simulation.kill(primary);
        world.run_for(Duration::from_secs(seconds));
        world.simulation.set_network(replica, Network::Whole);
        world.run_until_healthy(BOUND);
        prop_assert_eq!(world.lost_writes(), []);
        prop_assert_eq!(world.losses, []);
    }

    #[test]
    fn a_primary_that_is_killed_loses_nothing(
        seed in any::<u64>(), shards in 1..=3_u16, replicas in 1..=2_u16, persistence in any_persistence(),
    ) {
        let mut world = World::formed(desired(shards, replicas), persistence, Weather::FINE, seed);
        let primary = world.simulation.leader(ShardIndex(0)).expect("a leader");
        world.simulation.kill(primary);
        world.run_until_healthy(BOUND);
        prop_assert_eq!(world.lost_writes(), []);
        prop_assert_eq!(world.losses, []);
    }

    #[test]
    fn a_partition_loses_nothing_that_was_in_sync(
        seed in any::<u64>(), shards in 1..=3_u16, replicas in 1..=2_u16, seconds in 1..=40_u64, ordinal in 0..=2_u16,
    ) {
        let mut world = World::formed(desired(shards, replicas), Persistence::None, Weather::ROUGH, seed);
        let member = Member::new(0, ordinal % (replicas + 1));
        world.simulation.set_network(member, Network::Cut);
        world.run_for(Duration::from_secs(seconds));
        world.simulation.set_network(member, Network::Whole);
        world.run_until_healthy(BOUND);
        prop_assert_eq!(world.lost_writes(), []);
        prop_assert_eq!(world.losses, []);
    }

    /// Whatever happens: it heals, and no step on the way is one that must never be taken.
    #[test]
    fn a_cluster_heals_from_anything(
        seed in any::<u64>(), shards in 1..=4_u16, replicas in 0..=2_u16, persistence in any_persistence(),
        faults in prop::collection::vec((any_fault(), 0..=3_u16, 0..=2_u16, 0..=8_u32), 1..8), crashes in 0..=20_u64,
    ) {
        let mut world = World::formed(desired(shards, replicas), persistence, Weather::ROUGH, seed);
        world.crash_after(crashes);
        for (fault, shard, ordinal, passes) in faults {
            fault.hit(&mut world.simulation, Member::new(shard % shards, ordinal % (replicas + 1)));
            for _ in 0..passes {
                world.pass();
            }
        }
        for member in world.desired.members() {
            world.simulation.set_network(member, Network::Whole);
        }
        world.run_until_healthy(BOUND);
    }
}

proptest! {
    #![proptest_config(config(8))]

    #[test]
    fn all_pods_at_once_lose_nothing_that_is_on_disk(
        seed in any::<u64>(), shards in 1..=4_u16, replicas in 0..=2_u16, weather in any_weather(),
        fault in prop_oneof![Just(Fault::Kill), Just(Fault::Delete(Volume::Kept))],
    ) {
        let mut world = World::formed(desired(shards, replicas), Persistence::Log, weather, seed);
        for member in world.desired.members() {
            fault.hit(&mut world.simulation, member);
        }
        world.run_until_healthy(BOUND);
        prop_assert_eq!(world.lost_writes(), []);
        prop_assert_eq!(world.losses, []);
    }

    #[test]
    fn a_shard_that_is_gone_with_all_of_its_volumes_is_told_and_made_anew(
        seed in any::<u64>(), shards in 2..=4_u16, replicas in 0..=2_u16, persistence in any_persistence(),
    ) {
        let mut world = World::formed(desired(shards, replicas), persistence, Weather::ROUGH, seed);
        for member in world.desired.members().filter(|member| member.shard == ShardIndex(1)) {
            world.simulation.delete_pod(member, Volume::Lost);
        }
        world.run_until_healthy(BOUND);
        prop_assert!(world.losses.iter().all(|loss| loss.shard == ShardIndex(1)) && !world.losses.is_empty());
        prop_assert!(world.lost_writes().iter().all(|(shard, _)| *shard == ShardIndex(1)));
    }

    #[test]
    fn memory_that_is_gone_everywhere_is_told(
        seed in any::<u64>(), shards in 1..=4_u16, replicas in 1..=2_u16,
    ) {
        let mut world = World::formed(desired(shards, replicas), Persistence::None, Weather::ROUGH, seed);
        for member in world.desired.members() {
            world.simulation.kill(member);
        }
        world.run_until_healthy(BOUND);
        for shard in (0..shards).map(ShardIndex) {
            prop_assert!(world.losses.iter().any(|loss| loss.shard == shard), "shard {} says nothing", shard);
        }
    }

    #[test]
    fn a_cluster_that_is_gone_without_a_trace_is_formed_again(seed in any::<u64>(), shards in 1..=4_u16) {
        let mut world = World::formed(desired(shards, 1), Persistence::Log, Weather::ROUGH, seed);
        for member in world.desired.members() {
            world.simulation.delete_pod(member, Volume::Lost);
        }
        world.run_until_healthy(BOUND);
    }
}
