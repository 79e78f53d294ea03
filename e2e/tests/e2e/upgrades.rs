//! Versions change by an object that tells how far it is, and that finds its way back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, eventually, secs, xtask};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use valkey_api::upgrade::UpgradePhase;
use valkey_api::{ValkeyCluster, ValkeyUpgrade};

const LIMIT: Duration = Duration::from_mins(4);
pub const OLD: &str = "8.1.1";
pub const NEW: &str = "9.1.2";

#[e2e::test(minutes = 10)]
async fn an_upgrade_holds_when_it_is_told_to_and_brings_every_node_to_the_new_version(k: Bench) -> Result<()> {
    let old = created(&k, "old", json!({"valkeyImage": {"tag": OLD}})).await?;
    let witness = old.witness().await?.rate(300).start().await?;
    witness.writes_in_every_shard(200, secs(30)).await?;
    upgrade(&k, "old", "to-9-1", NEW).await?;
    until(&k, "to-9-1", "two nodes to be updated", secs(120), |_, updated| updated >= 2).await?;
    k.objects::<ValkeyUpgrade>().merge("to-9-1", json!({"spec": {"paused": true}})).await?;
    until(&k, "to-9-1", "the upgrade to be paused", secs(30), |phase, _| phase == UpgradePhase::Paused).await?;
    tokio::time::sleep(secs(8)).await; // for the pod that was being made anew
    let held = images(&old).await?;
    tokio::time::sleep(secs(8)).await;
    assert_eq!(images(&old).await?, held, "a pod was made anew while the upgrade was paused");
    ensure!(held.iter().any(|image| image.ends_with(OLD)), "it was over before it was paused: {held:?}");
    k.objects::<ValkeyUpgrade>().merge("to-9-1", json!({"spec": {"paused": false}})).await?;
    let done =
        until(&k, "to-9-1", "the upgrade to succeed", LIMIT, |phase, _| phase == UpgradePhase::Succeeded).await?;
    assert_eq!(done.status.context("no status")?.updated_nodes.as_deref(), Some("6/6"));
    old.settled(secs(60)).await?;
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    assert_eq!(old.object().await?.status.context("no status")?.valkey_version.as_deref(), Some(NEW));
    Ok(())
}

/// One that is not there, one that crashes, and one that runs and never gets a copy of its primary's data.
#[e2e::test(minutes = 20)]
#[ignore = "long"]
async fn an_upgrade_that_does_not_come_up_is_rolled_back_and_frees_the_cluster(k: Bench) -> Result<()> {
    for image in ["valkey-crashing", "valkey-lonely"] {
        xtask(&["cluster", "load", image], secs(120)).await?;
    }
    let spec = json!({"valkeyImage": {"tag": OLD}, "upgrade": {"validationTimeoutSeconds": 20}});
    let old = created(&k, "old", spec).await?;
    let witness = old.witness().await?.rate(300).start().await?;
    for (name, version) in [("to-nowhere", "9.1.99"), ("to-a-crash", "9.1.91"), ("to-loneliness", "9.1.92")] {
        upgrade(&k, "old", name, version).await?;
        let ended = until(&k, name, "the way back", LIMIT, |phase, _| phase == UpgradePhase::RolledBack).await?;
        println!("{}", ended.status.and_then(|status| status.message).unwrap_or_default());
        old.settled(secs(60)).await?;
        let images = images(&old).await?;
        ensure!(images.iter().all(|image| image.ends_with(OLD)), "{name}: {images:?}");
        witness.writes_in_every_shard(100, secs(30)).await?;
    }
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();

    // What cannot be done is refused before anything is touched.
    upgrade(&k, "old", "back", "8.0.1").await?;
    let refused = until(&k, "back", "a refusal", secs(30), |phase, _| phase == UpgradePhase::Refused).await?;
    println!("{}", refused.status.and_then(|status| status.message).unwrap_or_default());
    assert_eq!(old.object().await?.spec.valkey_image.and_then(|image| image.tag).as_deref(), Some(OLD));
    Ok(())
}

#[e2e::test]
async fn a_tag_that_a_manifest_sets_is_not_the_upgrade_s_to_write(k: Bench) -> Result<()> {
    let managed = Cluster::apply(&k, "old", "{valkeyImage: {tag: \"8.1.1\"}, persistence: {enabled: false}}").await?;
    managed.ready(secs(60)).await?;
    upgrade(&k, "old", "to-9-1", NEW).await?;
    let refused = until(&k, "to-9-1", "a refusal", secs(30), |phase, _| phase == UpgradePhase::Refused).await?;
    println!("{}", refused.status.and_then(|status| status.message).unwrap_or_default());
    assert_eq!(managed.object().await?.spec.valkey_image.and_then(|image| image.tag).as_deref(), Some(OLD));
    Ok(())
}

/// The volumes have been written by the newer version by then: the older one cannot read them.
#[e2e::test(minutes = 15)]
#[ignore = "long"]
async fn a_version_that_is_taken_back_by_hand_copies_what_it_cannot_read(k: Bench) -> Result<()> {
    let old = created(&k, "old", json!({"valkeyImage": {"tag": OLD}})).await?;
    let witness = old.witness().await?.rate(300).start().await?;
    for tag in [NEW, OLD] {
        witness.writes_in_every_shard(300, secs(60)).await?;
        old.change(json!({"valkeyImage": {"tag": tag}})).await?;
        old.settled(LIMIT).await?;
        // Logs are written anew from time to time, and only then in the format of the version that runs.
        let admin = old.admin().await?;
        for pod in old.pods().await? {
            let mut node = admin.node(old.host(&pod.name_any()), secs(5)).await?;
            for switch in ["no", "yes"] {
                redis::cmd("CONFIG").arg(&["SET", "appendonly", switch]).query_async::<()>(&mut node).await?;
            }
        }
        tokio::time::sleep(secs(3)).await;
    }
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    let mut aside = 0;
    for pod in old.pods().await? {
        let files = k.exec(&pod.name_any(), &["ls", "/data"]).await?;
        aside += usize::from(files.contains("set-aside-"));
    }
    ensure!(aside > 0, "no volume was set aside");
    Ok(())
}

/// A cluster that somebody made once, by hand: nobody will set its tag again.
pub async fn created(k: &Bench, name: &str, spec: Value) -> Result<Cluster> {
    let clusters: Api<ValkeyCluster> = Api::namespaced(k.client().clone(), k.namespace());
    let manifest = json!({
        "apiVersion": "valkey.io/v1alpha1", "kind": "ValkeyCluster", "metadata": {"name": name}, "spec": spec,
    });
    let params = PostParams { field_manager: Some("kubectl-create".into()), ..PostParams::default() };
    clusters.create(&params, &serde_json::from_value(manifest)?).await?;
    let cluster = Cluster::existing(k, name);
    cluster.ready(secs(60)).await?;
    Ok(cluster)
}

/// As `kubectl edit` does it, which nobody repeats.
pub async fn edit_tag(k: &Bench, cluster: &Cluster, tag: &str) -> Result<()> {
    let clusters: Api<ValkeyCluster> = Api::namespaced(k.client().clone(), k.namespace());
    let params = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    let change = Patch::Merge(json!({"spec": {"valkeyImage": {"tag": tag}}}));
    clusters.patch(cluster.name(), &params, &change).await?;
    Ok(())
}

pub async fn upgrade(k: &Bench, cluster: &str, name: &str, version: &str) -> Result<()> {
    let manifest = format!(
        "apiVersion: valkey.io/v1alpha1\nkind: ValkeyUpgrade\nmetadata: {{name: {name}}}\n\
         spec: {{clusterRef: {{name: {cluster}}}, targetVersion: \"{version}\"}}\n"
    );
    k.apply(&manifest).await.map(drop)
}

/// Waits for a phase and a number of updated nodes.
pub async fn until(
    k: &Bench,
    name: &str,
    what: &str,
    limit: Duration,
    is_there: impl Fn(UpgradePhase, u32) -> bool,
) -> Result<ValkeyUpgrade> {
    eventually(what, limit, async || {
        let upgrade = k.objects::<ValkeyUpgrade>().get(name).await?;
        let status = upgrade.status.clone().context("no status yet")?;
        let updated = status.updated_nodes.as_deref().and_then(|nodes| nodes.split('/').next()?.parse().ok());
        let phase = status.phase.context("no phase yet")?;
        ensure!(is_there(phase, updated.unwrap_or(0)), "{phase:?}, {:?}: {:?}", status.updated_nodes, status.message);
        Ok(upgrade)
    })
    .await
}

/// The images that the servers run.
async fn images(cluster: &Cluster) -> Result<Vec<String>> {
    let pods = cluster.pods().await?;
    let image = |pod: &k8s_openapi::api::core::v1::Pod| {
        let containers = pod.spec.as_ref()?.containers.iter();
        containers.into_iter().find(|container| container.name == "valkey")?.image.clone()
    };
    Ok(pods.iter().filter_map(image).collect())
}
