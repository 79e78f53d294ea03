//! What the spec offers beyond its defaults, and how a mistake in it is told and put right.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use e2e::{Bench, Cluster, Endpoint, eventually, secs};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, ResourceExt};
use redis::cmd;
use serde_json::json;
use valkey_api::{ConditionType, Phase, ValkeyCluster, labels};

/// The least that forms: three primaries, nothing on disk.
const SMALL: &str = "{replicasPerMaster: 0, persistence: {enabled: false}}";

#[e2e::test]
async fn the_read_service_reaches_replicas_only_and_follows_their_roles(k: Bench) -> Result<()> {
    let spec = |on: bool| format!("{{persistence: {{enabled: false}}, readService: {{enabled: {on}}}}}");
    let shop = Cluster::apply(&k, "shop", &spec(true)).await?;
    shop.ready(secs(60)).await?;
    eventually("the read Service to have the replicas", secs(10), async || serves_replicas(&k, &shop).await).await?;

    let primary = shop.primaries().await?.into_iter().next().context("nobody leads")?;
    k.pods().delete(&primary).await?;
    let leads = |pod: &Pod| pod.labels().get(labels::ROLE).is_some_and(|role| role == labels::PRIMARY);
    let since = Instant::now();
    let all = k.pods().labelled("valkey.io/cluster=shop");
    all.until("another pod to be called primary", secs(20), |pods| {
        pods.iter().filter(|pod| leads(pod) && pod.name_any() != primary).count() == 3
    })
    .await?;
    println!("labels followed {:.2?} after {primary} was deleted", since.elapsed());
    shop.until_whole(secs(60)).await?;
    eventually("the read Service to follow", secs(10), async || serves_replicas(&k, &shop).await).await?;

    Cluster::apply(&k, "shop", &spec(false)).await?;
    k.objects::<Service>().named("shop-read").until_gone("the read Service to go", secs(10)).await
}

/// The addresses behind the read Service are those of the replicas, as the nodes themselves see it.
async fn serves_replicas(k: &Bench, cluster: &Cluster) -> Result<()> {
    let service = format!("kubernetes.io/service-name={}-read", cluster.name());
    let slices = k.objects::<EndpointSlice>().labelled(&service).list().await?;
    let behind = slices.into_iter().flat_map(|slice| slice.endpoints);
    let ready = behind.filter(|end| end.conditions.as_ref().and_then(|is| is.ready) != Some(false));
    let behind: BTreeSet<_> = ready.filter_map(|end| end.target_ref?.name).collect();
    let primaries = cluster.primaries().await?;
    let pods = cluster.pods().await?.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    let replicas: BTreeSet<_> = pods.into_iter().filter(|pod| !primaries.contains(pod)).collect();
    ensure!(replicas.len() == 3 && behind == replicas, "behind the Service: {behind:?}; replicas: {replicas:?}");
    Ok(())
}

#[e2e::test]
async fn a_paused_cluster_is_looked_at_but_not_touched(k: Bench) -> Result<()> {
    let spec = |paused: bool| format!("{{replicasPerMaster: 0, persistence: {{enabled: false}}, paused: {paused}}}");
    let shop = Cluster::apply(&k, "shop", &spec(true)).await?;
    until_phase(&k, "shop", Phase::Paused).await?;
    tokio::time::sleep(secs(2)).await;
    let (services, secrets) = (k.objects::<Service>().list().await?, k.objects::<Secret>().list().await?);
    assert!(shop.pods().await?.is_empty() && services.is_empty() && secrets.is_empty(), "{services:?} {secrets:?}");

    Cluster::apply(&k, "shop", &spec(false)).await?.ready(secs(60)).await?;
    Cluster::apply(&k, "shop", &spec(true)).await?;
    until_phase(&k, "shop", Phase::Paused).await?;
    k.objects::<Service>().delete("shop").await?;
    tokio::time::sleep(secs(5)).await;
    assert!(k.objects::<Service>().get("shop").await.is_err(), "a paused cluster was touched");
    assert_eq!(shop.object().await?.status.and_then(|status| status.phase), Some(Phase::Paused));

    Cluster::apply(&k, "shop", &spec(false)).await?;
    k.objects::<Service>().named("shop").until_it("the Service to come back", secs(10), |_| true).await?;
    shop.ready(secs(20)).await?;
    Ok(())
}

#[e2e::test]
async fn pods_that_cannot_start_are_explained_and_replaced_when_the_spec_is_corrected(k: Bench) -> Result<()> {
    for (name, mistake, correction, words) in [
        ("big", "resources: {requests: {cpu: \"1000\"}}", "resources: {requests: {cpu: 10m}}", "cannot be scheduled"),
        ("typo", "valkeyImage: {tag: \"9.1.99\"}", "valkeyImage: {tag: \"9.1.2\"}", "9.1.99"),
    ] {
        let spec = |part: &str| format!("{{replicasPerMaster: 0, persistence: {{enabled: false}}, {part}}}");
        let cluster = Cluster::apply(&k, name, &spec(mistake)).await?;
        let failure = |cluster: &ValkeyCluster| cluster.status.as_ref()?.last_failure.clone();
        let told = k
            .objects::<ValkeyCluster>()
            .named(name)
            .until_it("the failure to be told", secs(60), |cluster| {
                failure(cluster).is_some_and(|failure| failure.message.contains(words))
            })
            .await?;
        let told = (told.status.as_ref().and_then(|status| status.phase), failure(&told).context("no failure")?);
        println!("{name}: {told:?}");
        assert_eq!(told.0, Some(Phase::Creating));
        assert!(told.1.hint.as_ref().is_some_and(|hint| hint.contains("kubectl describe pod")), "{told:?}");
        if name == "big" {
            assert!(told.1.message.contains("Insufficient cpu"), "{told:?}");
        }

        let corrected = Cluster::apply(&k, name, &spec(correction)).await?;
        println!("{name}: ready {:.2?} after it was corrected", corrected.ready(secs(60)).await?);
        assert_eq!(failure(&cluster.object().await?), None, "{name}");
    }
    Ok(())
}

#[e2e::test]
async fn a_password_that_is_brought_later_is_waited_for_and_then_taken(k: Bench) -> Result<()> {
    let spec = "{replicasPerMaster: 0, persistence: {enabled: false}, auth: {secretRef: {name: pw}}}";
    let shop = Cluster::apply(&k, "shop", spec).await?;
    let said = shop.until_condition(ConditionType::Accepted, "False", secs(20)).await?;
    assert!(said.contains("Secret pw") && said.contains("password"), "{said}");

    k.apply("{apiVersion: v1, kind: Secret, metadata: {name: pw}, stringData: {password: 'ein/Wort:mit@Zeichen'}}")
        .await?;
    let since = Instant::now();
    shop.ready(secs(60)).await?;
    println!("ready {:.2?} after the Secret was there", since.elapsed());
    let said = shop.connection().await?;
    assert_eq!(said.get("username").map(String::as_str), Some("default"));
    assert_eq!(said.get("password").map(String::as_str), Some("ein/Wort:mit@Zeichen"));
    let wrong = Endpoint { password: Some("guess".into()), ..shop.endpoint().await? };
    assert!(wrong.node(shop.host("shop-0-0"), secs(2)).await.is_err(), "a wrong password is let in");
    writes_and_reads(&shop).await
}

#[e2e::test]
async fn an_open_cluster_needs_no_password_and_says_that_it_is_open(k: Bench) -> Result<()> {
    let spec = "{replicasPerMaster: 0, persistence: {enabled: false}, auth: {enabled: false}}";
    let shop = Cluster::apply(&k, "shop", spec).await?;
    shop.ready(secs(60)).await?;
    let warning = shop.until_condition(ConditionType::Accepted, "True", secs(20)).await?;
    assert!(warning.contains("spec.auth.enabled") && warning.contains("everybody"), "{warning}");
    let said = shop.connection().await?;
    assert!(!said.contains_key("password") && said.get("tls").is_some_and(|tls| tls == "true"), "{:?}", said.keys());
    writes_and_reads(&shop).await
}

#[e2e::test]
async fn a_cluster_without_tls_is_reached_by_its_connection_secret_alone(k: Bench) -> Result<()> {
    let spec = "{persistence: {enabled: false}, tls: {enabled: false}}";
    let shop = Cluster::apply(&k, "shop", spec).await?;
    println!("ready after {:.2?}", shop.ready(secs(60)).await?);
    let said = shop.connection().await?;
    assert_eq!(said.get("tls").map(String::as_str), Some("false"));
    assert!(said.get("uri").is_some_and(|uri| uri.starts_with("redis://")) && !said.contains_key("ca.crt"));
    let status = shop.object().await?.status.context("no status")?;
    assert_eq!(status.tls, None);
    writes_and_reads(&shop).await
}

#[e2e::test]
async fn parameters_reach_every_node_and_what_cannot_change_is_refused(k: Bench) -> Result<()> {
    let spec = "{persistence: {enabled: false}, config: {maxclients: \"500\", cluster-node-timeout: \"3000\"}, \
                maxMemory: 64mb, resources: {limits: {memory: 256Mi}}}";
    let shop = Cluster::apply(&k, "shop", spec).await?;
    shop.ready(secs(60)).await?;
    let admin = shop.admin().await?;
    for pod in shop.pods().await? {
        let pod = pod.name_any();
        let mut node = admin.node(shop.host(&pod), secs(2)).await?;
        for (parameter, value) in [("maxclients", "500"), ("cluster-node-timeout", "3000"), ("maxmemory", "67108864")] {
            let (_, now): (String, String) =
                cmd("CONFIG").arg(&["GET", parameter]).query_async::<Vec<(String, String)>>(&mut node).await?.remove(0);
            assert_eq!(now, value, "{pod}: {parameter}");
        }
    }
    for (change, words) in [
        (json!({"masterCount": 2}), "spec.masterCount must be at least 3"),
        (json!({"persistence": {"enabled": true}}), "spec.persistence.enabled cannot change"),
        (json!({"tls": {"enabled": false}}), "spec.tls.enabled cannot change yet"),
    ] {
        let refused = k.objects::<ValkeyCluster>().merge("shop", json!({"spec": change})).await;
        let refused = format!("{:#}", refused.expect_err(words));
        assert!(refused.contains(words), "{refused}");
    }
    Ok(())
}

#[e2e::test]
async fn two_clusters_of_the_same_name_live_in_two_namespaces_and_five_at_once_form(k: Bench) -> Result<()> {
    let other = format!("{}-two", k.namespace());
    k.apply(&format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {other}, labels: \
         {{app.kubernetes.io/managed-by: e2e, pod-security.kubernetes.io/enforce: restricted}}}}}}"
    ))
    .await?;
    let outcome = five_at_once(&k, &other).await;
    k.cluster_objects::<Namespace>().delete(&other).await?;
    outcome
}

async fn five_at_once(k: &Bench, other: &str) -> Result<()> {
    let since = Instant::now();
    let twin = format!(
        "{{apiVersion: valkey.io/v1alpha1, kind: ValkeyCluster, metadata: {{name: orders, namespace: {other}}}, spec: {SMALL}}}"
    );
    let (clusters, _) = tokio::try_join!(
        try_join_all(["orders", "carts", "users", "prices"].map(|name| Cluster::apply(k, name, SMALL))),
        k.apply(&twin),
    )?;
    let twins: Api<ValkeyCluster> = Api::namespaced(k.client().clone(), other);
    let twin_ready = eventually("the twin to be Ready", secs(120), async || {
        let status = twins.get("orders").await?.status.unwrap_or_default();
        ensure!(status.phase == Some(Phase::Running), "{:?}", status.operation);
        Ok(())
    });
    let (took, ()) =
        tokio::try_join!(try_join_all(clusters.iter().map(|cluster| cluster.ready(secs(120)))), twin_ready)?;
    println!("ready after {took:.2?}; all five after {:.2?}", since.elapsed());

    let [orders, ..] = clusters.as_slice() else { bail!("no cluster") };
    writes_and_reads(orders).await?;
    let uids = async || anyhow::Ok(orders.pods().await?.iter().map(ResourceExt::uid).collect::<Vec<_>>());
    let before = uids().await?;
    twins.delete("orders", &kube::api::DeleteParams::default()).await?;
    let pods: Api<Pod> = Api::namespaced(k.client().clone(), other);
    eventually("the twin's pods to go", secs(60), async || {
        let left = pods.list_metadata(&kube::api::ListParams::default()).await?.items.len();
        ensure!(left == 0, "{left} are left");
        Ok(())
    })
    .await?;
    orders.is_whole().await?;
    assert_eq!(uids().await?, before, "pods of the one that stays were replaced");
    orders.until_condition(ConditionType::Ready, "True", secs(20)).await?;
    Ok(())
}

async fn until_phase(k: &Bench, name: &str, phase: Phase) -> Result<()> {
    let is = |cluster: &ValkeyCluster| cluster.status.as_ref().is_some_and(|status| status.phase == Some(phase));
    k.objects::<ValkeyCluster>().named(name).until_it(phase.as_str(), secs(20), is).await.map(drop)
}

/// A client that knows nothing but the connection Secret can work.
async fn writes_and_reads(cluster: &Cluster) -> Result<()> {
    let witness = cluster.witness().await?.rate(300).start().await?;
    witness.writes_in_every_shard(100, secs(20)).await?;
    witness.stop().await?.expect_no_lost_write().expect_no_error();
    Ok(())
}
