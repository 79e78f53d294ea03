//! What a certificate says about itself, for status, metrics and decisions.

use std::fmt;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::authority::BACKDATED;
use crate::encoding::{EncodingError, certificates_from_pem};

/// SHA-256 of the certificate's DER, in lower-case hex: what tells one certificate from any other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thumbprint(String);

impl Thumbprint {
    pub fn of(der: &CertificateDer<'_>) -> Self {
        Self(hex(&Sha256::digest(der)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The serial number in lower-case hex.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(String);

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    pub thumbprint: Thumbprint,
    pub serial: Serial,
    pub subject: String,
    pub issuer: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl CertificateFacts {
    /// When it was made. Our certificates begin a little earlier, so that a peer whose clock is behind accepts them.
    pub fn issued_at(&self) -> Timestamp {
        let issued = self.not_before.saturating_add(BACKDATED).unwrap_or(self.not_before);
        if issued < self.not_after { issued } else { self.not_before }
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.not_after
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FactsError {
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    #[error("not an X.509 certificate ({0}): store the certificate again, unchanged as its issuer gave it")]
    NotACertificate(String),
    #[error("the certificate's dates are out of range: have a new one issued")]
    Dates,
}

/// The facts of the first certificate of a PEM text, so the leaf of a chain.
pub fn facts(pem: &[u8]) -> Result<CertificateFacts, FactsError> {
    let all = certificates_from_pem(pem)?;
    facts_of(all.first().ok_or(EncodingError::NoCertificate)?)
}

pub fn facts_of(der: &CertificateDer<'_>) -> Result<CertificateFacts, FactsError> {
    let certificate = parse(der)?;
    let validity = certificate.validity();
    Ok(CertificateFacts {
        thumbprint: Thumbprint::of(der),
        serial: Serial(hex(&certificate.tbs_certificate.serial.to_bytes_be())),
        subject: certificate.subject().to_string(),
        issuer: certificate.issuer().to_string(),
        not_before: timestamp(validity.not_before)?,
        not_after: timestamp(validity.not_after)?,
    })
}

pub(crate) fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, FactsError> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err(FactsError::NotACertificate("more bytes than one certificate has".into())),
        Err(error) => Err(FactsError::NotACertificate(error.to_string())),
    }
}

fn timestamp(time: ASN1Time) -> Result<Timestamp, FactsError> {
    Timestamp::from_second(time.timestamp()).map_err(|_| FactsError::Dates)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
