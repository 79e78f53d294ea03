//! Parameters of valkey.conf that the operator sets itself, and why nobody else may.

/// Why a parameter is ours, and what its author can do instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owned {
    pub why: &'static str,
    pub advice: &'static str,
}

struct Rule {
    /// Names; a `*` at the end stands for any rest.
    names: &'static [&'static str],
    owned: Owned,
}

const LEAVE_IT_OUT: &str = "Leave it out";

const RULES: &[Rule] = &[
    Rule {
        names: &["port", "bind", "protected-mode", "unixsocket*", "cluster-port"],
        owned: Owned { why: "is where clients, probes and the sidecar find the server", advice: LEAVE_IT_OUT },
    },
    Rule {
        names: &["tls-*"],
        owned: Owned { why: "belongs to the certificates that the operator makes", advice: "Set spec.tls instead" },
    },
    Rule {
        names: &["dir", "dbfilename", "appenddirname", "appendfilename"],
        owned: Owned {
            why: "is where the operator looks for a node's data before it lets it start",
            advice: LEAVE_IT_OUT,
        },
    },
    Rule {
        names: &["appendonly", "appendfsync", "auto-aof-*"],
        owned: Owned { why: "follows from the spec", advice: "Set spec.persistence.aof instead" },
    },
    Rule {
        names: &["save"],
        owned: Owned { why: "follows from the spec", advice: "Set spec.persistence.rdb.save instead" },
    },
    Rule {
        names: &["maxmemory"],
        owned: Owned { why: "must fit into the memory limit", advice: "Set spec.maxMemory instead" },
    },
    Rule {
        names: &["cluster-enabled", "cluster-config-file"],
        owned: Owned { why: "makes the node part of this cluster", advice: LEAVE_IT_OUT },
    },
    Rule {
        names: &["cluster-announce-*"],
        owned: Owned { why: "differs from pod to pod, and the sidecar sets it", advice: LEAVE_IT_OUT },
    },
    Rule {
        names: &["cluster-allow-replica-migration"],
        owned: Owned { why: "would let nodes change their shard behind the operator's back", advice: LEAVE_IT_OUT },
    },
    Rule {
        names: &["cluster-manual-failover-timeout"],
        owned: Owned {
            why: "is 2000, so that writes do not wait long for a handover that fails",
            advice: LEAVE_IT_OUT,
        },
    },
    Rule {
        names: &["cluster-slot-migration-log-max-len"],
        owned: Owned { why: "is short, since the operator reads the whole log with every look", advice: LEAVE_IT_OUT },
    },
    Rule {
        names: &["repl-diskless-sync"],
        owned: Owned { why: "follows from the spec", advice: "Set spec.replication.disklessSync instead" },
    },
    Rule {
        names: &["repl-diskless-sync-delay"],
        owned: Owned { why: "is 0, so that a replica is in sync as soon as it can be", advice: LEAVE_IT_OUT },
    },
    Rule {
        names: &["min-replicas-*", "min-slaves-*"],
        owned: Owned { why: "follows from the spec", advice: "Set spec.replication instead" },
    },
    Rule {
        names: &["primaryauth", "primaryuser", "masterauth", "masteruser", "requirepass", "user", "aclfile"],
        owned: Owned { why: "belongs to the users that the operator makes", advice: "Set spec.auth instead" },
    },
    Rule {
        names: &["replicaof", "slaveof"],
        owned: Owned { why: "is decided by the cluster, and moves with every failover", advice: LEAVE_IT_OUT },
    },
    Rule {
        names: &["daemonize", "pidfile", "supervised", "logfile"],
        owned: Owned { why: "would hide the server or its log from Kubernetes", advice: LEAVE_IT_OUT },
    },
    Rule {
        names: &["include", "rename-command", "loadmodule"],
        owned: Owned { why: "changes the server in ways that the operator cannot see", advice: LEAVE_IT_OUT },
    },
    Rule {
        names: &["enable-protected-configs", "enable-debug-command", "enable-module-command"],
        owned: Owned { why: "opens what can crash a server or take it over", advice: LEAVE_IT_OUT },
    },
    Rule {
        names: &["shutdown-on-sigterm", "shutdown-on-sigint", "shutdown-timeout"],
        owned: Owned {
            why: "belongs to the handover before a pod goes, which must have one owner",
            advice: LEAVE_IT_OUT,
        },
    },
];

pub fn owned(name: &str) -> Option<Owned> {
    let ours = |pattern: &&str| pattern.strip_suffix('*').map_or(name == *pattern, |start| name.starts_with(start));
    RULES.iter().find(|rule| rule.names.iter().any(ours)).map(|rule| rule.owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_covers_every_rest_and_a_plain_name_only_itself() {
        for ours in ["tls-port", "unixsocketperm", "unixsocket", "cluster-announce-ip", "save", "maxmemory"] {
            assert!(owned(ours).is_some(), "{ours}");
        }
        for theirs in
            ["maxmemory-policy", "cluster-node-timeout", "cluster-preferred-endpoint-type", "rdbcompression", "userx"]
        {
            assert_eq!(owned(theirs), None, "{theirs}");
        }
    }
}
