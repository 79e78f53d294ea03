//! One folder per kind, one file per step.

pub mod cluster;
pub mod upgrade;
