//! Further programs that only some tests need; each is built when it is first asked for.

use anyhow::{Context, Result};

use super::lifecycle::{load, running};
use crate::images;
use crate::progress::Step;
use crate::{shell, tools};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Addon {
    /// Issues certificates (1.11)
    CertManager,
}

/// Builds the add-on, puts it into the cluster and waits until it works. Safe to repeat.
pub fn install(name: &str, addon: Addon) -> Result<()> {
    running(name)?;
    match addon {
        Addon::CertManager => cert_manager(name),
    }
}

fn cert_manager(name: &str) -> Result<()> {
    const PARTS: [(&str, &[&str], &str); 3] = [
        ("controller", &["/cert-manager-controller"], "image"),
        ("webhook", &["/cert-manager-webhook"], "webhook.image"),
        ("cainjector", &["/cert-manager-cainjector"], "cainjector.image"),
    ];
    const MODULE: &str = "github.com/cert-manager/cert-manager";
    let programs = tools::CERT_MANAGER.ensure()?;
    let version = tools::CERT_MANAGER.pinned(MODULE)?;
    let mut step = Step::start(format!("install cert-manager {version}"));
    let bench = running(name)?;
    let mut install = std::process::Command::new(bench.tools.kubernetes.join("helm"));
    install.env("KUBECONFIG", bench.kubeconfig()).args(["upgrade", "--install", "cert-manager"]);
    for (part, entrypoint, value) in PARTS {
        step.say(part);
        let program = programs.join(format!("cert-manager-{part}"));
        let repository = format!("localhost/cert-manager-{part}");
        let image = images::go_program(&format!("{repository}:{version}"), &program, entrypoint)?;
        load(name, &image)?;
        install.arg("--set").arg(format!("{value}.repository={repository},{value}.tag={version}"));
    }
    let chart = chart(&tools::CERT_MANAGER.checkout(MODULE)?, &version).context("cannot prepare the chart")?;
    step.say("helm");
    install.arg(&chart).args(["--namespace=cert-manager", "--create-namespace", "--wait", "--timeout=120s"]);
    install.args(["--set", "installCRDs=true,startupapicheck.enabled=false"]);
    shell::run(&mut install)?;
    step.done("");
    Ok(())
}

/// The chart as the module ships it, completed the way its own release does: the CRDs as templates, and a version.
fn chart(module: &std::path::Path, version: &str) -> Result<std::path::PathBuf> {
    let source = module.join("deploy/charts/cert-manager");
    let target = crate::paths::cache()?.join("tools").join(format!("cert-manager-chart-{version}"));
    if target.exists() {
        std::fs::remove_dir_all(&target)?;
    }
    std::fs::create_dir_all(target.join("templates"))?;
    let copy = |from: &std::path::Path, to: &std::path::Path| -> Result<()> {
        std::fs::copy(from, to).map(drop).with_context(|| format!("cannot copy {}", from.display()))
    };
    copy(&source.join("values.yaml"), &target.join("values.yaml"))?;
    for entry in std::fs::read_dir(source.join("templates"))? {
        let entry = entry?;
        copy(&entry.path(), &target.join("templates").join(entry.file_name()))?;
    }
    for entry in std::fs::read_dir(module.join("deploy/crds"))? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "yaml") {
            copy(&entry.path(), &target.join("templates").join(entry.file_name()))?;
        }
    }
    let about = format!("apiVersion: v2\nname: cert-manager\nversion: {version}\nappVersion: {version}\n");
    std::fs::write(target.join("Chart.yaml"), about)?;
    Ok(target)
}
