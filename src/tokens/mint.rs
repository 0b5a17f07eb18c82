//! What stands in the tokens that are made here.

use aws_lc_rs::digest::{SHA256, SHA512, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{OFFLINE_ACCESS, family::Authorized};
use crate::{
    bearer::{AccessTokenClaims, Audience, Confirmation},
    client::Scopes,
    jose::Algorithm,
    util::{handle::Handle, secret::Digest},
};

/// The type of an id_token, in its header.
pub(super) const ID_TOKEN: &str = "JWT";

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
    /// Of which tenant: in the access token, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// What else was asked for, about the user.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

/// When something is good, in Unix seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) until: u64,
}

/// The name of an access token, which begins with that of its family.
pub(super) fn jti(family: &Handle, own: &Handle) -> String {
    format!("{family}.{own}")
}

/// The own part of the name, made of that of one exchange, for these scopes: one name is one token (RFC 7519 §4.1.7).
pub(super) fn for_scope(exchange: &Handle, scope: &Scopes) -> Handle {
    Handle::of(&Digest::of([exchange.as_bytes(), scope.to_string().as_bytes()].concat()))
}

/// The family of a token of this name.
pub(super) fn family_of(jti: &str) -> Option<Handle> {
    Handle::parse(jti.split_once('.')?.0)
}

pub(super) fn access(
    issuer: &str,
    audience: &str,
    who: &Authorized,
    scope: &str,
    jti: String,
    span: Span,
) -> AccessTokenClaims {
    AccessTokenClaims {
        iss: issuer.to_owned(),
        sub: who.user.as_str().to_owned(),
        aud: Audience::One(audience.to_owned()),
        client_id: who.client_id.clone(),
        tenant: Some(who.tenant.as_str().to_owned()),
        scope: Some(scope.to_owned()),
        iat: span.from,
        nbf: None,
        exp: span.until,
        jti,
        auth_time: Some(who.auth_time),
        acr: who.acr.clone(),
        amr: who.amr.clone(),
        // only where it ends with its session: whoever checks it asks about that
        sid: who.session.filter(|_| !who.scope.contains(OFFLINE_ACCESS)).map(|session| session.to_string()),
        cnf: who.jkt.clone().map(|jkt| Confirmation { jkt: Some(jkt) }),
    }
}

pub(super) fn id(issuer: &str, who: &Authorized, nonce: Option<String>, span: Span) -> IdClaims {
    IdClaims {
        iss: issuer.to_owned(),
        sub: who.user.as_str().to_owned(),
        aud: who.client_id.clone(),
        iat: span.from,
        exp: span.until,
        auth_time: Some(who.auth_time),
        nonce,
        acr: who.acr.clone(),
        amr: who.amr.clone(),
        at_hash: None,
        sid: who.session.map(|session| session.to_string()),
        tenant: Some(who.tenant.as_str().to_owned()),
        more: Map::new(),
    }
}

/// The left half of the hash of an access token, by the hash of the algorithm that signs the id_token.
pub(super) fn at_hash(token: &str, algorithm: Algorithm) -> String {
    let hash = digest(if algorithm == Algorithm::EdDsa { &SHA512 } else { &SHA256 }, token.as_bytes());
    let (left, _) = hash.as_ref().split_at(hash.as_ref().len() / 2);
    BASE64URL.encode(left)
}
