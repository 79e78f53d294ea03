//! What may happen in the middle of a planned change without an excuse to lose anything.

use proptest::prelude::*;
use valkey_model::Member;
use valkey_testkit::simulation::{Network, Persistence, Volume, Weather};

use crate::world::World;

/// Something that happens to one pod while the cluster is being changed.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Kill,
    Delete(Volume),
    Cut,
    /// Everybody who was cut off is back.
    Mend,
}

impl Fault {
    /// Never hits the last one that has its shard's data.
    pub fn hit(self, world: &mut World, member: Member) {
        if !world.can_be_spared(member) {
            return;
        }
        if std::env::var_os("SIMULATION_TRACE").is_some() {
            println!("{self:?} hits {member}");
        }
        match self {
            Self::Kill => world.simulation.kill(member),
            Self::Delete(volume) => world.simulation.delete_pod(member, volume),
            Self::Cut => world.simulation.set_network(member, Network::Cut),
            Self::Mend => world.mend(),
        }
    }
}

pub fn any_fault() -> impl Strategy<Value = Fault> {
    let deleted = prop_oneof![Just(Volume::Kept), Just(Volume::Lost)].prop_map(Fault::Delete);
    prop_oneof![2 => Just(Fault::Kill), 2 => deleted, 1 => Just(Fault::Cut), 2 => Just(Fault::Mend)]
}

pub fn any_weather() -> impl Strategy<Value = Weather> {
    prop_oneof![Just(Weather::FINE), Just(Weather::ROUGH)]
}

pub fn any_persistence() -> impl Strategy<Value = Persistence> {
    prop_oneof![Just(Persistence::None), Just(Persistence::Snapshots), Just(Persistence::Log)]
}
