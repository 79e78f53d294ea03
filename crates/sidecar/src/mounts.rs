//! What the operator gives us by mounts. Kubernetes replaces the files while we run.

use std::io;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use valkey_engine::Login;

use crate::conf::REPLICATOR;
use crate::files::named;

/// The user of the sidecar.
const ADMIN: &str = "valkey-admin";

#[derive(Clone, Debug)]
pub struct Mounts {
    config: PathBuf,
    users: PathBuf,
    certs: PathBuf,
    pod: String,
}

/// A certificate with its way to the root, its key, and whom to trust. All PEM.
#[derive(Clone, Debug)]
pub struct Keypair {
    pub chain: String,
    pub key: SecretString,
    pub ca: String,
}

impl Keypair {
    /// Whether it is the same certificate under the same roof. A new key always comes with a new certificate.
    pub fn is_like(&self, other: &Self) -> bool {
        self.chain == other.chain && self.ca == other.ca
    }
}

impl Mounts {
    pub fn new(root: &Path, pod: &str) -> Self {
        let [config, users, certs] = ["config", "users", "certs"].map(|folder| root.join(folder));
        Self { config, users, certs, pod: pod.to_owned() }
    }

    /// The part of valkey.conf that is the same for all pods.
    pub fn valkey_conf(&self) -> io::Result<String> {
        text(&self.config.join("valkey.conf"))
    }

    /// What is added to it for a server that was never part of a cluster.
    pub fn first_start_conf(&self) -> io::Result<String> {
        text(&self.config.join("first-start.conf"))
    }

    pub fn users(&self) -> io::Result<SecretString> {
        Ok(text(&self.users.join("users.acl"))?.into())
    }

    pub fn login(&self) -> io::Result<Login> {
        let password = self.password("admin-password")?;
        Ok(Login { user: ADMIN.into(), password })
    }

    /// As whom a server shows itself to another one, to follow it or to send keys to it.
    pub fn replication_login(&self) -> io::Result<Login> {
        Ok(Login { user: REPLICATOR.into(), password: self.replication_password()? })
    }

    pub fn replication_password(&self) -> io::Result<SecretString> {
        self.password("replication-password")
    }

    /// For Valkey's own connections.
    pub fn tls(&self) -> io::Result<Keypair> {
        self.keypair("tls", "tls-ca.crt")
    }

    /// For the connection between operator and sidecar.
    pub fn mtls(&self) -> io::Result<Keypair> {
        self.keypair("mtls", "root.crt")
    }

    fn password(&self, name: &str) -> io::Result<SecretString> {
        Ok(text(&self.users.join(name))?.trim_end_matches('\n').to_owned().into())
    }

    fn keypair(&self, purpose: &str, ca: &str) -> io::Result<Keypair> {
        let of_pod = |kind: &str| text(&self.certs.join(format!("{}.{purpose}.{kind}", self.pod)));
        Ok(Keypair { chain: of_pod("crt")?, key: of_pod("key")?.into(), ca: text(&self.certs.join(ca))? })
    }
}

fn text(path: &Path) -> io::Result<String> {
    std::fs::read_to_string(path).map_err(|error| named(path, &error))
}
