//! The Secrets of a cluster, from values that the operator has or makes.
//!
//! What comes out of here can be printed, being a plain Kubernetes object: apply it, do not log it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use secrecy::{ExposeSecret, SecretString};
use valkey_api::labels::Component;
use valkey_api::names::VALKEY_PORT;
use valkey_api::pki::Purpose;
use valkey_model::ShardIndex;

use crate::checked::{Access, CheckedCluster, Encryption};
use crate::children::{Owner, child_meta};
use crate::users::{APP, DEFAULT, Passwords, users_acl};

/// Keys of the Secret with the users.
pub const USERS_FILE: &str = "users.acl";
pub const USERS_ADMIN_PASSWORD: &str = "admin-password";
pub const USERS_REPLICATOR_PASSWORD: &str = "replication-password";

/// For the pods: the users that a server loads, and the two passwords that the sidecar itself shows.
pub fn users_secret(cluster: &CheckedCluster, owner: &Owner, passwords: &Passwords) -> Secret {
    let acl = users_acl(cluster, passwords);
    let data = [
        (USERS_FILE, acl.expose_secret()),
        (USERS_ADMIN_PASSWORD, passwords.admin.expose_secret()),
        (USERS_REPLICATOR_PASSWORD, passwords.replicator.expose_secret()),
    ];
    secret(owner, cluster.names.users_secret(), Component::Node, data.map(|(key, value)| (key.into(), value.into())))
}

/// For applications: everything to connect with, in single values and as one address.
pub fn connection_secret(cluster: &CheckedCluster, owner: &Owner, passwords: &Passwords, ca: Option<&str>) -> Secret {
    let (host, port) = (cluster.names.client_host(&owner.namespace), VALKEY_PORT.to_string());
    let (scheme, tls) = match cluster.encryption {
        Encryption::Tls => ("rediss", "true"),
        Encryption::Plain => ("redis", "false"),
    };
    let login = match &cluster.access {
        Access::Open => None,
        Access::Default(password) => Some((DEFAULT, password)),
        Access::App => Some((APP, &passwords.app)),
    };
    let before_host = login.map_or_else(String::new, |(user, password)| {
        format!("{}:{}@", percent_encoded(user), percent_encoded(password.expose_secret()))
    });
    let mut data = vec![
        ("uri", format!("{scheme}://{before_host}{host}:{port}")),
        ("host", host),
        ("port", port),
        ("tls", tls.to_owned()),
    ];
    if let Some((user, password)) = login {
        data.extend([("username", user.to_owned()), ("password", password.expose_secret().to_owned())]);
    }
    data.extend(ca.map(|ca| ("ca.crt", ca.to_owned())));
    let data = data.into_iter().map(|(key, value)| (key.to_owned(), value));
    secret(owner, cluster.names.connection_secret(), Component::Access, data)
}

/// One pod's certificate for one purpose.
#[derive(Debug)]
pub struct PodCertificate {
    pub pod: String,
    pub purpose: Purpose,
    /// The certificate and those between it and the root, as PEM.
    pub chain: String,
    pub key: SecretString,
}

/// Whom a pod trusts, as PEM.
#[derive(Debug, Clone)]
pub struct Trust {
    /// The CA of what Valkey's own clients and nodes show.
    pub tls_ca: String,
    /// The root of what operator and sidecars show each other.
    pub root: String,
}

/// The certificates of all pods of one shard; each sidecar picks its own.
pub fn shard_certs_secret(
    cluster: &CheckedCluster,
    owner: &Owner,
    shard: ShardIndex,
    certificates: &[PodCertificate],
    trust: &Trust,
) -> Secret {
    let pairs = certificates.iter().flat_map(|certificate| {
        let stem = format!("{}.{}", certificate.pod, certificate.purpose.as_str());
        let key = certificate.key.expose_secret().to_owned();
        [(format!("{stem}.crt"), certificate.chain.clone()), (format!("{stem}.key"), key)]
    });
    let trust = [("tls-ca.crt".into(), trust.tls_ca.clone()), ("root.crt".into(), trust.root.clone())];
    secret(owner, cluster.names.certs_secret(shard), Component::Certificates, pairs.chain(trust))
}

fn secret(
    owner: &Owner,
    name: String,
    component: Component,
    data: impl IntoIterator<Item = (String, String)>,
) -> Secret {
    let data: BTreeMap<_, _> = data.into_iter().map(|(key, value)| (key, ByteString(value.into_bytes()))).collect();
    Secret { metadata: child_meta(owner, name, component), data: Some(data), ..Default::default() }
}

/// Everything but letters, digits and `-._~`, so that any password can be part of an address.
fn percent_encoded(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
