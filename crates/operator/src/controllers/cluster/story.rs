//! Events: what a human reads in `kubectl describe`, one line for each turn and each decision.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource};
use valkey_api::topology::Topology;
use valkey_api::{ChildNames, ClusterStatus, ConditionType, ValkeyClusterStatus, conditions, labels};
use valkey_model::{Action, Member};
use valkey_planner::{Plan, Replacement};
use valkey_resources::{Fitting, child_meta};

use super::act::Done;
use super::observe::Seen;
use super::{Error, Pass, is_turn, status};
use crate::children::Change;
use crate::context::Memory;

impl Pass<'_> {
    /// What was done to the cluster's objects.
    pub(super) async fn tell_changes(&self, changes: &[Change]) {
        let created: Vec<_> = changes.iter().filter(|change| matches!(change, Change::Created(_))).collect();
        if !created.is_empty() {
            let kinds = created.iter().filter_map(|change| match change {
                Change::Created((kind, _)) => Some(kind.as_str()),
                _ => None,
            });
            self.event(EventType::Normal, "Created", "Apply", counted(kinds)).await;
        }
        for change in changes {
            match change {
                Change::Created(_) => {}
                Change::Updated((kind, name)) => {
                    let note = format!("{kind} {name} follows the spec");
                    self.event_about(EventType::Normal, "Updated", "Apply", note, Some(self.child(kind, name))).await;
                }
                Change::PutBack((kind, name), difference) => {
                    let note = format!("{kind} {name} was changed by somebody else and is put back: {difference}");
                    self.event_about(EventType::Warning, "DriftCorrected", "Apply", note, Some(self.child(kind, name)))
                        .await;
                }
                Change::Removed((kind, name)) => {
                    self.event(EventType::Normal, "Removed", "Prune", format!("{kind} {name} is not wanted any more"))
                        .await;
                }
            }
        }
    }

    /// Decisions about Valkey that somebody will ask about later. The small steps of formation are in the log.
    pub(super) async fn tell_deeds(&self, done: &[Done]) {
        for Done { step, failure } in done {
            let told = matches!(
                step.action,
                Action::TakeOver { .. } | Action::HandOver { .. } | Action::Release { .. } | Action::Forget { .. }
            );
            if !told {
                continue;
            }
            let outcome = failure.as_ref().map_or_else(String::new, |failure| format!(" (failed: {failure})"));
            let note = format!("{}: {}{outcome}", step.action, step.reason);
            let kind = if failure.is_none() { EventType::Normal } else { EventType::Warning };
            let pod = self.child("Pod", &format!("{}-{}", self.subject.name, step.action.on()));
            self.event_about(kind, step.action.name(), "Heal", note, Some(pod)).await;
        }
    }

    pub(super) async fn tell_replacements(&self, names: &ChildNames, plan: &Plan) {
        for Replacement { member, reason } in &plan.replace {
            let pod = names.pod(*member);
            let note = format!("pod {pod} is made anew: {reason}");
            self.event_about(EventType::Normal, "Replaced", "Roll", note, Some(self.child("Pod", &pod))).await;
        }
    }

    /// Pods that the disruption budget leaves out from now on.
    pub(super) async fn tell_evictable(&self, names: &ChildNames, seen: &Seen, plan: &Plan) {
        for member in plan.let_go.difference(&seen.topology.evictable) {
            let pod = names.pod(*member);
            let note = format!("pod {pod} may be evicted now: its shard is safe without it");
            self.event_about(EventType::Normal, "Evictable", "Drain", note, Some(self.child("Pod", &pod))).await;
        }
    }

    /// Pods that change without being made anew.
    pub(super) async fn tell_resizes(&self, names: &ChildNames, fittings: &BTreeMap<Member, Fitting>) {
        for (member, _) in fittings.iter().filter(|(_, fitting)| matches!(fitting, Fitting::Resize(_))) {
            let pod = names.pod(*member);
            let note = format!("pod {pod} gets the CPU and memory of the spec in place");
            self.event_about(EventType::Normal, "Resized", "Resize", note, Some(self.child("Pod", &pod))).await;
        }
    }

    /// Turns of the cluster's fate, told when the status changes.
    pub(super) async fn tell_turns(&self, before: &ClusterStatus, after: &ClusterStatus) {
        let message =
            |status: &ClusterStatus, kind| conditions::get(&status.conditions, kind).map(|found| found.message.clone());
        let accepted = |status: &ClusterStatus| conditions::get(&status.conditions, ConditionType::Accepted).cloned();
        if let Some(now) = accepted(after) {
            let then = accepted(before);
            let changed = then.as_ref().is_none_or(|then| then.status != now.status || then.message != now.message);
            if now.status == "False" && changed {
                self.event(EventType::Warning, "Rejected", "Validate", now.message).await;
            } else if then.is_some_and(|then| then.status == "False") && now.status == "True" {
                self.event(EventType::Normal, "Accepted", "Validate", "the spec is good now".into()).await;
            }
        }
        if let Some(failure) = &after.last_failure
            && before.last_failure.as_ref().map(|failure| &failure.message) != Some(&failure.message)
            && failure.reason != "InvalidSpec"
        {
            self.event(EventType::Warning, &failure.reason, "Observe", failure.message.clone()).await;
        }
        if is_turn(before.phase, after.phase)
            && let Some(phase) = after.phase
        {
            let words = message(after, ConditionType::Ready).unwrap_or_default();
            let ill = matches!(phase, valkey_api::Phase::Degraded | valkey_api::Phase::Failed);
            let kind = if ill { EventType::Warning } else { EventType::Normal };
            let note = match &after.operation {
                Some(operation) if ill => format!("{}: {words}", operation.message),
                Some(operation) => operation.message.clone(),
                None => words,
            };
            self.event(kind, phase.as_str(), "Observe", note).await;
        }
    }

    /// What is lost, told once for each accident and shard.
    pub(super) async fn tell_losses(
        &self,
        before: &ClusterStatus,
        after: &ClusterStatus,
        names: &ChildNames,
        plan: &Plan,
    ) {
        let said = |status: &ClusterStatus| conditions::get(&status.conditions, ConditionType::DataLost).cloned();
        let news = said(after).filter(|now| {
            said(before).is_none_or(|then| {
                (&then.message, &then.last_transition_time) != (&now.message, &now.last_transition_time)
            })
        });
        let Some(news) = news else { return };
        if plan.losses.is_empty() {
            self.event(EventType::Warning, "DataLost", "Heal", news.message).await;
        }
        for loss in &plan.losses {
            let set = self.child("StatefulSet", &names.stateful_set(loss.shard));
            self.event_about(EventType::Warning, "DataLost", "Heal", loss.to_string(), Some(set)).await;
        }
    }

    async fn event(&self, type_: EventType, reason: &str, action: &str, note: String) {
        self.event_about(type_, reason, action, note, None).await;
    }

    /// Events of the same reason about the same object are counted, not told again, so each child has its own.
    async fn event_about(
        &self,
        type_: EventType,
        reason: &str,
        action: &str,
        note: String,
        secondary: Option<ObjectReference>,
    ) {
        const LONGEST: usize = 1000; // Kubernetes refuses notes of more than 1 kB
        let note = note.chars().take(LONGEST).collect();
        let event = Event { type_, reason: reason.into(), note: Some(note), action: action.into(), secondary };
        let reference: ObjectReference = self.cluster.object_ref(&());
        if let Err(error) = self.context.recorder.publish(&event, &reference).await {
            tracing::warn!(%error, reason, "an event cannot be written");
        }
    }

    fn child(&self, kind: &str, name: &str) -> ObjectReference {
        ObjectReference {
            kind: Some(kind.to_owned()),
            name: Some(name.to_owned()),
            namespace: Some(self.subject.namespace.clone()),
            ..ObjectReference::default()
        }
    }

    /// The long part of the status, in an object of its own, written only when it says something new.
    pub(super) async fn tell_topology(&self, memory: &mut Memory, topology: Topology) -> Result<(), Error> {
        if memory.topology.as_ref().is_some_and(|before| status::same_topology(before, &topology)) {
            return Ok(());
        }
        let objects: Api<ValkeyClusterStatus> = Api::namespaced(self.context.client.clone(), &self.subject.namespace);
        let failed = |source| Error::Kubernetes { what: "the ValkeyClusterStatus cannot be written", source };
        let owner = self.subject.owner();
        let mut object = ValkeyClusterStatus {
            metadata: child_meta(&owner, owner.name.clone(), labels::Component::Node),
            ..Default::default()
        };
        let params = PatchParams::apply(labels::OPERATOR).force();
        if memory.topology.is_none() {
            let there = objects.patch(&owner.name, &params, &Patch::Apply(&object)).await.map_err(failed)?;
            if let Some(before) = there.status.filter(|before| status::same_topology(before, &topology)) {
                memory.topology = Some(before);
                return Ok(());
            }
        }
        object.status = Some(topology.clone());
        objects.patch_status(&owner.name, &params, &Patch::Apply(&object)).await.map_err(failed)?;
        memory.topology = Some(topology);
        Ok(())
    }
}

/// `3 StatefulSets, 2 Services`.
fn counted<'a>(kinds: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for kind in kinds {
        *counts.entry(kind).or_default() += 1;
    }
    let told: Vec<_> = counts
        .into_iter()
        .map(|(kind, count)| if count == 1 { format!("1 {kind}") } else { format!("{count} {kind}s") })
        .collect();
    told.join(", ")
}
