//! `make bench`: what the bench and plain Valkey reach, each figure beside the one that it is to be compared with.
//!
//! Figures of one run on one machine: the ratios travel, the seconds do not. Nothing here fails because it is slow.

mod changes;
mod moves;
mod operator;

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::{Bench, PlainCluster, eventually, ms, secs};

#[e2e::test(exclusive, minutes = 60)]
async fn figures(k: Bench) -> Result<()> {
    let rounds: usize = std::env::var("BENCH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let (mut one, mut six, mut by_hand, mut by_us) = (vec![], vec![], vec![], vec![]);
    let (mut operated, mut without_volumes, mut late) = (vec![], vec![], vec![]);
    let (mut thirty, mut large) = (vec![], vec![]);
    let (mut small_operator, mut sidecar) = (0.0_f64, 0.0_f64);
    // First: what was deleted within the last ten minutes is still being swept up.
    let kept = e2e::Cluster::apply(&k, "kept", "{}").await?;
    kept.ready(secs(60)).await?;
    let (reads, writes) = operator::quiet_minute(&k).await?;
    operator::remove(&k, "kept").await?;
    for round in 0..rounds {
        println!("round {} of {rounds}", round + 1);
        one.push(PlainCluster::of(&k, &format!("one-{round}")).shards(1).replicas(0).start_pods().await?.1);
        six.push(PlainCluster::of(&k, &format!("six-{round}")).start_pods().await?.1);
        let hand = PlainCluster::of(&k, &format!("hand-{round}")).stock().start_by_hand().await?;
        by_hand.push(hand.pods_ready + hand.formation);
        let quick = PlainCluster::of(&k, &format!("quick-{round}")).start().await?;
        by_us.push(quick.timings.pods_ready + quick.timings.formation);
        let ours = operator::formation(&k, &format!("ours-{round}"), "{}").await?;
        operated.push(ours.whole);
        late.push(ours.late);
        small_operator = small_operator.max(operator::resident_megabytes(&["valkey-operator --health-addr"])?);
        sidecar = sidecar.max(operator::resident_megabytes(&["valkey-sidecar run"])?);
        let cache = operator::formation(&k, &format!("cache-{round}"), "{persistence: {enabled: false}}").await?;
        without_volumes.push(cache.whole);
        operator::remove(&k, &format!("ours-{round}")).await?;
        operator::remove(&k, &format!("cache-{round}")).await?;
        if round < LARGE_ROUNDS {
            let bare = format!("thirty-{round}");
            thirty.push(PlainCluster::of(&k, &bare).shards(10).replicas(2).start_pods().await?.1);
            remove(&k, &bare).await?;
            let wide = "{masterCount: 10, replicasPerMaster: 2, persistence: {enabled: false}}";
            large.push(operator::formation(&k, &format!("large-{round}"), wide).await?.whole);
            operator::remove(&k, &format!("large-{round}")).await?;
        }
        for name in ["one", "six", "hand", "quick"] {
            remove(&k, &format!("{name}-{round}")).await?;
        }
    }
    let (pauses, noise) = handovers(&k, rounds).await?;
    let many = operator::many(&k, MANY).await?;

    println!("\n| figure | median | least | most | ratio |\n|---|---|---|---|---|");
    let base = row("one pod: applied → ready", &mut one, None);
    row("six-pod StatefulSet: applied → ready", &mut six, Some(("one pod", base)));
    let base = row("3×1 by hand (valkey-cli, stock settings): applied → healthy", &mut by_hand, None);
    row("3×1 by direct commands: applied → healthy", &mut by_us, Some(("by hand", base)));
    let ours = row("3×1 by the operator, `spec: {}`: applied → healthy", &mut operated, Some(("by hand", base)));
    let cache =
        row("3×1 by the operator, without volumes: applied → healthy", &mut without_volumes, Some(("by hand", base)));
    let pods = row("30-pod StatefulSet: applied → ready", &mut thirty, Some(("3×1 without volumes", cache)));
    row("10×2 by the operator, without volumes: applied → healthy", &mut large, Some(("3×1 without volumes", cache)));
    row("the same", &mut large, Some(("30 plain pods", pods)));
    row("healthy → `Ready=True` (`spec: {}`)", &mut late, Some(("applied → healthy", ours)));
    let base = row("longest gap of an idle timer (the machine's noise)", &mut [noise], None);
    row("write pause of CLUSTER FAILOVER", &mut pauses.clone(), Some(("noise", base)));
    println!("\n| figure | |\n|---|---|");
    println!("| operator, resident, one or two clusters | {small_operator:.1} MB |");
    println!("| operator, resident, {MANY} more clusters of one node | {many:.1} MB |");
    println!("| sidecar, resident, the largest | {sidecar:.1} MB |");
    println!("| API requests in a quiet minute, Lease apart | {reads} reads, {writes} writes |");
    Ok(())
}

/// Thirty pods take their time on two cores.
const LARGE_ROUNDS: usize = 2;
const MANY: usize = 20;

async fn remove(k: &Bench, name: &str) -> Result<()> {
    use k8s_openapi::api::apps::v1::StatefulSet;
    k.objects::<StatefulSet>().delete(name).await?;
    let pods = k.pods().labelled(&format!("app.kubernetes.io/name={name}"));
    pods.until_gone("the pods to be gone", secs(60)).await
}

/// The pause that a client sees when a shard is handed over on purpose, and the noise meanwhile.
async fn handovers(k: &Bench, rounds: usize) -> Result<(Vec<Duration>, Duration)> {
    let cluster = PlainCluster::of(k, "handover").start().await?;
    let shard = cluster.shards.first().context("a cluster without shards")?;
    let replica = shard.replicas.first().context("a shard without replicas")?;
    let (mut pauses, mut noise) = (Vec::new(), Duration::ZERO);
    for round in 0..rounds {
        let heir = if round % 2 == 0 { replica } else { &shard.primary };
        let witness = cluster.witness().start().await?;
        witness.writes_in_every_shard(500, secs(30)).await?;
        cluster.command::<()>(heir, &["CLUSTER", "FAILOVER"]).await?;
        eventually("the replica to be primary", secs(10), async || {
            let role: String = cluster.command(heir, &["INFO", "replication"]).await?;
            anyhow::ensure!(role.contains("role:master"), "still a replica");
            Ok(())
        })
        .await?;
        witness.writes_in_every_shard(500, secs(30)).await?;
        let verdict = witness.stop().await?;
        verdict.expect_no_lost_write().expect_no_error();
        pauses.push(verdict.longest_pause().map_or(Duration::ZERO, |shard| shard.pause.length));
        noise = noise.max(verdict.noise.length);
    }
    Ok((pauses, noise.max(ms(1))))
}

/// Prints a row and gives its median.
fn row(name: &str, times: &mut [Duration], against: Option<(&str, Duration)>) -> Duration {
    times.sort_unstable();
    let at = |place: usize| times.get(place).copied().unwrap_or_default();
    let median = at(times.len() / 2);
    let ratio = against.map(|(what, base)| format!("{:.2}× {what}", median.as_secs_f64() / base.as_secs_f64()));
    println!(
        "| {name} | {median:.2?} | {:.2?} | {:.2?} | {} |",
        at(0),
        at(times.len().saturating_sub(1)),
        ratio.unwrap_or_default()
    );
    median
}
