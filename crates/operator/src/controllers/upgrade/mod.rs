//! `ValkeyUpgrade`: look, decide, write down, do.
//!
//! The roll itself is the cluster's: an upgrade writes a tag, watches what comes of it, and writes the former one if nothing does.

mod decide;
mod facts;
mod gather;
mod owner;
mod path;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams};
use kube::core::DeserializeGuard;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{Config, DefaultBackoff};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc;
use valkey_api::{UpgradePhase, UpgradeStatus, ValkeyCluster, ValkeyUpgrade};

use self::decide::{Hold, SetTag, decide, refused_at_the_write};
use self::owner::MANAGER;
use crate::context::Context;
use crate::stores::{Filling, Scope, Wake};

/// How soon to look again at an upgrade that is under way.
const WATCHFUL: Duration = Duration::from_secs(2);
/// How soon to look again at one that waits.
const WAITING: Duration = Duration::from_secs(5);

/// An upgrade as its watch shows it. One that cannot be read must not stop the others.
pub type Watched = DeserializeGuard<ValkeyUpgrade>;

#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct Error {
    what: &'static str,
    source: kube::Error,
}

fn failed(what: &'static str) -> impl FnOnce(kube::Error) -> Error {
    move |source| Error { what, source }
}

/// The upgrades of a scope: their store, the stream that fills it and drives the controller, and the clusters that each change
/// wakes.
pub fn watch(
    client: &Client,
    scope: &Scope,
    filling: &Filling,
) -> (Store<Watched>, impl Stream<Item = watcher::Result<Watched>> + Send + 'static, BoxStream<'static, Wake>) {
    let (store, writer) = reflector::store();
    let (door, woken) = mpsc::unbounded_channel();
    let events = watcher(scope.api::<Watched>(client), Config::default())
        .backoff(DefaultBackoff::default())
        .modify(|upgrade| upgrade.meta_mut().managed_fields = None)
        .reflect(writer)
        .inspect(filling.expect())
        .touched_objects()
        .inspect(move |event| {
            let wake = event.as_ref().ok().and_then(cluster_of);
            if let Some(wake) = wake {
                let _ = door.send(wake); // no listener means that we are ending
            }
        });
    let wakes = futures::stream::unfold(woken, async |mut woken| Some((woken.recv().await?, woken)));
    (store, events, wakes.boxed())
}

fn cluster_of(upgrade: &Watched) -> Option<Wake> {
    let upgrade = upgrade.0.as_ref().ok()?;
    Some(ObjectRef::new(&upgrade.spec.cluster_ref.name).within(&upgrade.namespace()?))
}

/// Why the cluster's roll has to wait, if an upgrade asks for it: for the planner's observation.
pub fn hold(upgrades: &Store<Watched>, namespace: &str, cluster: &str) -> Option<String> {
    let all = upgrades.state();
    queue::hold(namespace, cluster, all.iter().filter_map(|upgrade| upgrade.0.as_ref().ok()))
}

/// Whether an upgrade of the cluster is under way: it finds its own way back.
pub fn drives(upgrades: &Store<Watched>, namespace: &str, cluster: &str) -> bool {
    let all = upgrades.state();
    queue::drives(namespace, cluster, all.iter().filter_map(|upgrade| upgrade.0.as_ref().ok()))
}

/// One look at one upgrade.
pub async fn reconcile(watched: Arc<Watched>, context: Arc<Context>) -> Result<Action, Error> {
    let Ok(upgrade) = &watched.0 else { return Ok(Action::await_change()) };
    let (Some(namespace), false) = (upgrade.namespace(), upgrade.phase().is_over()) else {
        return Ok(Action::await_change());
    };
    context.stores.filling.over().await;
    let upgrades: Api<ValkeyUpgrade> = Api::namespaced(context.client.clone(), &namespace);
    // Read anew: deciding by a status from before our own last write would begin the upgrade a second time.
    let upgrade = upgrades.get_opt(&upgrade.name_any()).await.map_err(failed("the upgrade cannot be read"))?;
    let Some(upgrade) = upgrade.filter(|upgrade| upgrade.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::await_change());
    };
    let gathered = gather::gather(&context, &namespace, &upgrade).await;
    let (facts, edition) = gathered.map_err(failed("the cluster of an upgrade cannot be read"))?;
    let decision = decide(&upgrade, &facts, Timestamp::now());
    let upgrade = tell(&context, &upgrades, upgrade, decision.status).await?;
    let Some(deed) = decision.deed else { return Ok(look_again(&upgrade)) };
    match set_tag(&context, &namespace, &upgrade.spec.cluster_ref.name, edition, &deed).await {
        Ok(()) => Ok(Action::requeue(Duration::ZERO)),
        Err(kube::Error::Api(answer)) if is_conflict_of_managers(&answer) => {
            let status = upgrade.status.clone().unwrap_or_default();
            let status = refused_at_the_write(&upgrade, status, &answer.message, Timestamp::now());
            let upgrade = tell(&context, &upgrades, upgrade, status).await?;
            Ok(look_again(&upgrade))
        }
        // Somebody changed the cluster since we looked: look again.
        Err(kube::Error::Api(answer)) if answer.is_conflict() => Ok(Action::requeue(Duration::ZERO)),
        Err(source) => Err(Error { what: "the tag cannot be written into the cluster's spec", source }),
    }
}

#[allow(clippy::needless_pass_by_value)] // the controller calls it so
pub fn after_failure(upgrade: Arc<Watched>, error: &Error, _: Arc<Context>) -> Action {
    tracing::warn!(upgrade = upgrade.name_any(), namespace = upgrade.namespace(), %error, "a look at an upgrade failed");
    Action::requeue(WATCHFUL)
}

fn look_again(upgrade: &ValkeyUpgrade) -> Action {
    match upgrade.phase() {
        phase if phase.is_over() => Action::await_change(),
        UpgradePhase::Pending | UpgradePhase::Paused => Action::requeue(WAITING),
        _ => Action::requeue(WATCHFUL),
    }
}

/// A field that somebody else manages, as against an object that somebody else has changed.
fn is_conflict_of_managers(answer: &kube::core::Status) -> bool {
    answer.is_conflict() && answer.message.contains("conflict with \"")
}

/// Server-side apply of the tag and nothing else, to exactly the cluster that was looked at.
async fn set_tag(
    context: &Context,
    namespace: &str,
    cluster: &str,
    edition: Option<String>,
    deed: &SetTag,
) -> kube::Result<()> {
    let clusters: Api<ValkeyCluster> = Api::namespaced(context.client.clone(), namespace);
    let wanted = json!({
        "apiVersion": ValkeyCluster::api_version(&()),
        "kind": ValkeyCluster::kind(&()),
        "metadata": {"name": cluster, "resourceVersion": edition},
        "spec": {"valkeyImage": {"tag": deed.tag}},
    });
    let params = match deed.hold {
        Hold::IfFree => PatchParams::apply(MANAGER),
        Hold::FromOneOff => PatchParams::apply(MANAGER).force(),
    };
    clusters.patch(cluster, &params, &Patch::Apply(&wanted)).await?;
    tracing::info!(cluster, namespace, tag = deed.tag, "an upgrade has written the cluster's tag");
    Ok(())
}

/// Writes the status if it says something new, and tells of each turn. The upgrade comes back as it is now.
async fn tell(
    context: &Context,
    upgrades: &Api<ValkeyUpgrade>,
    mut upgrade: ValkeyUpgrade,
    status: UpgradeStatus,
) -> Result<ValkeyUpgrade, Error> {
    if upgrade.status.as_ref() == Some(&status) {
        return Ok(upgrade);
    }
    let turn = upgrade.status.as_ref().and_then(|before| before.phase) != status.phase;
    // Only over the status that was decided upon: somebody else who leads may have been faster.
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": upgrade.resource_version()}, "status": status}));
    let written = upgrades.patch_status(&upgrade.name_any(), &PatchParams::default(), &patch).await;
    upgrade.metadata.resource_version =
        written.map_err(failed("the status of an upgrade cannot be written"))?.resource_version();
    upgrade.status = Some(status);
    if turn {
        publish(context, &upgrade).await;
    }
    Ok(upgrade)
}

async fn publish(context: &Context, upgrade: &ValkeyUpgrade) {
    const LONGEST: usize = 1000; // Kubernetes refuses notes of more than 1 kB
    let phase = upgrade.phase();
    let bad = matches!(
        phase,
        UpgradePhase::RollingBack | UpgradePhase::RolledBack | UpgradePhase::Failed | UpgradePhase::Refused
    );
    let words = upgrade.status.as_ref().and_then(|status| status.message.clone()).unwrap_or_default();
    let event = Event {
        type_: if bad { EventType::Warning } else { EventType::Normal },
        reason: phase.as_str().into(),
        note: Some(words.chars().take(LONGEST).collect()),
        action: "Upgrade".into(),
        secondary: None,
    };
    let reference: ObjectReference = upgrade.object_ref(&());
    if let Err(error) = context.recorder.publish(&event, &reference).await {
        tracing::warn!(%error, reason = phase.as_str(), "an event cannot be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(message: &str) -> kube::core::Status {
        kube::core::Status { code: 409, reason: "Conflict".into(), message: message.into(), ..Default::default() }
    }

    #[test]
    fn a_field_of_another_manager_is_told_from_a_change_of_the_object() {
        let managers =
            r#"Apply failed with 1 conflict: conflict with "helm" using valkey.io/v1alpha1: .spec.valkeyImage.tag"#;
        assert!(is_conflict_of_managers(&conflict(managers)));
        assert!(!is_conflict_of_managers(&conflict(
            "the object has been modified; please apply your changes to the latest version"
        )));
    }
}
