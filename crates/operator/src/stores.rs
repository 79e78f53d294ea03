//! What the API server told us to be there, kept up to date by watches.
//!
//! Only what decisions need is kept: of children their metadata, of pods where and how they run, of nodes their labels. Each
//! change of a child or pod wakes the pass of the cluster that it belongs to.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use futures::stream::{BoxStream, SelectAll};
use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, Node, NodeSpec, PersistentVolumeClaim, Pod, PodSpec, Secret, Service, Taint, Toleration,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ObjectMeta, PartialObjectMeta};
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::runtime::predicates;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{Config, DefaultBackoff};
use kube::runtime::{Predicate, PredicateConfig, WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use valkey_api::{ValkeyCertificateBinding, ValkeyCertificateBundle, ValkeyCluster, ValkeyClusterStatus, labels};

use crate::controllers::upgrade;

/// Where the operator looks: everywhere, or in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    Namespace(String),
}

impl Scope {
    pub fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match self {
            Self::All => Api::all(client.clone()),
            Self::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
        }
    }
}

/// A cluster that something has happened to.
pub type Wake = ObjectRef<Watched>;

/// A cluster as its watch shows it. One that cannot be read must not stop the others, so it is an error for itself.
pub type Watched = DeserializeGuard<ValkeyCluster>;

/// A child as its watch shows it.
#[derive(Clone, Debug)]
pub struct Metadata(pub ObjectMeta);

impl Metadata {
    /// What changes when, and only when, somebody changed what we apply: the generation, which leaves status out, where
    /// Kubernetes keeps one, else the resource version.
    pub fn edition(&self) -> String {
        let Self(meta) = self;
        match meta.generation {
            Some(generation) => format!("{}/{generation}", meta.uid.as_deref().unwrap_or_default()),
            None => meta.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// One kind of children, behind its type.
trait Shelf: Send + Sync {
    fn kind(&self) -> &'static str;
    fn get(&self, namespace: &str, name: &str) -> Option<Metadata>;
    fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Metadata>;
}

struct TypedShelf<K: Resource<DynamicType = ()> + 'static> {
    kind: &'static str,
    store: Store<PartialObjectMeta<K>>,
}

impl<K: Resource<DynamicType = ()> + Send + Sync + Clone + 'static> Shelf for TypedShelf<K> {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn get(&self, namespace: &str, name: &str) -> Option<Metadata> {
        let found = self.store.get(&ObjectRef::new(name).within(namespace))?;
        Some(Metadata(found.metadata.clone()))
    }

    fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Metadata> {
        let ours = |meta: &ObjectMeta| {
            let label = meta.labels.as_ref().and_then(|all| all.get(labels::CLUSTER));
            meta.namespace.as_deref() == Some(namespace) && label.is_some_and(|label| label == cluster)
        };
        self.store
            .state_filter(|object| ours(&object.metadata))
            .iter()
            .map(|object| Metadata(object.metadata.clone()))
            .collect()
    }
}

/// Waits until every watch has told all that there is. Whoever decides earlier takes for gone what it has not heard of yet: a shard that
/// was about to leave lost its pods so, with the slots that it still had.
///
/// The stores' own way to wait remembers only the last one who asked, and leaves all others asleep (kube 5).
#[derive(Clone, Debug, Default)]
pub struct Filling(Arc<watch::Sender<usize>>);

impl Filling {
    /// One more watch to wait for. What is returned has to see all of its events, after its store.
    pub fn expect<K>(&self) -> impl FnMut(&watcher::Result<watcher::Event<K>>) + Send + use<K> {
        self.0.send_modify(|awaited| *awaited += 1);
        let (awaited, mut told) = (Arc::clone(&self.0), false);
        move |event| {
            if matches!(event, Ok(watcher::Event::InitDone)) && !std::mem::replace(&mut told, true) {
                awaited.send_modify(|awaited| *awaited -= 1);
            }
        }
    }

    pub async fn over(&self) {
        // The sender is ours, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|awaited| *awaited == 0).await;
    }
}

/// All that is watched within one scope.
pub struct Stores {
    pub pods: Store<Pod>,
    claims: Store<PersistentVolumeClaim>,
    pub nodes: Store<Node>,
    pub upgrades: Store<upgrade::Watched>,
    pub filling: Filling,
    shelves: Vec<Box<dyn Shelf>>,
}

impl Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stores")
            .field("kinds", &self.shelves.iter().map(|shelf| shelf.kind()).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Stores {
    pub fn child(&self, kind: &str, namespace: &str, name: &str) -> Option<Metadata> {
        self.shelves.iter().find(|shelf| shelf.kind() == kind)?.get(namespace, name)
    }

    /// Every child of a cluster: its kind and metadata.
    pub fn children(&self, namespace: &str, cluster: &str) -> Vec<(&'static str, Metadata)> {
        let shelves = self.shelves.iter().map(|shelf| (shelf.kind(), shelf.of_cluster(namespace, cluster)));
        shelves.flat_map(|(kind, children)| children.into_iter().map(move |child| (kind, child))).collect()
    }

    pub fn pods_of(&self, namespace: &str, cluster: &str) -> Vec<Arc<Pod>> {
        self.pods.state_filter(|pod| {
            pod.namespace().as_deref() == Some(namespace)
                && pod.labels().get(labels::CLUSTER).is_some_and(|label| label == cluster)
        })
    }

    pub fn claims_of(&self, namespace: &str, cluster: &str) -> Vec<Arc<PersistentVolumeClaim>> {
        self.claims.state_filter(|claim| {
            claim.namespace().as_deref() == Some(namespace)
                && claim.labels().get(labels::CLUSTER).is_some_and(|label| label == cluster)
        })
    }

    /// Whether a Kubernetes node is to be emptied of pods that tolerate no more than this.
    pub fn is_closed(&self, node: &str, tolerations: &[Toleration]) -> bool {
        let Some(node) = self.nodes.get(&ObjectRef::new(node)) else { return false };
        let Some(spec) = node.spec.as_ref() else { return false };
        let mut taints = spec.taints.iter().flatten();
        spec.unschedulable == Some(true) || taints.any(|taint| is_a_wish(taint) && !tolerated(taint, tolerations))
    }

    /// The zone that a Kubernetes node is in.
    pub fn zone_of(&self, node: &str) -> Option<String> {
        self.nodes.get(&ObjectRef::new(node))?.labels().get("topology.kubernetes.io/zone").cloned()
    }
}

/// Whether somebody wants the node empty. What Kubernetes itself says about an ill node is no wish.
fn is_a_wish(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !taint.key.starts_with("node.kubernetes.io/")
}

fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| {
        let key = toleration.key.as_deref().unwrap_or_default();
        let exists = toleration.operator.as_deref() == Some("Exists");
        let same_key = key == taint.key || (key.is_empty() && exists);
        let same_value =
            exists || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
        let effect = toleration.effect.as_deref().unwrap_or_default();
        same_key && same_value && (effect.is_empty() || effect == taint.effect)
    })
}

/// The watches that fill the stores, as one stream of clusters to look at.
pub type Wakes = BoxStream<'static, Wake>;

/// Starts all watches of a scope. The stores fill as the stream is polled.
pub fn watch(client: &Client, scope: &Scope, upgrades: Store<upgrade::Watched>, filling: Filling) -> (Stores, Wakes) {
    let mut wakes = SelectAll::new();
    let selected = Config::default().labels(&format!("{}={}", labels::MANAGED_BY, labels::OPERATOR));
    let mut shelves: Vec<Box<dyn Shelf>> = Vec::new();
    macro_rules! shelve {
        ($($kind:ty),*) => {$({
            let (store, stream) = metadata::<$kind>(scope.api(client), selected.clone(), &filling);
            shelves.push(Box::new(TypedShelf::<$kind> { kind: short_name::<$kind>(), store }));
            wakes.push(stream);
        })*};
    }
    shelve!(StatefulSet, Service, ConfigMap, Secret, PodDisruptionBudget, NetworkPolicy);
    shelve!(ValkeyClusterStatus, ValkeyCertificateBundle, ValkeyCertificateBinding);

    let (pods, writer) = reflector::store();
    let pod_events = watcher(scope.api::<Pod>(client), selected.clone())
        .backoff(DefaultBackoff::default())
        .modify(trim_pod)
        .reflect(writer)
        .inspect(filling.expect())
        .touched_objects();
    wakes.push(waking(pod_events));

    // Those are made by Kubernetes, with the labels that their template gives them.
    let (claims, writer) = reflector::store();
    let claim_events = watcher(scope.api::<PersistentVolumeClaim>(client), Config::default().labels(labels::CLUSTER))
        .backoff(DefaultBackoff::default())
        .modify(|claim| trim(&mut claim.metadata))
        .reflect(writer)
        .inspect(filling.expect())
        .touched_objects();
    wakes.push(waking(claim_events));

    let (nodes, writer) = reflector::store();
    let node_events = watcher(Api::<Node>::all(client.clone()), Config::default())
        .backoff(DefaultBackoff::default())
        .modify(trim_node)
        .reflect(writer)
        .inspect(filling.expect())
        .touched_objects()
        .predicate_filter(barriers, PredicateConfig::default());
    wakes.push(wake_those_on(node_events, pods.clone()));
    (Stores { pods, claims, nodes, upgrades, filling, shelves }, wakes.boxed())
}

fn short_name<K: Resource<DynamicType = ()>>() -> &'static str {
    match K::kind(&()) {
        std::borrow::Cow::Borrowed(kind) => kind,
        std::borrow::Cow::Owned(_) => "",
    }
}

fn metadata<K>(
    api: Api<PartialObjectMeta<K>>,
    config: Config,
    filling: &Filling,
) -> (Store<PartialObjectMeta<K>>, Wakes)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(api, config)
        .backoff(DefaultBackoff::default())
        .modify(|object| trim(&mut object.metadata))
        .reflect(writer)
        .inspect(filling.expect())
        .touched_objects();
    (store, waking(events))
}

/// The clusters that a stream of their children and pods speaks of. An error is logged; the watch goes on by itself.
fn waking<K>(events: impl Stream<Item = watcher::Result<K>> + Send + 'static) -> Wakes
where
    K: Resource<DynamicType = ()> + Send + 'static,
{
    let wake = async |event: watcher::Result<K>| match event {
        Ok(object) => {
            let cluster = object.labels().get(labels::CLUSTER)?.clone();
            Some(ObjectRef::new(&cluster).within(&object.namespace()?))
        }
        Err(error) => {
            tracing::warn!(kind = %K::kind(&()), %error, "a watch failed; it starts again");
            None
        }
    };
    events.filter_map(wake).boxed()
}

/// More than half of an object's metadata is the history of who set what, which nobody here reads.
fn trim(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
}

/// Of a pod's spec only its node, and images and sizes of its containers are of interest, of its status all but the history.
fn trim_pod(pod: &mut Pod) {
    trim(&mut pod.metadata);
    if let Some(spec) = &mut pod.spec {
        let node_name = spec.node_name.take();
        let trimmed =
            |Container { name, image, resources, .. }| Container { name, image, resources, ..Default::default() };
        let containers = std::mem::take(&mut spec.containers).into_iter().map(trimmed).collect();
        let init_containers = spec.init_containers.take().map(|all| all.into_iter().map(trimmed).collect());
        *spec = PodSpec { node_name, containers, init_containers, ..Default::default() };
    }
}

/// What keeps new pods from a node, as a number that changes with it.
fn barriers(node: &Node) -> Option<u64> {
    let spec = node.spec.as_ref()?;
    let mut hasher = DefaultHasher::new();
    spec.unschedulable.hash(&mut hasher);
    for Taint { key, value, effect, .. } in spec.taints.iter().flatten() {
        (key, value, effect).hash(&mut hasher);
    }
    Some(hasher.finish())
}

/// The clusters that have a pod on a node that is to be emptied, or is not any more.
fn wake_those_on(
    nodes: impl Stream<Item = watcher::Result<Node>> + Send + 'static,
    pods: Store<Pod>,
) -> BoxStream<'static, Wake> {
    let on = move |node: watcher::Result<Node>| {
        let Ok(node) = node.inspect_err(|error| tracing::warn!(%error, "the watch of nodes failed; it starts again"))
        else {
            return Vec::new();
        };
        let name = node.name_any();
        let here =
            pods.state_filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_ref() == Some(&name)));
        let clusters =
            here.iter().filter_map(|pod| Some((pod.namespace()?, pod.labels().get(labels::CLUSTER)?.clone())));
        let clusters: BTreeSet<(String, String)> = clusters.collect();
        clusters.into_iter().map(|(namespace, name)| ObjectRef::new(&name).within(&namespace)).collect()
    };
    nodes.flat_map(move |node| futures::stream::iter(on(node))).boxed()
}

/// Of a node its labels and what keeps pods away from it.
fn trim_node(node: &mut Node) {
    trim(&mut node.metadata);
    node.metadata.annotations = None;
    node.status = None;
    if let Some(spec) = &mut node.spec {
        let (unschedulable, taints) = (spec.unschedulable, spec.taints.take());
        *spec = NodeSpec { unschedulable, taints, ..NodeSpec::default() };
    }
}

/// The clusters themselves. Only a change of the spec or of annotations, or a deletion, counts: status is what we write.
pub fn clusters(
    client: &Client,
    scope: &Scope,
    filling: &Filling,
) -> (Store<Watched>, impl Stream<Item = watcher::Result<Watched>> + Send + 'static) {
    let (store, writer) = reflector::store();
    let events = watcher(scope.api::<Watched>(client), Config::default())
        .backoff(DefaultBackoff::default())
        .modify(|cluster| trim(cluster.meta_mut()))
        .reflect(writer)
        .inspect(filling.expect())
        .applied_objects()
        .predicate_filter(predicates::generation.combine(predicates::annotations), PredicateConfig::default());
    (store, events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str) -> Taint {
        Taint { key: key.into(), value: Some(value.into()), effect: "NoSchedule".into(), time_added: None }
    }

    #[test]
    fn a_taint_that_the_pods_tolerate_is_no_wish_to_see_them_go() {
        let toleration = |json| serde_json::from_value::<Toleration>(json).unwrap();
        let dedicated = taint("dedicated", "valkey");
        assert!(!tolerated(&dedicated, &[]));
        assert!(tolerated(&dedicated, &[toleration(serde_json::json!({"key": "dedicated", "value": "valkey"}))]));
        assert!(tolerated(&dedicated, &[toleration(serde_json::json!({"key": "dedicated", "operator": "Exists"}))]));
        assert!(tolerated(&dedicated, &[toleration(serde_json::json!({"operator": "Exists"}))]));
        assert!(!tolerated(&dedicated, &[toleration(serde_json::json!({"key": "dedicated", "value": "other"}))]));
        let other = serde_json::json!({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"});
        assert!(!tolerated(&dedicated, &[toleration(other)]));
    }

    #[tokio::test]
    async fn nothing_counts_as_gone_before_every_watch_has_told_all() {
        use futures::FutureExt;
        let filling = Filling::default();
        let (mut pods, mut sets) = (filling.expect::<Pod>(), filling.expect::<StatefulSet>());
        // All who wait are woken, not only the last.
        let waiting =
            [filling.clone(), filling.clone()].map(|filling| tokio::spawn(async move { filling.over().await }));
        pods(&Ok(watcher::Event::Init));
        pods(&Ok(watcher::Event::InitDone));
        pods(&Ok(watcher::Event::InitDone));
        assert!(filling.over().now_or_never().is_none(), "one watch has told nothing yet");
        sets(&Ok(watcher::Event::InitDone));
        for one in waiting {
            one.await.unwrap();
        }
    }

    #[test]
    fn an_ill_node_is_not_one_that_somebody_wants_empty() {
        assert!(is_a_wish(&taint("maintenance", "")));
        assert!(!is_a_wish(&taint("node.kubernetes.io/unreachable", "")));
    }
}
