//! Breaking the machines of the cluster, and mending them again.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::time::Instant;

use crate::bench::Bench;
use crate::objects::Objects;
use crate::xtask;

/// How long the bench may take for one of its verbs.
const VERB: Duration = Duration::from_mins(2);
/// How long a mended machine may take until Kubernetes counts on it again.
const BACK: Duration = Duration::from_mins(3);

/// What a test has done to machines and not undone.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    down: BTreeSet<String>,
    cut_off: BTreeSet<String>,
}

/// A machine of the cluster. Only a test that runs alone may break one.
///
/// Whatever a test does to a machine is undone at its end, also when it fails.
#[derive(Clone, Debug)]
pub struct KubeNode {
    bench: Bench,
    name: String,
}

impl KubeNode {
    pub(crate) fn new(bench: Bench, name: &str) -> Self {
        Self { bench, name: name.into() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Shuts the machine down in an orderly way: its containers are asked to end first.
    pub async fn stop(&self) -> Result<()> {
        self.break_by("stop", |damage, name| damage.down.insert(name)).await
    }

    /// Takes the power away.
    pub async fn crash(&self) -> Result<()> {
        self.break_by("crash", |damage, name| damage.down.insert(name)).await
    }

    /// Cuts the machine off from the network; what runs on it goes on.
    pub async fn partition(&self) -> Result<()> {
        self.break_by("partition", |damage, name| damage.cut_off.insert(name)).await
    }

    /// Starts the machine after [`Self::stop`] or [`Self::crash`].
    pub async fn start(&self) -> Result<()> {
        self.tell("start").await?;
        self.bench.damage().down.remove(&self.name);
        Ok(())
    }

    /// Undoes [`Self::partition`].
    pub async fn heal(&self) -> Result<()> {
        self.tell("heal").await?;
        self.bench.damage().cut_off.remove(&self.name);
        Ok(())
    }

    /// Waits until Kubernetes calls the machine ready, or until it does not.
    ///
    /// For 20 seconds after a failure Kubernetes does not know of it: after [`Self::start`] or [`Self::heal`] wait with
    /// [`Self::until_back`] instead.
    pub async fn until_ready(&self, ready: Ready, within: Duration) -> Result<()> {
        let what = format!("{} to be {ready:?}", self.name);
        let nodes = self.bench.cluster_objects::<Node>().named(&self.name);
        nodes.until_it(&what, within, |node| readiness(node) == ready).await.map(drop)
    }

    /// Waits until the machine has been heard of again, Kubernetes calls it ready and puts pods on it.
    pub async fn until_back(&self, within: Duration) -> Result<()> {
        let mended = Timestamp::now();
        let end = Instant::now() + within;
        let leases: Api<Lease> = Api::namespaced(self.bench.client().clone(), "kube-node-lease");
        let heard = |lease: &Lease| lease.spec.as_ref()?.renew_time.as_ref().map(|at| at.0);
        let what = format!("{} to be heard of", self.name);
        let lease = Objects::new(leases).named(&self.name);
        lease.until_it(&what, within, |lease| heard(lease).is_some_and(|at| at > mended)).await?;
        let what = format!("{} to take pods", self.name);
        let nodes = self.bench.cluster_objects::<Node>().named(&self.name);
        let usable = |node: &Node| readiness(node) == Ready::Ready && !is_tainted(node);
        nodes.until_it(&what, end.saturating_duration_since(Instant::now()), usable).await.map(drop)
    }

    async fn break_by(&self, verb: &str, note: impl FnOnce(&mut Damage, String) -> bool) -> Result<()> {
        ensure!(self.bench.runs_alone(), "a test that breaks {} must be #[e2e::test(exclusive)]", self.name);
        // Noted before it is done: a verb that fails half-way leaves damage too.
        note(&mut self.bench.damage(), self.name.clone());
        self.tell(verb).await
    }

    /// The machines belong to the bench, so the bench is told what to do with them.
    async fn tell(&self, verb: &str) -> Result<()> {
        xtask(&["cluster", "node", &self.name, verb], VERB).await
    }
}

/// Whether Kubernetes counts on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    Ready,
    NotReady,
}

fn readiness(node: &Node) -> Ready {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.and_then(|all| all.iter().find(|condition| condition.type_ == "Ready"));
    if ready.is_some_and(|ready| ready.status == "True") { Ready::Ready } else { Ready::NotReady }
}

fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key.starts_with("node.kubernetes.io/"))
}

/// Undoes everything that the test did to machines, and waits until Kubernetes has noticed.
pub(crate) async fn restore(bench: &Bench) -> Result<()> {
    let Damage { down, cut_off } = std::mem::take(&mut *bench.damage());
    for name in &cut_off {
        bench.node(name).heal().await?;
    }
    for name in &down {
        bench.node(name).start().await?;
    }
    for name in cut_off.union(&down) {
        bench.node(name).until_back(BACK).await?;
    }
    Ok(())
}
