//! The users that a server knows, as its `aclfile`.
//!
//! Only hashes of passwords are in it, but still it is handled like a secret: a weak password can be found from its hash.

use secrecy::{ExposeSecret, SecretString};

use crate::checked::{Access, CheckedCluster};
use crate::hash::sha256_hex;

/// The user of the sidecar, and through it of the operator.
pub const ADMIN: &str = "valkey-admin";
/// The user as which a server shows itself to another one: to follow it, and to send keys to it.
pub const REPLICATOR: &str = "replicator";
/// The user of applications, unless the spec gives `default` a password.
pub const APP: &str = "app";
/// The user that a client is who does not say who it is.
pub const DEFAULT: &str = "default";

/// The passwords that the operator makes.
#[derive(Debug, Clone)]
pub struct Passwords {
    pub admin: SecretString,
    pub replicator: SecretString,
    pub app: SecretString,
}

/// What the sidecar does: look, join, promote, move slots, configure, rotate. It can neither read nor write keys; `~*` is for
/// telling a server to move them.
const ADMIN_RULE: &str = "~* resetchannels -@all +ping +info +role +cluster +config|get +config|set +config|rewrite \
    +client|pause +client|unpause +client|list +client|kill +client|setname +client|setinfo +client|id +acl|setuser \
    +acl|deluser +acl|list +acl|getuser +acl|load +acl|save +acl|whoami +acl|users +bgsave +lastsave +wait +shutdown \
    +dbsize +migrate +replicaof +failover +hello +auth";

/// The last two are for keys that another node moves here: the sidecar passes this login on to the server that sends them, which
/// has it anyhow. The sidecar's own would give a server the rights of the operator.
const REPLICATOR_RULE: &str = "~* -@all +psync +replconf +ping +restore-asking +select";
/// With atomic slot migration the same user writes what another node sends; moving key by key is among the writes. Older
/// servers cannot read this rule.
const REPLICATOR_RULE_ATOMIC: &str =
    "~* -@all +psync +replconf +ping +cluster|syncslots +select +@write -flushall -flushdb";

/// Everything that applications do, and the harmless part of what is counted as dangerous. Not `CONFIG GET`: it would show the
/// password of the replication user.
const APP_RULE: &str = "~* &* +@all -@admin -@dangerous +info +role +keys +sort +flushdb +flushall";

/// The `aclfile`, one user per line.
pub fn users_acl(cluster: &CheckedCluster, passwords: &Passwords) -> SecretString {
    let replicator_rule =
        if cluster.series.migrates_slots_atomically() { REPLICATOR_RULE_ATOMIC } else { REPLICATOR_RULE };
    let mut lines = vec![
        default_user(&cluster.access),
        user(ADMIN, &passwords.admin, ADMIN_RULE),
        user(REPLICATOR, &passwords.replicator, replicator_rule),
    ];
    if let Access::App = cluster.access {
        lines.push(user(APP, &passwords.app, APP_RULE));
    }
    lines.push(String::new());
    lines.join("\n").into()
}

/// Even while off, the user keeps its rights: servers before 9.1.2 replay the transactions of their log as `default`, and
/// would drop them silently.
fn default_user(access: &Access) -> String {
    let how = match access {
        Access::Open => "on nopass".into(),
        Access::Default(password) => format!("on resetpass #{}", hash(password)),
        Access::App => "off resetpass".to_owned(),
    };
    format!("user {DEFAULT} {how} ~* &* +@all")
}

fn user(name: &str, password: &SecretString, rule: &str) -> String {
    format!("user {name} on #{} {rule}", hash(password))
}

fn hash(password: &SecretString) -> String {
    sha256_hex(password.expose_secret().as_bytes())
}

#[cfg(test)]
#[path = "users_tests.rs"]
mod tests;
