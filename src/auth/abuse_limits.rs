//! [`AbuseLimits`]: limits on the work of anonymous callers.

use std::num::NonZeroU32;

use crate::{
    util::builder::setters,
    {auth::http::bodies::BodyLimits, limit::Quota, util::error::ConfigError},
};

/// Limits on the work that anonymous callers can cause, for
/// [`AuthServiceBuilder::abuse_limits`](crate::auth::AuthServiceBuilder::abuse_limits).
///
/// | Setting | Default |
/// |---|---|
/// | [`requests_per_address`](Self::requests_per_address) | only the tenant's limit |
/// | [`messages_per_address`](Self::messages_per_address) | 120 a minute |
/// | [`new_contact_codes_per_address`](Self::new_contact_codes_per_address) | 30 an hour |
/// | [`unverified_per_address`](Self::unverified_per_address) | 600 a minute |
/// | [`unverified_at_once`](Self::unverified_at_once) | 256, for unknown addresses |
/// | [`bodies_at_once`](Self::bodies_at_once) | 1,000 |
/// | [`bodies_per_address`](Self::bodies_per_address) | 50 |
///
/// Quotas are counted in each process, unless the [`limiter`](crate::auth::AuthServiceBuilder::limiter) is shared. IPv6
/// addresses are counted by prefix: see [`ClientIp::ipv6_prefix`](crate::ClientIp::ipv6_prefix).
///
/// ```
/// use tollgate::{Quota, auth::AbuseLimits};
///
/// let limits = AbuseLimits::new()
///     .requests_per_address(Quota::per_minute(60)?)
///     .messages_per_address(Quota::per_minute(10)?);
/// # let _ = limits;
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct AbuseLimits {
    pub(super) requests_per_address: Option<Quota>,
    pub(super) messages_per_address: Option<Quota>,
    pub(super) new_contact_codes_per_address: Option<Quota>,
    pub(super) unverified_per_address: Option<Quota>,
    pub(super) unverified_at_once: NonZeroU32,
    bodies_at_once: usize,
    bodies_per_address: usize,
}

impl AbuseLimits {
    /// Creates the default limits.
    pub fn new() -> Self {
        Self {
            requests_per_address: None,
            messages_per_address: None,
            new_contact_codes_per_address: None,
            unverified_per_address: None,
            // evaluated by the compiler, so it can't fail at run time
            unverified_at_once: const { NonZeroU32::new(256).unwrap() },
            bodies_at_once: BodyLimits::TOTAL,
            bodies_per_address: BodyLimits::PER_ADDRESS,
        }
    }

    setters! {
        /// Limits how much of the tenants' budgets one address may spend, so that knowing a public client id is not
        /// enough to use up a tenant's budget. Defaults to no limit.
        pub fn requests_per_address(quota: Quota) { requests_per_address: Some(quota) }

        /// Limits how many one-time codes one address can ask for. Set it below the default if messages cost money.
        pub fn messages_per_address(quota: Quota) { messages_per_address: Some(quota) }

        /// Limits how many codes one address can have sent to contacts that may belong to no account: at sign-up, and
        /// for new contacts. They count as [messages](Self::messages_per_address) too.
        pub fn new_contact_codes_per_address(quota: Quota) { new_contact_codes_per_address: Some(quota) }

        /// Limits how many bad requests from one address can cause work before a tenant can be charged: lookups of
        /// clients and logins, and checks of signatures. Good requests are not counted. Further requests get a 429
        /// without that work.
        pub fn unverified_per_address(quota: Quota) { unverified_per_address: Some(quota) }

        /// Limits how many requests from unknown addresses can cause such work at the same time. Further requests get a
        /// 503.
        pub fn unverified_at_once(most: NonZeroU32) { unverified_at_once: most }

        /// Limits how many request bodies are received at the same time. Further ones get a 503. A body takes at most 64 KiB
        /// and 30 seconds.
        pub fn bodies_at_once(most: usize) { bodies_at_once: most }

        /// Limits how many request bodies from one address are received at the same time. Further ones get a 429. An IPv6 /48
        /// network can have four times as many.
        pub fn bodies_per_address(most: usize) { bodies_per_address: most }
    }

    pub(super) fn body_limits(&self) -> Result<BodyLimits, ConfigError> {
        for (setting, most) in
            [("bodies_at_once", self.bodies_at_once), ("bodies_per_address", self.bodies_per_address)]
        {
            ConfigError::refuse_if(most == 0, setting, most, "must be at least 1")?;
        }
        Ok(BodyLimits::new(self.bodies_at_once, self.bodies_per_address))
    }
}

crate::util::builder::default_by_new!(AbuseLimits);
