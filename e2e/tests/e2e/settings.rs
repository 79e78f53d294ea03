//! Settings and sizes change while the servers run.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, eventually, secs};
use kube::ResourceExt;
use redis::cmd;
use serde_json::json;
use valkey_api::ConditionType;

#[e2e::test]
async fn a_setting_reaches_every_running_server_and_one_that_is_refused_reaches_none(k: Bench) -> Result<()> {
    let cache = Cluster::apply(&k, "cache", "{persistence: {enabled: false}, config: {maxclients: \"500\"}}").await?;
    cache.ready(secs(60)).await?;
    let before = cache.uids().await?;
    cache.change(json!({"config": {"maxclients": "600", "maxmemory-policy": "allkeys-lru"}})).await?;
    everywhere(&cache, "maxclients", "600").await?;
    everywhere(&cache, "maxmemory-policy", "allkeys-lru").await?;
    cache.settled(secs(30)).await?;

    cache.change(json!({"config": {"maxclients": "700", "client-output-buffer-limit": "nonsense"}})).await?;
    let words = cache.until_condition(ConditionType::Accepted, "False", secs(30)).await?;
    println!("{words}");
    ensure!(words.contains("client-output-buffer-limit"), "{words}");
    everywhere(&cache, "maxclients", "600").await?;

    // What is not asked for any more is the server's own affair again.
    cache
        .change(json!({"config": {"maxclients": "700", "client-output-buffer-limit": null, "maxmemory-policy": null}}))
        .await?;
    everywhere(&cache, "maxclients", "700").await?;
    everywhere(&cache, "maxmemory-policy", "noeviction").await?;
    cache.settled(secs(30)).await?;
    assert_eq!(cache.uids().await?, before, "a pod was made anew for it");
    Ok(())
}

#[e2e::test]
async fn more_memory_comes_without_a_restart_and_the_server_may_use_it(k: Bench) -> Result<()> {
    let spec = "{persistence: {enabled: false}, labels: {tier: bronze}, \
                resources: {requests: {cpu: 50m, memory: 100Mi}, limits: {memory: 200Mi}}}";
    let cache = Cluster::apply(&k, "cache", spec).await?;
    cache.ready(secs(60)).await?;
    let before = cache.uids().await?;
    let small = values(&cache, "maxmemory").await?;
    let larger = json!({"requests": {"cpu": "60m", "memory": "150Mi"}, "limits": {"memory": "300Mi"}});
    cache.change(json!({"resources": larger, "labels": {"tier": "gold"}})).await?;
    eventually("every pod to have more memory", secs(60), async || {
        for pod in cache.pods().await? {
            let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            let server = status.into_iter().flatten().find(|container| container.name == "valkey");
            let limit = server.and_then(|server| server.resources.as_ref()?.limits.as_ref()?.get("memory").cloned());
            ensure!(limit.as_ref().is_some_and(|limit| limit.0 == "300Mi"), "{}: {limit:?}", pod.name_any());
            ensure!(pod.labels().get("tier").is_some_and(|tier| tier == "gold"), "{:?}", pod.labels());
        }
        Ok(())
    })
    .await?;
    eventually("every server to use it", secs(30), async || {
        let large = values(&cache, "maxmemory").await?;
        ensure!(large.len() == 1 && large != small, "{small:?} → {large:?}");
        Ok(())
    })
    .await?;
    cache.settled(secs(30)).await?;
    assert_eq!(cache.uids().await?, before, "a pod was made anew for it");
    Ok(())
}

async fn everywhere(cluster: &Cluster, name: &str, value: &str) -> Result<()> {
    eventually("every server to have the setting", secs(30), async || {
        let values = values(cluster, name).await?;
        ensure!(values.len() == 1 && values.contains(value), "{name} is {values:?}");
        Ok(())
    })
    .await
}

/// The values that the servers have.
async fn values(cluster: &Cluster, name: &str) -> Result<BTreeSet<String>> {
    let admin = cluster.admin().await?;
    let mut found = BTreeSet::new();
    for pod in cluster.pods().await? {
        let mut node = admin.node(cluster.host(&pod.name_any()), secs(5)).await?;
        let answer: Vec<(String, String)> = cmd("CONFIG").arg(&["GET", name]).query_async(&mut node).await?;
        found.insert(answer.into_iter().next().context("no such setting")?.1);
    }
    Ok(found)
}
