//! The sidecar: one process beside each `valkey-server`, in its pod.
//!
//! So far this is only the process: logs, health, a clean end. It does not talk to Valkey nor to the operator. Reports,
//! commands and probes are added on top of this, with `engine` for Valkey and `rpc` for the operator.

use clap::Parser;
use valkey_runtime::process::{Options, Process};

/// Looks after one Valkey server, from inside its pod
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    process: Options,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let process = Process::start(&args.process, env!("CARGO_PKG_VERSION")).await?;
    process.readiness.ready();
    Ok(process.serve().await?)
}
