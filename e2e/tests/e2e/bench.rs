//! The bench keeps what every other test relies on: pods start, spread, and find each other.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use e2e::plain::images;
use e2e::{Bench, PlainCluster, eventually, secs};

#[e2e::test]
async fn a_six_pod_statefulset_is_ready_within_seconds(k: Bench) -> Result<()> {
    let (members, took) = PlainCluster::of(&k, "six").start_pods().await?;
    println!("six pods ready in {took:.2?}");
    let (mut zones, mut nodes) = (BTreeMap::new(), BTreeMap::new());
    for member in &members {
        *zones.entry(member.zone.as_str()).or_insert(0) += 1;
        *nodes.entry(member.node.as_str()).or_insert(0) += 1;
    }
    assert_eq!(zones, BTreeMap::from([("z1", 2), ("z2", 2), ("z3", 2)]));
    assert_eq!(nodes, BTreeMap::from([("node-1", 2), ("node-2", 2), ("node-3", 2)]));
    Ok(())
}

#[e2e::test]
async fn a_plain_cluster_forms_with_every_valkey_of_the_bench(k: Bench) -> Result<()> {
    for (number, image) in images()?.into_iter().enumerate() {
        let cluster = PlainCluster::of(&k, &format!("plain-{number}")).image(image.clone()).start().await?;
        println!("{image}: {:.2?}", cluster.timings);
    }
    Ok(())
}

#[e2e::test]
async fn names_resolve_in_the_cluster(k: Bench) -> Result<()> {
    let (members, _) = PlainCluster::of(&k, "web").shards(2).replicas(0).start_pods().await?;
    k.apply(
        "
apiVersion: v1
kind: Service
metadata: {name: front}
spec:
  selector: {app.kubernetes.io/name: web}
  ports: [{name: valkey, port: 6380, targetPort: 6379}]
",
    )
    .await?;
    let namespace = k.namespace();

    let pod = format!("web-1.web.{namespace}.svc.cluster.local");
    let address = members[1].address.ip().to_string();
    eventually("the headless name of a pod to resolve in another", secs(20), async || {
        let answer = k.exec("web-0", &["nslookup", &pod]).await?;
        ensure!(answer.contains(&address), "{pod} is not {address}: {answer}");
        Ok(())
    })
    .await?;

    eventually("a service to be reached by its short name", secs(20), async || {
        let answer = k.exec("web-0", &["valkey-cli", "-h", "front", "-p", "6380", "PING"]).await?;
        ensure!(answer.trim() == "PONG", "{answer}");
        Ok(())
    })
    .await
}
