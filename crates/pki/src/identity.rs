//! Who somebody is: a SPIFFE-style URI in the certificate.
//!
//! Two forms exist, and nothing else is an identity:
//! `spiffe://<trust-domain>/ns/<namespace>/operator` and
//! `spiffe://<trust-domain>/ns/<namespace>/cluster/<cluster>/pod/<pod>`.

use std::fmt;
use std::str::FromStr;

use rustls_pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;

use crate::facts::{FactsError, parse};

const SCHEME: &str = "spiffe://";
/// The longest name that Kubernetes or DNS knows.
const LONGEST_NAME: usize = 253;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("{0:?} is not a trust domain: use lower-case letters, digits, dots, dashes and underscores, at most 253")]
    TrustDomain(String),
    #[error("{0:?} cannot be part of an identity: use letters, digits, dots, dashes and underscores, at most 253")]
    Segment(String),
    #[error(
        "{0:?} is not an identity: expected spiffe://<trust-domain>/ns/<namespace>/operator or \
         spiffe://<trust-domain>/ns/<namespace>/cluster/<cluster>/pod/<pod>"
    )]
    Form(String),
    #[error("the certificate names {0} URIs where exactly one is its identity: issue it anew by the operator's CA")]
    NotExactlyOne(usize),
    #[error(transparent)]
    Certificate(#[from] FactsError),
}

/// The realm in which names are unique: one per installation of the operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrustDomain(String);

impl FromStr for TrustDomain {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        // One spelling only: two texts that mean the same domain would not compare as equal.
        if is_name(text) && !text.contains(|c: char| c.is_ascii_uppercase()) {
            Ok(Self(text.into()))
        } else {
            Err(IdentityError::TrustDomain(text.into()))
        }
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name inside an identity. It cannot hold a slash, so no name can pretend to be a longer path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment(String);

impl Segment {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Segment {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        if is_name(text) { Ok(Self(text.into())) } else { Err(IdentityError::Segment(text.into())) }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let relative = matches!(text, "." | ".."); // would mean another path to whoever normalises URIs
    !text.is_empty() && text.len() <= LONGEST_NAME && !relative && text.chars().all(allowed)
}

/// Who may do what: the operator commands sidecars, a pod reports for itself only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    Operator { namespace: Segment },
    Pod { namespace: Segment, cluster: Segment, pod: Segment },
}

/// An identity and the trust domain that vouches for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpiffeId {
    pub trust_domain: TrustDomain,
    pub identity: Identity,
}

impl SpiffeId {
    pub fn operator(trust_domain: &TrustDomain, namespace: &str) -> Result<Self, IdentityError> {
        let identity = Identity::Operator { namespace: namespace.parse()? };
        Ok(Self { trust_domain: trust_domain.clone(), identity })
    }

    pub fn pod(trust_domain: &TrustDomain, namespace: &str, cluster: &str, pod: &str) -> Result<Self, IdentityError> {
        let identity = Identity::Pod { namespace: namespace.parse()?, cluster: cluster.parse()?, pod: pod.parse()? };
        Ok(Self { trust_domain: trust_domain.clone(), identity })
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trust_domain, identity } = self;
        match identity {
            Identity::Operator { namespace } => write!(f, "{SCHEME}{trust_domain}/ns/{namespace}/operator"),
            Identity::Pod { namespace, cluster, pod } => {
                write!(f, "{SCHEME}{trust_domain}/ns/{namespace}/cluster/{cluster}/pod/{pod}")
            }
        }
    }
}

impl FromStr for SpiffeId {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let form = || IdentityError::Form(text.into());
        let parts: Vec<&str> = text.strip_prefix(SCHEME).ok_or_else(form)?.split('/').collect();
        match parts[..] {
            [domain, "ns", namespace, "operator"] => Self::operator(&domain.parse()?, namespace),
            [domain, "ns", namespace, "cluster", cluster, "pod", pod] => {
                Self::pod(&domain.parse()?, namespace, cluster, pod)
            }
            _ => Err(form()),
        }
    }
}

/// Whom a certificate speaks for. The certificate must have been verified before: this only reads it.
pub fn identity_of(der: &CertificateDer<'_>) -> Result<SpiffeId, IdentityError> {
    let certificate = parse(der)?;
    let broken = |error: x509_parser::error::X509Error| FactsError::NotACertificate(error.to_string());
    let names = certificate.subject_alternative_name().map_err(broken)?;
    let uris: Vec<&str> = names
        .iter()
        .flat_map(|names| &names.value.general_names)
        .filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        })
        .collect();
    match uris[..] {
        [uri] => uri.parse(),
        _ => Err(IdentityError::NotExactlyOne(uris.len())),
    }
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
