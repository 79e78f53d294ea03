//! The operator is killed, and whoever comes after it goes on from what it sees.

use anyhow::{Context, Result};
use e2e::{Bench, Cluster, secs};
use valkey_api::ValkeyCluster;

use crate::local_operator::{LocalOperator, reached_with_a_crash, scale, step};

/// Forms a cluster while the operator dies after so many writes; `false` if it was done before that.
async fn formed_with_a_crash(k: &Bench, operator: &LocalOperator, writes: u32) -> Result<bool> {
    let name = format!("after-{writes}");
    let cluster = Cluster::apply(k, &name, "{persistence: {enabled: false}}").await?;
    let died = reached_with_a_crash(operator, writes, async || cluster.ready(secs(90)).await.map(drop)).await;
    k.objects::<ValkeyCluster>().delete(&name).await?;
    died
}

#[e2e::test(exclusive, minutes = 20)]
async fn an_operator_killed_while_a_cluster_forms_is_continued_by_the_next(k: Bench) -> Result<()> {
    let operator = LocalOperator::instead_of_the_installed_one(&k).await?;
    for writes in [5, 25] {
        formed_with_a_crash(&k, &operator, writes).await?;
    }
    Ok(())
}

/// All the way, one after the other.
#[e2e::test(exclusive, minutes = 60)]
#[ignore = "long"]
async fn an_operator_killed_after_any_of_its_writes_is_continued_by_the_next(k: Bench) -> Result<()> {
    let step = step(5)?;
    let operator = LocalOperator::instead_of_the_installed_one(&k).await?;
    for writes in (1..).step_by(step) {
        if !formed_with_a_crash(&k, &operator, writes).await? {
            println!("{writes} writes are all that it takes");
            break;
        }
    }
    Ok(())
}

/// Five clusters at once, and none of the operators lives for longer than a second.
#[e2e::test(exclusive, minutes = 20)]
#[ignore = "long"]
async fn an_operator_killed_every_second_still_forms_five_clusters(k: Bench) -> Result<()> {
    let operator = LocalOperator::instead_of_the_installed_one(&k).await?;
    let mut clusters = Vec::new();
    for number in 0..5 {
        let spec = "{replicasPerMaster: 1, persistence: {enabled: false}}";
        clusters.push(Cluster::apply(&k, &format!("hasty-{number}"), spec).await?);
    }
    for _ in 0..40 {
        let doomed = operator.start(None)?;
        tokio::time::sleep(secs(1)).await;
        drop(doomed);
    }
    for cluster in &clusters {
        let formed = k.objects::<ValkeyCluster>().get(cluster.name()).await?.status.and_then(|status| status.phase);
        println!("{} after forty lives of a second: {formed:?}", cluster.name());
    }
    let _heir = operator.start(None)?;
    for cluster in &clusters {
        cluster.ready(secs(90)).await?;
    }
    Ok(())
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
    // Nobody has looked since the pod was deleted: what the status says is about before.
    cache.until_whole(secs(60)).await?;
    cache.settled(secs(60)).await?;
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    Ok(())
}
