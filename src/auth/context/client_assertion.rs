//! Assertions with which clients authenticate (`private_key_jwt`: RFC 7521, RFC 7523).

use std::time::Duration;

use http::{HeaderMap, header};
use serde::Deserialize;

use super::RequestContext;
use crate::{
    auth::http::problem::Problem,
    bearer::Audience,
    client::Client,
    jose::{JwsAlgorithm, KeySet, date, jws::Unverified},
    store::WriteOutcome,
    util::{clock::UnixTime, secret::SecretDigest},
};

const KIND: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The types of assertions. Many clients send none.
const TYPES: [&str; 2] = ["JWT", "client-authentication+jwt"];

/// The longest time until an assertion expires.
const LONGEST: Duration = Duration::from_secs(300);

/// How far the clock of a client may differ.
const SKEW: Duration = Duration::from_secs(10);

/// The maximum length of `jti`.
const MOST_OF_JTI: usize = 256;

#[derive(Deserialize)]
struct Assertion {
    iss: String,
    sub: String,
    aud: Audience,
    #[serde(deserialize_with = "date::floor")]
    exp: u64,
    #[serde(default, deserialize_with = "date::ceil_if_any")]
    iat: Option<u64>,
    #[serde(default, deserialize_with = "date::ceil_if_any")]
    nbf: Option<u64>,
    jti: String,
}

/// Returns the client that an assertion claims to come from.
pub(super) fn claimed_client(assertion: &str) -> Option<String> {
    Some(Unverified::parse_any(assertion)?.unverified_claims::<Assertion>()?.sub)
}

/// Returns the assertion of a request, which authenticates its client in no other way.
pub(super) fn shown_assertion<'f>(
    headers: &HeaderMap,
    value: impl Fn(&str) -> Option<&'f str>,
) -> Result<&'f str, Problem> {
    let text = value("client_assertion")
        .ok_or_else(|| Problem::unauthenticated_client("this client needs client_assertion"))?;
    if value("client_assertion_type") != Some(KIND) {
        return Err(Problem::unauthenticated_client("client_assertion_type is not jwt-bearer"));
    }
    if value("client_secret").is_some() || headers.contains_key(header::AUTHORIZATION) {
        return Err(Problem::unauthenticated_client("client_assertion is the only way to authenticate"));
    }
    Ok(text)
}

/// Checks an assertion, and marks it as used.
pub(super) async fn check_assertion(
    cx: &RequestContext<'_>,
    client: &Client,
    keys: &KeySet,
    text: &str,
) -> Result<(), Problem> {
    let endpoints = cx
        .core
        .tokens
        .as_ref()
        .ok_or_else(|| Problem::unauthenticated_client("only a service with tokens accepts assertions"))?;
    let malformed =
        || Problem::unauthenticated_client("client_assertion is malformed, or lacks iss, sub, aud, exp or jti");
    let assertion = Unverified::parse_any(text).ok_or_else(malformed)?;
    if assertion.has_type() && !TYPES.iter().any(|typ| assertion.is_type(typ)) {
        return Err(Problem::unauthenticated_client("client_assertion has another type"));
    }
    // what is cheap comes before the signature
    let claims: Assertion = assertion.unverified_claims().ok_or_else(malformed)?;
    let expires = claims.fit(client, endpoints.service.issuer(), cx.core.clock.unix(cx.core.clock.now()))?;
    if assertion.claims_with::<Assertion>(keys, &[JwsAlgorithm::Ps256]).is_err() {
        return Err(Problem::unauthenticated_client("client_assertion is not signed by a key of this client"));
    }
    let id = SecretDigest::of_secret([SecretDigest::of_secret(client.id()).as_bytes(), claims.jti.as_bytes()].concat());
    let used = &endpoints.used_assertions;
    match used.insert(Some(client.tenant()), id.as_bytes(), &(), expires + SKEW).await? {
        WriteOutcome::Done(_) => Ok(()),
        WriteOutcome::Lost(_) => Err(Problem::unauthenticated_client("client_assertion was used before")),
    }
}

impl Assertion {
    /// Checks the claims, and returns when the assertion expires.
    fn fit(&self, client: &Client, issuer: &str, now: UnixTime) -> Result<UnixTime, Problem> {
        if self.iss != client.id() || self.sub != client.id() {
            return Err(Problem::unauthenticated_client("iss and sub of client_assertion must be the client_id"));
        }
        // each server has to accept these three (RFC 9126 §2); an assertion that is also for others could be replayed by them
        let is_own = |name: &str| matches!(name.strip_prefix(issuer), Some("" | "/token" | "/par"));
        if self.aud.iter().next().is_none() || !self.aud.iter().all(is_own) {
            return Err(Problem::unauthenticated_client(
                "aud of client_assertion must be the issuer, the token endpoint or /par",
            ));
        }
        let expires = UnixTime::from_secs(self.exp);
        if now >= expires {
            return Err(Problem::unauthenticated_client("client_assertion has expired"));
        }
        if expires > now + LONGEST + SKEW {
            return Err(Problem::unauthenticated_client("client_assertion expires in more than five minutes"));
        }
        let is_ahead = |time: Option<u64>| time.is_some_and(|time| UnixTime::from_secs(time) > now + SKEW);
        if is_ahead(self.iat) || is_ahead(self.nbf) {
            return Err(Problem::unauthenticated_client("client_assertion was issued in the future"));
        }
        if !(1..=MOST_OF_JTI).contains(&self.jti.len()) {
            return Err(Problem::unauthenticated_client("jti of client_assertion must be 1 to 256 bytes long"));
        }
        Ok(expires)
    }
}
