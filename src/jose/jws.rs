//! JSON Web Signatures in compact form (RFC 7515).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
#[cfg(feature = "login")]
use serde::Serialize;
use serde::{Deserialize, de::DeserializeOwned};

#[cfg(feature = "login")]
use super::signer::Signer;
use super::{
    algorithm::JwsAlgorithm,
    jwk::{Jwk, PublicKey},
    set::KeySet,
};
use crate::util::json;

/// The maximum length of a token in bytes.
const MOST_BYTES: usize = 16 * 1024;

#[derive(Deserialize)]
struct JwsHeader {
    alg: String,
    typ: Option<String>,
    kid: Option<String>,
    jwk: Option<Jwk>,
    crit: Option<serde_json::Value>,
}

/// A parsed token. Its content is not trustworthy yet.
pub(crate) struct Unverified<'t> {
    header: JwsHeader,
    signed: &'t str,
    claims: &'t str,
    signature: Vec<u8>,
}

/// Why the claims of a token can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimsError {
    /// The algorithm that the token names is not accepted.
    Algorithm,
    /// None of the keys has signed the token.
    Signature,
    /// A key has signed the token, but its claims are malformed.
    Malformed,
}

/// The header of a token that is signed here.
#[cfg(feature = "login")]
#[derive(Serialize)]
struct NewHeader<'a> {
    alg: &'a str,
    typ: &'a str,
    kid: &'a str,
}

/// Signs a token with these claims.
#[cfg(feature = "login")]
pub(crate) fn sign(signer: &Signer, typ: &str, claims: &impl Serialize) -> Option<String> {
    let header = NewHeader { alg: signer.public.algorithm().as_str(), typ, kid: &signer.kid };
    let (header, claims) = (serde_json::to_vec(&header).ok()?, serde_json::to_vec(claims).ok()?);
    // room for the signature too: 64 bytes, or more with RSA
    let mut token = String::with_capacity((header.len() + claims.len() + 72) * 4 / 3);
    BASE64URL.encode_string(header, &mut token);
    token.push('.');
    BASE64URL.encode_string(claims, &mut token);
    let signature = signer.sign(token.as_bytes())?;
    token.push('.');
    BASE64URL.encode_string(signature, &mut token);
    Some(token)
}

impl<'t> Unverified<'t> {
    /// Parses a token of this type. Returns `None` if the input is not a JWS of this type.
    pub(crate) fn parse(token: &'t str, typ: &str) -> Option<Self> {
        Self::parse_any(token).filter(|token| token.is_type(typ))
    }

    /// Parses a token of any type. Check its type before using its claims.
    pub(crate) fn parse_any(token: &'t str) -> Option<Self> {
        if token.len() > MOST_BYTES {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.').filter(|(_, claims)| !claims.contains('.'))?;
        let header: JwsHeader = json::from_object(&BASE64URL.decode(header).ok()?).ok()?;
        // unknown critical extensions must not be ignored
        if header.crit.is_some() {
            return None;
        }
        Some(Self { header, signed, claims, signature: BASE64URL.decode(signature).ok()? })
    }

    /// Returns whether the token has this type.
    pub(crate) fn is_type(&self, typ: &str) -> bool {
        self.header.typ.as_deref().is_some_and(|own| is_type(own, typ))
    }

    pub(crate) fn has_type(&self) -> bool {
        self.header.typ.is_some()
    }

    /// Returns the id of the key that the token claims to be signed with.
    pub(crate) fn kid(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    /// Returns the claims if one of these keys has signed them with a common algorithm.
    #[cfg(feature = "login")]
    pub(crate) fn claims<T: DeserializeOwned>(&self, keys: &KeySet) -> Option<T> {
        self.claims_with(keys, &[]).ok()
    }

    /// Returns the claims if one of these keys has signed them with a common algorithm or one of these.
    ///
    /// The key determines the algorithm; `alg` and `kid` only select keys. Only an RSA key whose set names no
    /// algorithm can have two. The claims are not parsed before the signature is verified.
    pub(crate) fn claims_with<T: DeserializeOwned>(
        &self,
        keys: &KeySet,
        more: &[JwsAlgorithm],
    ) -> Result<T, ClaimsError> {
        let algorithm = self.algorithm(more).ok_or(ClaimsError::Algorithm)?;
        if !keys.verifies(self.kid(), algorithm, self.signed.as_bytes(), &self.signature) {
            return Err(ClaimsError::Signature);
        }
        self.decode_claims().ok_or(ClaimsError::Malformed)
    }

    /// Returns the key contained in the token, if its type is accepted from callers.
    pub(crate) fn own_key(&self) -> Option<PublicKey> {
        self.header.jwk.as_ref().and_then(PublicKey::from_jwk).filter(PublicKey::is_moderate)
    }

    /// Returns the claims without checking the signature.
    pub(crate) fn unverified_claims<T: DeserializeOwned>(&self) -> Option<T> {
        self.decode_claims()
    }

    /// Returns whether this key has signed the token, by one of the common algorithms.
    pub(crate) fn is_signed_by(&self, key: &PublicKey) -> bool {
        let is_signed = |algorithm| key.verifies(algorithm, self.signed.as_bytes(), &self.signature);
        self.algorithm(&[]).is_some_and(is_signed)
    }

    /// Returns the algorithm that the token names, if it is accepted.
    fn algorithm(&self, more: &[JwsAlgorithm]) -> Option<JwsAlgorithm> {
        JwsAlgorithm::from_name(&self.header.alg)
            .filter(|algorithm| matches!(algorithm, JwsAlgorithm::Common(_)) || more.contains(algorithm))
    }

    fn decode_claims<T: DeserializeOwned>(&self) -> Option<T> {
        json::from_object(&BASE64URL.decode(self.claims).ok()?).ok()
    }
}

/// Media types may omit `application/` (RFC 7515 §4.1.9).
fn is_type(own: &str, typ: &str) -> bool {
    own.eq_ignore_ascii_case(typ)
        || own
            .split_once('/')
            .is_some_and(|(main, sub)| main.eq_ignore_ascii_case("application") && sub.eq_ignore_ascii_case(typ))
}
