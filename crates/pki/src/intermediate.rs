//! The authority of one cluster and purpose, as it lies in its Secrets.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use secrecy::SecretString;

use crate::authority::{Authority, Error, is_key_of, load_key};
use crate::encoding::{EncodingError, certificates_from_pem, certificates_to_pem};
use crate::facts::parse;
use crate::validity::Validity;

/// The intermediate's certificate, and those above it if the root was brought as a part of a longer chain.
pub const CERTIFICATE_ENTRY: &str = "ca.crt";
/// The twin's certificate.
pub const TWIN_ENTRY: &str = "twin.crt";
/// The private key of both. A Secret of its own may hold it, so that what must read certificates cannot sign.
pub const KEY_ENTRY: &str = "ca.key";

/// An intermediate authority and its twin: a self-signed certificate with the same key, name, dates and serial.
///
/// Valkey's OpenSSL accepts only a self-signed certificate as the end of a chain. With the root there, every node of every
/// cluster could join this one's bus (F04); with the twin there, only what this intermediate has signed is let in. The twin
/// is made once and stored: a signature is never the same twice, and a file that changed would be reloaded everywhere.
#[derive(Clone, Debug)]
pub struct Intermediate {
    authority: Authority,
    twin: CertificateDer<'static>,
}

impl Intermediate {
    pub fn new(parent: &Authority, common_name: &str, validity: Validity, now: Timestamp) -> Result<Self, Error> {
        let authority = parent.intermediate(common_name, validity, now)?;
        let twin = authority.self_signed_copy(common_name)?;
        Ok(Self { authority, twin })
    }

    /// Reads what [`Self::certificates`] has written.
    pub fn load(certificates: &BTreeMap<String, Vec<u8>>, key: &SecretString) -> Result<Self, Error> {
        let entry = |name| certificates.get(name).ok_or(Error::Missing(name));
        let authority = Authority::load(entry(CERTIFICATE_ENTRY)?, key)?;
        let twin = certificates_from_pem(entry(TWIN_ENTRY)?)?.into_iter().next().ok_or(EncodingError::NoCertificate)?;
        if !is_twin(&authority, &twin)? {
            return Err(Error::Twin { subject: authority.facts().subject.clone() });
        }
        Ok(Self { authority, twin })
    }

    /// The entries of the Secret that everybody who verifies may read.
    pub fn certificates(&self) -> BTreeMap<String, Vec<u8>> {
        [(CERTIFICATE_ENTRY, self.authority.certificate_pem()), (TWIN_ENTRY, self.twin_pem())]
            .map(|(name, pem)| (name.to_owned(), pem.into_bytes()))
            .into()
    }

    /// PKCS #8, PEM: the entry [`KEY_ENTRY`].
    pub fn key(&self) -> &SecretString {
        self.authority.key()
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// What the nodes and clients of this cluster trust. While an intermediate is replaced they trust both twins.
    pub fn twin(&self) -> &CertificateDer<'static> {
        &self.twin
    }

    pub fn twin_pem(&self) -> String {
        certificates_to_pem([&self.twin])
    }
}

fn is_twin(authority: &Authority, twin: &CertificateDer<'_>) -> Result<bool, Error> {
    let twin = parse(twin)?;
    Ok(authority.has_signed(&twin) && is_key_of(&twin, &load_key(authority.key())?))
}
