//! Process plumbing that the programs in this repository share: logs, shutdown, health.
//!
//! Nothing here knows Kubernetes or Valkey. What a program *does* lives in the program; this crate is about being a
//! well-behaved process in a container.

pub mod health;
pub mod process;
pub mod shutdown;
pub mod telemetry;
