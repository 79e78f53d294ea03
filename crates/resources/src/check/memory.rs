//! Memory: what there is, and how much of it data may take.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use valkey_api::cluster::ValkeyClusterSpec;

use super::Findings;
use crate::amount::{Bytes, thousandths};
use crate::spec_error::SpecError;

/// A server without any data takes some 10Mi, and a fork of it as much again.
const SMALLEST_LIMIT: Bytes = Bytes(64 << 20);

/// A snapshot, a rewrite of the log and a full copy for a replica fork: pages that change meanwhile exist twice.
const SHARE_WITH_FORKS: u64 = 60;
const SHARE_WITHOUT_FORKS: u64 = 75;
/// Above this share of the limit an explicit `maxMemory` is asking for the kernel to end the process.
const RISKY_SHARE: u64 = 80;

/// How much memory data may take; `None` if nothing says so.
pub fn max_memory(spec: &ValkeyClusterSpec, replicas: u16, findings: &mut Findings) -> Option<Bytes> {
    let share = if spec.persistence().enabled() || replicas > 0 { SHARE_WITH_FORKS } else { SHARE_WITHOUT_FORKS };
    let limit = memory_limit(spec);
    let asked = spec.max_memory();
    if asked == "auto" {
        if limit.is_none() {
            findings.odd(
                "spec.maxMemory",
                "auto needs resources.limits.memory; without it a node takes memory until its Kubernetes node has none left",
            );
        }
        return limit.map(|limit| limit.percent(share));
    }
    let Some(bytes) = Bytes::of_valkey(asked).filter(|bytes| *bytes > Bytes(0)) else {
        let advice = "Write it as in 2gb or 512mb, or set auto";
        findings.wrong(SpecError::new("spec.maxMemory", asked, "is not a size in Valkey's units", advice));
        return None;
    };
    if let Some(limit) = limit {
        let (enough, auto) = (bytes.as_share_of(share), limit.percent(share).in_valkeys_units());
        if bytes > limit {
            findings.wrong(SpecError::new(
                "spec.maxMemory",
                asked,
                format!("does not fit into the memory limit of {limit}"),
                format!("Raise resources.limits.memory to at least {enough}, or set maxMemory: auto ({auto} here)"),
            ));
        } else if bytes > limit.percent(RISKY_SHARE) {
            findings.odd(
                "spec.maxMemory",
                format!(
                    "{asked} is more than {RISKY_SHARE} % of the memory limit of {limit}, which leaves too little for forks \
                     and buffers; raise resources.limits.memory to {enough} or set maxMemory: auto ({auto} here)"
                ),
            );
        }
    }
    Some(bytes)
}

fn memory_limit(spec: &ValkeyClusterSpec) -> Option<Bytes> {
    let limits = spec.resources.as_ref()?.limits.as_ref()?;
    Bytes::of_quantity(&limits.get("memory")?.0)
}

/// Amounts that Kubernetes would refuse in a pod, long after the user has gone.
pub fn resources(spec: &ValkeyClusterSpec, findings: &mut Findings) {
    let Some(resources) = &spec.resources else { return };
    let empty = BTreeMap::new();
    let (requests, limits) =
        (resources.requests.as_ref().unwrap_or(&empty), resources.limits.as_ref().unwrap_or(&empty));
    for (kind, amounts) in [("requests", requests), ("limits", limits)] {
        for (name, Quantity(amount)) in amounts.iter().filter(|(_, amount)| thousandths(&amount.0).is_none()) {
            let advice = "Write it as in 500m for CPU or 2Gi for memory";
            findings.wrong(SpecError::new(format!("spec.resources.{kind}.{name}"), amount, "is not an amount", advice));
        }
    }
    for (name, Quantity(request)) in requests {
        let Some(Quantity(limit)) = limits.get(name) else { continue };
        if thousandths(limit).is_some_and(|limit| thousandths(request).is_some_and(|request| request > limit)) {
            findings.wrong(SpecError::new(
                format!("spec.resources.requests.{name}"),
                request,
                format!("is more than the limit of {limit}"),
                "Lower the request or raise the limit",
            ));
        }
    }
    if let Some(limit) = memory_limit(spec).filter(|limit| *limit < SMALLEST_LIMIT) {
        findings.wrong(SpecError::new(
            "spec.resources.limits.memory",
            limit.to_string(),
            "is too little for a server to hold anything",
            format!("Set at least {SMALLEST_LIMIT}"),
        ));
    }
}
