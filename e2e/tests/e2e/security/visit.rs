//! Visitors without manners: they take every server for the right one, and see what it does with them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use e2e::secs;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme, SupportedProtocolVersion};
use secrecy::ExposeSecret;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Shown;

/// What somebody who connects speaks, and what he shows.
pub struct Visitor {
    pub version: &'static SupportedProtocolVersion,
    pub shows: Option<Shown>,
}

impl Visitor {
    /// Connects with TLS, says something, and returns the beginning of the answer. Silence is an empty one: whoever is
    /// not refused may wait for more.
    pub async fn visit(&self, address: SocketAddr, say: &[u8]) -> Result<Vec<u8>> {
        let config = Arc::new(self.config()?);
        let stream = TcpStream::connect(address).await?;
        let mut stream = TlsConnector::from(config).connect(ServerName::from(address.ip()), stream).await?;
        stream.write_all(say).await?;
        Ok(hear(&mut stream).await?)
    }

    fn config(&self) -> Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[self.version])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(provider)));
        let Some(Shown { chain, key }) = &self.shows else { return Ok(config.with_no_client_auth()) };
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes());
        Ok(config.with_client_auth_cert(chain.context("no chain")?, key.context("no key")?)?)
    }
}

/// The same without TLS.
pub async fn visit_in_plain_text(address: SocketAddr, say: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(say).await?;
    match hear(&mut stream).await {
        // Hung up on us without a word.
        Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            Ok(Vec::new())
        }
        heard => Ok(heard?),
    }
}

async fn hear(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut heard = vec![0; 256];
    let Ok(length) = timeout(secs(2), stream.read(&mut heard)).await else { return Ok(Vec::new()) };
    match length? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length => {
            heard.truncate(length);
            Ok(heard)
        }
    }
}

/// The first message of a client that knows no newer version than this one, such as 0x0302 for TLS 1.1.
pub fn hello(version: u16) -> Result<Vec<u8>> {
    let suites = [0xC02B_u16, 0xC009, 0xC00A]; // ECDHE with ECDSA: the one of TLS 1.2, then those of 1.0 and 1.1
    let groups_and_signatures = [
        0x000A_u16, 4, 2, 0x0017, // the group P-256
        0x000D, 4, 2, 0x0403, // signatures by ECDSA with it
    ];
    let wide = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
    let sized = |content: Vec<u8>| anyhow::Ok([wide(&[content.len().try_into()?]), content].concat());
    let body = [
        wide(&[version]),
        vec![7; 32], // should be random
        vec![0],     // no session
        sized(wide(&suites))?,
        vec![1, 0], // no compression
        sized(wide(&groups_and_signatures))?,
    ]
    .concat();
    let handshake = [vec![1, 0], sized(body)?].concat();
    Ok([vec![22, 3, 1], sized(handshake)?].concat())
}

#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
