//! What cannot be done as asked is refused, waits or goes another way, and says so. Nothing that runs suffers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, eventually, secs};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Node;
use redis::cmd;
use serde_json::json;
use valkey_api::{ConditionType, Phase, ValkeyCluster};

use crate::drains::{Eviction, evict, kubectl};

const LIMIT: Duration = Duration::from_mins(3);
const BARE: &str = "replicasPerMaster: 0, persistence: {enabled: false}";

#[e2e::test(minutes = 5)]
#[ignore = "long"]
async fn fewer_shards_than_can_hold_the_data_are_refused_with_the_figures(k: Bench) -> Result<()> {
    let full = Cluster::apply(&k, "full", &format!("{{masterCount: 4, maxMemory: 32mb, {BARE}}}")).await?;
    full.ready(secs(60)).await?;
    for shard in 0..4_u16 {
        full.fill(&format!("full-{shard}-0"), shard * 4096..(shard + 1) * 4096, 1, 5000).await?;
    }
    full.change(json!({"masterCount": 3})).await?;
    let told = until_phase(&k, "full", Phase::Failed).await?;
    println!("{told}");
    ensure!(told.contains("cannot be given up") && told.contains("MB"), "{told}");
    assert_eq!(full.slots().await?.len(), 4, "slots have moved");
    full.until_condition(ConditionType::Ready, "True", secs(20)).await?;

    full.change(json!({"masterCount": 4})).await?;
    full.settled(LIMIT).await?;
    for shard in 0..4 {
        let keys: u64 = full.command(&format!("full-{shard}-0"), &["DBSIZE"]).await?;
        assert_eq!(keys, 4096, "of shard {shard}");
    }
    Ok(())
}

#[e2e::test(minutes = 5)]
#[ignore = "long"]
async fn a_new_shard_gets_its_part_of_the_data_however_it_is_spread_over_the_slots(k: Bench) -> Result<()> {
    let uneven = Cluster::apply(&k, "uneven", &format!("{{{BARE}}}")).await?;
    uneven.ready(secs(60)).await?;
    // All of it in a thousand slots in the middle of a shard.
    uneven.fill("uneven-0-0", 2000..3000, 20, 4096).await?;
    uneven.change(json!({"masterCount": 4})).await?;
    uneven.settled(LIMIT).await?;
    let moved: u64 = uneven.command("uneven-3-0", &["DBSIZE"]).await?;
    let kept: u64 = uneven.command("uneven-0-0", &["DBSIZE"]).await?;
    println!("{moved} keys moved, {kept} stayed");
    assert_eq!(moved + kept, 20_000, "or other shards got some");
    // Three quarters of it are more than its share of all data.
    ensure!((12_000..18_000).contains(&moved), "{moved} keys moved");
    Ok(())
}

/// The only copy of a shard cannot be handed over to anybody.
#[e2e::test(exclusive, minutes = 5)]
#[ignore = "long"]
async fn the_only_copy_is_not_drained_away(k: Bench) -> Result<()> {
    let alone = Cluster::apply(&k, "alone", &format!("{{{BARE}}}")).await?;
    alone.ready(secs(60)).await?;
    let before = alone.uids().await?;
    let pod = k.pods().get("alone-0-0").await?;
    let machine = pod.spec.and_then(|spec| spec.node_name).context("it is nowhere")?;
    kubectl(&["cordon", &machine]).await?;
    let refused = async {
        let told = until_phase(&k, "alone", Phase::Failed).await?;
        println!("{told}");
        // The client asks again and again by itself.
        let evicted = tokio::time::timeout(secs(10), evict(&k, "alone-0-0")).await;
        ensure!(!matches!(evicted, Ok(Ok(Eviction::Done))), "the only copy was evicted");
        alone.until_condition(ConditionType::Ready, "True", secs(20)).await
    };
    let refused = refused.await;
    kubectl(&["uncordon", &machine]).await?;
    refused?;
    alone.settled(LIMIT).await?;
    assert_eq!(alone.uids().await?, before, "a pod was made anew");
    Ok(())
}

/// No machine has as much memory as that.
#[e2e::test(minutes = 5)]
#[ignore = "long"]
async fn memory_that_no_machine_has_stops_at_the_first_pod_and_can_be_taken_back(k: Bench) -> Result<()> {
    let spec =
        "{persistence: {enabled: false}, resources: {requests: {cpu: 50m, memory: 100Mi}, limits: {memory: 200Mi}}}";
    let cache = Cluster::apply(&k, "cache", spec).await?;
    cache.ready(secs(60)).await?;
    let before = cache.uids().await?;
    let witness = cache.witness().await?.rate(300).start().await?;
    let resources = |amount: &str| json!({"resources": {"requests": {"memory": amount}, "limits": {"memory": amount}}});
    cache.change(resources("9000Gi")).await?;
    let told = cache.until_condition(ConditionType::Degraded, "True", secs(60)).await?;
    println!("{told}");
    let machines = k.cluster_objects::<Node>().list().await?.len();
    eventually("the scheduler to say that there is no place", secs(30), async || {
        let status = cache.object().await?.status.unwrap_or_default();
        let failure = status.last_failure.context("no failure is told")?;
        ensure!(failure.message.contains(&format!("0/{machines} nodes")), "{}", failure.message);
        Ok(())
    })
    .await?;
    let now = cache.uids().await?;
    let replaced: Vec<_> = before.iter().filter(|(pod, uid)| now.get(*pod) != Some(uid)).collect();
    ensure!(replaced.len() == 1, "more than one pod was tried: {replaced:?}");
    cache.until_condition(ConditionType::Ready, "True", secs(20)).await?;

    cache.change(json!({"resources": {"requests": {"memory": "100Mi"}, "limits": {"memory": "200Mi"}}})).await?;
    cache.settled(LIMIT).await?;
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    Ok(())
}

/// The platform's own rules stand above ours.
#[e2e::test(minutes = 5)]
async fn what_a_policy_forbids_is_told_and_keeps_nothing_from_being_healed(k: Bench) -> Result<()> {
    let cache = Cluster::apply(&k, "cache", "{persistence: {enabled: false}}").await?;
    cache.ready(secs(60)).await?;
    let policy = format!("frozen-{}", k.namespace());
    k.apply(&frozen(&policy, k.namespace())).await?;
    let outcome = while_frozen(&k, &cache).await;
    k.cluster_objects::<ValidatingAdmissionPolicyBinding>().delete(&policy).await?;
    k.cluster_objects::<ValidatingAdmissionPolicy>().delete(&policy).await?;
    outcome?;
    cache.until_condition(ConditionType::Accepted, "True", secs(60)).await?;
    cache.settled(LIMIT).await
}

async fn while_frozen(k: &Bench, cache: &Cluster) -> Result<()> {
    eventually("the policy to be in force", secs(30), async || {
        let untouched = k.objects::<StatefulSet>().merge("cache-0", json!({"metadata": {}})).await;
        ensure!(untouched.is_err(), "workloads can be changed");
        Ok(())
    })
    .await?;
    let before = cache.uids().await?;
    cache.change(json!({"config": {"tcp-backlog": "300"}})).await?;
    let why = cache.until_condition(ConditionType::Accepted, "False", secs(30)).await?;
    println!("{why}");
    ensure!(why.contains("StatefulSet cache-") && why.contains("not before the audit"), "{why}");
    assert_eq!(cache.uids().await?, before, "pods are made anew that come back as they were");

    // It comes back with nothing: it belongs to the cluster again only if somebody sees to it.
    k.pods().delete("cache-1-1").await?;
    eventually("the shard to be healed", secs(60), async || {
        ensure!(cache.uids().await?.get("cache-1-1") != before.get("cache-1-1"), "the pod is still there");
        cache.is_whole().await
    })
    .await
}

fn frozen(name: &str, namespace: &str) -> String {
    format!(
        "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}
    resourceRules: [{{apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [statefulsets]}}]
  validations: [{{expression: 'false', message: not before the audit}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}, validationActions: [Deny]}}
"
    )
}

/// Servers that do not let others send them slots, as a release might that cannot: key by key goes all the same.
#[e2e::test(minutes = 8)]
#[ignore = "long"]
async fn slots_that_servers_fail_to_move_by_themselves_go_key_by_key(k: Bench) -> Result<()> {
    let stubborn = Cluster::apply(&k, "stubborn", "{persistence: {enabled: false}}").await?;
    stubborn.ready(secs(60)).await?;
    let witness = stubborn.witness().await?.rate(300).start().await?;
    witness.writes_in_every_shard(300, secs(30)).await?;
    stubborn.change(json!({"masterCount": 4})).await?;
    for pod in ["stubborn-3-0", "stubborn-3-1"] {
        eventually("the new server to be told", secs(60), async || {
            let mut node = stubborn.admin().await?.node(stubborn.host(pod), secs(2)).await?;
            let mut forbid = cmd("ACL");
            forbid.arg("SETUSER").arg("replicator").arg("-cluster|syncslots");
            Ok(forbid.query_async::<()>(&mut node).await?)
        })
        .await?;
    }
    eventually("failures to be told", LIMIT, async || {
        let status = stubborn.object().await?.status.unwrap_or_default();
        let told = status.operation.context("nothing to do")?.message;
        ensure!(told.contains("failed"), "{told}");
        println!("{told}");
        Ok(())
    })
    .await?;
    stubborn.settled(Duration::from_mins(5)).await?;
    assert_eq!(stubborn.slots().await?.len(), 4);
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    Ok(())
}

/// Waits for a phase, and says what is told in it.
async fn until_phase(k: &Bench, name: &str, phase: Phase) -> Result<String> {
    let is = |cluster: &ValkeyCluster| cluster.status.as_ref().is_some_and(|status| status.phase == Some(phase));
    let found = k.objects::<ValkeyCluster>().named(name).until_it(phase.as_str(), LIMIT, is).await?;
    let status = found.status.context("no status")?;
    Ok(status.last_failure.map(|failure| failure.message).unwrap_or_default())
}
