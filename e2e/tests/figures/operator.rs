//! Figures of the operator: how fast, how large, how quiet.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, eventually, ms, secs};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use valkey_api::ValkeyCluster;

const HOME: &str = "valkey-operator-system";

/// How long it takes from `kubectl apply` until every node sees a whole cluster, and how long after that Ready is said.
pub struct Formation {
    pub whole: Duration,
    pub late: Duration,
}

/// Applies a cluster and looks by itself when it is true; the operator's word is only compared with that.
pub async fn formation(k: &Bench, name: &str, spec: &str) -> Result<Formation> {
    let begun = Instant::now();
    let cluster = Cluster::apply(k, name, spec).await?;
    let said = async {
        cluster.said_ready(secs(180)).await?;
        anyhow::Ok(begun.elapsed())
    };
    let seen = async {
        eventually("every node to see a whole cluster", secs(180), async || {
            let pods = cluster.pods().await?.len();
            ensure!(pods > 0, "no pods yet");
            cluster.is_whole().await
        })
        .await?;
        anyhow::Ok(begun.elapsed())
    };
    let (said, seen) = tokio::try_join!(said, seen)?;
    // Looking takes time itself: what was said before we had looked at the last node was true by then.
    Ok(Formation { whole: said.min(seen), late: said.saturating_sub(seen) })
}

pub async fn remove(k: &Bench, name: &str) -> Result<()> {
    k.objects::<ValkeyCluster>().delete(name).await?;
    k.pods().labelled(&format!("valkey.io/cluster={name}")).until_gone("the pods to be gone", secs(120)).await
}

/// The operator that leads.
pub async fn leader(k: &Bench) -> Result<Pod> {
    let pods: Api<Pod> = Api::namespaced(k.client().clone(), HOME);
    let leaders = pods.list(&kube::api::ListParams::default().labels("valkey.io/leader=true")).await?;
    leaders.items.into_iter().next().context("no operator leads")
}

/// What the operator asked of the API server so far: reads and writes, the Lease and watches apart.
pub async fn requests(k: &Bench) -> Result<(u64, u64)> {
    let text = metrics(&leader(k).await?).await?;
    let count = |kind: &str| {
        let line = text.lines().find(|line| line.contains(&format!("kind=\"{kind}\"")));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
            .with_context(|| format!("no count of {kind}s in {text}"))
    };
    Ok((count("read")?, count("write")?))
}

async fn metrics(pod: &Pod) -> Result<String> {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).context("no address")?;
    let mut stream = TcpStream::connect((address.as_str(), 8081)).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Resident memory in MB of the largest process whose command line contains all of these words. The nodes of the bench are
/// namespaces of this machine, so their processes are ours to see.
pub fn resident_megabytes(words: &[&str]) -> Result<f64> {
    let mut largest = None;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let command = read("cmdline").replace('\0', " ");
        if words.iter().all(|word| command.contains(word)) {
            let resident = read("status")
                .lines()
                .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u32>().ok());
            largest = largest.max(resident);
        }
    }
    Ok(f64::from(largest.with_context(|| format!("no process with {words:?}"))?) / 1000.0)
}

/// Reads and writes within a minute in which nothing happens.
pub async fn quiet_minute(k: &Bench) -> Result<(u64, u64)> {
    tokio::time::sleep(secs(20)).await; // what the last change set in motion
    let (reads, writes) = requests(k).await?;
    tokio::time::sleep(secs(60)).await;
    let (reads_later, writes_later) = requests(k).await?;
    Ok((reads_later - reads, writes_later - writes))
}

/// Memory of the operator with many clusters, each a single node: what counts is what the operator remembers of each.
pub async fn many(k: &Bench, count: usize) -> Result<f64> {
    let spec = "{masterCount: 1, replicasPerMaster: 0, allowUnsafeTopology: true, persistence: {enabled: false}}";
    let mut clusters = Vec::new();
    for number in 0..count {
        clusters.push(Cluster::apply(k, &format!("many-{number}"), spec).await?);
    }
    for cluster in &clusters {
        cluster.said_ready(secs(300)).await?;
    }
    tokio::time::sleep(ms(2000)).await;
    let resident = resident_megabytes(&["valkey-operator --health-addr"])?;
    for cluster in &clusters {
        k.objects::<ValkeyCluster>().delete(cluster.name()).await?;
    }
    Ok(resident)
}
