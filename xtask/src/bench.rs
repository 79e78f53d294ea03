//! `make bench`: figures, as ratios measured in one run.

use anyhow::Result;

use crate::target::Target;
use crate::{cargo, cluster, dev, shell};

/// The same cluster as for tests: nothing else runs on it.
const CLUSTER: &str = "test";

pub fn run(rounds: u32) -> Result<()> {
    let found = cluster::is_running(CLUSTER)?;
    cluster::up(CLUSTER)?;
    dev::install(&Target::local(CLUSTER))?;
    let mut command = cargo::command();
    command.args(["test", "--package", "e2e", "--test", "figures", "--", "--nocapture"]);
    command.envs(cluster::environment(CLUSTER)?).env("BENCH_ROUNDS", rounds.to_string());
    let client = cluster::as_client(CLUSTER)?;
    let outcome = shell::attached(&mut command);
    drop(client);
    if !found {
        cluster::down(CLUSTER)?;
    }
    outcome
}
