//! The sidecar: one process beside each `valkey-server`, in its pod.
//!
//! It prepares what the server reads, says when the launcher may start it, watches it, answers its probes, carries out what
//! the operator asks for, hands mastership over before the pod goes, and keeps certificates and users up to date. All of
//! that works while the operator is away: everything it needs is mounted.

mod arguments;
mod certificates;
mod commands;
mod conf;
mod context;
#[cfg(test)]
mod fake_server;
mod files;
mod guard;
mod handover;
mod install;
mod launcher_socket;
mod lead;
mod metrics;
mod mounts;
mod moves;
mod operator;
mod pod;
mod prepare;
mod probes;
mod reports;
mod run;
mod set_aside;
mod settings;
mod view;
mod watch;

use clap::Parser;

use crate::arguments::{Arguments, Command};

// One thread: this process waits most of the time, and there is one of it beside every server.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Run(arguments) => run::run(*arguments).await,
        Command::InstallLauncher(arguments) => Ok(install::install(&arguments.from, &arguments.target)?),
    }
}
