//! Certificate authorities chosen by the operator.

use rustls::pki_types::{CertificateDer, pem::PemObject};

use crate::util::error::ConfigError;

/// Parses the certificates in this PEM. There must be at least one.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let wrong = || ConfigError::new("root certificates", "the given PEM", "must contain a certificate");
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|certificates| !certificates.is_empty()).ok_or_else(wrong)
}
