//! Shards and replicas come and go under load, and nobody notices.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, eventually, secs};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use valkey_api::{ConditionType, ValkeyCluster, conditions};

const LIMIT: Duration = Duration::from_mins(3);

#[e2e::test(minutes = 10)]
async fn shards_come_and_go_under_load_and_no_write_is_lost(k: Bench) -> Result<()> {
    let orders = Cluster::apply(&k, "orders", "{}").await?;
    orders.ready(secs(60)).await?;
    let ready = ready_since(&orders).await?;
    let witness = orders.witness().await?.rate(500).start().await?;
    witness.writes_in_every_shard(500, secs(30)).await?;
    for masters in [5, 3] {
        let since = Instant::now();
        orders.change(json!({"masterCount": masters})).await?;
        orders.settled(LIMIT).await?;
        println!("{masters} shards after {:.2?}", since.elapsed());
        is_balanced(&orders, masters).await?;
        witness.writes_in_every_shard(100, secs(30)).await?;
    }
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();

    stayed_ready(&k, &orders, ready).await?;
    let sets: Vec<_> = k.objects::<StatefulSet>().list().await?.iter().map(ResourceExt::name_any).collect();
    assert_eq!(sets, ["orders-0", "orders-1", "orders-2"]);
    eventually("the volumes of the removed shards to be given back", secs(30), async || {
        let claims = k.objects::<PersistentVolumeClaim>().list().await?.len();
        ensure!(claims == 6, "{claims} claims");
        Ok(())
    })
    .await
}

/// Without atomic migration: slot by slot, key by key.
#[e2e::test(minutes = 10)]
#[ignore = "long"]
async fn an_older_release_scales_in_the_classic_way(k: Bench) -> Result<()> {
    let spec = "{valkeyImage: {tag: \"8.1.1\"}, persistence: {enabled: false}}";
    let old = Cluster::apply(&k, "old", spec).await?;
    old.ready(secs(60)).await?;
    let ready = ready_since(&old).await?;
    let witness = old.witness().await?.rate(300).start().await?;
    witness.writes_in_every_shard(300, secs(30)).await?;
    for masters in [4, 3] {
        let since = Instant::now();
        old.change(json!({"masterCount": masters})).await?;
        old.settled(LIMIT).await?;
        println!("{masters} shards after {:.2?}", since.elapsed());
        is_balanced(&old, masters).await?;
    }
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    stayed_ready(&k, &old, ready).await
}

#[e2e::test(minutes = 10)]
#[ignore = "long"]
async fn a_target_that_changes_in_the_middle_is_followed(k: Bench) -> Result<()> {
    let cache = Cluster::apply(&k, "cache", "{persistence: {enabled: false}}").await?;
    cache.ready(secs(60)).await?;
    let witness = cache.witness().await?.rate(300).start().await?;
    witness.writes_in_every_shard(200, secs(30)).await?;
    cache.change(json!({"masterCount": 6})).await?;
    eventually("a new shard to own slots", LIMIT, async || {
        let owners = cache.slots().await?.len();
        ensure!(owners > 3, "{owners} owners");
        Ok(())
    })
    .await?;
    cache.change(json!({"masterCount": 4})).await?;
    cache.settled(LIMIT).await?;
    is_balanced(&cache, 4).await?;
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    Ok(())
}

/// It needs no metrics to see that there are fewer shards than it may leave.
#[e2e::test(minutes = 5)]
#[ignore = "long"]
async fn an_autoscaler_may_have_the_shards(k: Bench) -> Result<()> {
    let cache = Cluster::apply(&k, "cache", "{replicasPerMaster: 0, persistence: {enabled: false}}").await?;
    cache.ready(secs(60)).await?;
    let autoscaler: HorizontalPodAutoscaler = serde_json::from_value(json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "cache"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "valkey.io/v1alpha1", "kind": "ValkeyCluster", "name": "cache"},
            "minReplicas": 4,
            "maxReplicas": 6,
            "metrics": [{"type": "Resource", "resource": {
                "name": "memory", "target": {"type": "Utilization", "averageUtilization": 70},
            }}],
        },
    }))?;
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::namespaced(k.client().clone(), k.namespace());
    autoscalers.create(&PostParams::default(), &autoscaler).await?;
    eventually("the autoscaler to ask for a fourth shard", secs(60), async || {
        let masters = cache.object().await?.spec.master_count;
        ensure!(masters == Some(4), "{masters:?}");
        Ok(())
    })
    .await?;
    cache.settled(LIMIT).await?;
    is_balanced(&cache, 4).await
}

#[e2e::test(minutes = 10)]
#[ignore = "long"]
async fn replicas_come_and_go_and_the_primary_stays_wherever_it_is(k: Bench) -> Result<()> {
    let cache = Cluster::apply(&k, "cache", "{replicasPerMaster: 2, persistence: {enabled: false}}").await?;
    cache.ready(secs(90)).await?;
    // The one that has to go leads.
    let objects = k.objects::<ValkeyCluster>();
    let wish = json!({"metadata": {"annotations": {"valkey.io/switchover": "cache-1-2"}}});
    objects.merge("cache", wish).await?;
    eventually("cache-1-2 to lead", secs(30), async || {
        ensure!(cache.primaries().await?.contains(&"cache-1-2".to_owned()), "not yet");
        Ok(())
    })
    .await?;
    let witness = cache.witness().await?.rate(300).start().await?;
    witness.writes_in_every_shard(200, secs(30)).await?;
    for (masters, replicas) in [(3, 1), (4, 2), (3, 1)] {
        cache.change(json!({"masterCount": masters, "replicasPerMaster": replicas})).await?;
        cache.settled(LIMIT).await?;
        let pods = cache.pods().await?.len();
        assert_eq!(pods, masters * (replicas + 1));
        is_balanced(&cache, masters).await?;
    }
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    let left = cache.object().await?.annotations().get("valkey.io/switchover").cloned();
    assert_eq!(left, None, "the wish is fulfilled and still there");
    Ok(())
}

/// Since when a cluster has been Ready.
async fn ready_since(cluster: &Cluster) -> Result<Time> {
    let status = cluster.object().await?.status.context("no status")?;
    let ready = conditions::get(&status.conditions, ConditionType::Ready).context("no condition")?;
    ensure!(ready.status == "True", "not Ready: {}", ready.message);
    Ok(ready.last_transition_time.clone())
}

async fn stayed_ready(k: &Bench, cluster: &Cluster, since: Time) -> Result<()> {
    let now = ready_since(cluster).await?;
    let events = k.objects::<Event>().list().await?;
    let told = |event: &Event| Some(format!("{}: {}", event.reason.as_ref()?, event.message.as_ref()?));
    let warnings = events.iter().filter(|event| event.type_.as_deref() == Some("Warning")).filter_map(told);
    ensure!(now == since, "it was not Ready for a while:\n{}", warnings.collect::<Vec<_>>().join("\n"));
    Ok(())
}

/// Every shard has its share of the slots.
async fn is_balanced(cluster: &Cluster, shards: usize) -> Result<()> {
    let slots = cluster.slots().await?;
    let shards = u32::try_from(shards)?;
    let (least, most) = (16384 / shards, 16384_u32.div_ceil(shards));
    ensure!(slots.len() == usize::try_from(shards)?, "{slots:?}");
    ensure!(slots.values().all(|count| (least..=most).contains(count)), "{slots:?}");
    ensure!(slots.values().sum::<u32>() == 16384, "{slots:?}");
    cluster.object().await?.status.context("no status").map(drop)
}
