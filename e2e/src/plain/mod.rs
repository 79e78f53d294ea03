//! A Valkey cluster made by hand: a bare `StatefulSet`, formed through commands to its pods, without any operator.
//!
//! It is the baseline that the operator is measured against, and the cluster on which the witness itself is tested.

mod formation;
mod image;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use redis::{FromRedisValue, cmd};
use tokio::time::Instant;

pub use formation::{Member, Shard};
pub use image::{Image, images};

use crate::bench::{Bench, address_of};
use crate::endpoint::Endpoint;
use crate::witness::{self, Witness};

const PORT: u16 = 6379;
const ZONE: &str = "topology.kubernetes.io/zone";
/// How long pods may take to be ready, and then the cluster to agree.
const READY: Duration = Duration::from_secs(90);

/// A plain cluster that is not there yet.
#[derive(Clone, Debug)]
pub struct Settings {
    bench: Bench,
    name: String,
    shards: usize,
    replicas: usize,
    image: Option<Image>,
    options: &'static [&'static str],
}

/// What every pod of a plain cluster is told, in any case.
const OPTIONS: &[&str] = &["--dir /data", "--protected-mode no", "--cluster-enabled yes"];
/// What makes a cluster form and fail over quickly; without it Valkey waits 15 s for a node and 5 s for a second replica.
const QUICK: &[&str] = &["--save \"\"", "--cluster-node-timeout 2000", "--repl-diskless-sync-delay 0"];

impl Settings {
    /// How many primaries; 3 unless told.
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// How many replicas each primary has; 1 unless told.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Which Valkey; the newest on the bench unless told.
    #[must_use]
    pub fn image(mut self, image: Image) -> Self {
        self.image = Some(image);
        self
    }

    /// Valkey's own settings, not ours that make it quick.
    #[must_use]
    pub fn stock(mut self) -> Self {
        self.options = &[];
        self
    }

    /// The pods, joined by `valkey-cli --cluster create` as its manual says, until everybody agrees and every replica is
    /// online: what people do by hand.
    pub async fn start_by_hand(self) -> Result<Timings> {
        let (members, pods_ready) = self.start_pods().await?;
        let begun = Instant::now();
        let first = members.first().context("a cluster without pods")?;
        let addresses: Vec<_> = members.iter().map(|member| member.address.to_string()).collect();
        let mut words = vec!["valkey-cli", "--cluster", "create"];
        words.extend(addresses.iter().map(String::as_str));
        let replicas = self.replicas.to_string();
        words.extend(["--cluster-replicas", &replicas, "--cluster-yes"]);
        self.bench.exec(&first.pod, &words).await?;
        let nodes: Vec<_> = members.iter().collect();
        formation::settled(&nodes, self.shards, READY).await?;
        Ok(Timings { pods_ready, formation: begun.elapsed() })
    }

    /// Only the pods: waits until all are ready, and returns them with the zones they are in.
    pub async fn start_pods(&self) -> Result<(Vec<Member>, Duration)> {
        let begun = Instant::now();
        let image = match &self.image {
            Some(image) => image.clone(),
            None => image::newest()?,
        };
        let Self { bench, name, shards, replicas, options, .. } = self;
        let count = shards * (1 + replicas);
        bench.apply(&manifest(name, count, &image, options)).await?;
        let what = format!("{count} pods of {name} to be ready");
        let ours = bench.pods().labelled(&format!("app.kubernetes.io/name={name}"));
        let pods = ours.until(&what, READY, |pods| pods.len() == count && pods.iter().all(|pod| is_ready(pod))).await?;
        let ready = begun.elapsed();
        let nodes = bench.cluster_objects::<Node>().list().await?;
        let members: Result<_> = pods.iter().map(|pod| member(pod, &nodes)).collect();
        Ok((members?, ready))
    }

    /// The pods, and a cluster formed of them in which everybody agrees and every replica is online.
    pub async fn start(self) -> Result<PlainCluster> {
        let (members, pods_ready) = self.start_pods().await?;
        let begun = Instant::now();
        let shards = formation::arrange(members, self.shards);
        formation::form(&shards, READY).await.context("the plain cluster does not form")?;
        let timings = Timings { pods_ready, formation: begun.elapsed() };
        Ok(PlainCluster { bench: self.bench, name: self.name, shards, timings })
    }
}

/// How long the parts of a start took.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// From the first object applied until the last pod is ready.
    pub pods_ready: Duration,
    /// From there until every node agrees and every replica is online.
    pub formation: Duration,
}

/// A plain cluster that has formed. The roles are those of the start; ask the nodes for later ones.
#[derive(Clone, Debug)]
pub struct PlainCluster {
    bench: Bench,
    pub name: String,
    pub shards: Vec<Shard>,
    pub timings: Timings,
}

impl PlainCluster {
    /// A plain cluster in the test's namespace, three primaries with a replica each unless told.
    pub fn of(bench: &Bench, name: &str) -> Settings {
        Settings { bench: bench.clone(), name: name.into(), shards: 3, replicas: 1, image: None, options: QUICK }
    }

    pub fn bench(&self) -> &Bench {
        &self.bench
    }

    /// All nodes, primaries first.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        let replicas = self.shards.iter().flat_map(|shard| &shard.replicas);
        self.shards.iter().map(|shard| &shard.primary).chain(replicas)
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::plain(self.members().map(|member| member.address))
    }

    /// A witness of this cluster, to be started.
    pub fn witness(&self) -> witness::Settings {
        Witness::of(self.endpoint())
    }

    /// Sends one command to one node, as it is.
    pub async fn command<T: FromRedisValue>(&self, node: &Member, words: &[&str]) -> Result<T> {
        command(node.address, words).await
    }
}

/// Sends one command to one node that needs no password.
pub(crate) async fn command<T: FromRedisValue>(node: SocketAddr, words: &[&str]) -> Result<T> {
    let (first, rest) = words.split_first().context("a command needs a word")?;
    let mut connection = Endpoint::default().node(node, Duration::from_secs(2)).await?;
    let answer = cmd(first).arg(rest).query_async(&mut connection).await;
    answer.with_context(|| format!("{} on {node}", words.join(" ")))
}

fn member(pod: &Pod, nodes: &[Node]) -> Result<Member> {
    let host = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).context("a ready pod without a node")?;
    let node = nodes.iter().find(|node| node.name_any() == host).context("a pod on a node that is not there")?;
    let zone = node.labels().get(ZONE).cloned().unwrap_or_else(|| host.into());
    Ok(Member { pod: pod.name_any(), address: SocketAddr::new(address_of(pod)?, PORT), node: host.into(), zone })
}

/// Whether Kubernetes calls a pod ready.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.and_then(|all| all.iter().find(|condition| condition.type_ == "Ready"));
    pod.metadata.deletion_timestamp.is_none() && ready.is_some_and(|ready| ready.status == "True")
}

/// What somebody who knows Valkey and Kubernetes would write without an operator.
fn manifest(name: &str, count: usize, image: &Image, options: &[&str]) -> String {
    let options: Vec<_> = OPTIONS.iter().chain(options).map(|option| format!("        - {option}")).collect();
    let options = options.join("\n");
    format!(
        r"
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{app.kubernetes.io/name: {name}}}
  ports: [{{name: valkey, port: {PORT}}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: {name}}}
spec:
  serviceName: {name}
  replicas: {count}
  podManagementPolicy: Parallel
  selector: {{matchLabels: {{app.kubernetes.io/name: {name}}}}}
  template:
    metadata: {{labels: {{app.kubernetes.io/name: {name}}}}}
    spec:
      enableServiceLinks: false
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 10
      securityContext:
        runAsNonRoot: true
        runAsUser: 999
        runAsGroup: 999
        fsGroup: 999
        seccompProfile: {{type: RuntimeDefault}}
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: {ZONE}
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {{matchLabels: {{app.kubernetes.io/name: {name}}}}}
      containers:
      - name: valkey
        image: {image}
        imagePullPolicy: IfNotPresent
        command: [valkey-server]
        args:
        - --port {PORT}
{options}
        ports: [{{name: valkey, containerPort: {PORT}}}]
        readinessProbe: {{tcpSocket: {{port: {PORT}}}, periodSeconds: 1}}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {{drop: [ALL]}}
        volumeMounts: [{{name: data, mountPath: /data}}]
      volumes: [{{name: data, emptyDir: {{}}}}]
"
    )
}
