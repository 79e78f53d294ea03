//! Machines are emptied one after the other, and nobody notices.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, eventually, secs};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::EvictParams;
use kube::{Api, ResourceExt};
use tokio::process::Command;

#[e2e::test(exclusive, minutes = 15)]
#[ignore = "long"]
async fn each_node_in_turn_is_drained_and_no_write_is_lost(k: Bench) -> Result<()> {
    let cache = Cluster::apply(&k, "cache", "{persistence: {enabled: false}}").await?;
    cache.ready(secs(60)).await?;
    let witness = cache.witness().await?.rate(500).start().await?;
    witness.writes_in_every_shard(300, secs(30)).await?;
    let nodes: Vec<_> = k.cluster_objects::<Node>().list().await?.iter().map(ResourceExt::name_any).collect();
    for node in &nodes {
        let since = Instant::now();
        let drained =
            kubectl(&["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s"]).await;
        println!("{node} drained in {:.2?}", since.elapsed());
        let left = here(&cache, node).await;
        // Whatever came of it, the next test wants a machine that takes pods.
        kubectl(&["uncordon", node]).await?;
        drained?;
        ensure!(left? == 0, "{node} still has pods of the cluster");
        cache.settled(Duration::from_mins(2)).await?;
    }
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    Ok(())
}

async fn here(cluster: &Cluster, node: &str) -> Result<usize> {
    let pods = cluster.pods().await?;
    let on = |pod: &&Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some(node));
    Ok(pods.iter().filter(on).count())
}

pub async fn kubectl(words: &[&str]) -> Result<()> {
    let output = Command::new("kubectl").args(words).stdin(Stdio::null()).kill_on_drop(true).output().await?;
    ensure!(
        output.status.success(),
        "kubectl {}: {}{}",
        words.join(" "),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// What an autoscaler or a descheduler does: it asks for one pod, on a machine that nobody has closed.
#[e2e::test(minutes = 5)]
async fn an_eviction_waits_until_the_shard_is_handed_over_and_the_successor_is_covered_again(k: Bench) -> Result<()> {
    let cache = Cluster::apply(&k, "cache", "{persistence: {enabled: false}}").await?;
    cache.ready(secs(60)).await?;
    let witness = cache.witness().await?.rate(500).start().await?;
    witness.writes_in_every_shard(300, secs(30)).await?;
    let primary = cache.primaries().await?.into_iter().next().context("nobody leads")?;
    let before = k.pods().get(&primary).await?.uid();
    eventually("the pod to be evicted", secs(60), async || {
        ensure!(evict(&k, &primary).await? == Eviction::Done, "not now");
        Ok(())
    })
    .await?;
    eventually("its successor to come up", secs(60), async || {
        ensure!(k.pods().get(&primary).await?.uid() != before, "it is still there");
        cache.is_whole().await
    })
    .await?;
    cache.settled(secs(60)).await?;
    ensure!(!cache.primaries().await?.contains(&primary), "the evicted pod leads");
    let marked = k.pods().get(&primary).await?.labels().contains_key("valkey.io/evictable");
    ensure!(!marked, "the successor is not covered by the budget");
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
pub enum Eviction {
    Done,
    NotNow,
}

pub async fn evict(k: &Bench, pod: &str) -> Result<Eviction> {
    let pods: Api<Pod> = Api::namespaced(k.client().clone(), k.namespace());
    match pods.evict(pod, &EvictParams::default()).await {
        Ok(_) => Ok(Eviction::Done),
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(Eviction::NotNow),
        Err(error) => Err(error.into()),
    }
}
