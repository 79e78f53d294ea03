//! Volumes of members that leave. A server that found one again would come back as who it was, with slots that others have by now.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::DeleteParams;
use valkey_api::ChildNames;
use valkey_model::{Member, ShardIndex};
use valkey_resources::DATA_VOLUME;

use crate::context::Context;

/// Gives back the volumes of members that a workload has at present and will not have next.
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
    use super::*;

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
