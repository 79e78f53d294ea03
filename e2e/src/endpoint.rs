//! Where a Valkey cluster is, and how to get in.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, TlsCertificates,
};
use secrecy::{ExposeSecret, SecretString};

use crate::dns::ClusterDns;

/// How long a single node may take to accept a connection, a TLS handshake on a busy machine included.
const CONNECT: Duration = Duration::from_secs(1);

/// A way into a cluster: some of its nodes, a user, and whom to trust.
///
/// The password and the key are secret types: printing an endpoint shows neither.
#[derive(Clone, Debug, Default)]
pub struct Endpoint {
    /// Some nodes, or a Service in front of them. The rest of the cluster is learned from them.
    pub seeds: Vec<Host>,
    /// Who knows the names in the seeds and in what the cluster answers. Needed only if there are any.
    pub dns: Option<ClusterDns>,
    /// `None` is the default user.
    pub username: Option<String>,
    pub password: Option<SecretString>,
    /// The certificate authority of the servers. Its presence turns TLS on.
    pub ca_pem: Option<String>,
    /// A certificate of our own, for servers that ask for one.
    pub identity: Option<Identity>,
}

/// A name or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host {
    pub name: String,
    pub port: u16,
}

impl Host {
    pub fn new(name: impl Into<String>, port: u16) -> Self {
        Self { name: name.into(), port }
    }
}

impl From<SocketAddr> for Host {
    fn from(address: SocketAddr) -> Self {
        Self::new(address.ip().to_string(), address.port())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

impl FromStr for Host {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, port) = text.rsplit_once(':').with_context(|| format!("{text} has no port"))?;
        ensure!(!name.is_empty() && name != "?", "{text} has no name");
        Ok(Self::new(name, port.parse()?))
    }
}

/// A client certificate with its key, both PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certificate: String,
    pub key: SecretString,
}

impl Endpoint {
    /// A cluster without TLS and without a password.
    pub fn plain(seeds: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self { seeds: seeds.into_iter().map(Host::from).collect(), ..Self::default() }
    }

    /// A cluster client that knows these seeds; the caller sets its patience.
    pub(crate) fn cluster(&self, seeds: &[Host]) -> ClusterClientBuilder {
        let addresses = seeds.iter().map(|seed| self.address(seed));
        let mut builder = ClusterClient::builder(addresses).connection_timeout(CONNECT).tcp_settings(tcp());
        if let Some(dns) = self.dns {
            builder = builder.async_dns_resolver(dns);
        }
        if let Some(username) = &self.username {
            builder = builder.username(username);
        }
        if let Some(password) = &self.password {
            builder = builder.password(password.expose_secret());
        }
        match self.certificates() {
            Some(certificates) => builder.certs(certificates),
            None => builder,
        }
    }

    /// A connection to one node, for commands that are meant for it alone.
    pub async fn node(&self, node: impl Into<Host>, patience: Duration) -> Result<MultiplexedConnection> {
        let node = node.into();
        let mut config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(patience)).set_response_timeout(Some(patience));
        if let Some(dns) = self.dns {
            config = config.set_dns_resolver(dns);
        }
        self.client(&node)?
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .with_context(|| format!("cannot connect to the Valkey node {node}"))
    }

    fn client(&self, node: &Host) -> Result<Client> {
        let mut login = RedisConnectionInfo::default();
        if let Some(username) = &self.username {
            login = login.set_username(username);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password.expose_secret());
        }
        let info: ConnectionInfo = self.address(node).into_connection_info()?;
        let info = info.set_redis_settings(login).set_tcp_settings(tcp());
        Ok(match self.certificates() {
            Some(certificates) => Client::build_with_tls(info, certificates)?,
            None => Client::open(info)?,
        })
    }

    fn address(&self, node: &Host) -> ConnectionAddr {
        let Host { name: host, port } = node.clone();
        match self.ca_pem {
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, port),
        }
    }

    fn certificates(&self) -> Option<TlsCertificates> {
        let root_cert = Some(self.ca_pem.as_ref()?.clone().into_bytes());
        let client_tls = self.identity.as_ref().map(|identity| ClientTlsConfig {
            client_cert: identity.certificate.clone().into_bytes(),
            client_key: identity.key.expose_secret().as_bytes().to_vec(),
        });
        Some(TlsCertificates { client_tls, root_cert })
    }
}

/// Without Nagle's algorithm, which would add 40 ms of its own to what we measure. And a connection that we give up
/// is cut, not drained: what it has not delivered yet must not arrive later.
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true).set_linger_time(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_can_be_printed_without_giving_its_secrets_away() {
        let identity = Identity { certificate: String::new(), key: "hidden-key".into() };
        let endpoint = Endpoint {
            username: Some("orders".into()),
            password: Some("hidden-word".into()),
            identity: Some(identity),
            ..Endpoint::plain(["127.0.0.1:6379".parse().unwrap()])
        };
        let printed = format!("{endpoint:?} {:?}", endpoint.cluster(&endpoint.seeds).build().unwrap());
        assert!(printed.contains("orders") && !printed.contains("hidden"), "{printed}");
    }
}
