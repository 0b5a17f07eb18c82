//! How long sessions, logins and codes live, and what one address may cause.

use serde::Deserialize;
use tollgate::{
    ConfigError, Quota,
    auth::{AbuseLimits, AuthServiceBuilder, LoginLimits},
};

use crate::secret_text::Span;

/// The section `[lifetimes]`, without those of tokens.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Lifetimes {
    session: Option<Span>,
    session_idle: Option<Span>,
    remember_me: Option<Span>,
    login: Option<Span>,
    code: Option<Span>,
    trusted_browser: Option<Span>,
}

/// The section `[limits]`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    messages_per_address: Option<u32>,
    unverified_per_address: Option<u32>,
    code_attempts: Option<u8>,
    free_failures: Option<u32>,
    failure_ceiling: Option<u32>,
}

impl Lifetimes {
    pub(crate) fn set_on(&self, auth: AuthServiceBuilder) -> AuthServiceBuilder {
        let auth = self.session.iter().fold(auth, |auth, span| auth.session_lifetime(span.0));
        let auth = self.session_idle.iter().fold(auth, |auth, span| auth.session_idle(span.0));
        self.remember_me.iter().fold(auth, |auth, span| auth.remember_me(span.0))
    }
}

impl Limits {
    pub(crate) fn set_on(
        &self,
        auth: AuthServiceBuilder,
        lifetimes: &Lifetimes,
        per_address: Option<Quota>,
    ) -> Result<AuthServiceBuilder, ConfigError> {
        let mut limits = LoginLimits::new();
        limits = lifetimes.login.iter().fold(limits, |limits, span| limits.absolute_timeout(span.0));
        limits = lifetimes.code.iter().fold(limits, |limits, span| limits.code_lifetime(span.0));
        limits = lifetimes.trusted_browser.iter().fold(limits, |limits, span| limits.device_lifetime(span.0));
        limits = self.code_attempts.into_iter().fold(limits, LoginLimits::code_attempts);
        limits = self.free_failures.into_iter().fold(limits, LoginLimits::free_failures);
        limits = self.failure_ceiling.into_iter().fold(limits, LoginLimits::failure_ceiling);
        let mut abuse = per_address.into_iter().fold(AbuseLimits::new(), AbuseLimits::requests_per_address);
        if let Some(number) = self.messages_per_address {
            abuse = abuse.messages_per_address(Quota::per_minute(number)?);
        }
        if let Some(number) = self.unverified_per_address {
            abuse = abuse.unverified_per_address(Quota::per_minute(number)?);
        }
        Ok(auth.login_limits(limits).abuse_limits(abuse))
    }
}
