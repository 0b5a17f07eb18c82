//! How users sign in, and for how long: everything of the file that only the login service needs.

use std::path::Path;

use serde::Deserialize;
use tollgate::{ConfigError, Passkeys, Quota, Tenant, Totp, auth::AuthServiceBuilder};

use crate::{
    login_limits::{Lifetimes, Limits},
    secret_text::SecretText,
    senders::Senders,
};

/// The section `[passkeys]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenPasskeys {
    id: String,
    #[serde(default)]
    origins: Vec<String>,
    name: Option<String>,
}

/// The section `[authenticator_apps]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenApps {
    name: Option<String>,
    seal: Option<SecretText>,
    #[serde(default)]
    older_seals: Vec<SecretText>,
}

/// The demo uses the defaults.
#[derive(Default)]
pub(crate) struct LoginSettings {
    /// The tenant whose users sign in to this server itself, to manage their passkeys and apps.
    pub(crate) account_pages: Option<Tenant>,
    pub(crate) passkeys: Option<Passkeys>,
    pub(crate) apps: Option<Totp>,
    pub(crate) senders: Senders,
    #[cfg(feature = "external-providers")]
    pub(crate) providers: Vec<crate::providers::Provider>,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) limits: Limits,
}

impl WrittenPasskeys {
    pub(crate) fn read(self) -> Passkeys {
        let passkeys = self.origins.into_iter().fold(Passkeys::new(self.id), Passkeys::origin);
        self.name.into_iter().fold(passkeys, Passkeys::name)
    }
}

impl WrittenApps {
    pub(crate) fn read(&self, directory: &Path) -> Result<Totp, String> {
        let apps = self.name.iter().fold(Totp::new(), |apps, name| apps.name(name));
        let secret = |name: &str, text: &SecretText| text.random(directory).map_err(|error| format!("{name}: {error}"));
        let apps = self.seal.iter().try_fold(apps, |apps, text| Ok::<_, String>(apps.seal(&secret("seal", text)?)))?;
        self.older_seals.iter().try_fold(apps, |apps, text| Ok(apps.older_seal(&secret("older_seals", text)?)))
    }
}

impl LoginSettings {
    pub(crate) fn set_on(
        self,
        mut auth: AuthServiceBuilder,
        per_address: Option<Quota>,
    ) -> Result<AuthServiceBuilder, ConfigError> {
        let Senders { email, sms, whatsapp } = self.senders;
        auth = email.into_iter().fold(auth, AuthServiceBuilder::email);
        auth = sms.into_iter().fold(auth, AuthServiceBuilder::sms);
        auth = whatsapp.into_iter().fold(auth, AuthServiceBuilder::whatsapp);
        auth = self.account_pages.into_iter().fold(auth, AuthServiceBuilder::first_party);
        auth = self.passkeys.into_iter().fold(auth, AuthServiceBuilder::passkeys);
        auth = self.apps.into_iter().fold(auth, AuthServiceBuilder::totp);
        self.limits.set_on(self.lifetimes.set_on(auth), &self.lifetimes, per_address)
    }
}
