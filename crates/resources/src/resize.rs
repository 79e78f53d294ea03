//! More or less CPU and memory for pods that live already, without a restart where Kubernetes can.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::amount::{Bytes, thousandths};
use crate::checked::CheckedCluster;
use crate::children::{RESIZABLE, VALKEY_CONTAINER};

/// Whether a living pod has the CPU and memory that the spec asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Fitting {
    /// It has, or Kubernetes is about to give it to it.
    Fit,
    /// It gets them as soon as this is done.
    Wait(String),
    /// A strategic merge patch for the pod's subresource `resize`.
    Resize(Value),
    /// It can only get them by being made anew, and why.
    Roll(String),
}

/// Compares a living pod with the spec. `max_memory` is what its server says that its data may take; 0 if nothing limits it.
///
/// Only what the spec mentions is compared: the namespace may give pods more than that (`LimitRange`). That a request or limit
/// comes or goes is part of the template's mark.
pub fn fitting(pod: &Pod, cluster: &CheckedCluster, max_memory: Option<u64>) -> Fitting {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let living = containers.clone().find(|container| container.name == VALKEY_CONTAINER);
    let Some(living) = living else { return Fitting::Fit };
    let (has, wanted) = (Amounts::of(living.resources.as_ref()), Amounts::of(cluster.pods.resources.as_ref()));
    let differ = wanted.differing(&has);
    if differ.is_empty() {
        return infeasible(pod).map_or(Fitting::Fit, Fitting::Roll);
    }
    if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()) {
        return Fitting::Roll("no machine has taken it yet".into());
    }
    if let Some((kind, name)) = differ.iter().find(|(kind, name)| has.get(kind, name).is_none()) {
        return Fitting::Roll(format!("a running pod cannot be given {kind} of {name} that it did not have"));
    }
    let resized = Container { resources: Some(wanted.laid_over(living.resources.as_ref())), ..living.clone() };
    let others = containers.filter(|container| container.name != VALKEY_CONTAINER);
    let others: Vec<&Container> =
        others.chain(pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten())).collect();
    let (before, after) =
        (class(others.iter().copied().chain([living])), class(others.iter().copied().chain([&resized])));
    if before != after {
        return Fitting::Roll(format!("a running pod cannot go from the class {before:?} to {after:?}"));
    }
    let shrinks = memory_limit(&wanted) < memory_limit(&has);
    if shrinks && takes_more_than_it_will_have(cluster, max_memory) {
        return Fitting::Wait("its server to take less memory for its data".into());
    }
    Fitting::Resize(json!({"spec": {"containers": [{
        "name": VALKEY_CONTAINER,
        "resources": {"requests": wanted.requests, "limits": wanted.limits},
    }]}}))
}

/// The kernel ends a server that has more data than memory, so its data goes first.
fn takes_more_than_it_will_have(cluster: &CheckedCluster, max_memory: Option<u64>) -> bool {
    let Some(Bytes(wanted)) = cluster.max_memory else { return false };
    max_memory.is_none_or(|has| has == 0 || has > wanted)
}

fn memory_limit(amounts: &Amounts) -> Option<u128> {
    thousandths(&amounts.limits.get("memory")?.0)
}

/// Kubernetes' word that the machine will never have room for what was asked of it last.
fn infeasible(pod: &Pod) -> Option<String> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut pending =
        conditions.filter(|condition| condition.type_ == "PodResizePending" && condition.status == "True");
    let infeasible = pending.find(|condition| condition.reason.as_deref() == Some("Infeasible"))?;
    let words = infeasible.message.as_deref().unwrap_or("it does not say why");
    Some(format!("its machine cannot give it what the spec asks for: {words}"))
}

/// Requests and limits of CPU and memory.
#[derive(Debug, Clone, Default, PartialEq)]
struct Amounts {
    requests: BTreeMap<String, Quantity>,
    limits: BTreeMap<String, Quantity>,
}

impl Amounts {
    /// As Kubernetes understands them: what is limited and not requested is requested up to its limit.
    fn of(resources: Option<&ResourceRequirements>) -> Self {
        let resizable = |amounts: Option<&BTreeMap<String, Quantity>>| -> BTreeMap<_, _> {
            let all = amounts.into_iter().flatten().filter(|(name, _)| RESIZABLE.contains(&name.as_str()));
            all.map(|(name, amount)| (name.clone(), amount.clone())).collect()
        };
        let limits = resizable(resources.and_then(|resources| resources.limits.as_ref()));
        let mut requests = limits.clone();
        requests.extend(resizable(resources.and_then(|resources| resources.requests.as_ref())));
        Self { requests, limits }
    }

    fn get(&self, kind: &str, name: &str) -> Option<&Quantity> {
        if kind == "limits" { self.limits.get(name) } else { self.requests.get(name) }
    }

    /// Those of ours that the other ones have differently or not at all. `1000m` and `1` are the same.
    fn differing(&self, other: &Self) -> Vec<(&'static str, &str)> {
        let all = [("requests", &self.requests), ("limits", &self.limits)];
        let all = all.into_iter().flat_map(|(kind, amounts)| amounts.iter().map(move |(name, a)| (kind, name, a)));
        let differs = |kind: &str, name: &str, amount: &Quantity| {
            other.get(kind, name).is_none_or(|other| thousandths(&other.0) != thousandths(&amount.0))
        };
        all.filter(|(kind, name, amount)| differs(kind, name, amount))
            .map(|(kind, name, _)| (kind, name.as_str()))
            .collect()
    }

    fn laid_over(&self, resources: Option<&ResourceRequirements>) -> ResourceRequirements {
        let mut resources = resources.cloned().unwrap_or_default();
        resources.requests.get_or_insert_default().extend(self.requests.clone());
        resources.limits.get_or_insert_default().extend(self.limits.clone());
        resources
    }
}

/// Kubernetes' quality-of-service class, which a pod keeps for life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    BestEffort,
    Burstable,
    Guaranteed,
}

fn class<'a>(containers: impl Iterator<Item = &'a Container>) -> Class {
    let all: Vec<Amounts> = containers.map(|container| Amounts::of(container.resources.as_ref())).collect();
    if all.iter().all(|amounts| amounts.requests.is_empty() && amounts.limits.is_empty()) {
        return Class::BestEffort;
    }
    let bounded = |amounts: &Amounts| {
        let limits = || RESIZABLE.iter().map(|name| amounts.limits.get(*name));
        limits().all(|limit| limit.is_some()) && amounts.differing_requests() == 0
    };
    if all.iter().all(bounded) { Class::Guaranteed } else { Class::Burstable }
}

impl Amounts {
    /// How many requests are not what the limit is.
    fn differing_requests(&self) -> usize {
        let same = |name: &String, request: &Quantity| {
            self.limits.get(name).is_some_and(|limit| thousandths(&limit.0) == thousandths(&request.0))
        };
        self.requests.iter().filter(|(name, request)| !same(name, request)).count()
    }
}

#[cfg(test)]
#[path = "resize_tests.rs"]
mod tests;
