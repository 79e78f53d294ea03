//! What changes in pods that live on: labels, annotations, CPU and memory. No pod is made anew for these where Kubernetes can.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use valkey_model::Member;
use valkey_resources::{CheckedCluster, Fitting, fitting, relabel};

use super::act::ignoring_gone;
use super::observe::Seen;
use crate::context::{Context, Memory};

/// How well each living pod fits the spec.
pub fn examine(checked: &CheckedCluster, memory: &Memory, seen: &Seen) -> BTreeMap<Member, Fitting> {
    let living = seen.pods.iter().filter(|(member, _)| !seen.topology.going.contains(member));
    let examined = living.map(|(member, pod)| {
        if let Some((_, why)) = memory.unresizable.get(member) {
            return (*member, Fitting::Roll(why.clone()));
        }
        let max_memory = seen.topology.report(*member).map(|report| report.max_memory);
        (*member, fitting(pod, checked, max_memory))
    });
    examined.collect()
}

/// Those that can only get what the spec asks for by being made anew.
pub fn to_roll(fittings: &BTreeMap<Member, Fitting>) -> BTreeSet<Member> {
    fittings.iter().filter(|(_, fitting)| matches!(fitting, Fitting::Roll(_))).map(|(member, _)| *member).collect()
}

/// Gives living pods what the spec asks for. What Kubernetes refuses is remembered: those pods are rolled.
pub async fn follow(
    context: &Context,
    memory: &mut Memory,
    checked: &CheckedCluster,
    namespace: &str,
    seen: &Seen,
    fittings: &BTreeMap<Member, Fitting>,
) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    for (member, fitting) in fittings {
        let Some(pod) = seen.pods.get(member) else { continue };
        let name = pod.name_any();
        if let Some(patch) = relabel(pod, checked) {
            tracing::info!(pod = name, "its labels and annotations follow the spec");
            ignoring_gone(pods.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await)?;
        }
        let Fitting::Resize(patch) = fitting else { continue };
        tracing::info!(pod = name, "it is resized in place");
        match pods.patch_subresource("resize", &name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Err(kube::Error::Api(status)) if status.is_invalid() || status.is_forbidden() => {
                tracing::warn!(pod = name, reason = status.message, "Kubernetes refuses to resize it: it is made anew");
                memory.unresizable.extend(pod.uid().map(|uid| (*member, (uid, status.message.clone()))));
            }
            other => ignoring_gone(other)?,
        }
    }
    Ok(())
}
