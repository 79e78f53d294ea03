//! The operator: one process per replica, in a namespace of its own.
//!
//! So far this is only the process: logs, health, a clean end. It watches and changes nothing. The controllers are added on
//! top of this in `controllers/<kind>/`, the webhooks in `webhooks/`.

use clap::Parser;
use valkey_runtime::process::{Options, Process};

/// Runs Valkey clusters on Kubernetes
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
