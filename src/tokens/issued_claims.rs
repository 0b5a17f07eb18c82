//! The claims of issued tokens.

use aws_lc_rs::digest::{SHA256, SHA512, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    bearer::{AccessTokenClaims, Audience},
    client::Scopes,
    jose::Algorithm,
    user::{self, ClaimTarget},
    util::{public_id::PublicId, secret::SecretDigest},
};

/// The type of an id_token, in its header.
pub(super) const ID_TOKEN: &str = "JWT";

/// The private claim of an access token that holds its user's generation. It is omitted for generation 0.
pub(super) const GENERATION: &str = "gen";

/// An id_token (OpenID Connect Core §2).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct IdClaims {
    pub(crate) iss: String,
    pub(crate) sub: String,
    pub(crate) aud: String,
    pub(crate) iat: u64,
    pub(crate) exp: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) auth_time: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nonce: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) acr: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) amr: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// Other claims about the user.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

/// Returns the `jti` of an access token, which begins with the id of its family.
pub(super) fn jti(family: &PublicId, own: &PublicId) -> String {
    format!("{family}.{own}")
}

/// Derives a token's own part of its `jti` from that of the exchange, the scope and the audience, because tokens with
/// different content must have different ids (RFC 7519 §4.1.7).
pub(super) fn jti_for_content(exchange: &PublicId, scope: &Scopes, audience: &Audience) -> PublicId {
    let mut content = scope.to_string();
    // a scope has no quotes
    audience.iter().for_each(|name| content.extend(["\"", name]));
    PublicId::of_digest(&SecretDigest::of_secret([exchange.as_bytes(), content.as_bytes()].concat()))
}

/// Returns the family of an access token by its `jti`.
pub(super) fn family_of(jti: &str) -> Option<PublicId> {
    PublicId::parse(jti.split_once('.')?.0)
}

/// Returns the generation that an access token was issued in.
pub(super) fn generation(claims: &AccessTokenClaims) -> u64 {
    claims.more.get(GENERATION).and_then(Value::as_u64).unwrap_or_default()
}

/// Returns the left half of the hash of an access token, by the hash function of the id_token's algorithm.
pub(super) fn at_hash(token: &str, algorithm: Algorithm) -> String {
    let hash = digest(if algorithm == Algorithm::EdDsa { &SHA512 } else { &SHA256 }, token.as_bytes());
    let (left, _) = hash.as_ref().split_at(hash.as_ref().len() / 2);
    BASE64URL.encode(left)
}

/// Returns the claims that go into this kind of token.
pub(super) fn of_target(claims: &user::Claims, target: ClaimTarget) -> Map<String, Value> {
    claims.iter(target).map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bearer::{Confirmation, MACHINE},
        user::{self, ClaimError},
    };

    #[test]
    fn claims_about_a_user_cannot_have_the_name_of_a_protocol_claim() {
        let text = || "x".to_owned();
        let access = AccessTokenClaims {
            iss: text(),
            sub: text(),
            aud: Audience::One(text()),
            client_id: text(),
            tenant: Some(text()),
            scope: Some(text()),
            iat: 1,
            nbf: Some(1),
            exp: 2,
            jti: text(),
            auth_time: Some(1),
            acr: Some(text()),
            amr: vec![text()],
            sid: Some(text()),
            cnf: Some(Confirmation { jkt: Some(text()) }),
            more: Map::from_iter([(GENERATION.to_owned(), 1.into()), (MACHINE.0.to_owned(), MACHINE.1.into())]),
        };
        assert_eq!(generation(&access), 1);
        let id = IdClaims {
            iss: text(),
            sub: text(),
            aud: text(),
            iat: 1,
            exp: 2,
            auth_time: Some(1),
            nonce: Some(text()),
            acr: Some(text()),
            amr: vec![text()],
            at_hash: Some(text()),
            sid: Some(text()),
            tenant: Some(text()),
            more: Map::new(),
        };
        for document in [serde_json::to_value(access).unwrap(), serde_json::to_value(id).unwrap()] {
            assert!(document.as_object().unwrap().len() >= 12);
            for name in document.as_object().unwrap().keys() {
                assert_eq!(user::Claims::new().insert(name.clone(), 1), Err(ClaimError::Reserved), "{name}");
            }
        }
    }
}
