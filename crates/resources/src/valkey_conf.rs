//! valkey.conf, as far as it is the same for all pods of a cluster. The sidecar adds what is a pod's own: its addresses and
//! the credentials of replication.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use valkey_api::names::VALKEY_PORT;
use valkey_model::Settings;

use crate::checked::{CheckedCluster, Encryption, Storage};
use crate::hash::sha256_hex;
use crate::parameters::parameter;
use crate::series::Series;

/// Where the sidecar puts what the server reads, in memory: configuration, certificates, users, socket.
pub const RUN: &str = "/run/valkey";
pub const DATA: &str = "/data";

/// How long a node may be silent before the others call it dead.
pub const NODE_TIMEOUT_MS: u64 = 5000;

const LEAST_FORMING: Duration = Duration::from_secs(1);
const MOST_FORMING: Duration = Duration::from_secs(4);
const FORMING_PER_NODE: Duration = Duration::from_millis(100);

/// The cluster-wide part of valkey.conf. `live` is what every server took last: a value that one of them refuses never gets
/// here, so it cannot stop a pod at its start.
pub fn valkey_conf(cluster: &CheckedCluster, live: &Settings) -> String {
    let mut text =
        String::from("# Made by valkey-operator from the ValkeyCluster; what is changed here is put back.\n");
    for (name, value) in settings(cluster).into_iter().filter(|(name, _)| !is_live(cluster, name)) {
        let _ = writeln!(text, "{name} {}", quoted(&value));
    }
    text + &live.to_conf()
}

/// What the spec asks for of the settings that a running server takes.
pub fn live_settings(cluster: &CheckedCluster) -> Settings {
    marked(settings(cluster).into_iter().filter(|(name, _)| is_live(cluster, name)).collect())
}

/// Settings that servers took before, as far as those of the release that the spec asks for now take them as well.
pub fn carried_over(cluster: &CheckedCluster, taken: &Settings) -> Settings {
    let known: BTreeMap<_, _> = taken.values.clone().into_iter().filter(|(name, _)| is_live(cluster, name)).collect();
    if known == taken.values { taken.clone() } else { marked(known) }
}

/// The same settings with another value for one of them.
pub fn with_setting(settings: &Settings, name: &str, value: &str) -> Settings {
    let mut values = settings.values.clone();
    values.insert(name.to_owned(), value.to_owned());
    if values == settings.values { settings.clone() } else { marked(values) }
}

fn marked(values: BTreeMap<String, String>) -> Settings {
    let unmarked = Settings { mark: String::new(), values };
    Settings { mark: sha256_hex(unmarked.to_conf().as_bytes()).chars().take(16).collect(), ..unmarked }
}

/// Servers would take these while they run, but that is the business of others: the operator sets the time-out when the
/// cluster is whole, the sidecar loads certificates, and who moves a listener cuts everybody off.
const NOT_LIVE: [&str; 7] =
    ["cluster-node-timeout", "dir", "port", "protected-mode", "tls-*", "unixsocket*", "cluster-announce-*"];

fn is_live(cluster: &CheckedCluster, name: &str) -> bool {
    let excluded = |pattern: &str| pattern.strip_suffix('*').map_or(name == pattern, |start| name.starts_with(start));
    let taken = parameter(cluster.series, name).is_some_and(|parameter| !parameter.needs_restart);
    taken && !NOT_LIVE.iter().any(|pattern| excluded(pattern))
}

/// What a server that was never part of a cluster gets in addition: the operator sets the real value when the cluster is whole.
///
/// A cluster forms in about the time that its nodes need to believe in each other. But each node talks to all others, over
/// connections that it gives up after half of this time: if that is less than they need to make them all, they never end
/// making them anew (30 nodes on two cores with one second: 40 to 80 s instead of 22).
pub fn first_start_conf(cluster: &CheckedCluster) -> String {
    let nodes = u32::from(cluster.masters) * (u32::from(cluster.replicas_per_master) + 1);
    let forming = (FORMING_PER_NODE * nodes).clamp(LEAST_FORMING, MOST_FORMING).min(cluster.node_timeout());
    format!("cluster-node-timeout \"{}\"\n", forming.as_millis())
}

/// The part of the settings that a running server does not take: a change of it is a reason to restart.
pub fn restart_settings(cluster: &CheckedCluster) -> Vec<(String, String)> {
    let needs_restart = |name: &str| parameter(cluster.series, name).is_some_and(|parameter| parameter.needs_restart);
    settings(cluster).into_iter().filter(|(name, _)| needs_restart(name)).collect()
}

/// Ours in an order that reads well, then the user's by name. A name appears once: the user's word counts.
fn settings(cluster: &CheckedCluster) -> Vec<(String, String)> {
    let ours = [
        vec![
            ("cluster-enabled", "yes".into()),
            ("cluster-config-file", "nodes.conf".into()),
            ("dir", DATA.into()),
            ("cluster-node-timeout", NODE_TIMEOUT_MS.to_string()),
            // Nodes that change their shard by themselves would undo what the operator does.
            ("cluster-allow-replica-migration", "no".into()),
            // Names are in the certificates, addresses are not.
            ("cluster-preferred-endpoint-type", "hostname".into()),
        ],
        handover(cluster.series),
        listeners(cluster.encryption),
        vec![
            ("unixsocket", format!("{RUN}/valkey.sock")),
            ("unixsocketperm", "700".into()),
            ("aclfile", format!("{RUN}/users.acl")),
            // The users decide who may come in; this switch knows only addresses.
            ("protected-mode", "no".into()),
            ("shutdown-on-sigterm", "default".into()),
        ],
        replication(cluster),
        persistence(cluster.storage.as_ref()),
        vec![("maxmemory", cluster.max_memory.map_or(0, |bytes| bytes.0).to_string())],
    ];
    let ours = ours.into_iter().flatten().filter(|(name, _)| !cluster.config.contains_key(*name));
    let theirs = cluster.config.iter().map(|(name, value)| (name.clone(), value.clone()));
    ours.map(|(name, value)| (name.to_owned(), value)).chain(theirs).collect()
}

type Lines = Vec<(&'static str, String)>;

fn handover(series: Series) -> Lines {
    let mut settings = Vec::new();
    if series >= Series::V8_1 {
        // A handover that fails must end early: the primary takes no writes until then.
        settings.push(("cluster-manual-failover-timeout", "2000".into()));
    }
    if series >= Series::V9_0 {
        // The log of moves is read with every report.
        settings.push(("cluster-slot-migration-log-max-len", "50".into()));
    }
    settings
}

fn listeners(encryption: Encryption) -> Lines {
    let port = VALKEY_PORT.to_string();
    match encryption {
        Encryption::Plain => vec![("port", port)],
        Encryption::Tls => vec![
            ("port", "0".into()),
            ("tls-port", port),
            ("tls-replication", "yes".into()),
            ("tls-cluster", "yes".into()),
            ("tls-auth-clients", "optional".into()),
            ("tls-protocols", "TLSv1.2 TLSv1.3".into()),
            ("tls-cert-file", format!("{RUN}/tls.crt")),
            ("tls-key-file", format!("{RUN}/tls.key")),
            ("tls-ca-cert-file", format!("{RUN}/ca.crt")),
        ],
    }
}

fn replication(cluster: &CheckedCluster) -> Lines {
    let replicating = cluster.replicating;
    vec![
        ("repl-diskless-sync", yes_no(replicating.diskless).into()),
        // Waiting for more replicas to share a copy costs seconds on every first sync.
        ("repl-diskless-sync-delay", "0".into()),
        ("min-replicas-to-write", replicating.min_replicas_to_write.to_string()),
        ("min-replicas-max-lag", replicating.min_replicas_max_lag.to_string()),
    ]
}

fn persistence(storage: Option<&Storage>) -> Lines {
    let save = storage.and_then(|storage| storage.save.clone()).unwrap_or_default();
    let Some(log) = storage.and_then(|storage| storage.append_only.as_ref()) else {
        return vec![("save", save), ("appendonly", "no".into())];
    };
    let mut settings =
        vec![("save", save), ("appendonly", "yes".into()), ("appendfsync", log.fsync.as_str().to_owned())];
    settings.extend(log.rewrite_percentage.map(|percentage| ("auto-aof-rewrite-percentage", percentage.to_string())));
    settings.extend(log.rewrite_min_size.clone().map(|size| ("auto-aof-rewrite-min-size", size)));
    settings
}

const fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// A value as one argument. Valkey itself takes a list such as the save points apart again, so every value may be quoted.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
#[path = "valkey_conf_tests.rs"]
mod tests;
