//! When copies of the data are gone: what survives is kept, and what does not is said.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, eventually, secs};
use futures::future::try_join_all;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use valkey_api::topology::{Node, NodeRole};
use valkey_api::{ConditionType, conditions};

const CACHE: &str = "{persistence: {enabled: false}}";

#[e2e::test]
async fn all_pods_of_a_cluster_without_disks_lost_at_once_come_back_empty_and_it_says_so(k: Bench) -> Result<()> {
    let cache = filled(&k, CACHE).await?;
    let since = Instant::now();
    k.pods().labelled("valkey.io/cluster=cache").delete_now().await?;
    let said = cache.until_condition(ConditionType::DataLost, "True", secs(90)).await?;
    cache.ready(secs(90)).await?;
    println!("ready {:.2?} after all pods were deleted: {said}", since.elapsed());
    assert!(said.contains("all data is gone"), "{said}");
    let told = told_losses(&k).await?;
    assert!(told.contains(&said), "{told:?}");
    works(&cache).await
}

#[e2e::test]
async fn all_servers_of_a_cluster_without_disks_killed_at_once_start_over_and_it_says_so(k: Bench) -> Result<()> {
    let cache = filled(&k, CACHE).await?;
    let all: Vec<_> = cache.pods().await?.iter().map(ResourceExt::name_any).collect();
    let since = Instant::now();
    kill(&k, &all).await?;
    cache.until_condition(ConditionType::DataLost, "True", secs(90)).await?;
    cache.ready(secs(90).saturating_sub(since.elapsed())).await?;
    let said = cache.until_condition(ConditionType::DataLost, "True", secs(1)).await?;
    println!("ready {:.2?} after all servers were killed: {said}", since.elapsed());
    let told = told_losses(&k).await?;
    for shard in 0..3 {
        let words = format!("shard {shard} lost its data");
        assert!(said.contains(&words) && told.iter().any(|note| note.contains(&words)), "{said}; events: {told:?}");
    }
    works(&cache).await
}

#[e2e::test]
async fn the_only_server_that_survives_keeps_the_data_of_its_shard(k: Bench) -> Result<()> {
    let cache = filled(&k, CACHE).await?;
    let nodes = cache.topology().await?.status.context("no topology")?.nodes;
    let is_survivor = |node: &&Node| node.shard == 1 && node.role == Some(NodeRole::Replica);
    let survivor = nodes.iter().find(is_survivor).context("shard 1 has no replica")?.pod.clone();
    let keys: u64 = cache.command(&survivor, &["DBSIZE"]).await?;
    assert!(keys > 0, "{survivor} is empty");

    let others: Vec<_> = nodes.into_iter().map(|node| node.pod).filter(|pod| *pod != survivor).collect();
    let since = Instant::now();
    kill(&k, &others).await?;
    cache.until_condition(ConditionType::Ready, "False", secs(20)).await?;
    cache.until_condition(ConditionType::DataLost, "True", secs(90)).await?;
    cache.ready(secs(90)).await?;
    let said = cache.until_condition(ConditionType::DataLost, "True", secs(1)).await?;
    println!("ready {:.2?} after all servers but {survivor} were killed: {said}", since.elapsed());
    assert_eq!(cache.command::<u64>(&survivor, &["DBSIZE"]).await?, keys, "{survivor} lost keys");
    assert!(cache.primaries().await?.contains(&survivor), "{survivor} had the data, and does not lead");
    assert!(said.contains("shard 0") && !said.contains("shard 1") && said.contains("shard 2"), "{said}");
    works(&cache).await
}

#[e2e::test]
async fn a_shard_whose_servers_are_all_killed_is_given_up_alone(k: Bench) -> Result<()> {
    let cache = filled(&k, CACHE).await?;
    let keys = cache.command::<u64>("cache-0-0", &["DBSIZE"]).await?;
    let since = Instant::now();
    kill(&k, &["cache-1-0".into(), "cache-1-1".into()]).await?;
    let said = cache.until_condition(ConditionType::DataLost, "True", secs(90)).await?;
    cache.ready(secs(90)).await?;
    println!("ready {:.2?} after both servers of shard 1 were killed: {said}", since.elapsed());
    assert_eq!(said, "shard 1 lost its data: all copies are gone");
    assert_eq!(cache.command::<u64>("cache-0-0", &["DBSIZE"]).await?, keys, "shard 0 lost keys as well");
    works(&cache).await
}

#[e2e::test]
async fn a_killed_primary_with_snapshots_only_does_not_bring_an_old_one_back(k: Bench) -> Result<()> {
    let spec = "{persistence: {aof: {enabled: false}, rdb: {save: \"1 1\"}}}";
    let shop = Cluster::apply(&k, "shop", spec).await?;
    shop.ready(secs(60)).await?;
    let witness = shop.witness().await?.rate(500).start().await?;
    witness.writes_in_every_shard(500, secs(30)).await?;
    let primary = shop.primaries().await?.into_iter().next().context("nobody leads")?;
    eventually("a snapshot", secs(30), async || k.exec(&primary, &["test", "-s", "/data/dump.rdb"]).await).await?;
    witness.writes_in_every_shard(100, secs(30)).await?;
    let since = Instant::now();
    kill(&k, std::slice::from_ref(&primary)).await?;
    eventually("another one to lead", secs(30), async || {
        let now = shop.primaries().await?;
        ensure!(!now.contains(&primary) && now.len() == 3, "{primary} was killed; leading: {now:?}");
        Ok(())
    })
    .await?;
    shop.until_whole(secs(60)).await?;
    println!("whole {:.2?} after {primary} was killed", since.elapsed());
    witness.writes_in_every_shard(100, secs(30)).await?;
    let verdict = witness.stop().await?;
    println!("{verdict}");
    // What was on its way to the replica when its primary was killed.
    verdict.expect_lost_writes_at_most(20);
    says_nothing_of_loss(&shop).await
}

/// A cluster with keys in every shard, that has lost nothing yet.
async fn filled(k: &Bench, spec: &str) -> Result<Cluster> {
    let cache = Cluster::apply(k, "cache", spec).await?;
    cache.ready(secs(60)).await?;
    works(&cache).await?;
    says_nothing_of_loss(&cache).await?;
    Ok(cache)
}

async fn works(cluster: &Cluster) -> Result<()> {
    let witness = cluster.witness().await?.rate(500).start().await?;
    witness.writes_in_every_shard(200, secs(30)).await?;
    witness.stop().await?.expect_no_error().expect_no_lost_write();
    Ok(())
}

/// All of them at the same moment.
async fn kill(k: &Bench, pods: &[String]) -> Result<()> {
    try_join_all(pods.iter().map(|pod| k.kill_server(pod))).await.map(drop)
}

async fn says_nothing_of_loss(cluster: &Cluster) -> Result<()> {
    let status = cluster.object().await?.status.context("no status")?;
    let said = conditions::get(&status.conditions, ConditionType::DataLost);
    ensure!(said.is_none(), "nothing is lost, and it says: {said:?}");
    Ok(())
}

async fn told_losses(k: &Bench) -> Result<Vec<String>> {
    let events = k.objects::<Event>().list().await?;
    let losses = events.into_iter().filter(|event| event.reason.as_deref() == Some("DataLost"));
    Ok(losses.filter_map(|event| event.note).collect())
}

#[e2e::test]
async fn a_server_without_replicas_and_without_a_disk_takes_its_data_along_and_it_is_said(k: Bench) -> Result<()> {
    let alone = Cluster::apply(&k, "alone", "{replicasPerMaster: 0, persistence: {enabled: false}}").await?;
    alone.ready(secs(60)).await?;
    k.kill_server("alone-1-0").await?;
    let said = alone.until_condition(ConditionType::DataLost, "True", secs(60)).await?;
    assert!(said.contains("shard 1"), "{said}");
    alone.until_whole(secs(60)).await
}
