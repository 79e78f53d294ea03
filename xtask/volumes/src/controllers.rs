//! Watches claims and volumes and carries out what `decide` says. Every step can be repeated.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller, Error as ControllerError};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};

use serde_json::json;

use crate::decide::{self, ForClaim, ForVolume, Growth, Request};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("API server: {0}")]
    Api(#[from] kube::Error),
    #[error("{}: {source}", path.display())]
    Disk { path: PathBuf, source: std::io::Error },
}

struct Context {
    client: Client,
    root: PathBuf,
}

/// Runs until dropped; a lost API server is waited for.
pub async fn run(client: Client, root: PathBuf) {
    let context = Arc::new(Context { client: client.clone(), root });
    let everything = watcher::Config::default;

    let claims = Controller::new(Api::<PersistentVolumeClaim>::all(client.clone()), everything());
    let store = claims.store();
    let claims = claims
        .watches(Api::<Node>::all(client.clone()), everything(), move |_| waiting(&store))
        .trigger_backoff(EverySecond)
        .run(reconcile_claim, |_, _, _| soon(), Arc::clone(&context));
    let volumes = Controller::new(Api::<PersistentVolume>::all(client), everything()).trigger_backoff(EverySecond).run(
        reconcile_volume,
        |_, _, _| soon(),
        context,
    );

    tokio::join!(log_failures(claims), log_failures(volumes));
}

/// A node that came or changed may be the one that these claims wait for.
fn waiting(claims: &Store<PersistentVolumeClaim>) -> Vec<ObjectRef<PersistentVolumeClaim>> {
    let claims = claims.state();
    let waiting = claims.iter().filter(|claim| matches!(decide::for_claim(claim), ForClaim::Provision(_)));
    waiting.map(|claim| ObjectRef::from_obj(claim.as_ref())).collect()
}

/// A test cluster's API server is away for seconds, and the tests wait for us when it is back.
struct EverySecond;

impl Iterator for EverySecond {
    type Item = Duration;
    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }
}

impl Backoff for EverySecond {
    fn reset(&mut self) {}
}

fn soon() -> Action {
    Action::requeue(Duration::from_secs(1))
}

async fn log_failures<T>(results: impl Stream<Item = Result<T, ControllerError<Error, watcher::Error>>>) {
    results
        .for_each(async |result| match result {
            Ok(_) | Err(ControllerError::ObjectNotFound(_)) => {}
            Err(error) => tracing::warn!(%error, "will try again"),
        })
        .await;
}

async fn reconcile_claim(claim: Arc<PersistentVolumeClaim>, ctx: Arc<Context>) -> Result<Action, Error> {
    match decide::for_claim(&claim) {
        ForClaim::Nothing => {}
        ForClaim::Provision(request) => provision(&ctx, &request).await?,
        ForClaim::Expand { volume, to } => expand(&ctx, &claim, &volume, to).await?,
        ForClaim::Refuse(reason) => {
            tracing::warn!(namespace = claim.namespace(), claim = claim.name_any(), reason, "claim refused");
        }
    }
    Ok(Action::await_change())
}

async fn provision(ctx: &Context, request: &Request) -> Result<(), Error> {
    let class = Api::<StorageClass>::all(ctx.client.clone()).get(&request.class).await?;
    let node = match &request.selected_node {
        Some(node) => Some(node.clone()),
        None if decide::waits_for_consumer(&class) => None,
        None => {
            let nodes = Api::<Node>::all(ctx.client.clone()).list(&ListParams::default()).await?;
            decide::first_schedulable(&nodes.items)
        }
    };
    let Some(node) = node else { return Ok(()) }; // the claim's annotation or a node's event brings us back

    let directory = decide::directory(&ctx.root, request);
    make_directory(&directory).await.map_err(|source| Error::Disk { path: directory.clone(), source })?;
    let volume = decide::volume(request, &class, &node, &directory);
    match Api::all(ctx.client.clone()).create(&PostParams::default(), &volume).await {
        Ok(_) => {
            let Request { namespace, name: claim, size, .. } = request;
            tracing::info!(namespace, claim, volume = volume.name_any(), node, size = size.0, "volume made");
            Ok(())
        }
        // Named after the claim's uid: it is the one that we made a moment ago.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Open like the top directory of a fresh disk: the kubelet hands it to the pod's fsGroup.
async fn make_directory(path: &Path) -> std::io::Result<()> {
    tokio::fs::create_dir_all(path).await?;
    tokio::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).await
}

/// The volume first: a claim that says more than its volume holds would be a lie.
async fn expand(ctx: &Context, claim: &PersistentVolumeClaim, volume: &str, to: Quantity) -> Result<(), Error> {
    let volumes = Api::<PersistentVolume>::all(ctx.client.clone());
    let size = match volumes.get_opt(volume).await?.map(|v| decide::growth(&v, &to)) {
        None | Some(Growth::NotOurs) => return Ok(()),
        Some(Growth::Report(has)) => has,
        Some(Growth::Raise) => {
            let raise = json!({ "spec": { "capacity": { "storage": to } } });
            volumes.patch(volume, &PatchParams::default(), &Patch::Merge(raise)).await?;
            to
        }
    };
    let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
    let status = Patch::Merge(decide::expanded(claim, &size));
    Api::<PersistentVolumeClaim>::namespaced(ctx.client.clone(), &namespace)
        .patch_status(&name, &PatchParams::default(), &status)
        .await?;
    tracing::info!(namespace, claim = name, volume, size = size.0, "volume expanded");
    Ok(())
}

/// The directory first: once the volume is gone, nobody remembers the directory.
async fn reconcile_volume(volume: Arc<PersistentVolume>, ctx: Arc<Context>) -> Result<Action, Error> {
    let name = volume.name_any();
    match decide::for_volume(&volume, &ctx.root) {
        ForVolume::Keep => {}
        ForVolume::Refuse(reason) => tracing::warn!(volume = name, reason, "directory not removed"),
        ForVolume::Remove(path) => {
            match tokio::fs::remove_dir_all(&path).await {
                Err(source) if source.kind() != ErrorKind::NotFound => return Err(Error::Disk { path, source }),
                _ => {}
            }
            if volume.metadata.deletion_timestamp.is_some() {
                return Ok(Action::await_change()); // asked for already: Kubernetes lets it go in its own time
            }
            match Api::<PersistentVolume>::all(ctx.client.clone()).delete(&name, &DeleteParams::default()).await {
                Ok(_) => tracing::info!(volume = name, path = %path.display(), "volume removed"),
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(Action::await_change())
}
