//! The inner loop: from a changed crate to the running program in one command.

use std::time::Instant;

use anyhow::Result;

use crate::images::{self, Component};
use crate::progress::{Step, human};
use crate::shell;
use crate::target::Target;

const MANIFEST: &str = include_str!("../../deploy/dev/operator.yaml");
const PLACEHOLDER: &str = "localhost/valkey-operator:dev";
const NAMESPACE: &str = "valkey-operator-system";

/// Builds a component and brings it onto the local cluster, which is booted if need be.
pub fn run(component: Component) -> Result<()> {
    let target = Target::choose(None)?;
    target.ensure()?;
    let started = Instant::now();
    let image = images::component(component, target.registry())?;
    target.provide(&image)?;
    match component {
        Component::Operator => {
            roll_out(&target, &image.reference)?;
            println!("\nlogs: kubectl --namespace {NAMESPACE} logs deployment/valkey-operator --follow");
        }
        // Nothing runs it yet; pods of a cluster will, as soon as the operator makes them.
        Component::Sidecar => println!("\n{} is on every node", image.reference),
    }
    println!("{} from source to cluster", human(started.elapsed()));
    Ok(())
}

/// Installs the operator with this image, or replaces the one that runs, and waits until it is ready.
pub fn roll_out(target: &Target, image: &str) -> Result<()> {
    let mut step = Step::start("roll out the operator");
    target.apply(&MANIFEST.replace(PLACEHOLDER, image))?;
    step.say("waiting until it is ready");
    let mut wait = target.kubectl()?;
    wait.args(["--namespace", NAMESPACE, "rollout", "status", "deployment/valkey-operator", "--timeout=90s"]);
    shell::run(&mut wait)?;
    step.done("");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_names_the_image_that_is_replaced() {
        assert_eq!(MANIFEST.matches(PLACEHOLDER).count(), 1);
    }
}
