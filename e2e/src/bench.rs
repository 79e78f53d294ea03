//! What a test has in its hands.

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{AttachParams, DynamicObject};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::endpoint::Endpoint;
use crate::harness::{Case, Company};
use crate::kube_node::{Damage, KubeNode};
use crate::manifest;
use crate::objects::Objects;

/// How long a command in a container may take.
const EXEC: Duration = Duration::from_secs(30);

/// A test's own namespace on the cluster, and the cluster around it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Bench(Arc<Inner>);

struct Inner {
    client: Client,
    namespace: String,
    case: Case,
    damage: Mutex<Damage>,
    logins: Mutex<Vec<Endpoint>>,
}

impl Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench")
            .field("namespace", &self.namespace)
            .field("test", &self.case.name)
            .finish_non_exhaustive()
    }
}

/// What a command in a container left behind.
#[derive(Clone, Debug)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

impl Bench {
    pub(crate) fn new(client: Client, namespace: String, case: Case) -> Self {
        Self(Arc::new(Inner { client, namespace, case, damage: Mutex::default(), logins: Mutex::default() }))
    }

    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// The namespace that belongs to this test alone.
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// The test's name.
    pub fn test(&self) -> &'static str {
        self.0.case.name
    }

    /// Server-side apply of YAML with one or more documents, into the test's namespace.
    pub async fn apply(&self, yaml: &str) -> Result<Vec<DynamicObject>> {
        let mut applied = Vec::new();
        for object in manifest::read(yaml)? {
            applied.push(manifest::apply(self.client(), self.namespace(), &object).await?);
        }
        Ok(applied)
    }

    /// Server-side apply of one object.
    pub async fn apply_object<K: Serialize>(&self, object: &K) -> Result<DynamicObject> {
        let object = serde_json::from_value(serde_json::to_value(object)?)?;
        manifest::apply(self.client(), self.namespace(), &object).await
    }

    /// Objects of a kind in the test's namespace.
    pub fn objects<K>(&self) -> Objects<K>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
        K::DynamicType: Default,
    {
        Objects::new(Api::namespaced(self.client().clone(), self.namespace()))
    }

    /// Objects of a kind that lives outside namespaces.
    pub fn cluster_objects<K>(&self) -> Objects<K>
    where
        K: Resource<Scope = ClusterResourceScope> + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
        K::DynamicType: Default,
    {
        Objects::new(Api::all(self.client().clone()))
    }

    /// The test's pods.
    pub fn pods(&self) -> Objects<Pod> {
        self.objects()
    }

    /// The address of a port of a pod. The test can dial it directly.
    pub async fn pod_address(&self, pod: &str, port: u16) -> Result<SocketAddr> {
        let pod = self.pods().get(pod).await?;
        Ok(SocketAddr::new(address_of(&pod)?, port))
    }

    /// Runs a command in the pod's first container; a command that fails is an error with what it said.
    pub async fn exec(&self, pod: &str, command: &[&str]) -> Result<String> {
        let Output { stdout, stderr, failure } = self.try_exec(pod, command).await?;
        ensure!(failure.is_none(), "{command:?} in {pod}: {}: {stderr}{stdout}", failure.unwrap_or_default());
        Ok(stdout)
    }

    /// Kills the pod's server, as the kernel does when memory runs out. Process 1 is the launcher, which cannot be killed from
    /// inside; the server is its child.
    pub async fn kill_server(&self, pod: &str) -> Result<()> {
        let command = ["sh", "-c", "kill -9 $(pidof valkey-server)"];
        let Output { stderr, failure, .. } = self.try_exec(pod, &command).await?;
        // The container ends with its server, and may take along the shell that has just killed it.
        let went_along = failure.as_ref().is_none_or(|failure| failure.ends_with("exit code 137"));
        ensure!(went_along, "{command:?} in {pod}: {}: {stderr}", failure.unwrap_or_default());
        Ok(())
    }

    /// Runs a command in the pod's first container, whatever comes of it.
    pub async fn try_exec(&self, pod: &str, command: &[&str]) -> Result<Output> {
        let pods: Api<Pod> = Api::namespaced(self.client().clone(), self.namespace());
        let running = async {
            let params = AttachParams::default().stdin(false).stdout(true).stderr(true);
            let mut process = pods.exec(pod, command.iter().copied(), &params).await?;
            let (mut out, mut err) = (process.stdout(), process.stderr());
            let ended = process.take_status();
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            let reading_out =
                async { if let Some(out) = &mut out { out.read_to_end(&mut stdout).await } else { Ok(0) } };
            let reading_err =
                async { if let Some(err) = &mut err { err.read_to_end(&mut stderr).await } else { Ok(0) } };
            let (out, err) = tokio::join!(reading_out, reading_err);
            out?;
            err?;
            let status = match ended {
                Some(ended) => ended.await,
                None => None,
            };
            let failure = match status {
                Some(status) if status.status.as_deref() == Some("Success") => None,
                Some(status) => Some(status.message.unwrap_or_else(|| "it failed".into())),
                None => Some("the connection ended before the command did".into()),
            };
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            anyhow::Ok(Output { stdout: text(stdout), stderr: text(stderr), failure })
        };
        let output = timeout(EXEC, running).await.with_context(|| format!("{command:?} in {pod} ran for {EXEC:?}"))?;
        output.with_context(|| format!("cannot run {command:?} in {pod}"))
    }

    /// The machines of the cluster, by name.
    pub async fn nodes(&self) -> Result<Vec<KubeNode>> {
        let nodes = self.cluster_objects::<Node>().list().await?;
        Ok(nodes.iter().map(|node| self.node(&node.name_any())).collect())
    }

    /// One machine of the cluster.
    pub fn node(&self, name: &str) -> KubeNode {
        KubeNode::new(self.clone(), name)
    }

    /// Lets a failure report look into Valkey nodes that want a password or TLS.
    pub fn remember_login(&self, endpoint: Endpoint) {
        self.0.logins.lock().unwrap_or_else(PoisonError::into_inner).push(endpoint);
    }

    pub(crate) fn logins(&self) -> Vec<Endpoint> {
        self.0.logins.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn runs_alone(&self) -> bool {
        self.0.case.company == Company::Alone
    }

    pub(crate) fn damage(&self) -> MutexGuard<'_, Damage> {
        self.0.damage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of a pod that has one.
pub(crate) fn address_of(pod: &Pod) -> Result<IpAddr> {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
    let address = address.with_context(|| format!("{} has no address yet", pod.name_any()))?;
    address.parse().with_context(|| format!("{address} is no address"))
}
