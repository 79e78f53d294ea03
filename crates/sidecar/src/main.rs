//! The sidecar: one process beside each `valkey-server`, in its pod.
//!
//! So far this is only the process: logs, health, a clean end. It does not talk to Valkey nor to the operator. Reports,
//! commands and probes are added on top of this, with `engine` for Valkey and `rpc` for the operator.

use std::net::SocketAddr;

use clap::Parser;
use valkey_runtime::{health, shutdown, telemetry};

/// Looks after one Valkey server, from inside its pod
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Where /healthz and /readyz are answered
    #[arg(long, default_value = "0.0.0.0:8081")]
    health_addr: SocketAddr,
    /// error, warn, info, debug, trace, or a list of target=level
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    log_level: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    telemetry::init(&args.log_level)?;
    let stop = shutdown::on_signal()?;
    let readiness = health::Readiness::default();
    let server = health::Server::bind(args.health_addr).await?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), health = %server.address(), "started");

    readiness.ready();
    server.serve(readiness, stop.cancelled_owned()).await?;
    tracing::info!("stopped");
    Ok(())
}
