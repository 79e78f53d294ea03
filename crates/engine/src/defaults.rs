//! What a server has for a setting that nobody set. It does not tell: `CONFIG SET` needs a value, so taking one back means
//! knowing it.
//!
//! The tables were made by asking servers that were started without any settings, in cluster mode.

use valkey_model::Version;

const V8_0: &str = include_str!("defaults/8.0.txt");
const V8_1: &str = include_str!("defaults/8.1.txt");
const V9_1: &str = include_str!("defaults/9.1.txt");

/// The default of a setting that can be changed while the server runs; `None` if it is not known for this version.
pub fn default_of(version: Version, name: &str) -> Option<&'static str> {
    let table = match (version.major, version.minor) {
        (8, 0) => V8_0,
        (8, 1) => V8_1,
        (9, _) => V9_1,
        _ => return None,
    };
    let mut settings = table.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
    settings.find(|(setting, _)| *setting == name).map(|(_, value)| value)
}

/// The newer one of a setting's two names: setting both at once is refused.
pub fn present_name(name: &str) -> String {
    match name {
        "lua-time-limit" => "busy-reply-threshold".into(),
        "slowlog-log-slower-than" => "commandlog-execution-slower-than".into(),
        "slowlog-max-len" => "commandlog-slow-execution-max-len".into(),
        name => name.replace("slave", "replica").replace("ziplist", "listpack"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_has_its_own_defaults() {
        for (version, name, value) in [
            (Version::new(8, 0, 3), "repl-backlog-size", Some("10485760")),
            (Version::new(8, 0, 3), "cluster-manual-failover-timeout", None),
            (Version::new(8, 1, 4), "cluster-manual-failover-timeout", Some("5000")),
            (Version::new(9, 0, 0), "cluster-slot-migration-log-max-len", Some("1000")),
            (
                Version::new(9, 1, 2),
                "client-output-buffer-limit",
                Some("normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"),
            ),
            (Version::new(9, 1, 2), "notify-keyspace-events", Some("")),
            (Version::new(9, 1, 2), "cluster-enabled", None),
            (Version::new(7, 2, 0), "hz", None),
        ] {
            assert_eq!(default_of(version, name), value, "{name} in {version}");
        }
    }

    #[test]
    fn both_names_of_a_setting_are_one() {
        for (old, new) in [
            ("slave-priority", "replica-priority"),
            ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
            ("slowlog-max-len", "commandlog-slow-execution-max-len"),
            ("maxmemory", "maxmemory"),
        ] {
            assert_eq!(present_name(old), new);
        }
    }
}
