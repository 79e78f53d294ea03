//! Pods are made anew one after the other, and nobody notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, eventually, secs};
use kube::ResourceExt;
use serde_json::json;
use valkey_api::topology::NodeRole;
use valkey_api::{ConditionType, ValkeyCluster};

const LIMIT: Duration = Duration::from_mins(4);

#[e2e::test(minutes = 10)]
async fn a_setting_that_needs_a_restart_rolls_one_pod_at_a_time_and_loses_nothing(k: Bench) -> Result<()> {
    let orders = Cluster::apply(&k, "orders", "{}").await?;
    orders.ready(secs(60)).await?;
    let before = orders.uids().await?;
    let witness = orders.witness().await?.rate(500).start().await?;
    witness.writes_in_every_shard(300, secs(30)).await?;
    let since = Instant::now();
    let away = Arc::new(AtomicUsize::new(0));
    let watching = tokio::spawn(count_pods_away(orders.clone(), Arc::clone(&away)));
    orders.change(json!({"config": {"tcp-backlog": "256"}})).await?;
    orders.settled(LIMIT).await?;
    println!("six pods rolled in {:.2?}", since.elapsed());
    ensure!(!watching.is_finished(), "nobody watched the pods");
    watching.abort();
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    let away = away.load(Ordering::Relaxed);
    assert_eq!(away, 1, "{away} pods were away at once");
    let after = orders.uids().await?;
    assert!(before.iter().all(|(pod, uid)| after.get(pod) != Some(uid)), "{before:?} → {after:?}");
    Ok(())
}

#[e2e::test(minutes = 10)]
#[ignore = "long"]
async fn a_new_version_is_rolled_out_and_loses_nothing(k: Bench) -> Result<()> {
    let old = Cluster::apply(&k, "old", "{valkeyImage: {tag: \"8.1.1\"}}").await?;
    old.ready(secs(60)).await?;
    let witness = old.witness().await?.rate(300).start().await?;
    witness.writes_in_every_shard(300, secs(30)).await?;
    let since = Instant::now();
    old.change(json!({"valkeyImage": {"tag": "9.1.2"}})).await?;
    old.settled(LIMIT).await?;
    println!("upgraded in {:.2?}", since.elapsed());
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    assert_eq!(old.object().await?.status.context("no status")?.valkey_version.as_deref(), Some("9.1.2"));
    Ok(())
}

#[e2e::test(minutes = 10)]
#[ignore = "long"]
async fn an_image_that_does_not_exist_stops_at_the_first_pod_and_is_given_up(k: Bench) -> Result<()> {
    let spec = "{persistence: {enabled: false}, upgrade: {validationTimeoutSeconds: 45}}";
    let cache = Cluster::apply(&k, "cache", spec).await?;
    cache.ready(secs(60)).await?;
    let before = cache.uids().await?;
    let witness = cache.witness().await?.rate(300).start().await?;
    cache.change(json!({"valkeyImage": {"tag": "9.1.99"}})).await?;
    eventually("a pod to get stuck", secs(60), async || {
        let failure = cache.object().await?.status.and_then(|status| status.last_failure).context("no failure")?;
        ensure!(failure.reason == "PodCannotStart", "{failure:?}");
        Ok(())
    })
    .await?;
    tokio::time::sleep(secs(5)).await;
    let stuck = cache.uids().await?;
    assert_eq!(before.iter().filter(|(pod, uid)| stuck.get(*pod) != Some(uid)).count(), 1, "{before:?} → {stuck:?}");
    let words = cache.until_condition(ConditionType::Accepted, "False", secs(90)).await?;
    println!("{words}");
    ensure!(words.contains("9.1.99") && words.contains("9.1.2"), "{words}");
    cache.settled(secs(60)).await?;
    let after = cache.uids().await?;
    assert_eq!(before.iter().filter(|(pod, uid)| after.get(*pod) != Some(uid)).count(), 1, "{before:?} → {after:?}");
    cache.change(json!({"valkeyImage": {"tag": "9.1.2"}})).await?;
    cache.until_condition(ConditionType::Accepted, "True", secs(30)).await?;
    cache.settled(secs(60)).await?;
    assert_eq!(cache.uids().await?, after, "the image that runs is asked for again, and a pod was made anew");
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    Ok(())
}

#[e2e::test]
async fn a_shard_is_switched_over_on_request(k: Bench) -> Result<()> {
    let cache = Cluster::apply(&k, "cache", "{persistence: {enabled: false}}").await?;
    cache.ready(secs(60)).await?;
    let witness = cache.witness().await?.rate(500).start().await?;
    witness.writes_in_every_shard(300, secs(30)).await?;
    let nodes = cache.topology().await?.status.context("no topology")?.nodes;
    let of_shard = |role| nodes.iter().find(|node| node.shard == 0 && node.role == Some(role)).map(|n| n.pod.clone());
    let (primary, replica) = (of_shard(NodeRole::Primary), of_shard(NodeRole::Replica));
    let (primary, replica) = (primary.context("no primary")?, replica.context("no replica")?);
    for (wish, next) in [(replica.clone(), &replica), (format!("!{replica}"), &primary)] {
        let change = json!({"metadata": {"annotations": {"valkey.io/switchover": wish}}});
        k.objects::<ValkeyCluster>().merge("cache", change).await?;
        eventually("the wish to be taken off", secs(20), async || {
            let left = cache.object().await?.annotations().get("valkey.io/switchover").cloned();
            ensure!(left.is_none(), "{left:?} is still wished");
            Ok(())
        })
        .await?;
        let primaries = cache.primaries().await?;
        assert!(primaries.contains(next), "{primaries:?} without {next}");
    }
    witness.writes_in_every_shard(100, secs(30)).await?;
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    Ok(())
}

/// Counts how many pods are missing, ending or not ready at the same time, at worst.
async fn count_pods_away(cluster: Cluster, most: Arc<AtomicUsize>) -> Result<()> {
    let all = cluster.pods().await?.len();
    loop {
        let pods = cluster.pods().await?;
        let there = pods.iter().filter(|pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            let ready = conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
            ready && pod.metadata.deletion_timestamp.is_none()
        });
        most.fetch_max(all - there.count(), Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
