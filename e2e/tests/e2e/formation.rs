//! From `kubectl apply` to a secure running cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, Endpoint, eventually, secs};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Service};
use kube::ResourceExt;
use valkey_api::topology::{Node, NodeRole};
use valkey_api::{ConditionType, Phase, ValkeyCertificateBinding, ValkeyCertificateBundle, ValkeyCluster};

/// What servers have unless the spec says otherwise.
const NODE_TIMEOUT: Duration = Duration::from_secs(5);

#[e2e::test]
async fn an_empty_spec_gives_a_secure_cluster_of_three_shards(k: Bench) -> Result<()> {
    let orders = Cluster::apply(&k, "orders", "{}").await?;
    println!("ready after {:.2?}", orders.ready(secs(60)).await?);

    let status = orders.object().await?.status.context("no status")?;
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!((status.masters, status.replicas, status.slots_assigned), (Some(3), Some(3), Some(16384)));
    assert_eq!(status.nodes.as_deref(), Some("6/6"));
    assert_eq!(status.valkey_version.as_deref(), Some("9.1.2"));
    assert_eq!(status.operation, None);

    let nodes = orders.topology().await?.status.context("no topology")?.nodes;
    assert_eq!(nodes.len(), 6);
    for shard in 0..3 {
        let of_shard: Vec<_> = nodes.iter().filter(|node| node.shard == shard).collect();
        let hosts: BTreeSet<_> = of_shard.iter().filter_map(|node| node.node.clone()).collect();
        let zones: BTreeSet<_> = of_shard.iter().filter_map(|node| node.zone.clone()).collect();
        assert_eq!(
            (hosts.len(), zones.len()),
            (2, 2),
            "the members of shard {shard} share a node or a zone: {of_shard:?}"
        );
        assert_eq!(of_shard.iter().filter(|node| node.role == Some(NodeRole::Primary)).count(), 1);
    }
    let leaders: BTreeSet<_> =
        nodes.iter().filter(|node| node.role == Some(NodeRole::Primary)).filter_map(|node| node.node.clone()).collect();
    assert_eq!(leaders.len(), 3, "primaries share a node: {nodes:?}");

    let pods = orders.pods().await?;
    let first = pods.first().context("no pod")?.name_any();
    let plain = Endpoint { ca_pem: None, ..orders.endpoint().await? };
    assert!(plain.node(orders.host(&first), secs(2)).await.is_err(), "plain text is let in");
    let anonymous = Endpoint { username: None, password: None, ..orders.endpoint().await? };
    let mut node = anonymous.node(orders.host(&first), secs(2)).await?;
    let refused =
        redis::cmd("PING").query_async::<String>(&mut node).await.expect_err("somebody without a password is let in");
    assert_eq!(refused.code(), Some("NOAUTH"), "{refused}");

    let witness = orders.witness().await?.rate(500).start().await?;
    witness.writes_in_every_shard(300, secs(20)).await?;
    witness.stop().await?.expect_no_lost_write().expect_no_error();
    Ok(())
}

#[e2e::test]
async fn every_supported_version_forms(k: Bench) -> Result<()> {
    for tag in ["8.0.1", "8.1.1"] {
        let name = format!("v{}", tag.replace('.', ""));
        let cluster = Cluster::apply(&k, &name, &format!("{{valkeyImage: {{tag: \"{tag}\"}}}}")).await?;
        println!("{tag}: ready after {:.2?}", cluster.ready(secs(60)).await?);
        assert_eq!(cluster.object().await?.status.context("no status")?.valkey_version.as_deref(), Some(tag));
        k.objects::<ValkeyCluster>().delete(&name).await?;
    }
    Ok(())
}

#[e2e::test]
async fn a_bad_spec_is_refused_with_a_sentence_and_correcting_it_is_enough(k: Bench) -> Result<()> {
    for (spec, words) in [
        ("{masterCount: 2}", "at least 3"),
        ("{replicasPerMaster: -1}", "0 to 5"),
        ("{maxMemory: lots}", "2gb"),
        ("{replication: {minReplicasToWrite: 2}}", "minReplicasToWrite"),
    ] {
        let refused = Cluster::apply(&k, "bad", spec).await.expect_err(spec);
        assert!(format!("{refused:#}").contains(words), "{spec}: {refused:#}");
    }
    let long = Cluster::apply(&k, &"n".repeat(41), "{}").await.expect_err("a long name");
    assert!(format!("{long:#}").contains("40 characters"), "{long:#}");

    for (spec, words) in [
        ("{config: {no-such-parameter: \"1\"}}", "spec.config.no-such-parameter"),
        ("{config: {tls-port: \"1\"}}", "spec.config.tls-port"),
        ("{maxMemory: 2gb, resources: {limits: {memory: 1Gi}}}", "does not fit"),
        ("{auth: {secretRef: {name: nowhere}}}", "nowhere"),
    ] {
        let bad = Cluster::apply(&k, "bad", spec).await?;
        let said = bad.until_condition(ConditionType::Accepted, "False", secs(20)).await?;
        assert!(said.contains(words), "{spec}: {said}");
        assert!(bad.pods().await?.is_empty(), "{spec} made pods");
    }
    let good = Cluster::apply(&k, "bad", "{}").await?;
    good.ready(secs(60)).await?;
    Ok(())
}

#[e2e::test]
async fn what_somebody_changes_or_deletes_is_put_back(k: Bench) -> Result<()> {
    let orders = Cluster::apply(&k, "orders", "{}").await?;
    orders.ready(secs(60)).await?;
    let witness = orders.witness().await?.rate(300).start().await?;

    let port =
        |service: &Service| service.spec.as_ref().and_then(|spec| spec.ports.as_ref()?.first().map(|port| port.port));
    let services = k.objects::<Service>();
    services
        .merge("orders", serde_json::json!({"spec": {"ports": [{"name": "valkey", "port": 6380, "targetPort": 6379}]}}))
        .await?;
    k.objects::<Service>()
        .named("orders")
        .until_it("the port to be put back", secs(10), |service| port(service) == Some(6379))
        .await?;

    let sets = k.objects::<StatefulSet>();
    let before = sets.get("orders-1").await?.uid();
    let pods = orders.uids().await?;
    sets.delete("orders-1").await?;
    k.objects::<StatefulSet>()
        .named("orders-1")
        .until_it("the StatefulSet to come back", secs(20), |set| set.uid() != before)
        .await?;

    k.objects::<Secret>().delete("orders-users").await?;
    k.objects::<Secret>().named("orders-users").until_it("the Secret to come back", secs(10), |_| true).await?;
    // Its pods go with it, sooner or later.
    eventually("the shard's pods to be new ones", secs(60), async || {
        let now = orders.uids().await?;
        let old: Vec<_> =
            ["orders-1-0", "orders-1-1"].into_iter().filter(|pod| now.get(*pod) == pods.get(*pod)).collect();
        ensure!(old.is_empty(), "{old:?} are the old ones");
        Ok(())
    })
    .await?;
    orders.until_whole(secs(60)).await?;
    witness.stop().await?.expect_no_lost_write();

    let told: Vec<_> = k.objects::<k8s_openapi::api::events::v1::Event>().list().await?;
    let drift = told
        .iter()
        .filter(|event| event.reason.as_deref() == Some("DriftCorrected"))
        .filter_map(|event| event.note.clone());
    let drift: Vec<_> = drift.collect();
    assert!(drift.iter().any(|note| note.contains("Service orders") && note.contains("6380")), "{drift:?}");
    assert!(drift.iter().any(|note| note.contains("StatefulSet orders-1")), "{drift:?}");
    Ok(())
}

#[e2e::test]
async fn all_pods_lost_at_once_with_all_addresses_new_come_back_with_every_key(k: Bench) -> Result<()> {
    let orders = Cluster::apply(&k, "orders", "{}").await?;
    orders.ready(secs(60)).await?;
    let witness = orders.witness().await?.rate(300).start().await?;
    witness.writes_in_every_shard(300, secs(20)).await?;
    let verdict = witness.stop().await?;
    verdict.expect_no_error().expect_no_lost_write();

    let keys = count_keys(&orders).await?;
    let before = addresses(&orders.pods().await?);
    k.pods().labelled("valkey.io/cluster=orders").delete_now().await?;
    eventually("all pods to be new ones", secs(60), async || {
        let now = addresses(&orders.pods().await?);
        let renewed =
            now.iter().filter(|(pod, address)| before.get(*pod) != Some(address) && !address.is_empty()).count();
        ensure!(renewed == before.len(), "{before:?} → {now:?}");
        Ok(())
    })
    .await?;
    orders.until_whole(secs(60)).await?;
    assert_eq!(count_keys(&orders).await?, keys, "keys are missing");
    orders.until_condition(ConditionType::Ready, "True", secs(20)).await?;
    Ok(())
}

#[e2e::test]
async fn a_killed_primary_without_persistence_never_takes_its_replica_s_data_along(k: Bench) -> Result<()> {
    kill_primaries(&k, 3).await
}

#[e2e::test(minutes = 40)]
#[ignore = "long: Kubernetes waits longer with each restart of a container"]
async fn twenty_killed_primaries_without_persistence_never_take_their_replicas_data_along(k: Bench) -> Result<()> {
    kill_primaries(&k, 20).await
}

/// Kills one primary after the other under the witness, each time when the cluster is whole again.
async fn kill_primaries(k: &Bench, rounds: usize) -> Result<()> {
    let cache = Cluster::apply(k, "cache", "{persistence: {enabled: false}}").await?;
    cache.ready(secs(60)).await?;
    let witness = cache.witness().await?.rate(500).start().await?;
    for round in 0..rounds {
        witness.writes_in_every_shard(200, secs(30)).await?;
        let primaries = cache.primaries().await?;
        let primary = primaries.get(round % primaries.len()).context("nobody leads")?;
        k.kill_server(primary).await?;
        eventually("another one to lead", secs(30), async || {
            let topology = cache.topology().await?.status.context("no topology")?;
            let leads = |node: &Node| node.role == Some(NodeRole::Primary) && node.slots.is_some();
            let leading: Vec<_> = topology.nodes.iter().filter(|node| leads(node)).map(|node| &node.pod).collect();
            ensure!(
                !leading.contains(&primary) && leading.len() == 3,
                "round {round}: {primary} was killed; leading: {leading:?}"
            );
            Ok(())
        })
        .await?;
        cache.until_whole(secs(200)).await?;
    }
    let verdict = witness.stop().await?;
    println!("{verdict}");
    // The asynchronous tail may be lost with a killed primary; what its replica had may not.
    verdict.expect_lost_writes_at_most(20 * u64::try_from(rounds)?);
    Ok(())
}

#[e2e::test]
async fn deletion_leaves_nothing_behind(k: Bench) -> Result<()> {
    let orders = Cluster::apply(&k, "orders", "{}").await?;
    orders.ready(secs(60)).await?;
    let kept = Cluster::apply(&k, "kept", "{persistence: {retain: Retain}}").await?;
    kept.ready(secs(60)).await?;
    let half = Cluster::apply(&k, "half", "{valkeyImage: {tag: \"9.1.99\"}}").await?;
    eventually("pods of the third one", secs(20), async || {
        ensure!(!half.pods().await?.is_empty(), "none yet");
        Ok(())
    })
    .await?;
    for name in ["orders", "kept", "half"] {
        k.objects::<ValkeyCluster>().delete(name).await?;
    }
    eventually("all children to go", secs(90), async || {
        let pods = k.pods().list().await?.len();
        let sets = k.objects::<StatefulSet>().list().await?.len();
        let services = k.objects::<Service>().list().await?.len();
        let secrets = k.objects::<Secret>().list().await?.len();
        let bundles = k.objects::<ValkeyCertificateBundle>().list().await?.len()
            + k.objects::<ValkeyCertificateBinding>().list().await?.len();
        ensure!(
            [pods, sets, services, secrets, bundles] == [0; 5],
            "{pods} pods, {sets} sets, {services} services, {secrets} secrets, {bundles} pki"
        );
        let claims = k.objects::<PersistentVolumeClaim>().list().await?;
        let of_kept = claims.iter().filter(|claim| claim.name_any().contains("kept")).count();
        ensure!(
            of_kept == 6 && claims.len() == 6,
            "{} claims, {of_kept} of the cluster that retains them",
            claims.len()
        );
        Ok(())
    })
    .await
}

#[e2e::test]
async fn certificates_are_objects_that_tell_the_truth(k: Bench) -> Result<()> {
    let orders = Cluster::apply(&k, "orders", "{}").await?;
    orders.ready(secs(60)).await?;
    let bundles = k.objects::<ValkeyCertificateBundle>().list().await?;
    let purposes: BTreeMap<_, _> =
        bundles.iter().map(|bundle| (bundle.name_any(), bundle.spec.purpose.as_str())).collect();
    assert_eq!(purposes, BTreeMap::from([("orders-mtls".into(), "mtls"), ("orders-tls".into(), "tls")]));
    for bundle in &bundles {
        let status = bundle.status.as_ref().context("a bundle without status")?;
        assert!(status.thumbprint.is_some() && status.expires_at.is_some(), "{status:?}");
        let secret = k.objects::<Secret>().get(&bundle.spec.cert_secret_ref.name).await?;
        let entries: Vec<_> = secret.data.unwrap_or_default().into_keys().collect();
        assert_eq!(entries, ["ca.crt", "twin.crt"], "a key in the cluster's namespace?");
    }
    let binding = k.objects::<ValkeyCertificateBinding>().get("orders").await?;
    let active = binding.status.context("a binding without status")?.active;
    assert_eq!(active.len(), 12, "one per pod and purpose");
    let nodes = orders.topology().await?.status.context("no topology")?.nodes;
    for node in nodes {
        let bound = active
            .iter()
            .find(|entry| entry.pod == node.pod && entry.purpose.as_str() == "tls")
            .context("not bound")?;
        assert_eq!(
            node.certificate_thumbprint.as_ref(),
            Some(&bound.thumbprint),
            "{} shows another certificate",
            node.pod
        );
    }
    Ok(())
}

#[e2e::test]
async fn deleting_a_primary_s_pod_hands_over_first(k: Bench) -> Result<()> {
    let orders = Cluster::apply(&k, "orders", "{}").await?;
    orders.ready(secs(60)).await?;
    let witness = orders.witness().await?.rate(500).start().await?;
    witness.writes_in_every_shard(100, secs(20)).await?;
    let primary = orders.primaries().await?.into_iter().next().context("nobody leads")?;
    k.pods().delete(&primary).await?;
    eventually("another one to lead", secs(30), async || {
        let now = orders.primaries().await?;
        ensure!(!now.contains(&primary) && now.len() == 3, "{now:?}");
        Ok(())
    })
    .await?;
    orders.until_whole(secs(60)).await?;
    let verdict = witness.stop().await?;
    println!("{verdict}");
    // Without a handover nobody would even begin to elect another one before that.
    verdict.expect_no_lost_write().expect_no_error().expect_pause_below(NODE_TIMEOUT);
    Ok(())
}

fn addresses(pods: &[Pod]) -> BTreeMap<String, String> {
    pods.iter()
        .map(|pod| (pod.name_any(), pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default()))
        .collect()
}

async fn count_keys(cluster: &Cluster) -> Result<u64> {
    let mut keys = 0;
    for primary in cluster.primaries().await? {
        keys += cluster.command::<u64>(&primary, &["DBSIZE"]).await?;
    }
    Ok(keys)
}
