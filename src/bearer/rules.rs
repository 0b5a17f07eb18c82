//! Validation of claims.

use std::time::Duration;

use super::{
    keys::KeySource,
    profile::TokenProfile,
    token::{AccessToken, claims::AccessTokenClaims},
};
use crate::{
    tenant::Tenant,
    util::{clock::UnixTime, error::ConfigError},
};

/// The maximum length of a name (OpenID Connect Core §2).
const LONGEST_NAME: usize = 255;

/// Checks the name of an issuer or a service.
pub(crate) fn check_name(setting: &'static str, name: &str) -> Result<(), ConfigError> {
    if is_name(name) {
        return Ok(());
    }
    Err(ConfigError::new(setting, name, "must be 1 to 255 visible characters"))
}

#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) issuer: Box<str>,
    /// The names of this service. Never empty.
    pub(super) audiences: Vec<Box<str>>,
    /// The tolerance for clock differences.
    pub(super) leeway: Duration,
    pub(super) profile: TokenProfile,
}

impl Rules {
    pub(super) fn new(issuer: &str, audience: &str) -> Result<Self, ConfigError> {
        check_name("issuer", issuer)?;
        check_name("audience", audience)?;
        let (leeway, profile) = (Duration::from_secs(5), TokenProfile::rfc9068());
        Ok(Self { issuer: issuer.into(), audiences: vec![audience.into()], leeway, profile })
    }

    /// Converts claims to a token. Returns `None` if they are not meant for this service.
    pub(super) fn token_from_claims(&self, claims: AccessTokenClaims, keys: &dyn KeySource) -> Option<AccessToken> {
        let names = [&claims.sub, &claims.client_id, &claims.jti];
        let usable = *claims.iss == *self.issuer
            && self.audiences.iter().any(|name| claims.aud.has(name))
            && names.into_iter().all(|name| is_name(name))
            // not bound by a means that can't be checked here
            && claims.cnf.as_ref().is_none_or(|key| key.jkt.is_some());
        let tenant = claims.tenant.as_deref().map(Tenant::parse).transpose().ok()?;
        usable.then(|| {
            let revocation = keys.revocation(&claims);
            AccessToken::new(claims, tenant, revocation)
        })
    }

    /// Returns whether the token is valid at this time.
    pub(super) fn is_timely(&self, claims: &AccessTokenClaims, now: UnixTime) -> bool {
        let latest = now + self.leeway;
        let began = |seconds| UnixTime::from_secs(seconds) <= latest;
        began(claims.iat) && claims.nbf.is_none_or(began) && now < UnixTime::from_secs(claims.exp) + self.leeway
    }
}

fn is_name(text: &str) -> bool {
    (1..=LONGEST_NAME).contains(&text.len()) && !text.chars().any(char::is_control)
}
