//! Settings that running servers take: what the spec asks for, what pods start with, and who refused what.
//!
//! Pods start with what every node took last, which the `ConfigMap` holds. So a value that a node refuses stops no pod at its
//! start, and is known to be no good after a restart of the operator, too.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use valkey_api::{ChildNames, ClusterStatus};
use valkey_model::{Desired, Member, NodeReport, Observation, Settings, Sighting, WantedSettings};
use valkey_resources::{
    Bytes, CheckedCluster, VALKEY_CONF, VALKEY_CONTAINER, carried_over, live_settings, with_setting,
};

use crate::context::Context;

const MAX_MEMORY: &str = "maxmemory";

/// What is remembered between two passes.
#[derive(Debug, Default)]
pub struct Kept {
    /// What the `ConfigMap` holds; `None` if there is none yet, or it was not read yet.
    good: Option<Settings>,
    refused: Option<Refusal>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    mark: String,
    by: Member,
    words: String,
}

impl Kept {
    /// Reads once what the `ConfigMap` holds. What is in it later is ours.
    pub async fn recall(&mut self, context: &Context, names: &ChildNames, namespace: &str) -> kube::Result<()> {
        if self.good.is_none() {
            let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
            self.good = maps.get_opt(&names.config_map()).await?.and_then(|map| held(&map));
        }
        Ok(())
    }

    /// What the planner has to know, with what was seen of the nodes.
    pub fn look<'a>(
        &mut self,
        checked: &CheckedCluster,
        topology: &Observation,
        pods: impl Iterator<Item = &'a Pod>,
    ) -> WantedSettings {
        let asked = live_settings(checked);
        let good = self.good.as_ref().map_or_else(|| asked.clone(), |good| carried_over(checked, good));
        let wanted = within_memory(checked, asked, &good, pods);
        let news = topology.reports().find_map(|(by, report)| refusal(by, report, &wanted));
        let is_new = wanted.mark != good.mark;
        self.refused = news.or(self.refused.take()).filter(|refused| is_new && refused.mark == wanted.mark);
        let refused = self.refused.clone().map(|Refusal { by, words, .. }| (by, words));
        WantedSettings { wanted, good, refused, release: checked.release() }
    }

    /// The `ConfigMap` holds these now.
    pub fn hold(&mut self, good: Settings) {
        self.good = Some(good);
    }
}

fn held(map: &ConfigMap) -> Option<Settings> {
    Settings::of_conf(map.data.as_ref()?.get(VALKEY_CONF)?)
}

fn refusal(by: Member, report: &NodeReport, settings: &Settings) -> Option<Refusal> {
    let refused = report.settings.as_ref()?.refused.clone()?;
    (refused.mark == settings.mark).then_some(Refusal { mark: refused.mark, by, words: refused.words })
}

/// Data gets more memory when every pod has it, not before: the kernel would end a server that takes what it has not.
fn within_memory<'a>(
    checked: &CheckedCluster,
    asked: Settings,
    good: &Settings,
    pods: impl Iterator<Item = &'a Pod>,
) -> Settings {
    let bytes = |settings: &Settings| settings.values.get(MAX_MEMORY)?.parse::<u64>().ok();
    let limits = checked.pods.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let limit = limits.and_then(|limits| Bytes::of_quantity(&limits.get("memory")?.0));
    let (Some(now), Some(then), Some(limit)) = (bytes(good), bytes(&asked), limit) else { return asked };
    let grows = now != 0 && (then == 0 || then > now);
    let mut present = pods.filter_map(memory_limit);
    if grows && present.any(|present| present < limit) {
        return with_setting(&asked, MAX_MEMORY, &now.to_string());
    }
    asked
}

/// What the server's container may take at this moment, as its machine says.
fn memory_limit(pod: &Pod) -> Option<Bytes> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let valkey = statuses.iter().find(|status| status.name == VALKEY_CONTAINER)?;
    Bytes::of_quantity(&valkey.resources.as_ref()?.limits.as_ref()?.get("memory")?.0)
}

/// What pods start with from now on: the wanted settings if every server that runs took them, else what they had.
///
/// Nobody who runs is nobody who took them. Only a cluster that never was may then start with them, since its first settings may
/// be the very reason why nobody runs.
pub fn start_with(
    settings: &WantedSettings,
    desired: Desired,
    topology: &Observation,
    before: &ClusterStatus,
) -> Settings {
    let WantedSettings { wanted, good, refused, release: _ } = settings;
    let staying = || topology.members.iter().filter(|(m, _)| desired.wants(**m) && !topology.going.contains(m));
    let anyone_unknown = staying().any(|(_, sighting)| matches!(sighting, Sighting::Unreachable));
    let reports: Vec<&NodeReport> = staying().filter_map(|(member, _)| topology.report(*member)).collect();
    // A sidecar that does not know of settings cannot be asked to try them.
    let mut marks = reports.iter().filter_map(|report| Some(report.settings.as_ref()?.mark.as_str()));
    let all_took_them =
        if reports.is_empty() { before.formed_at.is_none() } else { marks.all(|mark| mark == wanted.mark) };
    let proven = refused.is_none() && !anyone_unknown && all_took_them;
    if proven { wanted.clone() } else { good.clone() }
}

/// What a human has to put right, if a node refuses settings.
pub fn complaint(settings: &WantedSettings, names: &ChildNames, topology: &Observation) -> Option<String> {
    let WantedSettings { wanted, good, refused, release: _ } = settings;
    if let Some((by, words)) = refused {
        let node = names.pod(*by);
        let (field, value) = culprit(words, wanted).unwrap_or_else(|| ("spec.config".into(), "this".into()));
        return Some(format!(
            "{field}: {value} is refused by node {node}: {words}; every node keeps the settings that it had. Correct the value, \
             or leave it out for the default"
        ));
    }
    let refused = topology.reports().find_map(|(by, report)| refusal(by, report, good));
    let Refusal { by, words, .. } = refused?;
    Some(format!(
        "node {} refuses the settings that the others have: {words}. Correct the value, or have the pod made anew by deleting it",
        names.pod(by)
    ))
}

/// The field of the spec that the server complains about, and what it says there.
fn culprit(words: &str, settings: &Settings) -> Option<(String, String)> {
    let named = |name: &&String| words.contains(&format!("'{name}'")) || words.contains(&format!(" {name} "));
    let (name, value) = settings.values.get_key_value(settings.values.keys().find(named)?)?;
    let field = match name.as_str() {
        MAX_MEMORY => "spec.maxMemory".into(),
        "save" => "spec.persistence.rdb.save".into(),
        "appendonly" | "appendfsync" => "spec.persistence.aof".into(),
        name if name.starts_with("auto-aof-") => "spec.persistence.aof".into(),
        name if name.starts_with("min-replicas-") => "spec.replication".into(),
        name => format!("spec.config.{name}"),
    };
    Some((field, value.clone()))
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
