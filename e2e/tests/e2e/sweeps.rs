//! Every planned change with an operator that is killed after one of its writes, each in turn, and another one that goes on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, eventually};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;
use valkey_api::ValkeyCluster;
use valkey_api::upgrade::UpgradePhase;

use crate::drains::kubectl;
use crate::local_operator::{LocalOperator, reached_with_a_crash, step};
use crate::upgrades::{self, NEW, OLD};

const LIMIT: Duration = Duration::from_mins(3);
const SWITCHOVER: &str = "valkey.io/switchover";

/// A change that can be made again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Shards,
    Replicas,
    Restart,
    Setting,
    Switchover,
    Drain,
    Upgrade,
    /// To an image that nobody has.
    FailingUpgrade,
}

impl Change {
    /// How many turns it takes until all is as before. Each of them is a change of its own, to be tried with every crash.
    fn turns(self) -> u32 {
        match self {
            Self::Shards | Self::Replicas | Self::Upgrade => 2,
            Self::Restart | Self::Setting | Self::Switchover | Self::Drain | Self::FailingUpgrade => 1,
        }
    }

    /// After every which of its writes the operator dies unless [`step`] says otherwise, so that a sweep takes minutes.
    fn usual_step(self) -> usize {
        match self {
            Self::Switchover | Self::Setting => 3,
            Self::Shards | Self::Replicas => 10,
            Self::Drain | Self::FailingUpgrade => 20,
            Self::Restart => 30,
            Self::Upgrade => 75,
        }
    }

    async fn cluster(self, k: &Bench) -> Result<Cluster> {
        let persistence = json!({"enabled": false});
        let older = |patience: u32| {
            let upgrade = json!({"validationTimeoutSeconds": patience});
            json!({"persistence": persistence, "valkeyImage": {"tag": OLD}, "upgrade": upgrade})
        };
        let spec = match self {
            Self::Upgrade => older(120),
            Self::FailingUpgrade => older(10),
            _ => json!({"persistence": persistence}),
        };
        upgrades::created(k, "cache", spec).await
    }

    async fn order(self, k: &Bench, cluster: &Cluster, turn: u32) -> Result<()> {
        let one_of = |first: u32, second: u32| if turn.is_multiple_of(2) { first } else { second };
        match self {
            Self::Shards => cluster.change(json!({"masterCount": one_of(3, 4)})).await,
            Self::Replicas => cluster.change(json!({"replicasPerMaster": one_of(1, 2)})).await,
            Self::Restart => cluster.change(json!({"config": {"tcp-backlog": one_of(256, 511).to_string()}})).await,
            Self::Setting => cluster.change(json!({"config": {"maxclients": one_of(500, 600).to_string()}})).await,
            Self::Switchover => {
                let primary = cluster.primaries().await?.into_iter().next().context("nobody leads")?;
                let wish = json!({"metadata": {"annotations": {SWITCHOVER: format!("!{primary}")}}});
                k.objects::<ValkeyCluster>().merge(cluster.name(), wish).await.map(drop)
            }
            Self::Drain => kubectl(&["cordon", &node(k, turn).await?]).await,
            Self::Upgrade if turn.is_multiple_of(2) => upgrades::edit_tag(k, cluster, OLD).await,
            Self::Upgrade => upgrades::upgrade(k, cluster.name(), &format!("up-{turn}"), NEW).await,
            Self::FailingUpgrade => upgrades::upgrade(k, cluster.name(), &format!("up-{turn}"), "9.1.99").await,
        }
    }

    /// Waits until nothing is left to be done.
    async fn done(self, k: &Bench, cluster: &Cluster, turn: u32) -> Result<()> {
        let upgraded = async |end: UpgradePhase| {
            let name = format!("up-{turn}");
            upgrades::until(k, &name, "the end of the upgrade", LIMIT, |phase, _| phase == end).await
        };
        match self {
            Self::Switchover => fulfilled(cluster).await?,
            Self::Drain => drained(cluster, &node(k, turn).await?).await?,
            Self::Upgrade if !turn.is_multiple_of(2) => drop(upgraded(UpgradePhase::Succeeded).await?),
            Self::FailingUpgrade => drop(upgraded(UpgradePhase::RolledBack).await?),
            _ => {}
        }
        cluster.settled(LIMIT).await
    }
}

/// The machine whose turn it is.
async fn node(k: &Bench, turn: u32) -> Result<String> {
    let nodes = k.cluster_objects::<Node>().list().await?;
    let index = usize::try_from(turn)? % nodes.len().max(1);
    nodes.get(index).map(ResourceExt::name_any).context("no machines")
}

/// As somebody does it who wants a machine for himself: he asks until nobody of the cluster is left there.
async fn drained(cluster: &Cluster, node: &str) -> Result<()> {
    let which = format!("--pod-selector=valkey.io/cluster={}", cluster.name());
    kubectl(&["drain", node, &which, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s"]).await?;
    // The last one has gone a moment ago, and the operator may not have noticed: what it says is about before.
    cluster.until_whole(LIMIT).await?;
    kubectl(&["uncordon", node]).await
}

async fn fulfilled(cluster: &Cluster) -> Result<()> {
    eventually("the wish to be fulfilled", LIMIT, async || {
        ensure!(!cluster.object().await?.annotations().contains_key(SWITCHOVER), "it is still there");
        Ok(())
    })
    .await
}

/// A change again and again, with operators that die after so many writes, until one survives it.
async fn sweep(k: &Bench, cluster: &Cluster, change: Change, crashes: impl Iterator<Item = u32>) -> Result<()> {
    let operator = LocalOperator::instead_of_the_installed_one(k).await?;
    let witness = cluster.witness().await?.rate(300).start().await?;
    let mut turn = 0;
    for writes in crashes {
        let mut survived = true;
        for _ in 0..change.turns() {
            turn += 1;
            change.order(k, cluster, turn).await?;
            let died = reached_with_a_crash(&operator, writes, async || change.done(k, cluster, turn).await).await;
            survived &= !died.with_context(|| format!("{change:?}, turn {turn}"))?;
        }
        println!("{change:?}: killed after write {writes}, nothing is left to be done");
        if survived {
            println!("{change:?}: {writes} writes are all that it takes");
            break;
        }
    }
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write().expect_no_error();
    Ok(())
}

/// A change with operators that die, each some writes later than the one before.
async fn swept(k: Bench, change: Change) -> Result<()> {
    let cluster = change.cluster(&k).await?;
    let outcome = sweep(&k, &cluster, change, (1..).step_by(step(change.usual_step())?)).await;
    if change == Change::Drain {
        for turn in 0..3 {
            kubectl(&["uncordon", &node(&k, turn).await?]).await?;
        }
    }
    outcome
}

/// A new operator knows nothing at first, and must not take that for how things are.
#[e2e::test(exclusive, minutes = 10)]
async fn an_operator_killed_while_shards_come_and_go_takes_nothing_with_it(k: Bench) -> Result<()> {
    let cache = Change::Shards.cluster(&k).await?;
    sweep(&k, &cache, Change::Shards, [6, 8].into_iter()).await
}

#[e2e::test(exclusive, minutes = 30)]
#[ignore = "long"]
async fn an_operator_killed_after_any_write_of_a_switchover_loses_nothing(k: Bench) -> Result<()> {
    swept(k, Change::Switchover).await
}

#[e2e::test(exclusive, minutes = 30)]
#[ignore = "long"]
async fn an_operator_killed_after_any_write_of_a_setting_loses_nothing(k: Bench) -> Result<()> {
    swept(k, Change::Setting).await
}

#[e2e::test(exclusive, minutes = 90)]
#[ignore = "long"]
async fn an_operator_killed_after_any_write_of_a_change_of_shards_loses_nothing(k: Bench) -> Result<()> {
    swept(k, Change::Shards).await
}

#[e2e::test(exclusive, minutes = 90)]
#[ignore = "long"]
async fn an_operator_killed_after_any_write_of_a_change_of_replicas_loses_nothing(k: Bench) -> Result<()> {
    swept(k, Change::Replicas).await
}

#[e2e::test(exclusive, minutes = 240)]
#[ignore = "long"]
async fn an_operator_killed_after_any_write_of_a_roll_loses_nothing(k: Bench) -> Result<()> {
    swept(k, Change::Restart).await
}

#[e2e::test(exclusive, minutes = 120)]
#[ignore = "long"]
async fn an_operator_killed_after_any_write_of_a_drain_loses_nothing(k: Bench) -> Result<()> {
    swept(k, Change::Drain).await
}

/// Up by an object, and back by hand.
#[e2e::test(exclusive, minutes = 480)]
#[ignore = "long"]
async fn an_operator_killed_after_any_write_of_an_upgrade_loses_nothing(k: Bench) -> Result<()> {
    swept(k, Change::Upgrade).await
}

#[e2e::test(exclusive, minutes = 120)]
#[ignore = "long"]
async fn an_operator_killed_after_any_write_of_an_upgrade_that_fails_loses_nothing(k: Bench) -> Result<()> {
    swept(k, Change::FailingUpgrade).await
}
