//! The webhook's own certificate: from the operator's root, made by each process for itself.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::ExposeSecret;
use valkey_pki::{Authority, LeafRequest, Validity};
use valkey_rpc::Reloadable;

/// What new connections are served with.
#[derive(Clone, Debug)]
pub struct WebhookTls(Reloadable<Arc<ServerConfig>>);

impl WebhookTls {
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self(Reloadable::new(config))
    }

    pub fn get(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.get())
    }

    pub fn replace(&self, config: Arc<ServerConfig>) {
        self.0.replace(config);
    }
}

/// A new certificate for the webhook's Service.
pub fn certificate(root: &Authority, namespace: &str) -> Result<Arc<ServerConfig>> {
    let service = format!("valkey-operator-webhook.{namespace}.svc");
    let request = LeafRequest {
        common_name: "valkey-operator-webhook".into(),
        dns_names: vec![service],
        ip_addresses: Vec::new(),
        uri: None,
        validity: Validity::LEAF,
    };
    let leaf = root.issue(&request, Timestamp::now()).context("the webhook's certificate cannot be made")?;
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(leaf.chain_pem.as_bytes()).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(leaf.key.expose_secret().as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}
