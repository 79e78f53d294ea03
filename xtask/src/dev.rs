//! The inner loop: from a changed crate to the running program in one command.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;

use crate::images::{self, Component};
use crate::progress::{Step, human};
use crate::target::Target;
use crate::{paths, shell};

pub const NAMESPACE: &str = "valkey-operator-system";
const RELEASE: &str = "valkey-operator";

/// Builds operator and sidecar and brings them onto the local cluster, which is booted if need be.
pub fn run(cluster: &str) -> Result<()> {
    let target = Target::local(cluster);
    target.ensure()?;
    let started = Instant::now();
    install(&target)?;
    println!("\nlogs: kubectl --namespace {NAMESPACE} logs deployment/{RELEASE} --follow");
    println!("{} from source to cluster", human(started.elapsed()));
    Ok(())
}

/// Installs the operator by its chart, or replaces the one that runs, and waits until it is ready.
pub fn install(target: &Target) -> Result<()> {
    let [operator, sidecar] =
        [Component::Operator, Component::Sidecar].map(|component| images::component(component, target.registry()));
    let (operator, sidecar) = (operator?, sidecar?);
    target.provide(&operator)?;
    target.provide(&sidecar)?;
    let mut step = Step::start("install the operator");
    // Helm installs definitions once and leaves them alone ever after; here they change with the code.
    shell::run(
        target
            .kubectl()?
            .args(["apply", "--server-side", "--force-conflicts", "--filename"])
            .arg(paths::workspace().join("deploy/crds")),
    )?;
    step.say("waiting until it is ready");
    let mut helm = target.helm()?;
    helm.args(["upgrade", "--install", "--create-namespace", "--namespace", NAMESPACE, RELEASE]).arg(chart());
    for (value, image) in [("image", &operator.reference), ("sidecarImage", &sidecar.reference)] {
        let (repository, tag) = image.rsplit_once(':').unwrap_or((image, "latest"));
        helm.arg(format!("--set={value}.repository={repository},{value}.tag={tag}"));
    }
    shell::run(helm.args(["--wait", "--timeout=120s"]))?;
    step.done("");
    Ok(())
}

fn chart() -> PathBuf {
    paths::workspace().join("charts/valkey-operator")
}
