//! An operator that can be ended at will.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};
use e2e::{Bench, ClusterDns, eventually, ms, secs};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

const HOME: &str = "valkey-operator-system";

/// Who a process of this machine is for the others.
const LOCAL: &str = "local";

/// A process of this machine, in place of the operator in the cluster, which comes back when this is dropped.
pub struct LocalOperator {
    sidecar_image: String,
    namespace: String,
    /// A `resolv.conf`, for it waits until names lead to pods.
    resolver: PathBuf,
}

impl LocalOperator {
    /// Sends the one in the cluster away first.
    pub async fn instead_of_the_installed_one(k: &Bench) -> Result<Self> {
        let deployments: Api<Deployment> = Api::namespaced(k.client().clone(), HOME);
        let installed = deployments.get("valkey-operator").await?;
        let containers =
            installed.spec.and_then(|spec| spec.template.spec).map(|spec| spec.containers).unwrap_or_default();
        let args = containers.into_iter().flat_map(|container| container.args.unwrap_or_default());
        let sidecar_image = args.into_iter().find_map(|arg| Some(arg.strip_prefix("--sidecar-image=")?.to_owned()));
        let operator = Self {
            sidecar_image: sidecar_image.context("no sidecar image")?,
            namespace: k.namespace().to_owned(),
            resolver: std::env::temp_dir().join(format!("{}-resolv.conf", k.namespace())),
        };
        std::fs::write(&operator.resolver, ClusterDns::of(k.client()).await?.resolver())?;
        scale(k.client(), 0).await?;
        let leases: Api<Lease> = Api::namespaced(k.client().clone(), HOME);
        eventually("the Lease to be given back", secs(10), async || {
            let holder = leases.get("valkey-operator").await?.spec.and_then(|spec| spec.holder_identity);
            // One that was killed does not give it back. The next of its name takes it at once.
            ensure!(holder.as_deref().is_none_or(|holder| holder == LOCAL), "{holder:?} holds it");
            Ok(())
        })
        .await?;
        Ok(operator)
    }

    pub fn start(&self, crash_after: Option<u32>) -> Result<Running> {
        let program = std::env::var("OPERATOR").context("OPERATOR must name the operator's program")?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#]);
        command.arg(&self.resolver).arg(program).args([
            "--namespace",
            HOME,
            "--pod",
            LOCAL,
            "--health-addr=127.0.0.1:0",
            "--reports-addr=127.0.0.1:0",
            "--webhook-addr=127.0.0.1:0",
        ]);
        command.args(["--watch-namespaces", &self.namespace, "--sidecar-image", &self.sidecar_image]);
        if let Some(writes) = crash_after {
            command.arg(format!("--crash-after-writes={writes}"));
        }
        Ok(Running(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }
}

impl Drop for LocalOperator {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.resolver);
        // Whatever has become of the test: those after it need an operator.
        let scale = ["--namespace", HOME, "scale", "deployment/valkey-operator", "--replicas=2"];
        let _ = Command::new("kubectl").args(scale).stdout(Stdio::null()).status();
    }
}

/// Killed when it is dropped.
pub struct Running(Child);

impl Running {
    /// Waits for it to end by itself.
    async fn end(&mut self) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            tokio::time::sleep(ms(50)).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many writes later each operator of a sweep dies than the one before: `SWEEP_STEP=1` for each single one.
pub fn step(usual: usize) -> Result<usize> {
    std::env::var("SWEEP_STEP").map_or(Ok(usual), |step| Ok(step.parse()?))
}

pub async fn scale(client: &Client, replicas: u32) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), HOME);
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    deployments.patch("valkey-operator", &PatchParams::default(), &patch).await?;
    eventually("the operator's replicas", secs(60), async || {
        let status = deployments.get("valkey-operator").await?.status.unwrap_or_default();
        let ready = status.ready_replicas.unwrap_or(0);
        ensure!(u32::try_from(ready)? == replicas && status.replicas.unwrap_or(0) == ready, "{ready} are ready");
        Ok(())
    })
    .await
}

/// Works towards a goal with an operator that dies after so many writes, and lets another one finish it. `false` if the goal was
/// reached before that.
pub async fn reached_with_a_crash(
    operator: &LocalOperator,
    writes: u32,
    goal: impl AsyncFn() -> Result<()>,
) -> Result<bool> {
    let mut doomed = operator.start(Some(writes))?;
    let died = tokio::select! {
        status = doomed.end() => {
            ensure!(!status?.success(), "the operator ended well?");
            true
        }
        reached = goal() => { reached?; false }
    };
    drop(doomed);
    let _heir = operator.start(None)?;
    goal().await.with_context(|| format!("killed after write {writes}"))?;
    Ok(died)
}
