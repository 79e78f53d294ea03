//! Who signs: a root, made here or brought by the user, and what is below it.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;

use crate::encoding::{EncodingError, certificates_from_pem, certificates_to_pem};
use crate::facts::{CertificateFacts, FactsError, facts_of, hex, parse};
use crate::leaf::{Leaf, LeafRequest};
use crate::validity::Validity;

/// A certificate begins this much before it is made: a peer whose clock is behind would refuse it as not yet valid.
pub(crate) const BACKDATED: SignedDuration = SignedDuration::from_mins(5);

/// X.509 allows no longer common name.
const LONGEST_COMMON_NAME: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the CA's certificate cannot be read: {0}")]
    Certificate(#[from] FactsError),
    #[error(
        "the CA's private key cannot be read ({0}): store it as unencrypted PKCS #8 PEM (-----BEGIN PRIVATE KEY-----); \
         openssl pkcs8 -topk8 -nocrypt converts others. ECDSA P-256, P-384, Ed25519 and RSA keys are supported"
    )]
    Key(String),
    #[error("the private key does not belong to the CA certificate {subject:?}: store the two that were made together")]
    KeyMismatch { subject: String },
    #[error(
        "the certificate {subject:?} is not a CA: use one with basicConstraints CA:TRUE whose keyUsage, if any, has \
         keyCertSign"
    )]
    NotAnAuthority { subject: String },
    #[error(
        "the CA {subject:?} may not sign other CAs (pathlen 0), and every cluster needs one: use a CA with pathlen 1 or none"
    )]
    MayNotSignAuthorities { subject: String },
    #[error("the CA {subject:?} has ended at {not_after}: renew it before anything else can be issued")]
    Ended { subject: String, not_after: Timestamp },
    #[error(
        "the subject {subject:?} of the CA cannot be repeated as an issuer: use a CA whose subject has each kind of \
         attribute once, and one attribute per part"
    )]
    Subject { subject: String },
    #[error("{0:?} cannot be a DNS name in a certificate: use ASCII letters, digits, dots and dashes")]
    Name(String),
    #[error("the twin of the CA {subject:?} has another key than the CA: delete both, and they will be made anew")]
    Twin { subject: String },
    #[error("the entry {0} is missing: restore it, or delete the Secret, and a new CA will be made")]
    Missing(&'static str),
    #[error("a certificate could not be made: {0}")]
    Signing(String),
}

impl Error {
    /// Reason of events and conditions, and label of metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Certificate(_) | Self::Twin { .. } | Self::Missing(_) => "CertificateUnusable",
            Self::Key(_) | Self::KeyMismatch { .. } => "KeyUnusable",
            Self::NotAnAuthority { .. } | Self::MayNotSignAuthorities { .. } | Self::Subject { .. } => "NotAnAuthority",
            Self::Ended { .. } => "AuthorityExpired",
            Self::Name(_) => "NameUnusable",
            Self::Signing(_) => "SigningFailed",
        }
    }
}

impl From<EncodingError> for Error {
    fn from(error: EncodingError) -> Self {
        Self::Certificate(error.into())
    }
}

impl From<rcgen::Error> for Error {
    fn from(error: rcgen::Error) -> Self {
        Self::Signing(error.to_string())
    }
}

/// A certificate that may sign others, and its private key.
#[derive(Clone, Debug)]
pub struct Authority {
    certificate: CertificateDer<'static>,
    /// What lies between this certificate and the root, nearest first.
    above: Vec<CertificateDer<'static>>,
    /// PKCS #8, PEM.
    key: SecretString,
    facts: CertificateFacts,
}

impl Authority {
    /// A new root, signed by itself.
    pub fn root(common_name: &str, validity: Validity, now: Timestamp) -> Result<Self, Error> {
        let key = new_key()?;
        let mut params = authority_params(common_name, Depth::Root);
        params.serial_number = Some(serial_of(&key));
        date(&mut params, backdated(now), end_of(validity, now));
        let certificate = params.self_signed(&key)?;
        Self::assemble(certificate.into(), Vec::new(), &key)
    }

    /// A new authority below this one. It signs leaves, but no further authorities.
    ///
    /// Not for what Valkey trusts: [`crate::Intermediate`] comes with the certificate that OpenSSL needs for that.
    pub fn intermediate(&self, common_name: &str, validity: Validity, now: Timestamp) -> Result<Self, Error> {
        if path_length(&parse(&self.certificate)?) == Some(0) {
            return Err(Error::MayNotSignAuthorities { subject: self.facts.subject.clone() });
        }
        let (certificate, key) = self.sign(authority_params(common_name, Depth::Intermediate), validity, now)?;
        Self::assemble(certificate, self.chain(), &key)
    }

    /// An authority as it is stored, or as a user brings it: its certificate, perhaps followed by those above it.
    pub fn load(certificate_pem: &[u8], key: &SecretString) -> Result<Self, Error> {
        let mut certificates = certificates_from_pem(certificate_pem)?.into_iter();
        let certificate = certificates.next().ok_or(EncodingError::NoCertificate)?;
        let facts = facts_of(&certificate)?;
        let subject = || facts.subject.clone();
        let parsed = parse(&certificate)?;
        if !may_sign(&parsed) {
            return Err(Error::NotAnAuthority { subject: subject() });
        }
        if parsed.subject().iter().any(|part| part.iter().next().is_none()) {
            return Err(Error::Subject { subject: subject() }); // the library that signs would end the process
        }
        if !is_key_of(&parsed, &load_key(key)?) {
            return Err(Error::KeyMismatch { subject: subject() });
        }
        let mut above = Vec::new();
        for certificate in certificates {
            if !is_self_signed(&parse(&certificate)?) {
                above.push(certificate);
            }
        }
        Ok(Self { certificate, above, key: key.clone(), facts })
    }

    /// A new key and a certificate for it.
    ///
    /// It never outlives this authority: a certificate whose issuer has ended is refused everywhere, long before its
    /// own date would have it renewed.
    pub fn issue(&self, request: &LeafRequest, now: Timestamp) -> Result<Leaf, Error> {
        let mut params = request.params()?;
        params.distinguished_name = distinguished_name(&request.common_name);
        let (certificate, key) = self.sign(params, request.validity, now)?;
        let facts = facts_of(&certificate)?;
        let chain = self.chain();
        let chain_pem = certificates_to_pem([&certificate].into_iter().chain(&chain));
        Ok(Leaf { chain_pem, key: key.serialize_pem().into(), facts })
    }

    /// What this authority's certificates must be followed by: itself and what is above it, up to but without the root.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        let own = parse(&self.certificate).is_ok_and(|own| !is_self_signed(&own)).then_some(&self.certificate);
        own.into_iter().chain(&self.above).cloned().collect()
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The certificate and those above it: what [`Self::load`] takes.
    pub fn certificate_pem(&self) -> String {
        certificates_to_pem([&self.certificate].into_iter().chain(&self.above))
    }

    /// PKCS #8, PEM.
    pub fn key(&self) -> &SecretString {
        &self.key
    }

    pub fn facts(&self) -> &CertificateFacts {
        &self.facts
    }

    /// Whether this authority's key has signed the certificate.
    pub(crate) fn has_signed(&self, certificate: &X509Certificate<'_>) -> bool {
        parse(&self.certificate).is_ok_and(|own| {
            certificate.issuer().as_raw() == own.subject().as_raw()
                && certificate.verify_signature(Some(own.public_key())).is_ok()
        })
    }

    /// A self-signed certificate with this authority's key, name, dates and serial.
    pub(crate) fn self_signed_copy(&self, common_name: &str) -> Result<CertificateDer<'static>, Error> {
        let key = load_key(&self.key)?;
        let mut params = authority_params(common_name, Depth::Intermediate);
        params.serial_number = Some(serial_of(&key));
        date(&mut params, self.facts.not_before, self.facts.not_after);
        Ok(params.self_signed(&key)?.into())
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        validity: Validity,
        now: Timestamp,
    ) -> Result<(CertificateDer<'static>, KeyPair), Error> {
        let CertificateFacts { subject, not_after, .. } = &self.facts;
        if self.facts.is_expired(now) {
            return Err(Error::Ended { subject: subject.clone(), not_after: *not_after });
        }
        let key = new_key()?;
        params.serial_number = Some(serial_of(&key));
        date(&mut params, backdated(now), end_of(validity, now).min(*not_after));
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer()?)?;
        // A subject that somebody else encoded may come out differently here, and then no chain could be built.
        if !self.has_signed(&parse(certificate.der())?) {
            return Err(Error::Subject { subject: subject.clone() });
        }
        Ok((certificate.into(), key))
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, Error> {
        let unusable = |_| Error::Subject { subject: self.facts.subject.clone() };
        Issuer::from_ca_cert_der(&self.certificate, load_key(&self.key)?).map_err(unusable)
    }

    fn assemble(
        certificate: CertificateDer<'static>,
        above: Vec<CertificateDer<'static>>,
        key: &KeyPair,
    ) -> Result<Self, Error> {
        let facts = facts_of(&certificate)?;
        Ok(Self { certificate, above, key: key.serialize_pem().into(), facts })
    }
}

#[derive(Clone, Copy, Debug)]
enum Depth {
    Root,
    Intermediate,
}

fn authority_params(common_name: &str, depth: Depth) -> CertificateParams {
    let below = match depth {
        Depth::Root => 1,
        Depth::Intermediate => 0,
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(below));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// 128 bits that nobody can foretell: every key is new, so the hash of it is as random as the key.
fn serial_of(key: &KeyPair) -> SerialNumber {
    let digest = Sha256::digest(key.subject_public_key_info());
    SerialNumber::from(digest.iter().copied().take(16).collect::<Vec<_>>())
}

/// A longer name keeps its beginning and gets a hash of the whole: two long names must not become one authority.
fn distinguished_name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, shortened(common_name));
    name
}

fn shortened(common_name: &str) -> String {
    if common_name.chars().count() <= LONGEST_COMMON_NAME {
        return common_name.into();
    }
    let digest: String = hex(&Sha256::digest(common_name)).chars().take(16).collect();
    let beginning: String = common_name.chars().take(LONGEST_COMMON_NAME - digest.len() - 1).collect();
    format!("{beginning}-{digest}")
}

fn end_of(validity: Validity, now: Timestamp) -> Timestamp {
    now.saturating_add(validity.duration()).unwrap_or(Timestamp::MAX)
}

/// A certificate's dates have whole seconds and, for us, none before 1970.
fn date(params: &mut CertificateParams, not_before: Timestamp, not_after: Timestamp) {
    let date = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
    };
    params.not_before = date(not_before);
    params.not_after = date(not_after);
}

fn backdated(now: Timestamp) -> Timestamp {
    now.saturating_sub(BACKDATED).unwrap_or(now)
}

fn new_key() -> Result<KeyPair, Error> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

pub(crate) fn load_key(key: &SecretString) -> Result<KeyPair, Error> {
    KeyPair::from_pem(key.expose_secret()).map_err(|error| Error::Key(error.to_string()))
}

pub(crate) fn is_key_of(certificate: &X509Certificate<'_>, key: &KeyPair) -> bool {
    certificate.public_key().subject_public_key.data.as_ref() == key.public_key_raw()
}

fn is_self_signed(certificate: &X509Certificate<'_>) -> bool {
    certificate.issuer().as_raw() == certificate.subject().as_raw() && certificate.verify_signature(None).is_ok()
}

fn may_sign(certificate: &X509Certificate<'_>) -> bool {
    let usage = certificate.key_usage();
    let usage_allows = usage.is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()));
    certificate.is_ca() && usage_allows
}

fn path_length(certificate: &X509Certificate<'_>) -> Option<u32> {
    certificate.basic_constraints().ok().flatten()?.value.path_len_constraint
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
