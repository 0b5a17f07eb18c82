//! The claims of issued tokens.

use aws_lc_rs::digest::{SHA256, SHA512, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::grant::{self, Grant};
use crate::{
    bearer::{AccessTokenClaims, Audience, Confirmation, MACHINE},
    client::{Client, Scopes},
    jose::Algorithm,
    session::Authentication,
    tenant::Tenant,
    user::{self, ClaimTarget},
    util::{clock::UnixTime, public_id::PublicId, secret::SecretDigest},
};

/// The type of an id_token, in its header.
pub(super) const ID_TOKEN: &str = "JWT";

/// The private claim of an access token that holds its user's generation. It is omitted for generation 0.
const GENERATION: &str = "gen";

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

/// The validity period of a token, in Unix seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) until: u64,
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

/// The claims of an access token that do not come from the grant.
pub(super) struct AccessTokenParts<'a> {
    pub(super) issuer: &'a str,
    pub(super) audience: Audience,
    pub(super) scope: &'a str,
    pub(super) jti: String,
    pub(super) span: Span,
    /// Claims about the user. They can't replace other claims, because `user::Claims` refuses reserved names.
    pub(super) more: Map<String, Value>,
}

impl AccessTokenParts<'_> {
    /// Returns the claims of a token without a session.
    fn into_claims(self, subject: &str, client: &str, tenant: &Tenant, jkt: Option<String>) -> AccessTokenClaims {
        AccessTokenClaims {
            iss: self.issuer.to_owned(),
            sub: subject.to_owned(),
            aud: self.audience,
            client_id: client.to_owned(),
            tenant: Some(tenant.as_str().to_owned()),
            scope: Some(self.scope.to_owned()),
            iat: self.span.from,
            nbf: None,
            exp: self.span.until,
            jti: self.jti,
            auth_time: None,
            acr: None,
            amr: Vec::new(),
            sid: None,
            cnf: jkt.map(|jkt| Confirmation { jkt: Some(jkt) }),
            more: self.more,
        }
    }
}

/// Returns the claims of an access token for `who`, the part of the grant's authentication that still counts.
pub(super) fn user_token_claims(
    grant: &Grant,
    who: &Authentication,
    mut token: AccessTokenParts<'_>,
) -> AccessTokenClaims {
    if who.generation > 0 {
        token.more.insert(GENERATION.to_owned(), who.generation.into());
    }
    AccessTokenClaims {
        auth_time: who.auth_time().map(UnixTime::as_secs),
        acr: who.acr.as_deref().map(str::to_owned),
        amr: grant::amr(who),
        // verifiers look up the session, so a token that outlives its session doesn't name it
        sid: (!grant.outlives_session()).then(|| grant.session.to_string()),
        ..token.into_claims(who.user.as_str(), grant.client_id(), &who.tenant, grant.jkt.clone())
    }
}

/// Returns the claims of an access token that a machine client has for itself.
pub(super) fn machine_token_claims(
    client: &Client,
    jkt: Option<String>,
    mut token: AccessTokenParts<'_>,
) -> AccessTokenClaims {
    token.more.insert(MACHINE.0.to_owned(), MACHINE.1.into());
    token.into_claims(client.id(), client.id(), client.tenant(), jkt)
}

/// The claims of an id_token that do not come from the grant.
pub(super) struct IdTokenParts<'a> {
    pub(super) issuer: &'a str,
    pub(super) nonce: Option<&'a str>,
    pub(super) access_token: &'a str,
    pub(super) algorithm: Algorithm,
    pub(super) span: Span,
    /// Claims about the user. They can't replace other claims, because `user::Claims` refuses reserved names.
    pub(super) more: Map<String, Value>,
}

pub(super) fn id(grant: &Grant, who: &Authentication, token: IdTokenParts<'_>) -> IdClaims {
    IdClaims {
        iss: token.issuer.to_owned(),
        sub: who.user.as_str().to_owned(),
        aud: grant.client_id().to_owned(),
        iat: token.span.from,
        exp: token.span.until,
        auth_time: who.auth_time().map(UnixTime::as_secs),
        nonce: token.nonce.map(str::to_owned),
        acr: who.acr.as_deref().map(str::to_owned),
        amr: grant::amr(who),
        at_hash: Some(at_hash(token.access_token, token.algorithm)),
        sid: Some(grant.session.to_string()),
        tenant: Some(who.tenant.as_str().to_owned()),
        more: token.more,
    }
}

/// Returns the left half of the hash of an access token, by the hash function of the id_token's algorithm.
fn at_hash(token: &str, algorithm: Algorithm) -> String {
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
        login::Binding,
        pkce::CodeChallenge,
        session::{Proof, UserId},
        user::{self, ClaimError},
    };

    #[test]
    fn claims_about_a_user_cannot_have_the_name_of_a_protocol_claim() {
        let who = Authentication {
            tenant: "acme".parse().unwrap(),
            user: UserId::parse("u-ada").unwrap(),
            generation: 1,
            proofs: vec![Proof { method: "password".into(), at: 1, mark: None, elsewhere: None }],
            acr: Some("mfa".into()),
        };
        let binding = Binding {
            client_id: "web".to_owned(),
            redirect_uri: "https://app.example/callback".to_owned(),
            scope: Scopes::parse("openid").unwrap(),
            code_challenge: CodeChallenge::parse("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM").unwrap(),
        };
        let (session, jkt) = (PublicId::from_bytes([1; 16]), Some("key".to_owned()));
        let (id_token, userinfo, resources) = (Vec::new(), Vec::new(), Vec::new());
        let grant = Grant { who, session, binding, jkt, id_token, userinfo, resources };
        let (issuer, span) = ("https://auth.example", Span { from: 1, until: 2 });
        let (jti, more) = (jti(&session, &session), Map::new());
        let audience = Audience::One(issuer.to_owned());
        let token = AccessTokenParts { issuer, audience, scope: "openid", jti, span, more: more.clone() };
        let access = AccessTokenClaims { nbf: Some(1), ..user_token_claims(&grant, &grant.who, token) };
        assert_eq!(generation(&access), 1);
        let (nonce, algorithm) = (Some("n"), Algorithm::Es256);
        let id = id(&grant, &grant.who, IdTokenParts { issuer, nonce, access_token: "x", algorithm, span, more });
        for document in [serde_json::to_value(access).unwrap(), serde_json::to_value(id).unwrap()] {
            assert!(document.as_object().unwrap().len() >= 12);
            for name in document.as_object().unwrap().keys() {
                assert_eq!(user::Claims::new().insert(name.clone(), 1), Err(ClaimError::Reserved), "{name}");
            }
        }
    }
}
