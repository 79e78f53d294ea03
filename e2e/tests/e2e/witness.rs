//! The witness itself: what it must see, and what it must not imagine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, Result};
use e2e::witness::Shard;
use e2e::{Bench, PlainCluster, ms, secs};

#[e2e::test(exclusive)]
async fn the_witness_sees_nothing_wrong_in_a_quiet_cluster(k: Bench) -> Result<()> {
    let cluster = PlainCluster::of(&k, "quiet").start().await?;
    println!("{:.2?}", cluster.timings);
    let witness = cluster.witness().start().await?;
    witness.writes_in_every_shard(2000, secs(30)).await?;
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    verdict.expect_pause_below(ms(500) + verdict.noise.length);
    assert_eq!(verdict.shards.len(), 3);
    assert!(verdict.acknowledged >= 6000, "{verdict}");
    Ok(())
}

#[e2e::test]
async fn the_witness_reports_a_flushed_primary(k: Bench) -> Result<()> {
    let cluster = PlainCluster::of(&k, "flushed").start().await?;
    let flushed = &cluster.shards[1];
    let witness = cluster.witness().start().await?;
    witness.writes_in_every_shard(1000, secs(30)).await?;
    cluster.command::<()>(&flushed.primary, &["FLUSHALL", "SYNC"]).await?;
    witness.writes_in_every_shard(200, secs(30)).await?;
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_error();

    let complaint = catch_unwind(AssertUnwindSafe(|| verdict.expect_no_lost_write().acknowledged));
    let complaint = complaint.expect_err("a flushed primary lost writes, and nobody complains");
    println!("as it should be: {}", complaint.downcast_ref::<String>().context("a complaint without words")?);
    assert!(verdict.lost_in_all >= 900, "{verdict}");
    let (first, last) = flushed.slots;
    for (key, lost) in &verdict.lost {
        assert!((first..=last).contains(&lost.key.slot.number()), "{key} was not on the flushed primary: {lost:?}");
    }
    Ok(())
}

#[e2e::test(exclusive)]
async fn the_witness_reports_the_pause_of_a_stopped_primary(k: Bench) -> Result<()> {
    let cluster = PlainCluster::of(&k, "paused").start().await?;
    let paused = &cluster.shards[0].primary;
    let witness = cluster.witness().start().await?;
    witness.writes_in_every_shard(500, secs(30)).await?;
    cluster.command::<()>(paused, &["CLIENT", "PAUSE", "700", "WRITE"]).await?;
    witness.writes_in_every_shard(500, secs(30)).await?;
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    let paused = paused.address.to_string();
    let (stopped, others): (Vec<_>, Vec<_>) = verdict.shards.iter().partition(|shard| shard.name == paused);
    let as_long_as_it_was = ms(650)..ms(1500) + verdict.noise.length;
    assert!(as_long_as_it_was.contains(&stopped[0].pause.length), "{paused} was stopped for 700 ms:\n{verdict}");
    let unharmed = |shard: &&Shard| shard.pause.length < ms(500) + verdict.noise.length;
    assert!(others.iter().all(unharmed), "only {paused} was stopped:\n{verdict}");
    Ok(())
}
