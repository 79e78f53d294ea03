//! What the project does to itself: a local Kubernetes, container images, checks, tests, benchmarks.
//!
//! `make` calls into here; `cargo xtask --help` lists everything by parts.

mod bench;
mod cargo;
mod check;
mod cli;
mod cluster;
mod demo;
mod dev;
mod generate;
mod images;
mod paths;
mod progress;
mod shell;
#[cfg(test)]
mod source_times_tests;
mod target;
mod test;
mod tools;
mod wait;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}
