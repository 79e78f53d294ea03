//! A `ValkeyCluster`, as its user knows it: what `kubectl apply` takes, what status says, what the connection Secret gives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use redis::{FromRedisValue, cmd};
use secrecy::SecretString;
use tokio::sync::OnceCell;
use valkey_api::{ConditionType, Phase, ValkeyCluster, ValkeyClusterStatus, conditions};

use crate::bench::Bench;
use crate::dns::ClusterDns;
use crate::endpoint::{Endpoint, Host};
use crate::wait::eventually;
use crate::witness::{self, Witness};

const PORT: u16 = 6379;
/// How long a node may take to answer on a machine that starts dozens of pods meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

/// A cluster that was applied, in the test's own namespace.
#[derive(Clone, Debug)]
pub struct Cluster {
    bench: Bench,
    name: String,
    applied: Instant,
    /// The way in, which is the same as long as the cluster lives. Asking for it each time would be the larger part of a test.
    login: Arc<OnceCell<Endpoint>>,
}

/// What a node says about the cluster it is in.
#[derive(Clone, Debug)]
pub struct View {
    pub pod: String,
    pub info: BTreeMap<String, String>,
    pub nodes: String,
    pub replication: BTreeMap<String, String>,
}

impl Cluster {
    /// Applies a cluster with this spec, written as YAML on one line such as `{masterCount: 3}`.
    pub async fn apply(bench: &Bench, name: &str, spec: &str) -> Result<Self> {
        let applied = Instant::now();
        let manifest =
            format!("apiVersion: valkey.io/v1alpha1\nkind: ValkeyCluster\nmetadata: {{name: {name}}}\nspec: {spec}\n");
        bench.apply(&manifest).await?;
        Ok(Self { bench: bench.clone(), name: name.to_owned(), applied, login: Arc::default() })
    }

    /// One that is there already.
    pub fn existing(bench: &Bench, name: &str) -> Self {
        Self { bench: bench.clone(), name: name.to_owned(), applied: Instant::now(), login: Arc::default() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The object as it is now.
    pub async fn object(&self) -> Result<ValkeyCluster> {
        self.bench.objects::<ValkeyCluster>().get(&self.name).await
    }

    /// Every node, as the operator shows it.
    pub async fn topology(&self) -> Result<ValkeyClusterStatus> {
        self.bench.objects::<ValkeyClusterStatus>().get(&self.name).await
    }

    /// Waits until the operator says Ready, checks that this is true in the eyes of every node, and says how long it took
    /// since the cluster was applied.
    pub async fn ready(&self, limit: Duration) -> Result<Duration> {
        self.said_ready(limit).await?;
        let took = self.applied.elapsed();
        self.bench.remember_login(self.endpoint().await?);
        self.is_whole().await.context("the operator says Ready, and it is not true")?;
        Ok(took)
    }

    /// Waits until the operator says Ready.
    pub async fn said_ready(&self, limit: Duration) -> Result<()> {
        let is_ready = |cluster: &ValkeyCluster| {
            let status = cluster.status.as_ref();
            status.is_some_and(|status| conditions::is_true(&status.conditions, ConditionType::Ready))
        };
        let objects = self.bench.objects::<ValkeyCluster>();
        objects.named(&self.name).until_it("the cluster to be Ready", limit, is_ready).await?;
        Ok(())
    }

    /// Changes the spec.
    pub async fn change(&self, spec: serde_json::Value) -> Result<()> {
        let objects = self.bench.objects::<ValkeyCluster>();
        objects.merge(&self.name, serde_json::json!({ "spec": spec })).await.map(drop)
    }

    /// Waits until the operator says that the cluster is exactly what the spec asks for, and checks that this is true in the
    /// eyes of every node.
    pub async fn settled(&self, limit: Duration) -> Result<()> {
        let is_settled = |cluster: &ValkeyCluster| {
            cluster.status.as_ref().is_some_and(|status| {
                status.observed_generation == cluster.metadata.generation && status.phase == Some(Phase::Running)
            })
        };
        let objects = self.bench.objects::<ValkeyCluster>();
        objects.named(&self.name).until_it("the cluster to be what its spec says", limit, is_settled).await?;
        self.is_whole().await.context("the operator says that it is done, and it is not true")
    }

    /// How many slots each pod owns, by its own word; replicas and the empty are left out.
    pub async fn slots(&self) -> Result<BTreeMap<String, u32>> {
        let nodes = self.topology().await?.status.context("no topology")?.nodes;
        let count = |text: &str| -> Result<u32> {
            let ends = text.split(|c: char| !c.is_ascii_digit() && c != '-').filter(|range| !range.is_empty());
            ends.map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                Ok(last.parse::<u32>()? - first.parse::<u32>()? + 1)
            })
            .sum()
        };
        nodes
            .into_iter()
            .filter_map(|node| Some((node.pod, count(&node.slots?))))
            .map(|(pod, n)| Ok((pod, n?)))
            .collect()
    }

    /// Waits until a condition has a status, and returns its message.
    pub async fn until_condition(&self, kind: ConditionType, status: &str, limit: Duration) -> Result<String> {
        let message = |cluster: &ValkeyCluster| {
            let found = conditions::get(&cluster.status.as_ref()?.conditions, kind)?;
            (found.status == status && found.observed_generation == cluster.metadata.generation)
                .then(|| found.message.clone())
        };
        let what = format!("{kind} to be {status}");
        let objects = self.bench.objects::<ValkeyCluster>();
        let cluster = objects.named(&self.name).until_it(&what, limit, |cluster| message(cluster).is_some()).await?;
        message(&cluster).context("it changed again")
    }

    /// Its pods, by name.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        let mut pods = self.bench.pods().labelled(&format!("valkey.io/cluster={}", self.name)).list().await?;
        pods.sort_by_key(ResourceExt::name_any);
        Ok(pods)
    }

    /// Which pods these are: one that is made anew keeps its name and nothing else.
    pub async fn uids(&self) -> Result<BTreeMap<String, Option<String>>> {
        Ok(self.pods().await?.iter().map(|pod| (pod.name_any(), pod.uid())).collect())
    }

    /// What its connection Secret says, key by key.
    pub async fn connection(&self) -> Result<BTreeMap<String, String>> {
        let secret = self.bench.objects::<Secret>().get(&format!("{}-connection", self.name)).await?;
        let text = |(key, value): (String, k8s_openapi::ByteString)| Ok((key, String::from_utf8(value.0)?));
        secret.data.unwrap_or_default().into_iter().map(text).collect()
    }

    /// A way in, from the connection Secret alone.
    pub async fn endpoint(&self) -> Result<Endpoint> {
        self.login.get_or_try_init(async || self.read_endpoint().await).await.cloned()
    }

    async fn read_endpoint(&self) -> Result<Endpoint> {
        let said = self.connection().await?;
        let entry = |key: &str| said.get(key).with_context(|| format!("the connection Secret has no {key}"));
        Ok(Endpoint {
            seeds: vec![Host::new(entry("host")?.clone(), entry("port")?.parse()?)],
            dns: Some(ClusterDns::of(self.bench.client()).await?),
            username: said.get("username").cloned(),
            password: said.get("password").cloned().map(SecretString::from),
            ca_pem: if entry("tls")? == "true" { Some(entry("ca.crt")?.clone()) } else { None },
            identity: None,
        })
    }

    /// The way in of whoever operates it, who may do what applications may not.
    pub async fn admin(&self) -> Result<Endpoint> {
        let users = self.bench.objects::<Secret>().get(&format!("{}-users", self.name)).await?;
        let password = users.data.unwrap_or_default().remove("admin-password").context("no password of the admin")?;
        let password = Some(String::from_utf8(password.0)?.into());
        Ok(Endpoint { username: Some("valkey-admin".into()), password, ..self.endpoint().await? })
    }

    pub async fn witness(&self) -> Result<witness::Settings> {
        Ok(Witness::of(self.endpoint().await?))
    }

    /// The address of one of its nodes, by name.
    pub fn host(&self, pod: &str) -> Host {
        Host::new(format!("{pod}.{}-nodes.{}.svc", self.name, self.bench.namespace()), PORT)
    }

    /// Asks one node.
    pub async fn command<T: FromRedisValue>(&self, pod: &str, words: &[&str]) -> Result<T> {
        let mut node = self.endpoint().await?.node(self.host(pod), PATIENCE).await?;
        let [first, rest @ ..] = words else { anyhow::bail!("no command") };
        Ok(cmd(first).arg(rest).query_async(&mut node).await?)
    }

    /// Puts so many values of so many bytes into each of these slots, which a node owns.
    pub async fn fill(&self, pod: &str, slots: impl IntoIterator<Item = u16>, each: usize, size: usize) -> Result<()> {
        const PIPELINE: usize = 500;
        let mut node = self.endpoint().await?.node(self.host(pod), PATIENCE * 6).await?;
        let tags: Vec<_> = slots.into_iter().filter_map(|slot| Some(witness::Slot::new(slot)?.tag())).collect();
        let keys: Vec<_> = (0..each).flat_map(|n| tags.iter().map(move |tag| format!("{{{tag}}}:{n}"))).collect();
        let value = "v".repeat(size);
        for batch in keys.chunks(PIPELINE) {
            let mut pipe = redis::pipe();
            for key in batch {
                pipe.cmd("SET").arg(key).arg(&value).ignore();
            }
            pipe.query_async::<()>(&mut node).await?;
        }
        Ok(())
    }

    /// What every pod's node says.
    pub async fn views(&self) -> Result<Vec<View>> {
        let pods = self.pods().await?;
        try_join_all(pods.iter().map(|pod| self.view(pod.name_any()))).await
    }

    async fn view(&self, pod: String) -> Result<View> {
        let (endpoint, host) = (self.endpoint().await?, self.host(&pod));
        // For some seconds the name of a new pod leads to nowhere, or to its predecessor's address.
        let find = async || endpoint.node(host.clone(), PATIENCE).await;
        let mut node = eventually("the node to be found", PATIENCE * 4, find).await?;
        let mut ask = redis::pipe();
        ask.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("NODES").cmd("INFO").arg("replication");
        let (info, nodes, replication): (String, String, String) = ask.query_async(&mut node).await?;
        Ok(View { pod, info: fields(&info), nodes, replication: fields(&replication) })
    }

    /// All slots served, every replica in sync, no node unknown or failing, in the eyes of every node.
    pub async fn is_whole(&self) -> Result<()> {
        let views = self.views().await?;
        let known = views.len().to_string();
        for View { pod, info, nodes, replication } in &views {
            let said = |key: &str| info.get(key).map_or("", String::as_str);
            ensure!(said("cluster_state") == "ok", "{pod}: cluster_state is {}", said("cluster_state"));
            ensure!(said("cluster_slots_assigned") == "16384", "{pod}: {} slots", said("cluster_slots_assigned"));
            ensure!(
                said("cluster_known_nodes") == known,
                "{pod} knows {} of {known} nodes",
                said("cluster_known_nodes")
            );
            ensure!(nodes.lines().all(is_fine), "{pod}:\n{nodes}");
            if replication.get("role").is_some_and(|role| role == "slave") {
                let link = replication.get("master_link_status").map_or("", String::as_str);
                ensure!(link == "up", "{pod}: its link is {link}");
            }
        }
        Ok(())
    }

    /// Waits until it is whole again, whatever the operator says.
    pub async fn until_whole(&self, limit: Duration) -> Result<()> {
        eventually("every node to see a whole cluster", limit, async || self.is_whole().await).await
    }

    /// The pods that are primaries now.
    pub async fn primaries(&self) -> Result<Vec<String>> {
        let is_primary = |view: &View| view.replication.get("role").is_some_and(|role| role == "master");
        Ok(self.views().await?.into_iter().filter(is_primary).map(|view| view.pod).collect())
    }
}

/// Whether a line of a node's table tells of one that it knows and reaches.
fn is_fine(line: &str) -> bool {
    let words: Vec<_> = line.split(' ').collect();
    let [_, _, flags, _, _, _, _, state, ..] = words.as_slice() else { return false };
    !flags.contains("fail") && !flags.contains("handshake") && *state == "connected"
}

fn fields(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.trim().split_once(':'));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
