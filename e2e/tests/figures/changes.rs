//! Figures of planned change: what a client notices of it, and how long it takes beside the same done by hand.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::witness::Verdict;
use e2e::{Bench, Cluster, eventually, ms, secs};
use kube::ResourceExt;
use serde_json::json;
use valkey_api::ValkeyCluster;

use crate::{operator, row};

const LIMIT: Duration = Duration::from_mins(5);
const SWITCHOVER: &str = "valkey.io/switchover";
/// As often as the figure is promised for.
const TIMES: usize = 20;

#[e2e::test(exclusive, minutes = 60)]
async fn handovers_and_rolls(k: Bench) -> Result<()> {
    let cache = Cluster::apply(&k, "cache", "{persistence: {enabled: false}}").await?;
    cache.ready(secs(60)).await?;
    let mut switched = Vec::new();
    let mut deleted = Vec::new();
    for turn in 0..TIMES {
        println!("handover {} of {TIMES}", turn + 1);
        switched.push(witnessed(&cache, switch(&k, &cache, turn)).await?);
        deleted.push(witnessed(&cache, delete(&k, &cache, turn)).await?);
    }
    let restarts = restarts(&k, &cache).await?;
    let roll = witnessed(&cache, roll(&cache)).await?;
    operator::remove(&k, "cache").await?;

    println!("\n| figure | median | least | most | ratio |\n|---|---|---|---|---|");
    pauses("a shard is handed over by annotation", &switched);
    pauses("a primary's pod is deleted", &deleted);
    let base = row("six restarts by hand, one after the other: deleted → in sync", &mut [restarts], None);
    row("roll of 3×1: setting changed → done", &mut [roll.took], Some(("the restarts", base)));
    row("the longest write pause meanwhile", &mut [roll.pause], None);
    Ok(())
}

/// A change, as a client saw it.
struct Noticed {
    took: Duration,
    pause: Duration,
    /// What the machine itself added to that.
    noise: Duration,
}

/// Makes a change under load. Nothing may be lost and nothing may fail, or there is no figure.
async fn witnessed(cluster: &Cluster, change: impl Future<Output = Result<()>>) -> Result<Noticed> {
    let witness = cluster.witness().await?.rate(1000).start().await?;
    witness.writes_in_every_shard(100, secs(30)).await?;
    let since = Instant::now();
    change.await?;
    let took = since.elapsed();
    witness.writes_in_every_shard(100, secs(30)).await?;
    let verdict: Verdict = witness.stop().await?;
    verdict.expect_no_lost_write().expect_no_error();
    let pause = verdict.longest_pause().map_or(Duration::ZERO, |shard| shard.pause.length);
    Ok(Noticed { took, pause, noise: verdict.noise.length })
}

fn pauses(what: &str, noticed: &[Noticed]) {
    let mut noise: Vec<_> = noticed.iter().map(|one| one.noise.max(ms(1))).collect();
    let mut pauses: Vec<_> = noticed.iter().map(|one| one.pause).collect();
    let base = row(&format!("{what}: noise of the machine meanwhile"), &mut noise, None);
    row(&format!("{what}: longest write pause"), &mut pauses, Some(("noise", base)));
    pauses.sort_unstable();
    let above: Vec<_> = noticed.iter().map(|one| one.pause.saturating_sub(one.noise)).collect();
    let p95 = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times.get((times.len() * 95).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
    };
    println!("| {what}: p95 of {} | {:.2?} | | | {:.2?} above noise |", noticed.len(), p95(pauses), p95(above));
}

/// Has a shard's replica lead, by annotation.
async fn switch(k: &Bench, cluster: &Cluster, turn: usize) -> Result<()> {
    let primary = primary(cluster, turn).await?;
    let wish = json!({"metadata": {"annotations": {SWITCHOVER: format!("!{primary}")}}});
    k.objects::<ValkeyCluster>().merge(cluster.name(), wish).await?;
    eventually("the wish to be fulfilled", secs(30), async || {
        let left = cluster.object().await?.annotations().get(SWITCHOVER).cloned();
        ensure!(left.is_none(), "{left:?} is still wished");
        Ok(())
    })
    .await?;
    cluster.settled(LIMIT).await
}

async fn delete(k: &Bench, cluster: &Cluster, turn: usize) -> Result<()> {
    let primary = primary(cluster, turn).await?;
    replace(k, cluster, &primary).await
}

async fn primary(cluster: &Cluster, turn: usize) -> Result<String> {
    let primaries = cluster.primaries().await?;
    primaries.get(turn % primaries.len().max(1)).cloned().context("nobody leads")
}

/// Deletes a pod and waits until its successor is in sync.
async fn replace(k: &Bench, cluster: &Cluster, pod: &str) -> Result<()> {
    let before = k.pods().get(pod).await?.uid();
    k.pods().delete(pod).await?;
    eventually("its successor to be in sync", LIMIT, async || {
        ensure!(k.pods().get(pod).await?.uid() != before, "{pod} is still there");
        cluster.is_whole().await
    })
    .await?;
    cluster.settled(LIMIT).await
}

/// What six restarts one after the other take without anybody who decides: every shard's replica, twice.
async fn restarts(k: &Bench, cluster: &Cluster) -> Result<Duration> {
    let primaries = cluster.primaries().await?;
    let pods: Vec<_> = cluster.pods().await?.iter().map(ResourceExt::name_any).collect();
    let mut all = Duration::ZERO;
    for pod in pods.iter().filter(|pod| !primaries.contains(pod)) {
        let before = k.pods().get(pod).await?.uid();
        let since = Instant::now();
        k.pods().delete(pod).await?;
        eventually("its successor to be in sync", LIMIT, async || {
            ensure!(k.pods().get(pod).await?.uid() != before, "{pod} is still there");
            cluster.is_whole().await
        })
        .await?;
        all += since.elapsed() * 2;
        cluster.settled(LIMIT).await?;
    }
    Ok(all)
}

async fn roll(cluster: &Cluster) -> Result<()> {
    cluster.change(json!({"config": {"tcp-backlog": "256"}})).await?;
    cluster.settled(LIMIT).await
}
