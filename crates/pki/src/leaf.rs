use std::net::IpAddr;

use rcgen::string::Ia5String;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType};
use secrecy::SecretString;

use crate::authority::Error;
use crate::facts::CertificateFacts;
use crate::identity::SpiffeId;
use crate::validity::Validity;

/// The certificate that somebody needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafRequest {
    /// For people who read certificates. Nobody is recognised by it: the names below are.
    pub common_name: String,
    pub dns_names: Vec<String>,
    pub ip_addresses: Vec<IpAddr>,
    pub uri: Option<SpiffeId>,
    pub validity: Validity,
}

/// A certificate of a server or client, its key, and the way up to the root.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The leaf, then the intermediates. Without the root: whoever verifies must have it already.
    pub chain_pem: String,
    /// PKCS #8, PEM.
    pub key: SecretString,
    pub facts: CertificateFacts,
}

impl LeafRequest {
    /// Everything but names of the subject, dates and serial: those are the authority's part.
    pub(crate) fn params(&self) -> Result<CertificateParams, Error> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = self.subject_names()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Both, always: a Valkey node is a client of the other nodes, and the operator serves what sidecars call.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Ok(params)
    }

    fn subject_names(&self) -> Result<Vec<SanType>, Error> {
        let ascii = |name: &str| Ia5String::try_from(name).map_err(|_| Error::Name(name.into()));
        let dns = self.dns_names.iter().map(|name| {
            let usable = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control());
            if usable { Ok(SanType::DnsName(ascii(name)?)) } else { Err(Error::Name(name.clone())) }
        });
        let addresses = self.ip_addresses.iter().map(|address| Ok(SanType::IpAddress(*address)));
        let uri = self.uri.iter().map(|id| Ok(SanType::URI(ascii(&id.to_string())?)));
        dns.chain(addresses).chain(uri).collect()
    }
}
