//! Certificate authorities, leaves, names and when to renew. No I/O and no clock: whoever calls says what time it is.
//!
//! ```text
//! root ──signs──▶ intermediate (per cluster and purpose) ──signs──▶ leaf (per pod and purpose)
//!                      ║ same key, same name
//!                    twin (self-signed: what this cluster's Valkey nodes trust, and nothing else)
//! ```

mod authority;
mod encoding;
mod facts;
mod identity;
mod intermediate;
mod leaf;
mod purpose;
mod renewal;
mod validity;

pub use authority::{Authority, Error};
pub use encoding::{EncodingError, certificates_from_pem, certificates_to_pem};
pub use facts::{CertificateFacts, FactsError, Serial, Thumbprint, facts, facts_of};
pub use identity::{Identity, IdentityError, Segment, SpiffeId, TrustDomain, identity_of};
pub use intermediate::{CERTIFICATE_ENTRY, Intermediate, KEY_ENTRY, TWIN_ENTRY};
pub use leaf::{Leaf, LeafRequest};
pub use purpose::Purpose;
pub use renewal::{Existing, Reason, Renewal, RotateAfter, RotateAfterError, due, judge_leaf};
pub use validity::{Validity, ValidityError};

#[cfg(test)]
mod verification_tests;
