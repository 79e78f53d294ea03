//! The operator is killed, and whoever comes after it goes on from what it sees.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, ClusterDns, eventually, ms, secs};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use valkey_api::ValkeyCluster;

const HOME: &str = "valkey-operator-system";

/// The operator as a process of this machine, in place of the one in the cluster, so that it can be ended at will.
struct LocalOperator {
    sidecar_image: String,
    namespace: String,
    /// A `resolv.conf`, for it waits until names lead to pods.
    resolver: PathBuf,
}

impl LocalOperator {
    /// Sends the one in the cluster away first. It comes back with [`Self::retire`].
    async fn instead_of_the_installed_one(k: &Bench) -> Result<Self> {
        let deployments: Api<Deployment> = Api::namespaced(k.client().clone(), HOME);
        let installed = deployments.get("valkey-operator").await?;
        let containers =
            installed.spec.and_then(|spec| spec.template.spec).map(|spec| spec.containers).unwrap_or_default();
        let args = containers.into_iter().flat_map(|container| container.args.unwrap_or_default());
        let sidecar_image = args.into_iter().find_map(|arg| Some(arg.strip_prefix("--sidecar-image=")?.to_owned()));
        scale(k.client(), 0).await?;
        let leases: Api<Lease> = Api::namespaced(k.client().clone(), HOME);
        eventually("the Lease to be given back", secs(10), async || {
            let holder = leases.get("valkey-operator").await?.spec.and_then(|spec| spec.holder_identity);
            ensure!(holder.is_none(), "{holder:?} holds it");
            Ok(())
        })
        .await?;
        let resolver = std::env::temp_dir().join(format!("{}-resolv.conf", k.namespace()));
        std::fs::write(&resolver, ClusterDns::of(k.client()).await?.resolver())?;
        let sidecar_image = sidecar_image.context("no sidecar image")?;
        Ok(Self { sidecar_image, namespace: k.namespace().to_owned(), resolver })
    }

    fn start(&self, crash_after: Option<u32>) -> Result<Child> {
        let program = std::env::var("OPERATOR").context("OPERATOR must name the operator's program")?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#]);
        command.arg(&self.resolver).arg(program).args([
            "--namespace",
            HOME,
            "--pod",
            "local",
            "--health-addr=127.0.0.1:0",
            "--reports-addr=127.0.0.1:0",
            "--webhook-addr=127.0.0.1:0",
        ]);
        command.args(["--watch-namespaces", &self.namespace, "--sidecar-image", &self.sidecar_image]);
        if let Some(writes) = crash_after {
            command.arg(format!("--crash-after-writes={writes}"));
        }
        Ok(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?)
    }
}

impl Drop for LocalOperator {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.resolver);
    }
}

async fn scale(client: &Client, replicas: u32) -> Result<()> {
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
async fn reached_with_a_crash(
    operator: &LocalOperator,
    writes: u32,
    goal: impl AsyncFn() -> Result<()>,
) -> Result<bool> {
    let mut doomed = operator.start(Some(writes))?;
    let end = async {
        loop {
            if let Some(status) = doomed.try_wait()? {
                return anyhow::Ok(status);
            }
            tokio::time::sleep(ms(50)).await;
        }
    };
    let died = tokio::select! {
        status = end => {
            ensure!(!status?.success(), "the operator ended well?");
            true
        }
        reached = goal() => { reached?; false }
    };
    if !died {
        doomed.kill()?;
        doomed.wait()?;
    }
    let mut heir = operator.start(None)?;
    let outcome = goal().await.with_context(|| format!("killed after write {writes}"));
    heir.kill()?;
    heir.wait()?;
    outcome.map(|()| died)
}

/// Forms a cluster while the operator dies after so many writes; `false` if it was done before that.
async fn formed_with_a_crash(k: &Bench, operator: &LocalOperator, writes: u32) -> Result<bool> {
    let name = format!("after-{writes}");
    let cluster = Cluster::apply(k, &name, "{persistence: {enabled: false}}").await?;
    let died = reached_with_a_crash(operator, writes, async || cluster.ready(secs(90)).await.map(drop)).await;
    k.objects::<ValkeyCluster>().delete(&name).await?;
    died
}

/// A change that can be made again and again.
#[derive(Clone, Copy, Debug)]
enum Change {
    Shards,
    Replicas,
    Restart,
    Setting,
    Switchover,
}

impl Change {
    async fn order(self, k: &Bench, cluster: &Cluster, turn: u32) -> Result<()> {
        let one_of = |first: u32, second: u32| if turn.is_multiple_of(2) { first } else { second };
        match self {
            Self::Shards => cluster.change(json!({"masterCount": one_of(3, 4)})).await,
            Self::Replicas => cluster.change(json!({"replicasPerMaster": one_of(1, 2)})).await,
            Self::Restart => cluster.change(json!({"config": {"tcp-backlog": one_of(256, 511).to_string()}})).await,
            Self::Setting => cluster.change(json!({"config": {"maxclients": one_of(500, 600).to_string()}})).await,
            Self::Switchover => {
                let primary = cluster.primaries().await?.into_iter().next().context("nobody leads")?;
                let wish = json!({"metadata": {"annotations": {SWITCHOVER: format!("!{primary}")}}});
                k.objects::<ValkeyCluster>().merge(cluster.name(), wish).await.map(drop)
            }
        }
    }
}

const SWITCHOVER: &str = "valkey.io/switchover";

/// Waits until nothing is left to be done.
async fn done(cluster: &Cluster) -> Result<()> {
    eventually("the wish to be fulfilled", secs(180), async || {
        ensure!(!cluster.object().await?.annotations().contains_key(SWITCHOVER), "it is still there");
        Ok(())
    })
    .await?;
    cluster.settled(secs(180)).await
}

/// A change again and again, each time with an operator that dies one write later, until one survives it.
async fn sweep(
    k: &Bench,
    operator: &LocalOperator,
    cluster: &Cluster,
    change: Change,
    turns: impl Iterator<Item = u32>,
) -> Result<()> {
    let witness = cluster.witness().await?.rate(300).start().await?;
    for (turn, writes) in (1..).zip(turns) {
        change.order(k, cluster, turn).await?;
        let died = reached_with_a_crash(operator, writes, async || done(cluster).await).await;
        if !died.with_context(|| format!("{change:?}"))? {
            println!("{change:?}: {writes} writes are all that it takes");
            break;
        }
    }
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    Ok(())
}

/// A new operator knows nothing at first, and must not take that for how things are.
#[e2e::test(exclusive, minutes = 10)]
async fn an_operator_killed_while_shards_come_and_go_takes_nothing_with_it(k: Bench) -> Result<()> {
    let cache = Cluster::apply(&k, "cache", "{persistence: {enabled: false}}").await?;
    cache.ready(secs(60)).await?;
    let operator = LocalOperator::instead_of_the_installed_one(&k).await?;
    let outcome = sweep(&k, &operator, &cache, Change::Shards, 5..=8).await;
    scale(k.client(), 2).await?;
    outcome
}

/// A change with operators that die, one after each of its writes; `SWEEP_STEP=3`: after every third.
async fn swept(k: Bench, change: Change) -> Result<()> {
    let step = std::env::var("SWEEP_STEP").map_or(Ok(1), |step| step.parse())?;
    let cache = Cluster::apply(&k, "cache", "{persistence: {enabled: false}}").await?;
    cache.ready(secs(60)).await?;
    let operator = LocalOperator::instead_of_the_installed_one(&k).await?;
    let outcome = sweep(&k, &operator, &cache, change, (1..).step_by(step)).await;
    scale(k.client(), 2).await?;
    outcome
}

#[e2e::test(exclusive, minutes = 30)]
#[ignore = "long"]
async fn an_operator_killed_after_any_write_of_a_switchover_loses_nothing(k: Bench) -> Result<()> {
    swept(k, Change::Switchover).await
}

#[e2e::test(exclusive, minutes = 30)]
#[ignore = "long"]
async fn an_operator_killed_after_any_write_of_a_setting_loses_nothing(k: Bench) -> Result<()> {
    swept(k, Change::Setting).await
}

#[e2e::test(exclusive, minutes = 60)]
#[ignore = "long"]
async fn an_operator_killed_after_any_write_of_a_change_of_shards_loses_nothing(k: Bench) -> Result<()> {
    swept(k, Change::Shards).await
}

#[e2e::test(exclusive, minutes = 60)]
#[ignore = "long"]
async fn an_operator_killed_after_any_write_of_a_change_of_replicas_loses_nothing(k: Bench) -> Result<()> {
    swept(k, Change::Replicas).await
}

#[e2e::test(exclusive, minutes = 60)]
#[ignore = "long"]
async fn an_operator_killed_after_any_write_of_a_roll_loses_nothing(k: Bench) -> Result<()> {
    swept(k, Change::Restart).await
}

#[e2e::test(exclusive, minutes = 20)]
async fn an_operator_killed_while_a_cluster_forms_is_continued_by_the_next(k: Bench) -> Result<()> {
    let operator = LocalOperator::instead_of_the_installed_one(&k).await?;
    let mut outcome = Ok(true);
    for writes in [5, 25] {
        outcome = formed_with_a_crash(&k, &operator, writes).await;
        if outcome.is_err() {
            break;
        }
    }
    scale(k.client(), 2).await?;
    outcome.map(drop)
}

/// All of them, one after the other.
#[e2e::test(exclusive, minutes = 60)]
#[ignore = "long"]
async fn an_operator_killed_after_any_of_its_writes_is_continued_by_the_next(k: Bench) -> Result<()> {
    let operator = LocalOperator::instead_of_the_installed_one(&k).await?;
    let mut outcome = Ok(true);
    for writes in 1.. {
        outcome = formed_with_a_crash(&k, &operator, writes).await;
        if !matches!(outcome, Ok(true)) {
            println!("{writes} writes are all that it takes");
            break;
        }
    }
    scale(k.client(), 2).await?;
    outcome.map(drop)
}

/// Five clusters at once, and none of the operators lives for longer than a second.
#[e2e::test(exclusive, minutes = 20)]
#[ignore = "long"]
async fn an_operator_killed_every_second_still_forms_five_clusters(k: Bench) -> Result<()> {
    let operator = LocalOperator::instead_of_the_installed_one(&k).await?;
    let outcome = formed_by_short_lives(&k, &operator).await;
    scale(k.client(), 2).await?;
    outcome
}

async fn formed_by_short_lives(k: &Bench, operator: &LocalOperator) -> Result<()> {
    let mut clusters = Vec::new();
    for number in 0..5 {
        let spec = "{replicasPerMaster: 1, persistence: {enabled: false}}";
        clusters.push(Cluster::apply(k, &format!("hasty-{number}"), spec).await?);
    }
    for _ in 0..40 {
        let mut doomed = operator.start(None)?;
        tokio::time::sleep(secs(1)).await;
        doomed.kill()?;
        doomed.wait()?;
    }
    for cluster in &clusters {
        let formed = k.objects::<ValkeyCluster>().get(cluster.name()).await?.status.and_then(|status| status.phase);
        println!("{} after forty lives of a second: {formed:?}", cluster.name());
    }
    let mut heir = operator.start(None)?;
    let mut outcome = Ok(());
    for cluster in &clusters {
        outcome = outcome.and(cluster.ready(secs(90)).await.map(drop));
    }
    heir.kill()?;
    heir.wait()?;
    outcome
}

#[e2e::test(exclusive)]
#[ignore = "long"]
async fn a_deleted_primary_hands_over_by_itself_while_there_is_no_operator(k: Bench) -> Result<()> {
    let cache = Cluster::apply(&k, "cache", "{persistence: {enabled: false}}").await?;
    cache.ready(secs(60)).await?;
    let witness = cache.witness().await?.rate(500).start().await?;
    witness.writes_in_every_shard(300, secs(30)).await?;
    scale(k.client(), 0).await?;
    let outcome = async {
        let primary = cache.primaries().await?.into_iter().next().context("nobody leads")?;
        k.pods().delete(&primary).await?;
        witness.writes_in_every_shard(500, secs(30)).await
    }
    .await;
    scale(k.client(), 2).await?;
    outcome?;
    cache.settled(secs(60)).await?;
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    Ok(())
}
