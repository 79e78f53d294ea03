//! One folder per kind, one file per step.

pub mod cluster;
