//! The settings of all factors.

use crate::sso::SsoConnections;
use crate::{
    delivery::{Channel, Queue},
    policy::{Method, MethodSet},
    support::issuer::Issuer,
    support::seal::Seal,
    util::error::ConfigError,
};

/// The settings of the factors, before they are checked.
#[derive(Debug, Default)]
pub(crate) struct FactorSettings {
    pub(crate) without_passwords: bool,
    /// The methods for which users enrol, if they have settings.
    pub(crate) enrolled: MethodSet,
    pub(crate) passkey: Option<crate::auth::factors::passkey::settings::Passkeys>,
    pub(crate) totp: Option<crate::auth::factors::totp::settings::Totp>,
    pub(crate) sso: SsoConnections,
}

/// The factors of a service, with their checked settings.
pub(crate) struct EnabledFactors {
    /// The methods that have what they need, except `sso`, which depends on the tenant.
    pub(crate) methods: MethodSet,
    pub(crate) passkey: Option<crate::auth::factors::passkey::settings::PasskeyRules>,
    /// With the defaults filled in.
    pub(crate) totp: Option<crate::auth::factors::totp::settings::Totp>,
    /// Other identity providers.
    pub(crate) sso: SsoConnections,
}

impl EnabledFactors {
    /// Returns whether any tenant has another identity provider.
    pub(crate) fn has_providers(&self) -> bool {
        !self.sso.is_empty()
    }
}

impl FactorSettings {
    /// Returns the methods that have what they need, except `sso`, which depends on the tenant.
    pub(crate) fn methods(&self, queue: &Queue) -> MethodSet {
        let others = [
            (Method::Password, !self.without_passwords),
            (Method::Sms, queue.has(Channel::Sms)),
            (Method::Email, queue.has(Channel::Email)),
            (Method::Whatsapp, queue.has(Channel::Whatsapp)),
        ];
        let others = others.into_iter().filter(|(_, is_enabled)| *is_enabled).map(|(method, _)| method);
        self.enrolled.iter().chain(others).collect()
    }

    /// Checks the settings.
    pub(crate) fn build(
        self,
        (issuer, queue): (&Issuer, &Queue),
        (seal, is_persistent): (&Seal, bool),
    ) -> Result<EnabledFactors, ConfigError> {
        Ok(EnabledFactors {
            methods: self.methods(queue),
            passkey: self.passkey.map(|it| it.build(issuer)).transpose()?,
            totp: self.totp.map(|it| it.complete(issuer.host(), seal, is_persistent)).transpose()?,
            sso: self.sso,
        })
    }
}
