//! The command line of `cargo xtask`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use crate::cluster::{self, Addon, DEFAULT_NAME, NodeAction};
use crate::images::{self, Component, Image};
use crate::{bench, check, demo, dev, generate, test};

/// What the project does to itself: a local Kubernetes, container images, checks, tests
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// A real Kubernetes with three nodes in three zones on this machine
    Cluster {
        /// Which cluster; several can stand side by side
        #[arg(long, global = true, default_value = DEFAULT_NAME, env = "BENCH_CLUSTER", hide_env_values = true)]
        name: String,
        #[command(subcommand)]
        action: ClusterAction,
    },
    /// Container images, built without Docker
    Image {
        #[command(subcommand)]
        action: ImageAction,
    },
    /// Everything from nothing to a key written and read, and how to go on
    Demo {
        /// Push images below this registry and use the cluster in KUBECONFIG instead of a local one
        #[arg(long, env = "REGISTRY")]
        registry: Option<String>,
    },
    /// Build what changed and roll it out to the local cluster
    Dev {
        /// Which local cluster
        #[arg(long, default_value = cluster::DEFAULT_NAME)]
        name: String,
    },
    /// All checks and tests, in the order of CI
    Test {
        /// The long suites too
        #[arg(long)]
        full: bool,
        /// Only end-to-end tests whose name contains this
        #[arg(long)]
        only: Option<String>,
    },
    /// Figures, as ratios measured in one run
    Bench {
        /// How often each measurement is taken
        #[arg(long, default_value_t = 5)]
        rounds: u32,
    },
    /// One of the checks that `test` runs
    Check {
        #[command(subcommand)]
        what: Check,
    },
    /// Writes the generated files
    Generate {
        /// Fail if a file would change, instead of writing it
        #[arg(long)]
        check: bool,
    },
}

#[derive(Debug, Subcommand)]
enum ClusterAction {
    /// Boots the cluster; builds and fetches what is missing
    Up,
    /// Ends the cluster and removes every trace of it
    Down {
        /// Every cluster on this machine
        #[arg(long)]
        all: bool,
    },
    /// Says what runs
    Status,
    /// Prints what a shell needs: eval "$(cargo xtask cluster env)"
    Env,
    /// Puts an image into every node: operator, sidecar, valkey-8.1, or a file made by `docker save`
    Load { image: String },
    /// Makes a node fail, honestly, and brings it back
    Node {
        /// node-1, node-2 or node-3
        node: String,
        #[arg(value_enum)]
        action: NodeAction,
    },
    /// Builds and installs something that only some tests need
    Addon {
        #[arg(value_enum)]
        addon: Addon,
    },
}

#[derive(Debug, Subcommand)]
enum ImageAction {
    /// Builds an image (operator, sidecar, valkey-9.1, …) and prints its name and file
    Build { image: String },
    /// Packs every Valkey image again and compares the digests
    Verify,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Check {
    /// Arrows between our crates, and banned crates
    Layers,
    /// Text that must not be in the repository
    Text,
}

pub fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Task::Cluster { name, action } => return cluster(&name, action),
        Task::Image { action: ImageAction::Build { image } } => {
            let image = image_named(&image)?;
            println!("{}\n{}", image.reference, image.archive.display());
        }
        Task::Image { action: ImageAction::Verify } => images::SERIES.iter().try_for_each(images::verify)?,
        Task::Demo { registry } => demo::run(registry.as_deref())?,
        Task::Dev { name } => dev::run(&name)?,
        Task::Test { full, only } => {
            return test::run(if full { test::Suite::Full } else { test::Suite::Usual }, only.as_deref());
        }
        Task::Bench { rounds } => bench::run(rounds)?,
        Task::Check { what: Check::Layers } => check::layers()?,
        Task::Check { what: Check::Text } => check::text()?,
        Task::Generate { check } => generate::run(if check { generate::Mode::Check } else { generate::Mode::Write })?,
    }
    Ok(ExitCode::SUCCESS)
}

fn cluster(name: &str, action: ClusterAction) -> Result<ExitCode> {
    match action {
        ClusterAction::Up => cluster::up(name)?,
        ClusterAction::Down { all: true } => cluster::down_all()?,
        ClusterAction::Down { all: false } => cluster::down(name)?,
        ClusterAction::Status => {
            return Ok(if cluster::status(name)? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        ClusterAction::Env => {
            for (variable, value) in cluster::environment(name)? {
                println!("export {variable}='{value}'");
            }
        }
        ClusterAction::Load { image } => cluster::load(name, &image_named(&image)?)?,
        ClusterAction::Node { node, action } => cluster::node(name, &node, action)?,
        ClusterAction::Addon { addon } => cluster::addon(name, addon)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn image_named(name: &str) -> Result<Image> {
    if let Some(component) = Component::ALL.iter().find(|component| component.name().ends_with(&format!("-{name}"))) {
        return images::component(*component, "localhost");
    }
    let series = name.strip_prefix("valkey-").and_then(|name| images::SERIES.iter().find(|series| series.name == name));
    if let Some(series) = series {
        return images::valkey(series);
    }
    if let Some(flaw) = images::FLAWS.iter().find(|flaw| flaw.name == name) {
        return images::broken(flaw);
    }
    if Path::new(name).is_file() {
        return Ok(Image { reference: name.to_owned(), archive: name.into() });
    }
    let series = images::SERIES.iter().map(|series| format!("valkey-{}", series.name));
    let known: Vec<_> = series.chain(images::FLAWS.iter().map(|flaw| flaw.name.to_owned())).collect();
    bail!("{name:?} is neither a file nor an image of ours; ours are operator, sidecar, {}", known.join(", "))
}
