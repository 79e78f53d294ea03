//! Dynamic volumes for the local cluster: a directory on this machine for each claim.
//!
//! Every node of the local cluster sees this machine's disk, so a volume is a directory and a `local`
//! `PersistentVolume` that is tied to one node. It behaves like real storage where tests care: it is bound on first
//! use, it stays with its node, it grows on request and it goes with its claim.
//!
//! Not for anything but tests: nothing limits what a volume holds, and two nodes are one disk.

mod controllers;
mod decide;
mod quantity;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[derive(Debug, Parser)]
#[command(version, about)]
struct Args {
    /// How to reach the API server
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Where the volumes' directories are made; nothing outside of it is ever touched
    #[arg(long)]
    root: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_writer(std::io::stderr)
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube_client=off")))
        .init();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    let client = connect(&args.kubeconfig).await?;
    std::fs::create_dir_all(&args.root).with_context(|| format!("cannot make {}", args.root.display()))?;
    let root = args.root.canonicalize()?;
    tracing::info!(provisioner = decide::PROVISIONER, root = %root.display(), "started");

    // Every step can be repeated, so there is nothing to wind down: what is cut short is done on the next start.
    tokio::select! {
        () = controllers::run(client, root) => anyhow::bail!("the watches ended"),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopped");
    Ok(())
}

async fn connect(kubeconfig: &PathBuf) -> anyhow::Result<kube::Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
