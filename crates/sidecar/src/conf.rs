//! valkey.conf: what the operator wrote for all pods, and what this pod adds.

use std::fmt::Write;

use secrecy::{ExposeSecret, SecretString};

use crate::pod::Pod;

/// The user as which a server shows itself to another one.
pub const REPLICATOR: &str = "replicator";
const DEFAULT_PORT: u16 = 6379;

/// Where the server listens, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    Plain(u16),
    Tls(u16),
}

impl Listener {
    pub fn port(self) -> u16 {
        match self {
            Self::Plain(port) | Self::Tls(port) => port,
        }
    }
}

/// The text for all pods with this pod's own lines at its end, where they win.
pub fn for_pod(common: &str, pod: &Pod, replication_password: &SecretString) -> SecretString {
    let mut text = common.trim_end().to_owned();
    let mut add = |name: &str, value: &str| {
        let _ = write!(text, "\n{name} {}", quoted(value)); // writing to a String cannot fail
    };
    add("cluster-announce-ip", &pod.ip.to_string());
    add("cluster-announce-hostname", &pod.host());
    add("cluster-announce-human-nodename", &pod.name);
    for (name, value) in replication(replication_password) {
        add(name, value);
    }
    text.push('\n');
    text.into()
}

/// How a replica logs in at its primary.
pub fn replication(password: &SecretString) -> [(&'static str, &str); 2] {
    [("primaryuser", REPLICATOR), ("primaryauth", password.expose_secret())]
}

pub fn listener(text: &str) -> Listener {
    let port = |name| setting(text, name).and_then(|value| value.parse().ok());
    match port("tls-port") {
        Some(0) | None => Listener::Plain(port("port").unwrap_or(DEFAULT_PORT)),
        Some(port) => Listener::Tls(port),
    }
}

/// Whether every write goes to disk.
pub fn logs_writes(text: &str) -> bool {
    setting(text, "appendonly").is_some_and(|value| value.eq_ignore_ascii_case("yes"))
}

/// Whether the data goes to disk from time to time. Without it a snapshot on disk is a leftover of somebody else's data: the
/// server wrote it down while it copied its primary.
pub fn saves_snapshots(text: &str) -> bool {
    setting(text, "save").is_none_or(|value| !value.is_empty())
}

/// Whether a snapshot of a newer format is read as far as it goes.
pub fn ignores_format(text: &str) -> bool {
    setting(text, "rdb-version-check").is_some_and(|value| value.eq_ignore_ascii_case("relaxed"))
}

/// The value of a setting; of several lines the last one counts.
fn setting<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
    let value = lines.rfind(|(key, _)| key.eq_ignore_ascii_case(name))?.1;
    Some(value.trim().trim_matches('"'))
}

/// As Valkey reads it: in quotes, with what would end them escaped.
fn quoted(value: &str) -> String {
    let escaped = value.chars().fold(String::new(), |mut escaped, letter| {
        match letter {
            '"' | '\\' => escaped.extend(['\\', letter]),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            letter => escaped.push(letter),
        }
        escaped
    });
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::tests::pod;

    const COMMON: &str = "cluster-enabled \"yes\"\ncluster-node-timeout \"5000\"\nport \"0\"\ntls-port \"6379\"\n";

    #[test]
    fn a_pods_own_lines_come_last() {
        let text = for_pod(COMMON, &pod(), &"a\"b\\c".to_owned().into());
        let lines: Vec<_> = text.expose_secret().lines().skip(4).collect();
        assert_eq!(
            lines,
            [
                "cluster-announce-ip \"10.0.0.7\"",
                "cluster-announce-hostname \"orders-2-1.orders-nodes.shop.svc\"",
                "cluster-announce-human-nodename \"orders-2-1\"",
                "primaryuser \"replicator\"",
                "primaryauth \"a\\\"b\\\\c\"",
            ]
        );
    }

    #[test]
    fn where_the_server_listens_is_read_from_its_configuration() {
        assert_eq!(listener(COMMON), Listener::Tls(6379));
        assert_eq!(listener("port 7000\ntls-port 0\n"), Listener::Plain(7000));
        assert_eq!(listener("# nothing\n"), Listener::Plain(6379));
    }

    #[test]
    fn writes_are_logged_only_if_the_last_line_says_so() {
        assert!(logs_writes("appendonly \"yes\"\n"));
        assert!(!logs_writes("appendonly yes\nappendonly no\n"));
        assert!(!logs_writes("appendonlydir x\n"));
    }
}
