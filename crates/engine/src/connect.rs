//! Ways to a server.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use redis::AsyncConnectionConfig;
use redis::RedisConnectionInfo;
use redis::aio::MultiplexedConnection;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::error::Error;

/// Who asks.
#[derive(Clone, Debug)]
pub struct Login {
    pub user: String,
    pub password: SecretString,
}

#[derive(Debug, thiserror::Error)]
pub enum PeerTlsError {
    #[error("no certificate can be read from {what} ({reason}): give PEM")]
    Certificates { what: &'static str, reason: String },
    #[error("no private key can be read: give it as PKCS #8 PEM")]
    Key,
    #[error("certificate and key cannot be used for TLS: {0}")]
    Pair(#[from] rustls::Error),
}

/// How nodes of one cluster recognise each other: by the cluster's own CA, which vouches for nobody else (F04).
#[derive(Clone)]
pub struct PeerTls(Arc<ClientConfig>);

impl PeerTls {
    /// `chain` and `key` are this node's own: peers want to see a certificate too.
    pub fn from_pem(ca: &[u8], chain: &[u8], key: &SecretString) -> Result<Self, PeerTlsError> {
        let mut roots = RootCertStore::empty();
        for root in certificates("the CA", ca)? {
            roots.add(root)?;
        }
        let chain = certificates("the chain", chain)?;
        let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes()).map_err(|_| PeerTlsError::Key)?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        Ok(Self(Arc::new(config)))
    }
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerTls").finish_non_exhaustive()
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PeerTlsError> {
    let unreadable = |reason| PeerTlsError::Certificates { what, reason };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| unreadable(format!("{error:?}")))?;
    if all.is_empty() { Err(unreadable("there is none".into())) } else { Ok(all) }
}

/// Where a server is, and how to talk to it.
#[derive(Clone, Copy, Debug)]
pub enum Route<'a> {
    /// The server of this pod.
    Socket(&'a Path),
    Plain(SocketAddr),
    /// By address, since names may not resolve when they are needed most (F06); the name is what its certificate must say.
    Tls {
        address: SocketAddr,
        name: &'a str,
        tls: &'a PeerTls,
    },
}

pub(crate) async fn connect(
    route: Route<'_>,
    login: &Login,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, Error> {
    match route {
        Route::Socket(path) => greet(UnixStream::connect(path).await?, login, config).await,
        Route::Plain(address) => greet(dial(address).await?, login, config).await,
        Route::Tls { address, name, tls } => {
            let name = ServerName::try_from(name.to_owned()).map_err(|error| Error::Broken(error.to_string()))?;
            let stream = TlsConnector::from(tls.0.clone()).connect(name, dial(address).await?).await?;
            greet(stream, login, config).await
        }
    }
}

async fn dial(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn greet<S>(stream: S, login: &Login, config: AsyncConnectionConfig) -> Result<MultiplexedConnection, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let who = RedisConnectionInfo::default()
        .set_username(&login.user)
        .set_password(login.password.expose_secret())
        .set_skip_set_lib_name();
    let (connection, driver) = MultiplexedConnection::new_with_config(&who, stream, config).await?;
    tokio::spawn(driver); // it ends when the last clone of the connection is dropped
    Ok(connection)
}
