//! The attestation of a new credential.

use super::{
    cbor::{self, Value},
    cose::{self, CredentialKey},
    error::WebauthnError,
    policy::AttestationPolicy,
};
use crate::util::secret::SecretDigest;

/// Attestations with the certificates of a TPM have about 6 KiB.
const MOST_BYTES: usize = 16 * 1024;

/// The outcome of checking an attestation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attestation {
    /// There is no attestation statement (`none`).
    None,
    /// Self attestation: the new key has signed its own registration (`packed`, without a certificate).
    SelfSigned,
    /// There is a statement in another format, which was not verified.
    Unverified,
}

/// A parsed attestation object.
#[derive(Debug)]
pub(super) struct AttestationObject<'a> {
    format: &'a str,
    statement: Vec<(Value<'a>, Value<'a>)>,
    pub(super) authenticator_data: &'a [u8],
}

impl<'a> AttestationObject<'a> {
    /// Parses the object: a map of exactly `fmt`, `attStmt` and `authData`.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, WebauthnError> {
        let value = if bytes.len() <= MOST_BYTES { cbor::read_all(bytes) } else { None };
        let Some(Value::Map(members)) = value else { return Err(Self::malformed()) };
        let Ok([fmt, statement, data]) = <[_; 3]>::try_from(members) else { return Err(Self::malformed()) };
        match (fmt, statement, data) {
            (
                (Value::Text("fmt"), Value::Text(format)),
                (Value::Text("attStmt"), Value::Map(statement)),
                (Value::Text("authData"), Value::Bytes(authenticator_data)),
            ) => Ok(Self { format, statement, authenticator_data }),
            _ => Err(Self::malformed()),
        }
    }

    const fn malformed() -> WebauthnError {
        WebauthnError::Malformed("attestationObject")
    }

    /// Verifies the statement, as far as its format can be verified.
    pub(super) fn verify(
        &self,
        key: &CredentialKey,
        client_data_hash: &SecretDigest,
        policy: AttestationPolicy,
    ) -> Result<Attestation, WebauthnError> {
        let has_certificate = || self.statement.iter().any(|(name, _)| *name == Value::Text("x5c"));
        match self.format {
            "none" if self.statement.is_empty() => Ok(Attestation::None),
            "none" => Err(WebauthnError::Attestation),
            "packed" if !has_certificate() => {
                let [(Value::Text("alg"), Value::Integer(algorithm)), (Value::Text("sig"), Value::Bytes(signature))] =
                    self.statement.as_slice()
                else {
                    return Err(WebauthnError::Attestation);
                };
                let signed = [self.authenticator_data, client_data_hash.as_bytes()].concat();
                let is_own = *algorithm == i128::from(cose::identifier(key.algorithm));
                if is_own && key.verifies(&signed, signature) {
                    Ok(Attestation::SelfSigned)
                } else {
                    Err(WebauthnError::Attestation)
                }
            }
            _ => match policy {
                AttestationPolicy::AcceptUnverified => Ok(Attestation::Unverified),
                AttestationPolicy::RefuseUnverified => Err(WebauthnError::Attestation),
            },
        }
    }
}
