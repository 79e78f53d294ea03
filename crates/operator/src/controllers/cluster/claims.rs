//! Volumes, by their claims: those of members that stay follow the spec, those of members that leave go with them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use valkey_api::ChildNames;
use valkey_model::{Desired, Growth, Member, Observation, Role, ShardIndex};
use valkey_resources::{CheckedCluster, DATA_VOLUME, Owner, Room, Storage, belonging, larger, room};

use super::act::ignoring_gone;
use crate::context::{Context, Memory};

/// How soon a growth that Kubernetes refused is tried again: somebody may have allowed it meanwhile.
const AGAIN: Duration = Duration::from_secs(10);

/// The claims of members that stay.
pub type Claims = BTreeMap<Member, Arc<PersistentVolumeClaim>>;

/// A growth that Kubernetes refused.
#[derive(Clone, Debug)]
pub struct Ungrowable {
    size: String,
    words: String,
    at: Instant,
}

impl Ungrowable {
    fn concerns(&self, storage: &Storage) -> bool {
        self.size == storage.size.0
    }
}

pub fn of_members(context: &Context, names: &ChildNames, namespace: &str, desired: Desired) -> Claims {
    let claims = context.stores.claims_of(namespace, names.cluster()).into_iter();
    let there = claims.filter(|claim| claim.metadata.deletion_timestamp.is_none());
    let of_member = there.filter_map(|claim| {
        let name = claim.name_any();
        let pod = name.strip_prefix(DATA_VOLUME)?.strip_prefix('-')?;
        Some((Member::of_pod(names.cluster(), pod).ok()?, claim))
    });
    of_member.filter(|(member, _)| desired.wants(*member)).collect()
}

/// How far volumes have got that are to grow; `None` if all are large enough, or cannot grow.
pub fn growth(claims: &Claims, storage: &Storage, refused: Option<&Ungrowable>) -> Option<Growth> {
    if refused.is_some_and(|refused| refused.concerns(storage)) {
        return None;
    }
    let mut waiting_for = None;
    let mut done = 0;
    for claim in claims.values() {
        match room(claim, storage) {
            Room::Enough => done += 1,
            Room::Small => {}
            Room::Growing(said) => {
                let said = said.map(|said| format!(" ({said})")).unwrap_or_default();
                waiting_for.get_or_insert_with(|| format!("volume {} to grow{said}", claim.name_any()));
            }
        }
    }
    (done < claims.len()).then(|| Growth { to: storage.size.0.clone(), done, of: claims.len(), waiting_for })
}

/// What a human has to put right, if volumes cannot grow.
pub fn complaint(refused: Option<&Ungrowable>, storage: &Storage) -> Option<String> {
    let Ungrowable { size, words, .. } = refused.filter(|refused| refused.concerns(storage))?;
    Some(format!(
        "spec.persistence.size: Kubernetes does not let a volume grow to {size}: {words}. All goes on with the volumes as they are. Let the StorageClass allow \
         it (allowVolumeExpansion), or move the data to a cluster with larger volumes; it is tried again every few minutes"
    ))
}

/// Lets volumes follow the spec. One tries to grow first, then all of them.
pub async fn follow(
    context: &Context,
    memory: &mut Memory,
    checked: &CheckedCluster,
    owner: &Owner,
    topology: &Observation,
    claims: &Claims,
) -> kube::Result<()> {
    let Some(storage) = &checked.storage else { return Ok(()) };
    let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &owner.namespace);
    for claim in claims.values() {
        if let Some(patch) = belonging(claim, owner, storage) {
            tracing::info!(claim = claim.name_any(), retain = storage.retain.as_str(), "it follows the spec");
            ignoring_gone(api.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await)?;
        }
    }
    if memory.ungrowable.as_ref().is_some_and(|refused| refused.concerns(storage) && refused.at.elapsed() < AGAIN) {
        return Ok(());
    }
    for claim in due(claims, storage, topology) {
        let name = claim.name_any();
        tracing::info!(claim = name, size = storage.size.0, "it asks for more room");
        match api.patch(&name, &PatchParams::default(), &Patch::Merge(larger(storage))).await {
            Err(kube::Error::Api(status)) if status.is_invalid() || status.is_forbidden() => {
                tracing::warn!(claim = name, reason = status.message, "Kubernetes does not let it grow");
                let (size, words) = (storage.size.0.clone(), status.message.clone());
                memory.ungrowable = Some(Ungrowable { size, words, at: Instant::now() });
                return Ok(());
            }
            other => ignoring_gone(other)?,
        }
    }
    memory.ungrowable = None;
    Ok(())
}

/// Whose claim asks for more now. As long as nobody has got it, only one does, and rather not that of a primary.
fn due<'a>(claims: &'a Claims, storage: &Storage, topology: &Observation) -> Vec<&'a PersistentVolumeClaim> {
    let rooms: Vec<_> = claims.iter().map(|(member, claim)| (member, &**claim, room(claim, storage))).collect();
    let small = rooms.iter().filter(|(_, _, room)| *room == Room::Small);
    if rooms.iter().any(|(_, _, room)| *room == Room::Enough) {
        return small.map(|(_, claim, _)| *claim).collect();
    }
    if rooms.iter().any(|(_, _, room)| matches!(room, Room::Growing(_))) {
        return Vec::new();
    }
    let leads = |member: Member| topology.report(member).is_none_or(|report| report.role == Role::Primary);
    let first = small.min_by_key(|(member, _, _)| (leads(**member), **member));
    first.map(|(_, claim, _)| *claim).into_iter().collect()
}

/// Gives back the volumes of members that a workload has at present and will not have next. A server that found one again would come
/// back as who it was, with slots that others have by now.
///
/// Called before the workload shrinks: Kubernetes keeps each claim until its pod is gone, and an operator that dies in between
/// finds the same members leaving again. Whatever belongs to no leaving member is somebody's to keep.
pub async fn release(
    context: &Context,
    names: &ChildNames,
    namespace: &str,
    present: &BTreeMap<ShardIndex, u16>,
    next: &BTreeMap<ShardIndex, u16>,
) -> kube::Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), namespace);
    let releases = leaving(present, next).into_iter().map(|member| {
        let (claims, claim) = (&claims, format!("{DATA_VOLUME}-{}", names.pod(member)));
        async move {
            match claims.delete(&claim, &DeleteParams::default()).await {
                Ok(_) => tracing::info!(claim, "the member leaves: its volume is given back"),
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error),
            }
            Ok(())
        }
    });
    try_join_all(releases).await.map(drop)
}

fn leaving(present: &BTreeMap<ShardIndex, u16>, next: &BTreeMap<ShardIndex, u16>) -> Vec<Member> {
    let left = |shard: &ShardIndex| next.get(shard).copied().unwrap_or(0);
    let ordinals = present.iter().flat_map(|(shard, members)| (left(shard)..*members).map(move |o| (*shard, o)));
    ordinals.map(|(shard, ordinal)| Member { shard, ordinal }).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::json;
    use valkey_api::cluster::Retain;

    use super::*;

    fn claims(sizes: &[(&str, &str)]) -> Claims {
        let claim = |(ordinal, (asked, has)): (usize, &(&str, &str))| {
            let name = format!("data-orders-0-{ordinal}");
            let spec = json!({"resources": {"requests": {"storage": asked}}});
            let status = json!({"phase": "Bound", "capacity": {"storage": has}});
            let claim = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec, "status": status}));
            (Member::new(0, u16::try_from(ordinal).unwrap()), Arc::new(claim.unwrap()))
        };
        sizes.iter().enumerate().map(claim).collect()
    }

    fn storage() -> Storage {
        Storage { size: Quantity("2Gi".into()), class: None, retain: Retain::Delete, save: None, append_only: None }
    }

    fn asked(sizes: &[(&str, &str)]) -> Vec<String> {
        due(&claims(sizes), &storage(), &Observation::default()).into_iter().map(ResourceExt::name_any).collect()
    }

    #[test]
    fn one_volume_grows_first_and_then_all_others() {
        let small = ("1Gi", "1Gi");
        assert_eq!(asked(&[small, small, small]), ["data-orders-0-0"]);
        assert_eq!(asked(&[("2Gi", "1Gi"), small, small]), <[&str; 0]>::default());
        assert_eq!(asked(&[("2Gi", "2Gi"), small, small]), ["data-orders-0-1", "data-orders-0-2"]);
    }

    #[test]
    fn what_cannot_grow_is_told_once_and_not_as_progress() {
        let claims = claims(&[("2Gi", "2Gi"), ("2Gi", "1Gi"), ("1Gi", "1Gi")]);
        let growing = growth(&claims, &storage(), None).unwrap();
        assert_eq!((growing.done, growing.of), (1, 3));
        assert_eq!(growing.waiting_for.as_deref(), Some("volume data-orders-0-1 to grow"));
        let refused = Ungrowable { size: "2Gi".into(), words: "no".into(), at: Instant::now() };
        assert_eq!(growth(&claims, &storage(), Some(&refused)), None);
        assert!(complaint(Some(&refused), &storage()).unwrap().contains("grow to 2Gi: no."));
        let other = Ungrowable { size: "3Gi".into(), ..refused };
        assert_eq!(complaint(Some(&other), &storage()), None);
        assert!(growth(&claims, &storage(), Some(&other)).is_some());
    }

    fn workloads(sizes: &[(u16, u16)]) -> BTreeMap<ShardIndex, u16> {
        sizes.iter().map(|(shard, members)| (ShardIndex(*shard), *members)).collect()
    }

    #[test]
    fn only_members_that_a_workload_has_now_and_not_next_lose_their_volume() {
        let present = workloads(&[(0, 2), (1, 3), (2, 2)]);
        assert_eq!(leaving(&present, &present), []);
        assert_eq!(leaving(&present, &workloads(&[(0, 3), (1, 3), (2, 2), (3, 2)])), []);
        let left = [Member::new(1, 1), Member::new(1, 2), Member::new(2, 0), Member::new(2, 1)];
        assert_eq!(leaving(&present, &workloads(&[(0, 2), (1, 1)])), left);
    }
}
