//! End-to-end tests on a real Kubernetes, and the library they are written with.
//!
//! ```no_run
//! # use e2e::{Bench, PlainCluster, ms};
//! #[e2e::test]
//! async fn a_quiet_cluster_answers_at_once(k: Bench) -> anyhow::Result<()> {
//!     let cluster = PlainCluster::of(&k, "orders").start().await?;
//!     let witness = cluster.witness().start().await?;
//!     witness.writes_in_every_shard(1000, e2e::secs(10)).await?;
//!     witness.stop().await?.expect_no_lost_write().expect_pause_below(ms(500));
//!     Ok(())
//! }
//! ```
//!
//! Tests enter where users enter: they apply objects, look at what Kubernetes shows, and are clients of Valkey.

// The attribute names this crate as its users do.
extern crate self as e2e;

mod bench;
mod cluster;
mod dns;
mod endpoint;
pub mod harness;
pub mod kube_node;
mod manifest;
mod namespace;
mod objects;
pub mod plain;
mod report;
mod wait;
pub mod witness;
mod xtask;

use std::time::Duration;

pub use bench::{Bench, Output};
pub use cluster::Cluster;
pub use dns::ClusterDns;
pub use e2e_macros::test;
pub use endpoint::{Endpoint, Host, Identity};
pub use kube_node::KubeNode;
pub use objects::Objects;
pub use plain::PlainCluster;
pub use wait::eventually;
pub use witness::Witness;
pub use xtask::xtask;

/// Milliseconds, the way tests speak.
pub const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Seconds, the way tests speak.
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
