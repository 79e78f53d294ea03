//! Claims get volumes that keep data, grow, and go away.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, eventually, secs};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use serde_json::json;
use valkey_api::ConditionType;

use crate::helper;

#[e2e::test]
async fn a_claim_gets_a_volume_that_outlives_its_pod(k: Bench) -> Result<()> {
    k.apply(&helper::keeper("keeper", None, "trap 'exit 0' TERM; sleep 3600 & wait")?).await?;
    let pod = k.pods().named("keeper-0");
    let first = pod.until_it("the first pod to be ready", secs(60), e2e::plain::is_ready).await?;
    k.exec("keeper-0", &["sh", "-c", "echo precious > /data/file"]).await?;

    k.pods().delete("keeper-0").await?;
    let is_new = |pod: &_| e2e::plain::is_ready(pod) && ResourceExt::uid(pod) != first.uid();
    pod.until_it("a new pod to be ready", secs(60), is_new).await?;
    assert_eq!(k.exec("keeper-0", &["cat", "/data/file"]).await?, "precious\n");

    let claims = k.objects::<PersistentVolumeClaim>();
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    claims.merge("data-keeper-0", larger).await?;
    let grown = claims.clone().named("data-keeper-0").until_it("the claim to have 2Gi", secs(60), has_2gi).await?;
    assert_eq!(k.exec("keeper-0", &["cat", "/data/file"]).await?, "precious\n");

    let name = grown.spec.and_then(|spec| spec.volume_name).context("a bound claim without a volume")?;
    let volumes = k.cluster_objects::<PersistentVolume>().named(&name);
    let volume = volumes.get(&name).await?;
    let place = volume.spec.and_then(|spec| spec.local).context("not a local volume")?.path;
    assert!(Path::new(&place).join("file").exists(), "the nodes' disks should be visible here: {place}");

    k.objects::<StatefulSet>().delete("keeper").await?;
    pod.until_gone("the pod to go", secs(60)).await?;
    claims.delete("data-keeper-0").await?;
    volumes.until_gone("the volume to go with its claim", secs(60)).await?;
    eventually("the data to go with the volume", secs(20), async || {
        ensure!(!Path::new(&place).exists(), "{place} is still there");
        Ok(())
    })
    .await
}

fn has_2gi(claim: &PersistentVolumeClaim) -> bool {
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    capacity.and_then(|capacity| capacity.get("storage")).is_some_and(|size| size.0 == "2Gi")
}

#[e2e::test(minutes = 5)]
async fn volumes_grow_with_the_spec_and_no_pod_is_made_anew(k: Bench) -> Result<()> {
    let cache = Cluster::apply(&k, "cache", "{persistence: {size: 1Gi}}").await?;
    cache.ready(secs(60)).await?;
    let before = cache.uids().await?;
    let witness = cache.witness().await?.rate(300).start().await?;
    witness.writes_in_every_shard(100, secs(30)).await?;
    cache.change(json!({"persistence": {"size": "2Gi"}})).await?;
    cache.settled(secs(60)).await?;
    ensure!(claims(&k).await?.iter().all(has_2gi), "the operator says that it is done, and it is not true");
    assert_eq!(cache.uids().await?, before);

    // Their templates are those of the first day: a new replica begins small, a new shard does not.
    cache.change(json!({"replicasPerMaster": 2, "masterCount": 4})).await?;
    cache.settled(secs(120)).await?;
    let grown = claims(&k).await?;
    ensure!(grown.len() == 12 && grown.iter().all(has_2gi), "{grown:#?}");
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();

    let Err(refused) = cache.change(json!({"persistence": {"size": "1500Mi"}})).await else {
        anyhow::bail!("a volume cannot shrink")
    };
    ensure!(format!("{refused:#}").contains("spec.persistence.size can grow and not shrink"), "{refused:#}");
    Ok(())
}

#[e2e::test(minutes = 5)]
async fn volumes_that_cannot_grow_say_so_and_nothing_is_touched(k: Bench) -> Result<()> {
    let mut class = k.cluster_objects::<StorageClass>().get("bench").await?;
    let name = format!("rigid-{}", k.namespace());
    class.metadata = serde_json::from_value(json!({"name": name}))?;
    class.allow_volume_expansion = Some(false);
    k.apply_object(&class).await?;
    let outcome = without_room(&k, &name).await;
    k.cluster_objects::<StorageClass>().delete(&name).await?;
    outcome
}

async fn without_room(k: &Bench, class: &str) -> Result<()> {
    let cache = Cluster::apply(k, "cache", &format!("{{persistence: {{storageClassName: {class}}}}}")).await?;
    cache.ready(secs(60)).await?;
    let before = cache.uids().await?;
    cache.change(json!({"persistence": {"size": "2Gi"}})).await?;
    let why = cache.until_condition(ConditionType::Accepted, "False", secs(30)).await?;
    println!("{why}");
    ensure!(why.contains("spec.persistence.size") && why.contains("allowVolumeExpansion"), "{why}");
    cache.settled(secs(30)).await?;
    assert_eq!(cache.uids().await?, before);
    // Whoever allows it need not say so twice.
    k.cluster_objects::<StorageClass>().merge(class, json!({"allowVolumeExpansion": true})).await?;
    eventually("the volumes to grow", secs(150), async || {
        // Some other change of the spec: the pass that comes by itself is minutes away.
        cache.change(json!({"labels": {"looked": jiff::Timestamp::now().as_second().to_string()}})).await?;
        ensure!(claims(k).await?.iter().all(has_2gi), "they are small");
        Ok(())
    })
    .await?;
    cache.until_condition(ConditionType::Accepted, "True", secs(30)).await.map(drop)
}

#[e2e::test(minutes = 5)]
async fn volumes_that_are_to_stay_are_still_there_when_the_cluster_is_gone(k: Bench) -> Result<()> {
    let cache = Cluster::apply(&k, "cache", "{}").await?;
    cache.ready(secs(60)).await?;
    cache.change(json!({"persistence": {"retain": "Retain"}})).await?;
    eventually("the claims to belong to nobody", secs(30), async || {
        let owned = claims(&k).await?.iter().filter(|claim| !claim.owner_references().is_empty()).count();
        ensure!(owned == 0, "{owned} are owned");
        Ok(())
    })
    .await?;
    k.objects::<valkey_api::ValkeyCluster>().delete("cache").await?;
    k.pods().labelled("valkey.io/cluster=cache").until_gone("the pods to go", secs(60)).await?;
    ensure!(claims(&k).await?.len() == 6, "volumes are gone");
    Ok(())
}

async fn claims(k: &Bench) -> Result<Vec<PersistentVolumeClaim>> {
    k.objects::<PersistentVolumeClaim>().labelled("valkey.io/cluster=cache").list().await
}
