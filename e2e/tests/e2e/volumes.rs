//! Claims get volumes that keep data, grow, and go away.

use std::path::Path;

use anyhow::{Context, Result};
use e2e::{Bench, secs};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use serde_json::json;

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
    e2e::eventually("the data to go with the volume", secs(20), async || {
        anyhow::ensure!(!Path::new(&place).exists(), "{place} is still there");
        Ok(())
    })
    .await
}

fn has_2gi(claim: &PersistentVolumeClaim) -> bool {
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    capacity.and_then(|capacity| capacity.get("storage")).is_some_and(|size| size.0 == "2Gi")
}
