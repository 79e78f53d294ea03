//! What every pass needs, and what it remembers between two looks.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::ResourceExt;
use kube::runtime::events::Recorder;
use valkey_api::ClusterStatus;
use valkey_api::topology::Topology;
use valkey_model::{Member, ShardIndex};
use valkey_pki::{Authority, TrustDomain};
use valkey_rpc::{Dialer, SidecarClient};

use crate::children::Editions;
use crate::controllers::cluster::claims::Ungrowable;
use crate::controllers::cluster::material::Material;
use crate::controllers::cluster::settings::Kept;
use crate::guarded_client::CrashPoint;
use crate::stores::Stores;

/// How this operator was installed.
#[derive(Clone, Debug)]
pub struct Settings {
    pub namespace: String,
    pub sidecar_image: String,
    pub trust_domain: TrustDomain,
    /// Where sidecars send their reports.
    pub report_url: String,
}

/// Everything that a pass uses besides the cluster that it is about.
pub struct Context {
    pub client: Client,
    pub stores: Stores,
    pub settings: Settings,
    pub root: Arc<Authority>,
    pub dialer: Dialer,
    pub recorder: Recorder,
    pub crash: CrashPoint,
    memories: Mutex<HashMap<Place, Arc<tokio::sync::Mutex<Memory>>>>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A namespace and the name of a cluster in it.
type Place = (String, String);

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("uid", &self.uid).finish_non_exhaustive()
    }
}

/// What is remembered of a cluster between two passes. Losing it costs work, never correctness: a restarted operator has none.
#[derive(Default)]
pub struct Memory {
    pub uid: String,
    pub editions: Editions,
    pub material: Option<Material>,
    /// Open only while there is something to orchestrate.
    pub channels: BTreeMap<Member, (std::net::IpAddr, SidecarClient)>,
    pub headless_since: BTreeMap<ShardIndex, Instant>,
    pub unsynced_since: BTreeMap<Member, Instant>,
    pub emptied_since: BTreeMap<ShardIndex, Instant>,
    /// Pods that we have deleted, by uid, as long as the watch still shows them as they were.
    pub deleted: BTreeMap<Member, String>,
    /// Pods that we have marked as evictable, by uid.
    pub let_go: BTreeMap<Member, String>,
    /// Pods that have been ready, by uid.
    pub was_ready: BTreeMap<Member, String>,
    /// Pods that Kubernetes would not resize, by uid, and why.
    pub unresizable: BTreeMap<Member, (String, String)>,
    /// Why Kubernetes would not let a volume grow.
    pub ungrowable: Option<Ungrowable>,
    /// Pods whose names have been seen to lead to them, by uid.
    pub found: BTreeMap<Member, String>,
    /// What was written last, so that the same is not written again while the watch is behind.
    pub written: Option<ClusterStatus>,
    pub written_at: Option<Instant>,
    pub topology: Option<Topology>,
    pub settings: Kept,
}

impl Memory {
    /// Forgets what was done to pods that are gone or have a successor.
    pub fn retain_marks(&mut self, pods: &BTreeMap<Member, Arc<Pod>>) {
        let is_there =
            |member: &Member, uid: &String| pods.get(member).is_some_and(|pod| pod.uid().as_ref() == Some(uid));
        for marks in [&mut self.deleted, &mut self.let_go, &mut self.found, &mut self.was_ready] {
            marks.retain(|member, uid| is_there(member, uid));
        }
        self.unresizable.retain(|member, (uid, _)| is_there(member, uid));
    }
}

impl Context {
    #[allow(clippy::too_many_arguments)] // wiring
    pub fn new(
        client: Client,
        stores: Stores,
        settings: Settings,
        root: Arc<Authority>,
        dialer: Dialer,
        recorder: Recorder,
        crash: CrashPoint,
    ) -> Self {
        Self { client, stores, settings, root, dialer, recorder, crash, memories: Mutex::default() }
    }

    /// The memory of a cluster; a new one if the name now belongs to another object.
    pub async fn memory(&self, namespace: &str, name: &str, uid: &str) -> tokio::sync::OwnedMutexGuard<Memory> {
        let place = (namespace.to_owned(), name.to_owned());
        let memory = Arc::clone(self.memories.lock().unwrap_or_else(PoisonError::into_inner).entry(place).or_default());
        let mut memory = memory.lock_owned().await;
        if memory.uid != uid {
            *memory = Memory { uid: uid.to_owned(), ..Memory::default() };
        }
        memory
    }

    /// Forgets clusters that are gone, and says how many those were.
    pub fn retain(&self, exists: impl Fn(&str, &str) -> bool) -> usize {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        let before = memories.len();
        memories.retain(|(namespace, name), _| exists(namespace, name));
        before - memories.len()
    }
}
