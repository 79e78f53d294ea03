//! The words in which everything else speaks: slots, nodes, members, what was seen of them, and what to do next.
//!
//! Standard library only, no I/O and no clock, so that a decision made of these values can be read, tested and simulated
//! anywhere.

mod action;
mod health;
mod member;
mod node;
mod observation;
mod settings;
mod slots;
mod version;

pub use action::{Action, Step, Way};
pub use health::{Blemish, Told, blemishes};
pub use member::{InvalidMember, Member, ShardIndex};
pub use node::{InvalidNodeId, NodeId, Role};
pub use observation::{
    Desired, Export, Exports, Failure, Growth, Held, LocalData, NodeReport, Observation, Peer, PeerHealth, ReplicaLink,
    Sighting, Spot, Wish,
};
pub use settings::{RefusedSettings, Release, Settings, TakenSettings, WantedSettings};
pub use slots::{InvalidSlots, SLOTS, SlotKeys, SlotRange, SlotSet, partition};
pub use version::{InvalidVersion, Version};
