//! The operator: one process per replica, in a namespace of its own.
//!
//! So far this is only the process: logs, health, a clean end. It watches and changes nothing. The controllers are added on
//! top of this in `controllers/<kind>/`, the webhooks in `webhooks/`.

use std::net::SocketAddr;

use clap::Parser;
use valkey_runtime::{health, shutdown, telemetry};

/// Runs Valkey clusters on Kubernetes
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
