//! Mutual TLS 1.3: both sides show a certificate that the root vouches for, and both check the identity in it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, OtherError, RootCertStore, ServerConfig,
    SignatureScheme,
};
use secrecy::{ExposeSecret, SecretString};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::Reloadable;

pub(crate) const HTTP1: &[u8] = b"http/1.1";
pub(crate) const HTTP2: &[u8] = b"h2";

/// What one side shows, and whom it believes.
pub struct Credentials {
    key: Arc<CertifiedKey>,
    roots: Arc<RootCertStore>,
}

#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("no certificate can be read ({0}): give the leaf and its intermediates as PEM")]
    Chain(String),
    #[error("no private key can be read: give it as PKCS #8 PEM")]
    Key,
    #[error("certificate and key cannot be used together ({0}): give the key that the certificate was made for")]
    Pair(rustls::Error),
    #[error("no root certificate can be read ({0}): give at least one as PEM")]
    Roots(String),
}

impl Credentials {
    /// `chain` is the leaf and what leads to a root, `roots` are those that the other side's certificate must lead to. More
    /// than one root is how a root is rotated.
    pub fn from_pem(chain: &[u8], key: &SecretString, roots: &[u8]) -> Result<Self, CredentialsError> {
        let chain = certificates(chain).map_err(CredentialsError::Chain)?;
        let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes()).map_err(|_| CredentialsError::Key)?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(CredentialsError::Pair)?;
        let mut store = RootCertStore::empty();
        for root in certificates(roots).map_err(CredentialsError::Roots)? {
            store.add(root).map_err(|error| CredentialsError::Roots(error.to_string()))?;
        }
        Ok(Self { key: Arc::new(key), roots: Arc::new(store) })
    }

    /// The certificate that this side shows.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.key.cert.first()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("roots", &self.roots.len()).finish_non_exhaustive()
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|e| format!("{e:?}"))?;
    if all.is_empty() { Err("there is none".into()) } else { Ok(all) }
}

/// Why somebody with a valid certificate is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// How many were not let in. Every clone counts the same.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<AtomicU64>);

impl Refusals {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
    #[error("clients cannot be verified ({0}): check the root certificate")]
    Verifier(#[from] VerifierBuilderError),
}

type Admit = dyn Fn(&CertificateDer<'_>) -> Result<(), Refusal> + Send + Sync;

/// The serving side. Whoever connects needs a certificate that leads to the root, and `admit` must agree with it.
#[derive(Clone)]
pub struct ServerTls {
    credentials: Reloadable<Credentials>,
    admit: Arc<Admit>,
    pub refusals: Refusals,
}

impl ServerTls {
    /// `admit` sees a client's certificate after its chain was verified.
    pub fn new(
        credentials: Reloadable<Credentials>,
        admit: impl Fn(&CertificateDer<'_>) -> Result<(), Refusal> + Send + Sync + 'static,
    ) -> Self {
        Self { credentials, admit: Arc::new(admit), refusals: Refusals::default() }
    }

    /// Counts where somebody else looks too.
    #[must_use]
    pub fn counting(self, refusals: Refusals) -> Self {
        Self { refusals, ..self }
    }

    /// Made anew for each connection, so that what was reloaded counts from the next one on.
    pub(crate) fn config(&self, protocol: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
        let credentials = self.credentials.get();
        let provider = Arc::new(ring::default_provider());
        let chain = WebPkiClientVerifier::builder_with_provider(credentials.roots.clone(), provider.clone()).build()?;
        let verifier = Arc::new(AdmittedClients { chain, admit: self.admit.clone() });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(credentials.key.clone())));
        config.alpn_protocols = vec![protocol.to_vec()];
        config.send_tls13_tickets = 0; // a resumed session would skip the check of who it is
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("refusals", &self.refusals).finish_non_exhaustive()
    }
}

/// The calling side: the server must be exactly `expected`, whatever its address is.
pub(crate) fn client_config(
    credentials: &Credentials,
    expected: &str,
    protocol: &[u8],
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier =
        ExpectedServer { roots: credentials.roots.clone(), expected: expected.to_owned(), provider: provider.clone() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(credentials.key.clone())));
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Clients whose chain is valid and whose identity is welcome.
struct AdmittedClients {
    chain: Arc<dyn ClientCertVerifier>,
    admit: Arc<Admit>,
}

impl fmt::Debug for AdmittedClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmittedClients").finish_non_exhaustive()
    }
}

impl ClientCertVerifier for AdmittedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.chain.verify_client_cert(leaf, intermediates, now)?;
        (self.admit)(leaf).map_err(refused)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// A server whose chain is valid and that is the one we mean. Not by DNS name: pods are called by their address, and an
/// address says nothing about who answers there (F04).
#[derive(Debug)]
struct ExpectedServer {
    roots: Arc<RootCertStore>,
    expected: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ExpectedServer {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let parsed = ParsedCertificate::try_from(leaf)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        match identity(leaf) {
            Some(uri) if uri == self.expected => Ok(ServerCertVerified::assertion()),
            Some(uri) => Err(refused(Refusal(format!("{uri} answers where {} was expected", self.expected)))),
            None => Err(refused(Refusal(format!("nobody with an identity answers for {}", self.expected)))),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 was not offered".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn refused(refusal: Refusal) -> rustls::Error {
    CertificateError::Other(OtherError(Arc::new(refusal))).into()
}

/// The one URI of a certificate. Two would be two identities, so none.
pub(crate) fn identity(leaf: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let mut uris = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    });
    let first = uris.next()?;
    uris.next().is_none().then_some(first)
}
