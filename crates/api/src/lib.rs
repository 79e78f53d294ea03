//! The custom resources of group `valkey.io`: their types, the rules that the API server checks, and the names, labels and
//! conditions that everything else agrees on.
//!
//! No client in here: these are words, not deeds.
#![allow(clippy::duplicated_attributes, reason = "two printer columns of a kind may be of the same type")]

pub mod cluster;
pub mod conditions;
mod crds;
pub mod labels;
pub mod names;
pub mod pki;
pub mod topology;
pub mod upgrade;

pub use cluster::{ClusterStatus, Phase, ValkeyCluster, ValkeyClusterSpec};
pub use conditions::{ConditionStatus, ConditionType};
pub use crds::crds;
pub use names::ChildNames;
pub use pki::{ValkeyCA, ValkeyCertificateBinding, ValkeyCertificateBundle};
pub use topology::ValkeyClusterStatus;
pub use upgrade::{UpgradePhase, UpgradeStatus, ValkeyUpgrade};

/// The API group of every kind in this crate.
pub const GROUP: &str = "valkey.io";
