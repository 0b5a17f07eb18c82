//! Public keys of credentials (RFC 9053), in the three algorithms that are accepted.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ED25519, ParsedPublicKey};

use super::{
    cbor::{self, Value},
    error::WebauthnError,
};
use crate::jose::{Algorithm, JwsAlgorithm, jwk::PublicKey};

/// A public key together with the only algorithm that it is used with.
#[derive(Clone, Debug)]
pub(super) struct CredentialKey {
    key: PublicKey,
    pub(super) algorithm: Algorithm,
}

impl CredentialKey {
    /// Parses a COSE key.
    ///
    /// # Errors
    ///
    /// Returns [`WebauthnError::PublicKey`] if the key has other members, another algorithm, an unusual size, or is not
    /// a point of its curve.
    pub(super) fn parse(cose: &[u8]) -> Result<Self, WebauthnError> {
        Self::from_cose(cose).ok_or(WebauthnError::PublicKey)
    }

    fn from_cose(cose: &[u8]) -> Option<Self> {
        use Value::{Bytes, Integer};
        let Value::Map(members) = cbor::read_all(cose)? else { return None };
        // kty, alg, and the parameters of the type
        let (key, algorithm) = match members.as_slice() {
            [
                (Integer(1), Integer(2)),
                (Integer(3), Integer(-7)),
                (Integer(-1), Integer(1)),
                (Integer(-2), Bytes(x)),
                (Integer(-3), Bytes(y)),
            ] => (PublicKey::P256 { x: (*x).try_into().ok()?, y: (*y).try_into().ok()? }, Algorithm::Es256),
            [
                (Integer(1), Integer(1)),
                (Integer(3), Integer(-8)),
                (Integer(-1), Integer(6)),
                (Integer(-2), Bytes(x)),
            ] => (PublicKey::Ed25519((*x).try_into().ok()?), Algorithm::EdDsa),
            [
                (Integer(1), Integer(3)),
                (Integer(3), Integer(-257)),
                (Integer(-1), Bytes(n)),
                (Integer(-2), Bytes(e)),
            ] => (PublicKey::Rsa { n: n.to_vec(), e: e.to_vec() }, Algorithm::Rs256),
            _ => return None,
        };
        let key = Self { key, algorithm };
        key.is_usable().then_some(key)
    }

    fn is_usable(&self) -> bool {
        match &self.key {
            PublicKey::P256 { x, y } => ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point(x, y)).is_ok(),
            PublicKey::P384 { .. } => false,
            PublicKey::Ed25519(x) => ParsedPublicKey::new(&ED25519, x).is_ok(),
            PublicKey::Rsa { n, e } => {
                let is_odd = |number: &[u8]| number.last().is_some_and(|last| last & 1 == 1);
                let has_no_leading_zero = |number: &[u8]| number.first().is_some_and(|first| *first != 0);
                // 2048 to 4096 bits; the usual exponent takes three bytes
                let is_large = n.len() > 256 || (n.len() == 256 && n.first().is_some_and(|first| *first >= 0x80));
                is_large
                    && self.key.is_moderate()
                    && [n, e].into_iter().all(|number| is_odd(number) && has_no_leading_zero(number))
                    && e.len() <= 4
                    && e.as_slice() != [1]
            }
        }
    }

    /// Verifies a signature. ECDSA signatures are in DER here, unlike in JOSE.
    pub(super) fn verifies(&self, bytes: &[u8], signature: &[u8]) -> bool {
        match &self.key {
            PublicKey::P256 { x, y } => ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point(x, y))
                .is_ok_and(|key| key.verify_sig(bytes, signature).is_ok()),
            key => key.verifies(JwsAlgorithm::Common(self.algorithm), bytes, signature),
        }
    }
}

/// Returns the identifier of an algorithm in the registry of COSE.
pub(super) const fn identifier(algorithm: Algorithm) -> i32 {
    match algorithm {
        Algorithm::Es256 => -7,
        Algorithm::EdDsa => -8,
        Algorithm::Rs256 => -257,
    }
}

fn point(x: &[u8], y: &[u8]) -> Vec<u8> {
    [&[4], x, y].concat()
}
