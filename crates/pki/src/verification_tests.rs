//! What is issued here, judged by somebody else's verifier: the one that the operator and the sidecars use.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, RootCertStore};
use secrecy::{ExposeSecret, SecretString};

use crate::*;

pub(crate) fn now() -> Timestamp {
    "2026-03-01T12:00:00.75Z".parse().unwrap()
}

pub(crate) fn root() -> Authority {
    Authority::root("valkey-operator root", Validity::ROOT, now()).unwrap()
}

pub(crate) fn intermediate(root: &Authority, name: &str) -> Intermediate {
    Intermediate::new(root, name, Validity::INTERMEDIATE, now()).unwrap()
}

pub(crate) fn request() -> LeafRequest {
    let domain = "valkey.local".parse().unwrap();
    LeafRequest {
        common_name: "orders-0-0".into(),
        dns_names: vec!["orders-0-0.orders.shop.svc".into(), "localhost".into()],
        ip_addresses: vec!["10.1.2.3".parse().unwrap(), "fd00::1".parse().unwrap()],
        uri: Some(SpiffeId::pod(&domain, "shop", "orders", "orders-0-0").unwrap()),
        validity: Validity::LEAF,
    }
}

/// A CA that somebody else has made, with the library as it is.
pub(crate) struct Brought {
    pub params: CertificateParams,
    pub key: KeyPair,
    pub pem: String,
}

impl Brought {
    pub fn new(common_name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CountryName, "DE");
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { params, key: KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap(), pem: String::new() }
    }

    pub fn signed_by(mut self, issuer: Option<&Self>) -> Self {
        let certificate = match issuer {
            Some(issuer) => self.params.signed_by(&self.key, &Issuer::from_params(&issuer.params, &issuer.key)),
            None => self.params.self_signed(&self.key),
        };
        self.pem = certificate.unwrap().pem();
        self
    }

    pub fn key_pem(&self) -> SecretString {
        self.key.serialize_pem().into()
    }

    pub fn der(&self) -> CertificateDer<'static> {
        certificates_from_pem(self.pem.as_bytes()).unwrap().remove(0)
    }

    pub fn load(&self) -> Result<Authority, Error> {
        Authority::load(self.pem.as_bytes(), &self.key_pem())
    }
}

/// As a server and as a client, by whoever trusts `anchors`.
fn verify(leaf: &Leaf, anchors: &[&CertificateDer<'static>], name: &str, at: Timestamp) -> Result<(), rustls::Error> {
    let mut store = RootCertStore::empty();
    for anchor in anchors {
        store.add((*anchor).clone()).unwrap();
    }
    let (store, provider) = (Arc::new(store), Arc::new(ring::default_provider()));
    let chain = certificates_from_pem(leaf.chain_pem.as_bytes()).unwrap();
    let (leaf, above) = chain.split_first().unwrap();
    let time = UnixTime::since_unix_epoch(at.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs());
    let name = ServerName::try_from(name.to_owned()).unwrap();

    let server = WebPkiServerVerifier::builder_with_provider(store.clone(), provider.clone()).build().unwrap();
    server.verify_server_cert(leaf, above, &name, &[], time)?;
    let client = WebPkiClientVerifier::builder_with_provider(store, provider).build().unwrap();
    client.verify_client_cert(leaf, above, time).map(drop)
}

#[test]
fn a_leaf_is_trusted_through_the_root_and_through_its_clusters_twin_alone() {
    let root = root();
    let orders = intermediate(&root, "orders.shop tls");
    let leaf = orders.authority().issue(&request(), now()).unwrap();
    for name in ["orders-0-0.orders.shop.svc", "localhost", "10.1.2.3", "fd00::1"] {
        verify(&leaf, &[root.certificate()], name, now()).unwrap();
        verify(&leaf, &[orders.twin()], name, now()).unwrap();
    }
    assert!(verify(&leaf, &[root.certificate()], "other.shop.svc", now()).is_err());
}

#[test]
fn another_clusters_twin_does_not_trust_the_leaf_even_under_the_same_name() {
    let root = root();
    let (orders, same_name) = (intermediate(&root, "orders.shop tls"), intermediate(&root, "orders.shop tls"));
    let leaf = orders.authority().issue(&request(), now()).unwrap();
    for other in [intermediate(&root, "carts.shop tls").twin(), same_name.twin()] {
        assert!(verify(&leaf, &[other], "localhost", now()).is_err());
    }
}

#[test]
fn while_an_intermediate_is_replaced_both_twins_together_trust_old_and_new_leaves() {
    let root = root();
    let (old, new) = (intermediate(&root, "orders.shop tls"), intermediate(&root, "orders.shop tls"));
    for issuer in [&old, &new] {
        let leaf = issuer.authority().issue(&request(), now()).unwrap();
        verify(&leaf, &[old.twin(), new.twin()], "localhost", now()).unwrap();
    }
}

#[test]
fn a_leaf_is_valid_for_peers_whose_clock_is_behind_and_not_after_its_end() {
    let root = root();
    let leaf = intermediate(&root, "orders.shop tls").authority().issue(&request(), now()).unwrap();
    let at = |offset| verify(&leaf, &[root.certificate()], "localhost", now() + offset);
    at(-SignedDuration::from_mins(4)).unwrap();
    at(SignedDuration::from_hours(24 * 90 - 1)).unwrap();
    let expired = at(SignedDuration::from_hours(24 * 90 + 1)).unwrap_err();
    assert!(
        matches!(expired, rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { .. })),
        "{expired:?}"
    );
}

#[test]
fn a_leaf_cannot_sign() {
    let root = root();
    let leaf = intermediate(&root, "orders.shop tls").authority().issue(&request(), now()).unwrap();
    let error = Authority::load(leaf.chain_pem.as_bytes(), &leaf.key).unwrap_err();
    assert!(matches!(error, Error::NotAnAuthority { .. }), "{error}");
}

#[test]
fn below_a_root_that_is_part_of_a_longer_chain_the_whole_chain_follows_the_leaf() {
    let corporate = Brought::new("Corporate root").signed_by(None);
    let middle = Brought::new("Corporate valkey").signed_by(Some(&corporate));
    let ours = Authority::load(format!("{}{}", middle.pem, corporate.pem).as_bytes(), &middle.key_pem()).unwrap();
    let leaf = intermediate(&ours, "orders.shop tls").authority().issue(&request(), now()).unwrap();
    assert_eq!(certificates_from_pem(leaf.chain_pem.as_bytes()).unwrap().len(), 3);
    verify(&leaf, &[&corporate.der()], "localhost", now()).unwrap();
}

#[test]
fn the_key_is_one_that_the_tls_library_takes_for_the_chain() {
    let root = root();
    let leaf = intermediate(&root, "orders.shop mtls").authority().issue(&request(), now()).unwrap();
    let chain = certificates_from_pem(leaf.chain_pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(leaf.key.expose_secret().as_bytes()).unwrap();
    rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
}

#[test]
fn the_identity_in_a_leaf_is_read_back_and_a_leaf_without_one_has_none() {
    let root = root();
    let orders = intermediate(&root, "orders.shop mtls");
    let first = |leaf: &Leaf| certificates_from_pem(leaf.chain_pem.as_bytes()).unwrap().remove(0);
    let leaf = orders.authority().issue(&request(), now()).unwrap();
    assert_eq!(identity_of(&first(&leaf)).ok(), request().uri);
    let nobody = orders.authority().issue(&LeafRequest { uri: None, ..request() }, now()).unwrap();
    assert_eq!(identity_of(&first(&nobody)), Err(IdentityError::NotExactlyOne(0)));
}

#[test]
fn a_certificate_with_two_identities_has_none() {
    let uri = |text: &str| SanType::URI(text.try_into().unwrap());
    let mut two = Brought::new("two");
    two.params.subject_alt_names =
        vec![uri("spiffe://a/ns/shop/operator"), uri("spiffe://a/ns/shop/cluster/orders/pod/orders-0-0")];
    assert_eq!(identity_of(&two.signed_by(None).der()), Err(IdentityError::NotExactlyOne(2)));
}
