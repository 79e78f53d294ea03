//! Nodes can be broken in three honest ways, and come back.

use anyhow::{Context, Result, ensure};
use e2e::kube_node::Ready;
use e2e::plain::{Member, is_ready};
use e2e::{Bench, KubeNode, PlainCluster, eventually, secs};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::helper;

#[e2e::test(exclusive)]
async fn a_crashed_node_is_noticed_and_its_pods_come_back(k: Bench) -> Result<()> {
    let (node, member) = with_pods(&k).await?;
    let before = restarts(&k.pods().get(&member.pod).await?);
    node.crash().await?;
    node.until_ready(Ready::NotReady, secs(60)).await?;
    node.start().await?;
    node.until_back(secs(90)).await?;
    let again = |pod: &Pod| is_ready(pod) && restarts(pod) > before;
    k.pods().named(&member.pod).until_it("the pod to run again", secs(90), again).await?;
    answers(&k, &member.pod).await
}

#[e2e::test(exclusive)]
#[ignore = "long"]
async fn a_partitioned_node_is_noticed_and_heals(k: Bench) -> Result<()> {
    let (node, member) = with_pods(&k).await?;
    answers(&k, &member.pod).await?;
    let before = k.pods().get(&member.pod).await?;
    node.partition().await?;
    node.until_ready(Ready::NotReady, secs(60)).await?;
    let cut_off = ping(&k, &member.pod).await.expect_err("a pod behind a cut cable answers");
    println!("as it should be: {cut_off:#}");
    node.heal().await?;
    node.until_back(secs(90)).await?;
    answers(&k, &member.pod).await?;
    let after = k.pods().get(&member.pod).await?;
    assert_eq!(
        (before.uid(), restarts(&before)),
        (after.uid(), restarts(&after)),
        "what ran there should have gone on"
    );
    Ok(())
}

#[e2e::test(exclusive)]
#[ignore = "long"]
async fn a_stopped_node_ends_its_pods_cleanly_and_starts_again(k: Bench) -> Result<()> {
    let script = "echo started >> /data/log; trap 'sleep 2; echo ended >> /data/log; exit 0' TERM; \
                  while true; do sleep 1 & wait $!; done";
    k.apply(&helper::keeper("keeper", Some("node-2"), script)?).await?;
    let pod = k.pods().named("keeper-0");
    pod.until_it("the pod to be ready", secs(60), is_ready).await?;
    let node = k.node("node-2");
    node.stop().await?;
    node.until_ready(Ready::NotReady, secs(60)).await?;
    node.start().await?;
    node.until_back(secs(90)).await?;
    eventually("the pod to run again after a clean end", secs(90), async || {
        let log = k.exec("keeper-0", &["cat", "/data/log"]).await?;
        ensure!(log == "started\nended\nstarted\n", "{log:?}");
        Ok(())
    })
    .await
}

/// Some Valkey pods, and one of them with the node it runs on.
async fn with_pods(k: &Bench) -> Result<(KubeNode, Member)> {
    let (members, _) = PlainCluster::of(k, "web").shards(3).replicas(0).start_pods().await?;
    let member = members.into_iter().find(|member| member.node == "node-3").context("no pod on node-3")?;
    Ok((k.node(&member.node), member))
}

async fn answers(k: &Bench, pod: &str) -> Result<()> {
    eventually("the pod to answer", secs(30), async || ping(k, pod).await).await
}

/// Asks Valkey directly: pods can be dialled from the test.
async fn ping(k: &Bench, pod: &str) -> Result<()> {
    let address = k.pod_address(pod, 6379).await?;
    let mut connection = e2e::Endpoint::default().node(address, secs(2)).await?;
    redis::cmd("PING").exec_async(&mut connection).await.context("no answer to PING")
}

fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.map(|container| container.restart_count).sum()
}
