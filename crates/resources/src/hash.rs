//! Short fingerprints of objects.

use std::fmt::Write;

use serde::Serialize;
use sha2::{Digest, Sha256};

/// The SHA-256 of a text, in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The first 16 digits of the SHA-256 of a value's JSON: enough to see a change, short enough to read.
///
/// The order of the fields is that of the types, so the value must not pass through a generic JSON value on its way here.
pub fn fingerprint(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(sha256_hex(&serde_json::to_vec(value)?).chars().take(16).collect())
}
