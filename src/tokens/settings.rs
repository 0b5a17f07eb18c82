//! [`Tokens`]: the settings of the token endpoint.

use std::{sync::Arc, time::Duration};

use super::{
    keys::Keys,
    revocation::Revocations,
    ring::Schedule,
    service::{Inner, Lifetimes, TokenService},
};
use crate::{
    bearer::{Verifier, check_name},
    jose::Algorithm,
    store::{AnyStore, table::Table},
    support::{issuer::Issuer, seal::Seal},
    util::{
        clock::{Clock, SystemClock},
        error::ConfigError,
        secret::Secret,
    },
};

/// The settings of tokens: their lifetimes, their algorithm and how their keys are kept.
///
/// Pass them to [`AuthServiceBuilder::tokens`](crate::auth::AuthServiceBuilder::tokens). Building the service reports settings that
/// can't work. The [module docs](super) show the whole flow.
#[derive(Clone)]
#[must_use]
pub struct Tokens {
    algorithm: Algorithm,
    audience: Option<String>,
    lifetimes: Lifetimes,
    /// The seal of the signing keys.
    pub(crate) seal: Seal,
    rotate_every: Duration,
    /// The first setting that can't work.
    error: Option<ConfigError>,
}

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The maximum lifetime of an access token.
const LONGEST_ACCESS: Duration = Lifetimes::LONGEST_ACCESS;
/// The maximum lifetime of a family.
const LONGEST_REFRESH: Duration = Duration::from_secs(400 * 24 * 3600);
/// A key is published for an hour before it signs, and for a day after.
const LEAD: Duration = Duration::from_secs(3600);
const KEEP: Duration = DAY;

crate::util::builder::default_by_new!(Tokens);

impl Tokens {
    /// Creates the default settings.
    pub fn new() -> Self {
        Self {
            algorithm: Algorithm::Es256,
            audience: None,
            lifetimes: Lifetimes {
                access: LONGEST_ACCESS,
                refresh: DAY * 30,
                session_refresh: DAY,
                grace: Duration::from_secs(10),
                session: Duration::ZERO,
            },
            seal: Seal::default(),
            rotate_every: DAY * 90,
            error: None,
        }
    }

    /// Sets the algorithm that signs tokens. Defaults to ES256.
    ///
    /// An RS256 key always exists too, because some [clients](crate::Client::id_token_algorithm) support nothing else.
    /// All processes that share a store need the same algorithm. A change takes effect at once. Unlike a rotated key,
    /// the new key is not published for an hour first: APIs with a copy of `/jwks` must fetch it again when they meet
    /// an unknown key, as `Verifier::remote` does.
    pub fn algorithm(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// Sets the `aud` of access tokens: the URL of an API, such as `https://api.example.com`. Defaults to the issuer. A
    /// client can have [its own](crate::Client::audience).
    pub fn audience(self, audience: &str) -> Self {
        let checked = check_name("audience", audience);
        Self { audience: Some(audience.to_owned()), ..self }.checked(checked)
    }

    /// Sets how long access tokens and id_tokens are valid: one minute to ten. Defaults to ten minutes.
    pub fn access_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetimes.access = lifetime;
        self.within("access token lifetime", lifetime, MINUTE..=LONGEST_ACCESS, "must be one minute to ten")
    }

    /// Sets how long refresh tokens work after the login if the client has the scope `offline_access`: ten minutes to
    /// 400 days. Defaults to 30 days.
    pub fn refresh_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetimes.refresh = lifetime;
        let reason = "must be ten minutes to 400 days";
        self.within("refresh token lifetime", lifetime, LONGEST_ACCESS..=LONGEST_REFRESH, reason)
    }

    /// Sets how long refresh tokens work without `offline_access`, unless the user signs out earlier: ten minutes to 24
    /// hours. Defaults to 24 hours, and never exceeds the [`refresh_lifetime`](Self::refresh_lifetime).
    pub fn session_refresh_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetimes.session_refresh = lifetime;
        let reason = "must be ten minutes to 24 hours";
        self.within("session refresh token lifetime", lifetime, LONGEST_ACCESS..=DAY, reason)
    }

    /// Sets how long a used refresh token still returns the same successor, for clients that lost the response or asked
    /// twice: at most one minute. Defaults to 10 seconds. Using it later revokes the whole family.
    pub fn refresh_grace(mut self, grace: Duration) -> Self {
        self.lifetimes.grace = grace;
        self.within("refresh grace", grace, Duration::ZERO..=MINUTE, "must be at most one minute")
    }

    /// Encrypts private keys in the store with this secret, which all processes must share. Without it, anyone with a
    /// copy of the store can sign tokens. Existing keys stay unencrypted until they are
    /// [rotated](crate::auth::SigningKeys::rotate_keys) out.
    pub fn seal(self, secret: &Secret) -> Self {
        Self { seal: self.seal.with_secret(secret), ..self }
    }

    /// Also reads private keys that were encrypted with this earlier secret of [`seal`](Self::seal), so that the secret can be
    /// changed. New keys are encrypted with the new one. Can be called several times.
    ///
    /// If several nodes share the store, first add the new secret to each as an older seal, and only then make it the
    /// seal.
    pub fn older_seal(self, secret: &Secret) -> Self {
        Self { seal: self.seal.with_older(secret), ..self }
    }

    /// Sets how long a key signs: one day to ten years. Defaults to 90 days.
    pub fn rotate_every(mut self, period: Duration) -> Self {
        self.rotate_every = period;
        self.within("rotation of signing keys", period, DAY..=DAY * 3650, "must be one day to ten years")
    }

    /// Sets how long the longest session lives. Its id_tokens are accepted as hints until then.
    pub(crate) fn longest_session(mut self, lifetime: Duration) -> Self {
        self.lifetimes.session = lifetime;
        self
    }

    /// Creates a verifier for a process that shares the store with the login service but serves no logins.
    ///
    /// It needs the same settings as the service. Revoked tokens are refused at once. In the process of the service, use
    /// [`AuthService::verifier`](crate::AuthService::verifier). Without access to the store, use `Verifier::remote`
    /// (feature `external-providers`).
    ///
    /// # Errors
    ///
    /// Returns an error if the issuer or a setting can't work.
    pub fn verifier_in(self, issuer: &str, store: impl Into<AnyStore>) -> Result<Verifier, ConfigError> {
        let service = self.build(&Issuer::parse(issuer)?, store.into(), Arc::new(SystemClock::new()))?;
        Ok(service.verifier())
    }

    /// Checks the settings and creates the token service.
    pub(crate) fn build(
        self,
        issuer: &Issuer,
        store: AnyStore,
        clock: Arc<dyn Clock>,
    ) -> Result<TokenService, ConfigError> {
        check_name("issuer", issuer.as_str())?;
        if let Some(error) = self.error {
            return Err(error);
        }
        let schedule = Schedule { period: self.rotate_every, lead: LEAD, keep: KEEP };
        let mut wanted = vec![self.algorithm];
        wanted.extend((self.algorithm != Algorithm::Rs256).then_some(Algorithm::Rs256));
        Ok(TokenService(Arc::new(Inner {
            audience: self.audience.unwrap_or_else(|| issuer.as_str().to_owned()),
            issuer: issuer.as_str().to_owned(),
            algorithm: self.algorithm,
            lifetimes: self.lifetimes,
            keys: Keys::new(store.clone(), Arc::clone(&clock), self.seal, wanted, schedule),
            families: Table::new(store.clone(), "token_families", Arc::clone(&clock)),
            lists: Table::new(store.clone(), "family_lists", Arc::clone(&clock)),
            revocations: Revocations::new(store, Arc::clone(&clock)),
            clock,
        })))
    }

    fn within(
        self,
        setting: &'static str,
        value: Duration,
        range: std::ops::RangeInclusive<Duration>,
        reason: &'static str,
    ) -> Self {
        self.checked(ConfigError::check_range(setting, value, range, reason))
    }

    fn checked(self, checked: Result<(), ConfigError>) -> Self {
        let error = self.error.clone().or(checked.err());
        Self { error, ..self }
    }
}

crate::util::fmt::debug_fields!(Tokens { algorithm, audience, lifetimes });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Memory;

    #[test]
    fn the_first_setting_that_cannot_work_is_reported_when_the_service_is_built() {
        let built = |tokens: Tokens| {
            let issuer = Issuer::parse("https://auth.example").unwrap();
            tokens.build(&issuer, Memory::new().into(), Arc::new(SystemClock::new())).map(|_| ())
        };
        let (second, nano) = (Duration::from_secs(1), Duration::from_nanos(1));
        let new = Tokens::new;
        for good in [
            new(),
            new().access_lifetime(MINUTE).access_lifetime(MINUTE * 10),
            new().refresh_lifetime(MINUTE * 10).refresh_lifetime(DAY * 400),
            new().session_refresh_lifetime(MINUTE * 10).session_refresh_lifetime(DAY),
            new().refresh_grace(Duration::ZERO).refresh_grace(MINUTE),
            new().rotate_every(DAY).rotate_every(DAY * 3650),
            new().audience("https://api.example"),
        ] {
            assert_eq!(built(good), Ok(()));
        }
        for (bad, setting) in [
            (new().access_lifetime(MINUTE - nano), "access token lifetime"),
            (new().access_lifetime(MINUTE * 10 + nano), "access token lifetime"),
            (new().refresh_lifetime(MINUTE * 10 - second), "refresh token lifetime"),
            (new().refresh_lifetime(DAY * 400 + second), "refresh token lifetime"),
            (new().session_refresh_lifetime(MINUTE * 10 - nano), "session refresh token lifetime"),
            (new().session_refresh_lifetime(DAY + nano), "session refresh token lifetime"),
            (new().refresh_grace(MINUTE + nano), "refresh grace"),
            (new().rotate_every(DAY - nano), "rotation of signing keys"),
            (new().rotate_every(DAY * 3651), "rotation of signing keys"),
            (new().audience(""), "audience"),
            (new().refresh_grace(DAY).audience("").access_lifetime(DAY), "refresh grace"),
            // a later value does not hide it
            (new().refresh_grace(DAY).refresh_grace(second), "refresh grace"),
        ] {
            assert_eq!(built(bad).unwrap_err().setting(), setting);
        }
        let long = format!("https://auth.example/{}", "a".repeat(250));
        let error = Tokens::new().verifier_in(&long, Memory::new()).unwrap_err();
        assert_eq!(error.setting(), "issuer");
    }
}
