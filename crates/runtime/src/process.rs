//! The life of a program: what all of ours do between the start of `main` and its end.

use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;

use crate::{health, shutdown, telemetry};

/// Flags that every program has.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Where /healthz and /readyz are answered
    #[arg(long, default_value = "0.0.0.0:8081")]
    health_addr: SocketAddr,
    /// error, warn, info, debug, trace, or a list of target=level
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    log_level: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Telemetry(#[from] telemetry::Error),
    #[error("signals cannot be heard: {0}")]
    Signals(#[source] std::io::Error),
    #[error("probes cannot be answered at {address}: {source}; choose another address with --health-addr")]
    Health { address: SocketAddr, source: std::io::Error },
}

/// A program that has started: it logs, hears signals, and answers probes with "not ready yet".
#[derive(Debug)]
pub struct Process {
    pub readiness: health::Readiness,
    /// Cancelled by SIGTERM or SIGINT.
    pub stop: CancellationToken,
    server: health::Server,
}

impl Process {
    /// Call it once, first thing in `main`. `version` is the program's, for its first log line.
    pub async fn start(options: &Options, version: &str) -> Result<Self, Error> {
        telemetry::init(&options.log_level)?;
        let stop = shutdown::on_signal().map_err(Error::Signals)?;
        let address = options.health_addr;
        let server = health::Server::bind(address).await.map_err(|source| Error::Health { address, source })?;
        tracing::info!(version, health = %server.address(), "started");
        Ok(Self { readiness: health::Readiness::default(), stop, server })
    }

    /// Answers probes until the program is told to end.
    pub async fn serve(self) -> Result<(), Error> {
        self.serve_with(axum::Router::new()).await
    }

    /// The same with more `routes` beside `/healthz` and `/readyz`.
    pub async fn serve_with(self, routes: axum::Router) -> Result<(), Error> {
        let address = self.server.address();
        let end = self.stop.cancelled_owned();
        self.server
            .serve_with(routes, self.readiness, end)
            .await
            .map_err(|source| Error::Health { address, source })?;
        tracing::info!("stopped");
        Ok(())
    }
}
