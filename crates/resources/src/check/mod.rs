//! Everything about a spec that the API server's own rules cannot see, found in one go.

mod config;
mod memory;
mod metadata;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use secrecy::SecretString;
use valkey_api::cluster::{Aof, Auth, Persistence, Rdb, Replication, ValkeyClusterSpec, ValkeyImage};
use valkey_api::{ChildNames, ValkeyCluster, labels};
use valkey_model::{Member, Version};

use crate::amount::Bytes;
use crate::checked::{Access, AppendOnly, CheckedCluster, Encryption, Image, Pods, ReadAccess, Replicating, Storage};
use crate::series::Series;
use crate::spec_error::{SpecError, SpecErrors, SpecWarning};

/// What a spec refers to, as far as the operator found it.
#[derive(Debug, Default)]
pub struct References {
    pub auth_password: Reference,
    pub service_account: Presence,
}

/// One key of a Secret.
#[derive(Debug, Default)]
pub enum Reference {
    /// The spec names none.
    #[default]
    NotAsked,
    Missing,
    /// The Secret is there; the key is not, or it is empty.
    KeyMissing,
    Found(SecretString),
}

/// An object of which only the existence matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Presence {
    /// The spec names none.
    #[default]
    NotAsked,
    Missing,
    Found,
}

/// Reads a cluster's spec. All errors at once: nobody wants to fix a spec one message at a time.
pub fn check(cluster: &ValkeyCluster, references: &References) -> Result<CheckedCluster, SpecErrors> {
    let mut findings = Findings::default();
    let spec = &cluster.spec;
    let masters = findings.count("spec.masterCount", spec.master_count(), 1, 500);
    let replicas_per_master = findings.count("spec.replicasPerMaster", spec.replicas_per_master(), 0, 5);
    topology(spec, &mut findings);
    switchover(cluster, &mut findings);
    let series = series(&spec.valkey_image(), &mut findings);
    let checked = CheckedCluster {
        names: ChildNames::new(cluster.name_any()),
        masters,
        replicas_per_master,
        series,
        image: image(&spec.valkey_image()),
        sidecar: spec.sidecar_image.clone().unwrap_or_default(),
        encryption: if spec.tls_enabled() { Encryption::Tls } else { Encryption::Plain },
        access: access(&spec.auth(), &references.auth_password, &mut findings),
        storage: storage(&spec.persistence(), &mut findings),
        replicating: replicating(&spec.replication(), replicas_per_master, &mut findings),
        max_memory: memory::max_memory(spec, replicas_per_master, &mut findings),
        config: config::parameters(spec, series, &mut findings),
        pods: pods(spec, references.service_account, &mut findings),
        read_service: if spec.read_service_enabled() { ReadAccess::Service } else { ReadAccess::None },
        warnings: Vec::new(),
    };
    let Findings { errors, warnings } = findings;
    if errors.is_empty() { Ok(CheckedCluster { warnings, ..checked }) } else { Err(SpecErrors(errors)) }
}

/// A wish about who leads is no part of the spec, but a wrong one must be told as well.
fn switchover(cluster: &ValkeyCluster, findings: &mut Findings) {
    let Some(wish) = cluster.annotations().get(labels::SWITCHOVER) else { return };
    let name = cluster.name_any();
    if Member::of_pod(&name, wish.trim().trim_start_matches('!')).is_err() {
        let field = format!("metadata.annotations[{}]", labels::SWITCHOVER);
        let message = format!(
            "{wish} names no pod of this cluster, so nothing is switched over: name one such as {name}-0-1, which shall lead \
             its shard, or !{name}-0-0, which shall not"
        );
        findings.odd(field, message);
    }
}

/// What was noticed on the way.
#[derive(Debug, Default)]
struct Findings {
    errors: Vec<SpecError>,
    warnings: Vec<SpecWarning>,
}

impl Findings {
    fn wrong(&mut self, error: SpecError) {
        self.errors.push(error);
    }

    fn odd(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(SpecWarning::new(field, message));
    }

    /// A number that the API server has checked already, unless the object is older than its rules.
    fn count(&mut self, field: &str, value: i32, least: u16, most: u16) -> u16 {
        let good = u16::try_from(value).ok().filter(|value| (least..=most).contains(value));
        good.unwrap_or_else(|| {
            let why = format!("is not between {least} and {most}");
            self.wrong(SpecError::new(field, value.to_string(), why, "Choose a number in between"));
            least
        })
    }
}

fn topology(spec: &ValkeyClusterSpec, findings: &mut Findings) {
    let masters = spec.master_count();
    if masters == 2 || (masters == 1 && !spec.allows_unsafe_topology()) {
        findings.wrong(SpecError::new(
            "spec.masterCount",
            masters.to_string(),
            "primaries cannot agree on a failover",
            "Set 3 or more, or 1 together with allowUnsafeTopology: true",
        ));
    }
}

fn series(image: &ValkeyImage, findings: &mut Findings) -> Series {
    let (field, tag) = ("spec.valkeyImage.tag", image.tag());
    let Ok(version) = tag.parse::<Version>() else {
        findings.odd(
            field,
            format!("{tag} does not begin with a version, so the image is taken for Valkey {}", Series::NEWEST),
        );
        return Series::NEWEST;
    };
    let Some(series) = Series::of(version) else {
        findings.wrong(SpecError::new(
            field,
            tag,
            "is not a supported release",
            format!("Choose one of {}", Series::ALL.map(Series::as_str).join(", ")),
        ));
        return Series::NEWEST;
    };
    // A tag such as 9.1 moves, so its missing patch number says nothing.
    let says_patch = tag.split(['-', '+', '_']).next().is_some_and(|number| number.matches('.').count() == 2);
    if says_patch && version < series.floor() {
        findings.odd(field, format!("{tag} has known ways to lose data; use {} or newer", series.floor()));
    }
    series
}

fn image(image: &ValkeyImage) -> Image {
    Image {
        reference: format!("{}:{}", image.name(), image.tag()),
        pull_policy: image.pull_policy,
        pull_secrets: image.image_pull_secrets.iter().flatten().map(|secret| secret.name.clone()).collect(),
    }
}

fn access(auth: &Auth, password: &Reference, findings: &mut Findings) -> Access {
    if !auth.enabled() {
        findings.odd("spec.auth.enabled", "false lets everybody in who reaches the cluster; set it to true");
        return Access::Open;
    }
    let Some(secret) = &auth.secret_ref else { return Access::App };
    let (field, name, key) = ("spec.auth.secretRef", &secret.name, secret.key());
    match password {
        Reference::Found(password) => return Access::Default(password.clone()),
        Reference::NotAsked | Reference::Missing => findings.wrong(SpecError::new(
            field,
            format!("Secret {name}"),
            "does not exist in the cluster's namespace",
            format!("Create it with the password under the key {key}, or leave secretRef out to have one generated"),
        )),
        Reference::KeyMissing => findings.wrong(SpecError::new(
            field,
            format!("Secret {name}"),
            format!("has nothing under the key {key}"),
            format!("Put the password there, or name the right key in {field}.key"),
        )),
    }
    Access::App
}

fn storage(persistence: &Persistence, findings: &mut Findings) -> Option<Storage> {
    if !persistence.enabled() {
        return None;
    }
    let size = persistence.size();
    if Bytes::of_quantity(size).is_none_or(|bytes| bytes == Bytes(0)) {
        findings.wrong(SpecError::new("spec.persistence.size", size, "is not a size", "Write it as in 10Gi"));
    }
    Some(Storage {
        size: Quantity(size.into()),
        class: persistence.storage_class_name.clone(),
        retain: persistence.retain(),
        save: save_points(&persistence.rdb(), findings),
        append_only: append_only(&persistence.aof(), findings),
    })
}

fn save_points(rdb: &Rdb, findings: &mut Findings) -> Option<String> {
    let save = rdb.enabled().then(|| rdb.save())?;
    let numbers: Vec<_> = save.split(' ').map(str::parse::<u32>).collect();
    let good = numbers.len().is_multiple_of(2) && numbers.iter().all(Result::is_ok);
    let every_zero_seconds = numbers.iter().step_by(2).any(|seconds| seconds == &Ok(0));
    if !good || every_zero_seconds {
        findings.wrong(SpecError::new(
            "spec.persistence.rdb.save",
            format!("{save:?}"),
            "is not pairs of seconds and changes",
            "Write it as in 3600 1 300 100, or set rdb.enabled: false",
        ));
    }
    Some(save.into())
}

fn append_only(aof: &Aof, findings: &mut Findings) -> Option<AppendOnly> {
    if !aof.enabled() {
        return None;
    }
    if let Some(size) = aof.auto_aof_rewrite_min_size.as_deref().filter(|size| Bytes::of_valkey(size).is_none()) {
        let field = "spec.persistence.aof.autoAofRewriteMinSize";
        findings.wrong(SpecError::new(field, size, "is not a size", "Write it as in 64mb"));
    }
    let rewrite_percentage = aof.auto_aof_rewrite_percentage.and_then(|percentage| {
        let good = u32::try_from(percentage).ok();
        if good.is_none() {
            let field = "spec.persistence.aof.autoAofRewritePercentage";
            findings.wrong(SpecError::new(field, percentage.to_string(), "is negative", "Set 0 or more"));
        }
        good
    });
    let (fsync, rewrite_min_size) = (aof.appendfsync(), aof.auto_aof_rewrite_min_size.clone());
    Some(AppendOnly { fsync, rewrite_percentage, rewrite_min_size })
}

fn replicating(replication: &Replication, replicas: u16, findings: &mut Findings) -> Replicating {
    let field = "spec.replication.minReplicasToWrite";
    let wanted = replication.min_replicas_to_write();
    if wanted > i32::from(replicas) {
        findings.wrong(SpecError::new(
            field,
            wanted.to_string(),
            format!("is more than the {replicas} of replicasPerMaster, so every write would be refused"),
            "Lower it or add replicas",
        ));
    }
    Replicating {
        diskless: replication.diskless_sync(),
        min_replicas_to_write: findings.count(field, wanted, 0, 5),
        min_replicas_max_lag: findings.count(
            "spec.replication.minReplicasMaxLag",
            replication.min_replicas_max_lag(),
            1,
            3600,
        ),
    }
}

fn pods(spec: &ValkeyClusterSpec, service_account: Presence, findings: &mut Findings) -> Pods {
    if let (Some(name), Presence::Missing) = (&spec.service_account_name, service_account) {
        findings.wrong(SpecError::new(
            "spec.serviceAccountName",
            name,
            "does not exist in the cluster's namespace",
            "Create that ServiceAccount, or leave the field out",
        ));
    }
    memory::resources(spec, findings);
    metadata::labels(spec, findings);
    metadata::annotations(spec, findings);
    Pods {
        resources: spec.resources.clone(),
        pod_anti_affinity: spec.pod_anti_affinity.clone().unwrap_or_default(),
        pod_affinity: spec.pod_affinity.clone(),
        node_affinity: spec.node_affinity.clone(),
        node_selector: spec.node_selector.clone(),
        tolerations: spec.tolerations.clone(),
        topology_spread_constraints: spec.topology_spread_constraints.clone().unwrap_or_default(),
        priority_class_name: spec.priority_class_name.clone(),
        service_account_name: spec.service_account_name.clone(),
        labels: spec.labels.clone().unwrap_or_default(),
        annotations: spec.annotations.clone().unwrap_or_default(),
        security_context: spec.security_context.clone(),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
