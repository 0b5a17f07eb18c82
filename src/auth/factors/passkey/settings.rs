//! The settings of passkeys.

use std::collections::BTreeMap;

use crate::{
    support::issuer::Issuer,
    tenant::Tenant,
    util::{builder::setters, error::ConfigError},
    webauthn::{BackupPolicy, CounterPolicy, RelyingParty, UserVerification},
};

/// The settings of passkeys, for [`AuthServiceBuilder::passkeys`](crate::auth::AuthServiceBuilder::passkeys).
///
/// Passkeys are bound to a relying party id: a domain. They work on the allowed origins, which are pages of that domain or
/// of its subdomains. Invalid settings are reported when the service is built.
///
/// ```
/// use tollgate::auth::Passkeys;
///
/// let passkeys = Passkeys::new("example.com").origin("https://login.example.com").origin("https://app.example.com");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Passkeys {
    main: Domain,
    tenants: BTreeMap<Tenant, Domain>,
    name: Option<String>,
    counter: CounterPolicy,
    user_verification: UserVerification,
    backup: BackupPolicy,
}

#[derive(Clone, Debug)]
struct Domain {
    id: String,
    origins: Vec<String>,
}

impl Passkeys {
    /// Uses this relying party id, such as `example.com`. Changing it later makes all passkeys unusable.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            main: Domain { id: id.into(), origins: Vec::new() },
            tenants: BTreeMap::new(),
            name: None,
            counter: CounterPolicy::default(),
            user_verification: UserVerification::default(),
            backup: BackupPolicy::default(),
        }
    }

    /// Allows pages of this origin. By default, only the origin of the issuer is allowed.
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.main.origins.push(origin.into());
        self
    }

    /// Sets another relying party id and other origins for this tenant. If `origins` is empty, that of the issuer is
    /// allowed.
    pub fn tenant<O: Into<String>>(
        mut self,
        tenant: &Tenant,
        id: impl Into<String>,
        origins: impl IntoIterator<Item = O>,
    ) -> Self {
        let origins = origins.into_iter().map(Into::into).collect();
        self.tenants.insert(tenant.clone(), Domain { id: id.into(), origins });
        self
    }

    setters! {
        /// Sets the name of the service that some authenticators show. Defaults to the relying party id.
        pub fn name(name: impl Into<String>) { name: Some(name.into()) }

        /// Sets what happens if a signature counter has not increased. Defaults to [`CounterPolicy::Refuse`]. Either
        /// way, an event is recorded.
        pub fn counter(counter: CounterPolicy) { counter: counter }

        /// Sets whether the authenticator has to verify its user. Defaults to [`UserVerification::Required`]. Logins of
        /// one step always require it. Sessions do not record it, so a session from a login of two steps also serves
        /// clients that need only one.
        pub fn user_verification(user_verification: UserVerification) { user_verification: user_verification }

        /// Sets whether synced passkeys are accepted. Defaults to [`BackupPolicy::Allow`].
        pub fn backup(backup: BackupPolicy) { backup: backup }
    }

    /// Checks the settings.
    pub(crate) fn build(&self, issuer: &Issuer) -> Result<PasskeyRules, ConfigError> {
        let tenants = self.tenants.iter().map(|(tenant, domain)| Ok((tenant.clone(), self.party(domain, issuer)?)));
        Ok(PasskeyRules {
            main: self.party(&self.main, issuer)?,
            tenants: tenants.collect::<Result<_, ConfigError>>()?,
        })
    }

    fn party(&self, domain: &Domain, issuer: &Issuer) -> Result<RelyingParty, ConfigError> {
        let party = RelyingParty::new(&domain.id)?
            .name(self.name.as_ref().unwrap_or(&domain.id))
            .counter(self.counter)
            .user_verification(self.user_verification)
            .backup(self.backup);
        if domain.origins.is_empty() {
            return party.origin(issuer.origin());
        }
        domain.origins.iter().try_fold(party, RelyingParty::origin)
    }
}

/// The relying party of each tenant.
#[derive(Clone, Debug)]
pub(crate) struct PasskeyRules {
    main: RelyingParty,
    tenants: BTreeMap<Tenant, RelyingParty>,
}

impl PasskeyRules {
    /// Returns the relying party of this tenant.
    pub(crate) fn party_for_tenant(&self, tenant: &Tenant) -> &RelyingParty {
        self.tenants.get(tenant).unwrap_or(&self.main)
    }
}
