//! `make demo`: from nothing to a key that was written and read, and how to go on.

use std::process::Command;

use anyhow::{Result, bail};

use crate::images::{self, Image};
use crate::progress::Step;
use crate::shell;
use crate::target::Target;
use crate::{cluster, dev};

const SAMPLE: &str = include_str!("../../deploy/dev/sample.yaml");
/// The user and the files that the operator's connection Secret and pods provide.
const CLI: &str = "valkey-cli -c --tls --cacert /run/valkey/ca.crt --user app -h demo.demo.svc";

pub fn run(registry: Option<&str>) -> Result<()> {
    let target = Target::choose(registry)?;
    target.ensure()?;
    dev::install(&target)?;
    sample(&target)?;
    println!("{}", how_to_go_on(&target)?);
    Ok(())
}

/// A cluster from `kubectl apply` alone, and a key written and read with nothing but what its Secret says.
fn sample(target: &Target) -> Result<()> {
    let manifest = match target {
        Target::Local { .. } => SAMPLE.to_owned(),
        Target::Yours { .. } => SAMPLE.replace("spec: {}", &spec_with_image(&provided_valkey(target)?)),
    };
    let mut step = Step::start("a Valkey cluster");
    target.apply(&manifest)?;
    step.say("waiting until it is ready");
    shell::run(in_demo(target)?.args(["wait", "--for=condition=Ready", "valkeycluster/demo", "--timeout=120s"]))?;
    step.say("writing and reading a key");
    let written = cli(target, &["SET", "greeting", "hello"])?;
    let read = cli(target, &["GET", "greeting"])?;
    if written.trim() != "OK" || read.trim() != "hello" {
        bail!("SET greeting answered {:?} and GET greeting {:?}", written.trim(), read.trim());
    }
    step.done("SET greeting hello: OK, GET greeting: hello");
    Ok(())
}

/// The local cluster has Valkey on its nodes already; another one gets it through the registry.
fn provided_valkey(target: &Target) -> Result<String> {
    let Some(series) = images::SERIES.first() else { bail!("no series of Valkey is known") };
    let image = images::valkey(series)?;
    let tag = image.reference.rsplit(':').next().unwrap_or_default();
    let image = Image { reference: format!("{}/valkey:{tag}", target.registry()), ..image };
    target.provide(&image)?;
    Ok(image.reference)
}

fn spec_with_image(reference: &str) -> String {
    let (name, tag) = reference.rsplit_once(':').unwrap_or((reference, "latest"));
    format!("spec:\n  valkeyImage: {{name: {name:?}, tag: {tag:?}}}")
}

fn in_demo(target: &Target) -> Result<Command> {
    let mut command = target.kubectl()?;
    command.arg("--namespace=demo");
    Ok(command)
}

fn cli(target: &Target, args: &[&str]) -> Result<String> {
    let password = shell::output(in_demo(target)?.args([
        "get",
        "secret",
        "demo-connection",
        "--output=jsonpath={.data.password}",
    ]))?;
    // Handed over on standard input: an argument could be read by others.
    let script = format!("read -r encoded; export REDISCLI_AUTH=$(echo $encoded | base64 -d); exec {CLI} \"$@\"");
    let mut exec = in_demo(target)?;
    exec.args(["exec", "--stdin", "demo-0-0", "--container=valkey", "--", "sh", "-c", &script, "sh"]).args(args);
    shell::feed(&mut exec, format!("{password}\n").as_bytes())
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
  kubectl --namespace demo get vc                    # is it healthy, what is it doing
  kubectl --namespace demo describe vc demo          # its story
  kubectl --namespace demo get vcs demo -o yaml      # every node of it
  kubectl --namespace demo get secret demo-connection -o yaml   # host, port, user, password and CA for an application

Connect from inside:

  password=$(kubectl --namespace demo get secret demo-connection -o jsonpath='{{.data.password}}' | base64 -d)
  kubectl --namespace demo exec -it demo-0-0 -c valkey -- env REDISCLI_AUTH=\"$password\" {CLI}

End it with: {end}"
    ))
}
