//! A fourth shard for a cluster with a gigabyte of data: by the operator, and by hand with the engine's own migration.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::witness::Slot;
use e2e::{Bench, Cluster, ms, secs};
use futures::future::try_join_all;
use redis::cmd;
use serde_json::json;

use crate::{operator, row};

const LIMIT: Duration = Duration::from_mins(3);
const VALUE: usize = 4096;
/// A gigabyte in all.
const KEYS: usize = 262_144;
const MOVED: u32 = 4096;
const ROUNDS: usize = 3;

#[e2e::test(exclusive, minutes = 30)]
async fn a_fourth_shard_for_a_gigabyte(k: Bench) -> Result<()> {
    let large = Cluster::apply(&k, "large", "{persistence: {enabled: false}}").await?;
    large.ready(secs(60)).await?;
    load(&large).await?;
    let (mut operated, mut all) = (vec![], vec![]);
    for round in 1..=ROUNDS {
        let since = Instant::now();
        large.change(json!({"masterCount": 4})).await?;
        operated.push(moving(&large).await?);
        large.settled(LIMIT).await?;
        all.push(since.elapsed());
        println!("a fourth shard, {round} of {ROUNDS}");
        if round < ROUNDS {
            large.change(json!({"masterCount": 3})).await?;
            large.settled(LIMIT).await?;
        }
    }

    let (mut at_once, mut one_by_one, mut again) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        large.change(json!({"paused": true})).await?;
        tokio::time::sleep(secs(2)).await;
        back(&large).await?;
        at_once.push(forth(&large, Way::AllAtOnce).await?);
        back(&large).await?;
        one_by_one.push(forth(&large, Way::OneSourceAfterTheOther).await?);
        back(&large).await?;
        large.change(json!({"paused": false})).await?;
        again.push(moving(&large).await?);
        large.settled(LIMIT).await?;
    }
    operator::remove(&k, "large").await?;

    println!("\n| figure | median | least | most | ratio |\n|---|---|---|---|---|");
    let first = row("4096 slots with 256 MB to a fourth shard by hand, all sources at once", &mut at_once, None);
    let second = row("the same, one source after the other", &mut one_by_one, None);
    let base = first.min(second);
    row("the same by the operator: first slot → last slot", &mut again, Some(("the better of these", base)));
    row("3→4 shards with 1 GB, pods and all: first slot → last slot", &mut operated, Some(("the same", base)));
    row("3→4 shards with 1 GB, pods and all: changed → done", &mut all, Some(("the same", base)));
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Way {
    AllAtOnce,
    OneSourceAfterTheOther,
}

/// Puts the same amount of data into every slot.
async fn load(cluster: &Cluster) -> Result<()> {
    let since = Instant::now();
    Slot::prepare_tags();
    let primaries = primaries(cluster).await?;
    let loads = primaries.into_iter().map(async |Primary { pod, slots, .. }| {
        cluster.fill(&pod, slots, KEYS / usize::from(Slot::COUNT), VALUE).await
    });
    try_join_all(loads).await?;
    println!("{} MB loaded in {:.2?}", KEYS * VALUE / 1_000_000, since.elapsed());
    Ok(())
}

struct Primary {
    pod: String,
    id: String,
    slots: Vec<u16>,
}

/// Who owns what, by each one's own word; in the order of their shards.
async fn primaries(cluster: &Cluster) -> Result<Vec<Primary>> {
    let mut all = Vec::new();
    for view in cluster.views().await? {
        let line = view.nodes.lines().find(|line| line.contains("myself")).context("no line about itself")?;
        let words: Vec<_> = line.split(' ').collect();
        let [id, _, flags, ..] = words.as_slice() else { anyhow::bail!("{line}") };
        if flags.contains("master") {
            let slots = words.iter().skip(8).filter(|word| !word.starts_with('[')).map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                anyhow::Ok(first.parse::<u16>()?..=last.parse::<u16>()?)
            });
            let slots: Vec<u16> = slots.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
            all.push(Primary { pod: view.pod, id: (*id).to_owned(), slots });
        }
    }
    Ok(all)
}

/// How long slots moved to the fourth shard: from the first job that runs on a source to the last slot.
async fn moving(cluster: &Cluster) -> Result<Duration> {
    let sources: Vec<_> = primaries(cluster).await?.into_iter().filter(|primary| !primary.slots.is_empty()).collect();
    let endpoint = cluster.admin().await?;
    let mut nodes = Vec::new();
    for source in &sources {
        nodes.push(endpoint.node(cluster.host(&source.pod), secs(5)).await?);
    }
    let (mut begun, limit) = (None, Instant::now() + LIMIT);
    loop {
        ensure!(Instant::now() < limit, "no end of the moves");
        let mut left = 0;
        for node in &mut nodes {
            let (jobs, slots): (redis::Value, String) = redis::pipe()
                .cmd("CLUSTER")
                .arg("GETSLOTMIGRATIONS")
                .cmd("CLUSTER")
                .arg("NODES")
                .query_async(node)
                .await?;
            if unfinished(&jobs)? {
                begun.get_or_insert_with(Instant::now);
            }
            left += owned(&slots);
        }
        if let Some(begun) = begun.filter(|_| left == 16384 - MOVED) {
            return Ok(begun.elapsed());
        }
        tokio::time::sleep(ms(20)).await;
    }
}

fn owned(table: &str) -> u32 {
    let words = table.lines().find(|line| line.contains("myself")).into_iter().flat_map(|line| line.split(' ').skip(8));
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<u32>().ok()? - first.parse::<u32>().ok()? + 1)
    };
    words.filter_map(count).sum()
}

/// By hand: everything of the fourth shard to the others.
async fn back(cluster: &Cluster) -> Result<()> {
    let all = primaries(cluster).await?;
    let [others @ .., fourth] = all.as_slice() else { anyhow::bail!("no primaries") };
    let share = fourth.slots.len().div_ceil(others.len());
    for (other, slots) in others.iter().zip(fourth.slots.chunks(share)) {
        order(cluster, &fourth.pod, slots, &other.id).await?;
        until_idle(cluster, &fourth.pod).await?;
    }
    Ok(())
}

/// By hand: a fourth of everybody's slots to the fourth shard.
async fn forth(cluster: &Cluster, way: Way) -> Result<Duration> {
    let all = primaries(cluster).await?;
    let [others @ .., fourth] = all.as_slice() else { anyhow::bail!("no primaries") };
    let since = Instant::now();
    let mut left = usize::try_from(MOVED)?;
    for (index, other) in others.iter().enumerate() {
        let share = left / (others.len() - index);
        left -= share;
        let slots: Vec<u16> = other.slots.iter().rev().take(share).rev().copied().collect();
        order(cluster, &other.pod, &slots, &fourth.id).await?;
        if matches!(way, Way::OneSourceAfterTheOther) {
            until_idle(cluster, &other.pod).await?;
        }
    }
    for other in others {
        until_idle(cluster, &other.pod).await?;
    }
    Ok(since.elapsed())
}

async fn order(cluster: &Cluster, pod: &str, slots: &[u16], to: &str) -> Result<()> {
    let mut node = cluster.admin().await?.node(cluster.host(pod), secs(5)).await?;
    let mut order = cmd("CLUSTER");
    order.arg("MIGRATESLOTS").arg("SLOTSRANGE");
    for range in slots.chunk_by(|a, b| a + 1 == *b) {
        let (Some(first), Some(last)) = (range.first(), range.last()) else { continue };
        order.arg(first).arg(last);
    }
    Ok(order.arg("NODE").arg(to).query_async(&mut node).await?)
}

/// Waits until a source has no job under way, and none failed.
async fn until_idle(cluster: &Cluster, pod: &str) -> Result<()> {
    let mut node = cluster.admin().await?.node(cluster.host(pod), secs(5)).await?;
    let limit = Instant::now() + LIMIT;
    loop {
        let jobs: redis::Value = cmd("CLUSTER").arg("GETSLOTMIGRATIONS").query_async(&mut node).await?;
        if !unfinished(&jobs)? {
            return Ok(());
        }
        ensure!(Instant::now() < limit, "no end of the moves by hand");
        tokio::time::sleep(ms(20)).await;
    }
}

/// Whether any job of a server is under way, be it from or to it. The finished ones stay in its list.
fn unfinished(jobs: &redis::Value) -> Result<bool> {
    let text = format!("{jobs:?}");
    ensure!(!text.contains("failed"), "a job failed: {text}");
    Ok(text.matches("success").count() < text.matches("operation").count())
}
