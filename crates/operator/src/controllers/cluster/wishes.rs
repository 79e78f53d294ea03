//! Wishes about who leads: an annotation of the cluster, taken off when it is fulfilled, and machines that are to be emptied.

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use valkey_api::{ChildNames, ValkeyCluster, labels};
use valkey_model::{Member, Role, Wish};

use super::act::ignoring_gone;
use super::observe::Seen;
use crate::context::Context;

/// All that is wished at present. What a human asked for goes first.
pub fn read(cluster: &ValkeyCluster, names: &ChildNames, seen: &Seen) -> Vec<Wish> {
    let unwelcome = seen.topology.unwelcome.iter().map(|member| Wish::Resign(*member));
    asked(cluster, names).into_iter().chain(unwelcome).collect()
}

/// `orders-1-1`: this pod shall lead. `!orders-1-0`: this one shall not. What names no pod of the cluster is no wish.
fn asked(cluster: &ValkeyCluster, names: &ChildNames) -> Option<Wish> {
    cluster.annotations().get(labels::SWITCHOVER).and_then(|text| parse(text, names))
}

fn parse(text: &str, names: &ChildNames) -> Option<Wish> {
    let member = |pod: &str| Member::of_pod(names.cluster(), pod.trim()).ok();
    match text.trim().strip_prefix('!') {
        Some(pod) => Some(Wish::Resign(member(pod)?)),
        None => Some(Wish::Lead(member(text)?)),
    }
}

/// Takes the annotation off when what it wishes is so.
pub async fn settle(context: &Context, cluster: &ValkeyCluster, names: &ChildNames, seen: &Seen) -> kube::Result<()> {
    let fulfilled = asked(cluster, names).is_some_and(|wish| is_fulfilled(wish, seen));
    let (true, Some(namespace)) = (fulfilled, cluster.namespace()) else { return Ok(()) };
    let clusters: Api<ValkeyCluster> = Api::namespaced(context.client.clone(), &namespace);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {labels::SWITCHOVER: null}}}));
    ignoring_gone(clusters.patch(&cluster.name_any(), &PatchParams::default(), &patch).await)
}

fn is_fulfilled(wish: Wish, seen: &Seen) -> bool {
    let leads = |member| seen.topology.report(member).map(|report| report.role == Role::Primary);
    match wish {
        Wish::Lead(member) => leads(member) == Some(true),
        Wish::Resign(member) => leads(member) == Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_names_a_pod_of_the_cluster() {
        let names = ChildNames::new("orders");
        assert_eq!(parse("orders-1-1", &names), Some(Wish::Lead(Member::new(1, 1))));
        assert_eq!(parse("!orders-1-0 ", &names), Some(Wish::Resign(Member::new(1, 0))));
        assert_eq!(parse("others-1-0", &names), None);
        assert_eq!(parse("", &names), None);
    }
}
