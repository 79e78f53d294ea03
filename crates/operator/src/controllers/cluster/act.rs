//! Carries out what was planned. No decision about Valkey is made here.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use valkey_api::labels;
use valkey_model::{Action, Member, Step};
use valkey_planner::{Plan, Replacement};
use valkey_rpc::Outcome;

use super::observe::Seen;
use crate::context::{Context, Memory};

/// A step that was tried, and what came of it.
#[derive(Clone, Debug)]
pub struct Done {
    pub step: Step,
    pub failure: Option<String>,
}

/// Round after round; within a round all members at once, each in the order of its steps.
pub async fn carry_out(context: &Context, memory: &mut Memory, plan: &Plan) -> Vec<Done> {
    let mut done = Vec::new();
    for round in &plan.rounds {
        let mut by_member: BTreeMap<Member, Vec<&Step>> = BTreeMap::new();
        for step in round {
            by_member.entry(step.action.on()).or_default().push(step);
        }
        let calls = by_member.into_iter().map(|(member, steps)| {
            let channel = memory.channels.remove(&member);
            async move {
                let Some((address, mut client)) = channel else {
                    let unheard = |step: &&Step| Done {
                        step: (*step).clone(),
                        failure: Some("its sidecar is not connected".into()),
                    };
                    return (member, None, steps.iter().map(unheard).collect());
                };
                let actions: Vec<Action> = steps.iter().map(|step| step.action.clone()).collect();
                let (channel, done) = match client.execute(&actions).await {
                    Ok(outcomes) => (Some((address, client)), judged(&steps, &outcomes)),
                    Err(error) => (
                        None,
                        steps
                            .iter()
                            .map(|step| Done { step: (*step).clone(), failure: Some(error.to_string()) })
                            .collect(),
                    ),
                };
                context.crash.written();
                (member, channel, done)
            }
        });
        for (member, channel, results) in join_all(calls).await {
            let results: Vec<Done> = results;
            memory.channels.extend(channel.map(|channel| (member, channel)));
            results.iter().for_each(log);
            done.extend(results);
        }
    }
    done
}

fn log(Done { step, failure }: &Done) {
    let Step { action, reason } = step;
    match failure {
        Some(error) => tracing::warn!(action = action.name(), member = %action.on(), reason, error, "{action}"),
        // One for each pair of nodes: too many to read.
        None if matches!(action, Action::Meet { .. }) => tracing::debug!(member = %action.on(), reason, "{action}"),
        None => tracing::info!(action = action.name(), member = %action.on(), reason, "{action}"),
    }
}

fn judged(steps: &[&Step], outcomes: &[Outcome]) -> Vec<Done> {
    let failure = |outcome: Option<&Outcome>| match outcome {
        Some(Outcome::Done) => None,
        Some(Outcome::Refused(why)) => Some(why.clone()),
        Some(Outcome::Skipped) | None => Some("an earlier step failed".into()),
    };
    steps
        .iter()
        .enumerate()
        .map(|(index, step)| Done { step: (*step).clone(), failure: failure(outcomes.get(index)) })
        .collect()
}

/// What cannot be changed any more need not be.
pub fn ignoring_gone<T>(result: kube::Result<T>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

/// Shows each pod's live role in its label, which the read Service and people select by.
pub async fn label_roles(context: &Context, namespace: &str, seen: &Seen) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let wrong = seen.topology.reports().filter_map(|(member, report)| {
        let pod = seen.pods.get(&member)?;
        let role = report.role.to_string();
        (pod.labels().get(labels::ROLE) != Some(&role)).then(|| (pod.name_any(), role))
    });
    let patches = wrong.map(|(pod, role)| {
        let (pods, patch) = (&pods, Patch::Merge(json!({"metadata": {"labels": {labels::ROLE: role}}})));
        async move { ignoring_gone(pods.patch(&pod, &PatchParams::default(), &patch).await) }
    });
    join_all(patches).await.into_iter().collect()
}

/// Deletes exactly these pods, not their successors of the same name.
pub async fn replace(
    context: &Context,
    memory: &mut Memory,
    namespace: &str,
    seen: &Seen,
    plan: &Plan,
) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let replaced = plan.replace.iter().filter_map(|replaced| Some((replaced, seen.pods.get(&replaced.member)?)));
    for (Replacement { member, reason }, pod) in replaced {
        tracing::info!(pod = pod.name_any(), reason, "the pod is replaced");
        let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match pods.delete(&pod.name_any(), &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            other => drop(other?),
        }
        memory.deleted.extend(pod.uid().map(|uid| (*member, uid)));
    }
    Ok(())
}

/// Marks the pods that may be evicted now, and no others. The disruption budget covers all that are not marked.
pub async fn mark_evictable(
    context: &Context,
    memory: &mut Memory,
    namespace: &str,
    seen: &Seen,
    plan: &Plan,
) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    for (member, pod) in &seen.pods {
        let (is, should) = (seen.topology.evictable.contains(member), plan.let_go.contains(member));
        if is == should {
            continue;
        }
        let mark = should.then_some("true");
        tracing::info!(pod = pod.name_any(), evictable = should, "whether the pod may be evicted has changed");
        let patch = Patch::Merge(json!({"metadata": {"labels": {labels::EVICTABLE: mark}}}));
        ignoring_gone(pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await)?;
        memory.let_go.remove(member);
        memory.let_go.extend(pod.uid().filter(|_| should).map(|uid| (*member, uid)));
    }
    Ok(())
}
