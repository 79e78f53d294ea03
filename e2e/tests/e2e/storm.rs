//! Changes of all kinds, one over the other and in no order, for as long as you like: `STORM_MINUTES`, `STORM_SEED`, `STORM_TAG`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, Witness, secs};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::{sleep, timeout};
use valkey_api::ValkeyCluster;
use valkey_api::topology::NodeRole;

use crate::drains::evict;

const LIMIT: Duration = Duration::from_mins(5);
/// Every so many changes the cluster may come to rest, so that a fault is found near its cause.
const UNTIL_REST: u64 = 6;

#[e2e::test(exclusive, minutes = 120)]
#[ignore = "long"]
async fn changes_interleaved_at_random_lose_nothing(k: Bench) -> Result<()> {
    let number =
        |name: &str, otherwise: u64| std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise);
    let mut dice = Dice(number("STORM_SEED", 1));
    let end = Instant::now() + Duration::from_mins(number("STORM_MINUTES", 5));
    let tag = std::env::var("STORM_TAG").unwrap_or_else(|_| "9.1.2".into());
    println!("seed {}", dice.0);
    let cache = Cluster::apply(&k, "cache", &format!("{{valkeyImage: {{tag: \"{tag}\"}}}}")).await?;
    cache.ready(secs(60)).await?;
    let witness = cache.witness().await?.rate(300).start().await?;
    witness.writes_in_every_shard(200, secs(30)).await?;
    let raged = rage(&k, &cache, &witness, &mut dice, end).await;
    // What clients saw is worth knowing whatever became of the rest.
    let verdict = witness.stop().await?;
    println!("{verdict}");
    raged?;
    verdict.expect_no_lost_write().expect_no_error();
    ensure!(cache.pods().await?.len() == 6, "pods are left behind");
    Ok(())
}

async fn rage(k: &Bench, cache: &Cluster, witness: &Witness, dice: &mut Dice, end: Instant) -> Result<()> {
    let mut changes = 0_u64;
    while Instant::now() < end {
        for _ in 0..UNTIL_REST {
            let change = Change::any(dice);
            println!("{} {change:?}", jiff::Timestamp::now());
            change.make(k, cache).await.with_context(|| format!("{change:?}"))?;
            changes += 1;
            sleep(Duration::from_millis(dice.below(12_000))).await;
        }
        cache.settled(LIMIT).await?;
        witness.writes_in_every_shard(50, secs(30)).await?;
        println!("{} at rest after {changes} changes", jiff::Timestamp::now());
    }
    cache.change(json!({"masterCount": 3, "replicasPerMaster": 1})).await?;
    cache.settled(LIMIT).await
}

#[derive(Debug)]
enum Change {
    Shards(u64),
    Replicas(u64),
    LiveSetting(u64),
    RestartSetting(u64),
    Label(u64),
    Memory(u64),
    Switchover(u64),
    Eviction(u64),
    OperatorKilled,
}

impl Change {
    fn any(dice: &mut Dice) -> Self {
        match dice.below(12) {
            0..3 => Self::Shards(3 + dice.below(4)),
            3 | 4 => Self::Replicas(1 + dice.below(2)),
            5 => Self::LiveSetting(500 + dice.below(500)),
            6 => Self::RestartSetting(200 + dice.below(300)),
            7 => Self::Label(dice.below(1000)),
            8 => Self::Memory(200 + dice.below(200)),
            9 => Self::Switchover(dice.below(100)),
            10 => Self::Eviction(dice.below(100)),
            _ => Self::OperatorKilled,
        }
    }

    async fn make(&self, k: &Bench, cluster: &Cluster) -> Result<()> {
        match self {
            Self::Shards(count) => cluster.change(json!({"masterCount": count})).await,
            Self::Replicas(count) => cluster.change(json!({"replicasPerMaster": count})).await,
            Self::LiveSetting(value) => cluster.change(json!({"config": {"maxclients": value.to_string()}})).await,
            Self::RestartSetting(value) => cluster.change(json!({"config": {"tcp-backlog": value.to_string()}})).await,
            Self::Label(value) => cluster.change(json!({"labels": {"change": format!("c{value}")}})).await,
            Self::Memory(megabytes) => {
                cluster.change(json!({"resources": {"limits": {"memory": format!("{megabytes}Mi")}}})).await
            }
            Self::Switchover(which) => {
                // By the operator's word, for some may be about to leave and answer no more.
                let nodes = cluster.topology().await?.status.context("no topology")?.nodes;
                let primaries = nodes.into_iter().filter(|node| node.role == Some(NodeRole::Primary));
                let primaries: Vec<_> = primaries.map(|node| node.pod).collect();
                let primary = pick(&primaries, *which)?;
                println!("  {primary}");
                let wish = json!({"metadata": {"annotations": {"valkey.io/switchover": format!("!{primary}")}}});
                k.objects::<ValkeyCluster>().merge(cluster.name(), wish).await.map(drop)
            }
            Self::Eviction(which) => {
                let pods: Vec<_> = cluster.pods().await?.iter().map(ResourceExt::name_any).collect();
                let pod = pick(&pods, *which)?;
                // Whoever evicts asks again; we may give up.
                let outcome = timeout(secs(15), evict(k, pod)).await;
                println!("  {pod}: {outcome:?}");
                Ok(())
            }
            Self::OperatorKilled => {
                let pods: Api<Pod> = Api::namespaced(k.client().clone(), "valkey-operator-system");
                let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                for pod in pods.list(&ListParams::default()).await? {
                    pods.delete(&pod.name_any(), &at_once).await?;
                }
                Ok(())
            }
        }
    }
}

fn pick(pods: &[String], which: u64) -> Result<&String> {
    let index = usize::try_from(which)? % pods.len().max(1);
    pods.get(index).context("no pods")
}

/// The same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }
}
