//! All providers of a login service, by name.

use crate::{sso::connection::SsoConnection, tenant::Tenant, util::error::ConfigError};

const LONGEST_NAME: usize = 32;

/// The providers of a login service in the order in which users see them.
#[derive(Debug, Default)]
pub(crate) struct SsoConnections(Vec<(String, SsoConnection)>);

impl SsoConnections {
    /// Adds a provider. Tenants may have different providers of the same name.
    pub(crate) fn with(mut self, name: &str, connection: SsoConnection) -> Self {
        self.0.push((name.to_owned(), connection));
        self
    }

    /// Checks the names, which are parts of URLs.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for (at, (name, connection)) in self.0.iter().enumerate() {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
            if !(1..=LONGEST_NAME).contains(&name.len()) || !name.bytes().all(is_plain) {
                let reason = "must be 1 to 32 lowercase letters, digits, dashes and underscores";
                return Err(ConfigError::new("provider", name, reason));
            }
            let is_same = |(other, earlier): &&(String, SsoConnection)| other == name && earlier.overlaps(connection);
            if self.0.iter().take(at).any(|other| is_same(&other)) {
                return Err(ConfigError::new("provider", name, "is the name of two providers"));
            }
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the providers of a tenant.
    pub(crate) fn of(&self, tenant: &Tenant) -> impl Iterator<Item = (&str, &SsoConnection)> {
        let own = self.0.iter().filter(move |(_, connection)| connection.is_for(tenant));
        own.map(|(name, connection)| (name.as_str(), connection))
    }

    /// Finds a provider of a tenant by its name.
    pub(crate) fn find(&self, tenant: &Tenant, name: &str) -> Option<(&str, &SsoConnection)> {
        self.of(tenant).find(|(own, _)| *own == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sso::{
        provider::{SsoCallback, SsoError, SsoProvider, SsoRequest},
        user::ProviderUser,
    };

    struct Nobody;

    impl SsoProvider for Nobody {
        async fn authorization_url(&self, _: &SsoRequest<'_>) -> Result<String, SsoError> {
            Err(SsoError::Denied)
        }

        async fn user(&self, _: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
            Err(SsoError::Denied)
        }
    }

    #[test]
    fn providers_have_plain_names_that_are_unique_in_each_tenant() {
        let (acme, globex) = (Tenant::parse("acme").unwrap(), Tenant::parse("globex").unwrap());
        let add = |all: SsoConnections, name: &str, tenants: &[&Tenant]| {
            all.with(name, tenants.iter().fold(SsoConnection::new(Nobody), |own, tenant| own.only_tenant(tenant)))
        };
        let apart = add(add(add(SsoConnections::default(), "a", &[&acme]), "a", &[&globex]), "b-1_", &[]);
        assert_eq!(apart.check(), Ok(()));
        assert_eq!(apart.of(&acme).map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b-1_"]);
        assert!(apart.find(&globex, "b-1_").is_some() && apart.find(&acme, "c").is_none());
        assert!(add(apart, "a", &[]).check().is_err());
        for bad in ["", "A", "a b", "a/b", "ä", "{provider}", &"a".repeat(33)] {
            assert!(add(SsoConnections::default(), bad, &[]).check().is_err(), "{bad}");
        }
    }
}
