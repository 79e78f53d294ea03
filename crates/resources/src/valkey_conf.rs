//! valkey.conf, as far as it is the same for all pods of a cluster. The sidecar adds what is a pod's own: its addresses and
//! the credentials of replication.

use std::fmt::Write;
use std::time::Duration;

use valkey_api::names::VALKEY_PORT;

use crate::checked::{CheckedCluster, Encryption, Storage};
use crate::parameters::parameter;

/// Where the sidecar puts what the server reads, in memory: configuration, certificates, users, socket.
pub const RUN: &str = "/run/valkey";
pub const DATA: &str = "/data";

/// How long a node may be silent before the others call it dead.
pub const NODE_TIMEOUT_MS: u64 = 5000;

const LEAST_FORMING: Duration = Duration::from_secs(1);
const MOST_FORMING: Duration = Duration::from_secs(4);
const FORMING_PER_NODE: Duration = Duration::from_millis(100);

/// The cluster-wide part of valkey.conf.
pub fn valkey_conf(cluster: &CheckedCluster) -> String {
    let mut text =
        String::from("# Made by valkey-operator from the ValkeyCluster; what is changed here is put back.\n");
    for (name, value) in settings(cluster) {
        let _ = writeln!(text, "{name} {}", quoted(&value));
    }
    text
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

type Settings = Vec<(&'static str, String)>;

fn listeners(encryption: Encryption) -> Settings {
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

fn replication(cluster: &CheckedCluster) -> Settings {
    let replicating = cluster.replicating;
    vec![
        ("repl-diskless-sync", yes_no(replicating.diskless).into()),
        // Waiting for more replicas to share a copy costs seconds on every first sync.
        ("repl-diskless-sync-delay", "0".into()),
        ("min-replicas-to-write", replicating.min_replicas_to_write.to_string()),
        ("min-replicas-max-lag", replicating.min_replicas_max_lag.to_string()),
    ]
}

fn persistence(storage: Option<&Storage>) -> Settings {
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
