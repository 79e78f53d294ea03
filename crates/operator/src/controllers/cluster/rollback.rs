//! An image that does not come up: the pods go back to the one that was known to work.
//!
//! The spec is its owner's and stays as it is. What was tried, and what worked before, is in the status; so whoever wants another
//! try changes the spec, and a restart of the operator forgets nothing. Upgrades by `ValkeyUpgrade` find their own way back.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use valkey_api::cluster::{Image, RolledBack};
use valkey_api::{ClusterStatus, ValkeyCluster};
use valkey_planner::State;
use valkey_resources::VALKEY_CONTAINER;

use super::observe::{is_ready, trouble};

/// The cluster as it counts: with the image that worked, if the one that is asked for did not.
pub fn in_effect<'a>(cluster: &'a ValkeyCluster, before: &ClusterStatus) -> Cow<'a, ValkeyCluster> {
    let Some(RolledBack { to, .. }) = lasting(cluster, before) else { return Cow::Borrowed(cluster) };
    let mut cluster = cluster.clone();
    let image = cluster.spec.valkey_image.get_or_insert_default();
    (image.name, image.tag) = (Some(to.name.clone()), Some(to.tag.clone()));
    Cow::Owned(cluster)
}

/// What is known about images after a look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tried {
    /// The one with which all was well last.
    pub healthy: Option<Image>,
    pub rolled_back: Option<RolledBack>,
}

/// Who takes care of an image that does not come up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    Ours,
    /// An upgrade is under way, or nobody may touch the cluster.
    Others,
}

pub fn tried<'a>(
    cluster: &ValkeyCluster,
    before: &ClusterStatus,
    pods: impl Iterator<Item = &'a Pod>,
    state: &State,
    care: Care,
    now: Timestamp,
) -> Tried {
    let wanted = wanted(cluster);
    let healthy = before.image.clone();
    if let Some(lasting) = lasting(cluster, before) {
        return Tried { healthy, rolled_back: Some(lasting.clone()) };
    }
    if *state == State::Healthy {
        return Tried { healthy: Some(wanted), rolled_back: None };
    }
    let spec = cluster.spec.upgrade();
    let good = healthy.clone().filter(|good| *good != wanted && care == Care::Ours && spec.rolls_back());
    let patience = SignedDuration::from_secs(spec.validation_timeout_seconds().into());
    let rolled_back = good.and_then(|to| {
        let failed = pods.into_iter().find(|pod| has_failed(pod, &wanted, patience, now))?;
        let why = trouble(failed).map(|trouble| format!(": {trouble}")).unwrap_or_default();
        let reason = format!("pod {} was not ready within {} s{why}", failed.name_any(), patience.as_secs());
        Some(RolledBack { from: wanted.clone(), to, reason, at: Time(now) })
    });
    Tried { healthy, rolled_back }
}

/// What is said about a spec that was given up.
pub fn complaint(rolled_back: &RolledBack) -> String {
    let RolledBack { from, to, reason, at: _ } = rolled_back;
    format!(
        "{from} did not come up, {reason}. The nodes go back to {to}. Correct spec.valkeyImage; the same image is not tried again \
         before the spec has asked for another one"
    )
}

/// An image that was given up, for as long as the spec asks for it.
fn lasting<'a>(cluster: &ValkeyCluster, before: &'a ClusterStatus) -> Option<&'a RolledBack> {
    before.rolled_back.as_ref().filter(|rolled_back| rolled_back.from == wanted(cluster))
}

fn wanted(cluster: &ValkeyCluster) -> Image {
    let image = cluster.spec.valkey_image();
    Image { name: image.name().to_owned(), tag: image.tag().to_owned() }
}

fn has_failed(pod: &Pod, wanted: &Image, patience: SignedDuration, now: Timestamp) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut images = containers.filter(|container| container.name == VALKEY_CONTAINER).filter_map(|c| c.image.as_ref());
    let age = pod.creation_timestamp().map(|made| now.duration_since(made.0));
    images.any(|image| *image == wanted.to_string()) && !is_ready(pod) && age.is_some_and(|age| age > patience)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asking(tag: &str, rolls_back: bool) -> ValkeyCluster {
        let spec = json!({"valkeyImage": {"tag": tag},
            "upgrade": {"validationTimeoutSeconds": 20, "autoRollback": rolls_back}});
        serde_json::from_value(json!({"metadata": {"name": "orders"}, "spec": spec})).unwrap()
    }

    fn image(tag: &str) -> Image {
        Image { name: "docker.io/valkey/valkey".into(), tag: tag.into() }
    }

    fn pod(tag: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "orders-0-1", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "valkey", "image": image(tag).to_string()}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn working() -> State {
        State::Working(valkey_planner::Progress {
            operation: valkey_planner::Operation::Rolling,
            done: 0,
            of: 1,
            message: String::new(),
            waiting_for: None,
            load: None,
        })
    }

    fn was_well_with(tag: &str) -> ClusterStatus {
        ClusterStatus { image: Some(image(tag)), ..ClusterStatus::default() }
    }

    fn after(cluster: &ValkeyCluster, before: &ClusterStatus, pod: &Pod, seconds: i64) -> Tried {
        let now = Timestamp::from_second(seconds).unwrap();
        tried(cluster, before, [pod].into_iter(), &working(), Care::Ours, now)
    }

    #[test]
    fn a_pod_that_is_not_ready_in_time_is_taken_back_and_the_same_image_is_not_tried_again() {
        let (bad, before) = (asking("9.1.99", true), was_well_with("8.1.1"));
        assert_eq!(after(&bad, &before, &pod("9.1.99", "False"), 20).rolled_back, None, "too early");
        let given_up = after(&bad, &before, &pod("9.1.99", "False"), 21);
        let rolled_back = given_up.rolled_back.clone().unwrap();
        assert_eq!((rolled_back.from.tag.as_str(), rolled_back.to.tag.as_str()), ("9.1.99", "8.1.1"));
        assert!(complaint(&rolled_back).contains("pod orders-0-1 was not ready within 20 s"));
        let before = ClusterStatus { rolled_back: given_up.rolled_back, ..before };
        assert_eq!(in_effect(&bad, &before).spec.valkey_image().tag(), "8.1.1");
        // All is well, with the other image: that is no success of this one.
        let now = Timestamp::from_second(99).unwrap();
        let later = tried(&bad, &before, [].into_iter(), &State::Healthy, Care::Ours, now);
        assert_eq!((later.healthy, later.rolled_back.is_some()), (Some(image("8.1.1")), true));
        // Another wish is another try.
        let corrected = asking("9.1.2", true);
        assert_eq!(in_effect(&corrected, &before).spec.valkey_image().tag(), "9.1.2");
        assert_eq!(after(&corrected, &before, &pod("8.1.1", "True"), 99).rolled_back, None);
    }

    #[test]
    fn nothing_is_taken_back_that_is_somebody_elses_matter() {
        let (bad, before, pod) = (asking("9.1.99", true), was_well_with("8.1.1"), pod("9.1.99", "False"));
        let now = Timestamp::from_second(99).unwrap();
        let by_others = tried(&bad, &before, [&pod].into_iter(), &working(), Care::Others, now);
        assert_eq!(by_others.rolled_back, None);
        assert_eq!(after(&asking("9.1.99", false), &before, &pod, 99).rolled_back, None, "not asked for");
        assert_eq!(after(&bad, &ClusterStatus::default(), &pod, 99).rolled_back, None, "nothing to go back to");
        assert_eq!(after(&bad, &was_well_with("9.1.99"), &pod, 99).rolled_back, None, "it worked before");
        assert_eq!(after(&bad, &before, &super::tests::pod("8.1.1", "False"), 99).rolled_back, None, "an old pod");
        assert_eq!(after(&bad, &before, &super::tests::pod("9.1.99", "True"), 99).rolled_back, None, "it is ready");
    }
}
