//! What tests of several crates share.

pub mod process;
pub mod simulation;
