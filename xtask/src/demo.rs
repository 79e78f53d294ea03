//! `make demo`: from nothing to a key that was written and read, and how to go on.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::images::{self, Component, Image};
use crate::progress::Step;
use crate::shell;
use crate::target::Target;
use crate::{cluster, dev};

const SAMPLE: &str = include_str!("../../deploy/dev/sample.yaml");
const PLACEHOLDER: &str = "docker.io/valkey/valkey:sample";
const PODS: usize = 6;

pub fn run(registry: Option<&str>) -> Result<()> {
    let target = Target::choose(registry)?;
    target.ensure()?;
    let operator = images::component(Component::Operator, target.registry())?;
    target.provide(&operator)?;
    dev::roll_out(&target, &operator.reference)?;
    let valkey = newest_valkey(&target)?;
    sample(&target, &valkey.reference)?;
    println!("{}", how_to_go_on(&target)?);
    Ok(())
}

/// The local cluster has it on its nodes already; another one gets it through the registry.
fn newest_valkey(target: &Target) -> Result<Image> {
    let series = images::SERIES.first().context("no series of Valkey is known")?;
    match target {
        Target::Local { .. } => images::valkey(series),
        Target::Yours { registry } => {
            let image = images::valkey(series)?;
            let tag = image.reference.rsplit(':').next().unwrap_or_default();
            let image = Image { reference: format!("{registry}/valkey:{tag}"), ..image };
            target.provide(&image)?;
            Ok(image)
        }
    }
}

/// Six plain Valkey pods, joined by hand: what the operator will do from `kubectl apply` alone.
fn sample(target: &Target, image: &str) -> Result<()> {
    let mut step = Step::start("a plain Valkey cluster");
    target.apply(&SAMPLE.replace(PLACEHOLDER, image))?;
    step.say("waiting for six pods");
    let ready = format!("--for=jsonpath={{.status.readyReplicas}}={PODS}");
    shell::run(in_demo(target)?.args(["wait", &ready, "statefulset/demo", "--timeout=120s"]))?;
    if !cli(target, &["CLUSTER", "INFO"])?.contains("cluster_state:ok") {
        step.say("joining them");
        let addresses = shell::output(in_demo(target)?.args([
            "get",
            "pods",
            "--selector=app=demo",
            "--output=jsonpath={range .items[*]}{.status.podIP}:6379 {end}",
        ]))?;
        let mut create = vec!["--cluster", "create"];
        create.extend(addresses.split_whitespace());
        create.extend(["--cluster-replicas", "1", "--cluster-yes"]);
        cli(target, &create)?;
    }
    step.say("writing and reading a key");
    let written = cli(target, &["-c", "SET", "greeting", "hello"])?;
    let read = cli(target, &["-c", "GET", "greeting"])?;
    if written.trim() != "OK" || read.trim() != "hello" {
        bail!("SET greeting answered {:?} and GET greeting {:?}", written.trim(), read.trim());
    }
    step.done("SET greeting hello: OK, GET greeting: hello");
    Ok(())
}

fn in_demo(target: &Target) -> Result<Command> {
    let mut command = target.kubectl()?;
    command.arg("--namespace=demo");
    Ok(command)
}

fn cli(target: &Target, args: &[&str]) -> Result<String> {
    shell::output(in_demo(target)?.args(["exec", "demo-0", "--", "valkey-cli"]).args(args))
}

fn how_to_go_on(target: &Target) -> Result<String> {
    let (intro, end) = match target {
        Target::Local { name } => {
            let kubeconfig = cluster::kubeconfig(name)?;
            (
                format!(
                    "The kubeconfig is {}. In a shell:\n\n  eval \"$(cargo xtask cluster env)\"",
                    kubeconfig.display()
                ),
                "make down",
            )
        }
        Target::Yours { .. } => (
            "It runs on the cluster in KUBECONFIG:\n".to_owned(),
            "kubectl delete namespace demo valkey-operator-system",
        ),
    };
    Ok(format!(
        "
{intro}
  kubectl get pods --all-namespaces --output wide             # look
  kubectl --namespace demo exec -it demo-0 -- valkey-cli -c   # connect
  {end:<57}   # end it

The six Valkey pods are plain ones, joined by valkey-cli; the operator runs, but does not manage clusters yet."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_names_the_image_that_is_replaced() {
        assert_eq!(SAMPLE.matches(PLACEHOLDER).count(), 1);
    }
}
