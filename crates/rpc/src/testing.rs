//! Certificates for tests.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls_pki_types::CertificateDer;

use crate::tls::identity;
use crate::{Credentials, Refusal, Reloadable, ServerTls};

pub const OPERATOR: &str = "spiffe://test/ns/system/operator";
pub const POD: &str = "spiffe://test/ns/shop/cluster/orders/pod/orders-0-0";
pub const FOREIGN_POD: &str = "spiffe://test/ns/shop/cluster/others/pod/others-0-0";

pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Ca {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub fn issue(&self, uri: &str) -> Reloadable<Credentials> {
        Reloadable::new(self.credentials(uri, Duration::from_hours(1)))
    }

    /// Valid for so long from an hour ago on.
    pub fn credentials(&self, uri: &str, validity: Duration) -> Credentials {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = std::time::SystemTime::now().into();
        params.not_before -= Duration::from_mins(30);
        params.not_after = params.not_before + validity;
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        Credentials::from_pem(chain.as_bytes(), &key.serialize_pem().into(), self.pem.as_bytes()).unwrap()
    }
}

/// Lets in whoever carries this URI.
pub fn admitting(uri: &'static str) -> impl Fn(&CertificateDer<'_>) -> Result<(), Refusal> + Send + Sync + 'static {
    move |leaf| match identity(leaf) {
        Some(shown) if shown == uri => Ok(()),
        shown => Err(Refusal(format!("{shown:?} is not {uri}"))),
    }
}

pub fn server(credentials: &Reloadable<Credentials>, admitted: &'static str) -> ServerTls {
    ServerTls::new(credentials.clone(), admitting(admitted))
}
