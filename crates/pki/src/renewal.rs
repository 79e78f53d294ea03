//! When a certificate is to be replaced. Asked in every pass, so it costs nothing but arithmetic and one signature check.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use crate::authority::{Authority, is_key_of, load_key};
use crate::encoding::certificates_from_pem;
use crate::facts::{CertificateFacts, facts_of, parse};
use crate::leaf::LeafRequest;

/// The share of its life, in percent, after which a certificate is replaced: 66 to 80.
///
/// Earlier is waste, later leaves too little time to notice that it does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotateAfter(u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} percent is out of range: a certificate is replaced after 66 to 80 percent of its life")]
pub struct RotateAfterError(u8);

impl RotateAfter {
    pub const fn percent(self) -> u8 {
        self.0
    }
}

impl Default for RotateAfter {
    fn default() -> Self {
        Self(66)
    }
}

impl TryFrom<u8> for RotateAfter {
    type Error = RotateAfterError;

    fn try_from(percent: u8) -> Result<Self, RotateAfterError> {
        if (66..=80).contains(&percent) { Ok(Self(percent)) } else { Err(RotateAfterError(percent)) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Nothing to do before `until`.
    Keep {
        until: Timestamp,
    },
    Renew(Reason),
}

/// Why a certificate is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    Missing,
    Unreadable,
    /// The private key is not the certificate's.
    WrongKey,
    /// Another authority has signed it, or the way from it to the root has changed.
    WrongIssuer,
    NamesChanged,
    /// It is valid for longer than is wanted now.
    LivesTooLong,
    Expired,
    /// It is valid, but old enough.
    PastShare,
}

impl Reason {
    /// Reason of events, and label of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "Missing",
            Self::Unreadable => "Unreadable",
            Self::WrongKey => "WrongKey",
            Self::WrongIssuer => "WrongIssuer",
            Self::NamesChanged => "NamesChanged",
            Self::LivesTooLong => "LivesTooLong",
            Self::Expired => "Expired",
            Self::PastShare => "PastShare",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a certificate's time has come. For leaves and authorities alike; names and issuer are not looked at.
pub fn due(facts: &CertificateFacts, after: RotateAfter, now: Timestamp) -> Renewal {
    let issued = facts.issued_at();
    let life = facts.not_after.duration_since(issued).as_secs();
    let share = SignedDuration::from_secs(life / 100 * i64::from(after.0) + life % 100 * i64::from(after.0) / 100);
    let until = issued.saturating_add(share).unwrap_or(facts.not_after);
    if facts.is_expired(now) {
        Renewal::Renew(Reason::Expired)
    } else if now >= until {
        Renewal::Renew(Reason::PastShare)
    } else {
        Renewal::Keep { until }
    }
}

/// A leaf as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Existing<'a> {
    pub chain_pem: &'a [u8],
    pub key: &'a SecretString,
}

/// Whether the stored leaf is still what is wanted, or `authority` must issue another.
pub fn judge_leaf(
    existing: Option<Existing<'_>>,
    wanted: &LeafRequest,
    authority: &Authority,
    after: RotateAfter,
    now: Timestamp,
) -> Renewal {
    let Some(Existing { chain_pem, key }) = existing else {
        return Renewal::Renew(Reason::Missing);
    };
    let chain = certificates_from_pem(chain_pem).unwrap_or_default();
    let Some((leaf, above)) = chain.split_first() else {
        return Renewal::Renew(Reason::Unreadable);
    };
    let (Ok(certificate), Ok(facts)) = (parse(leaf), facts_of(leaf)) else {
        return Renewal::Renew(Reason::Unreadable);
    };
    if !load_key(key).is_ok_and(|key| is_key_of(&certificate, &key)) {
        return Renewal::Renew(Reason::WrongKey);
    }
    if above != authority.chain() || !authority.has_signed(&certificate) {
        return Renewal::Renew(Reason::WrongIssuer);
    }
    if Names::of(&certificate) != Some(Names::wanted(wanted)) {
        return Renewal::Renew(Reason::NamesChanged);
    }
    if facts.not_after.duration_since(facts.issued_at()) > wanted.validity.duration() {
        return Renewal::Renew(Reason::LivesTooLong);
    }
    due(&facts, after, now)
}

/// The names by which a certificate's owner is recognised. Their order has no meaning, nor has the case of a DNS name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    dns: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
    uris: BTreeSet<String>,
}

impl Names {
    fn wanted(request: &LeafRequest) -> Self {
        let LeafRequest { common_name: _, dns_names, ip_addresses, uri, validity: _ } = request;
        Self {
            dns: dns_names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            addresses: ip_addresses.iter().copied().collect(),
            uris: uri.iter().map(ToString::to_string).collect(),
        }
    }

    /// `None` if there is a name of a kind that we never issue.
    fn of(certificate: &X509Certificate<'_>) -> Option<Self> {
        let mut names = Self::default();
        let Some(found) = certificate.subject_alternative_name().ok()? else {
            return Some(names);
        };
        for name in &found.value.general_names {
            match name {
                GeneralName::DNSName(name) => names.dns.insert(name.to_ascii_lowercase()),
                GeneralName::IPAddress(octets) => names.addresses.insert(address(octets)?),
                GeneralName::URI(uri) => names.uris.insert((*uri).to_owned()),
                _ => return None,
            };
        }
        Some(names)
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(octets).map(IpAddr::from);
    v4.or(v6).ok()
}

#[cfg(test)]
#[path = "renewal_tests.rs"]
mod tests;
