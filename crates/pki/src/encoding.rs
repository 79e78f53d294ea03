//! PEM in, PEM out.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodingError {
    #[error("no certificate found: expected PEM text with -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    #[error("broken PEM text ({0}): store the certificate again, unchanged as its issuer gave it")]
    Broken(String),
}

/// All certificates of a PEM text, in their order. At least one.
pub fn certificates_from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, EncodingError> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| EncodingError::Broken(error.to_string()))?;
    if all.is_empty() { Err(EncodingError::NoCertificate) } else { Ok(all) }
}

pub fn certificates_to_pem<'a>(certificates: impl IntoIterator<Item = &'a CertificateDer<'static>>) -> String {
    let unix = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    let encode = |der: &CertificateDer<'_>| pem::encode_config(&pem::Pem::new("CERTIFICATE", der.to_vec()), unix);
    certificates.into_iter().map(encode).collect()
}
