//! All providers of a login service, by name.

use crate::{sso::connection::SsoConnection, tenant::Tenant, util::error::ConfigError};

const LONGEST_NAME: usize = 32;

/// The providers of a login service in the order in which users see them.
#[derive(Debug, Default)]
pub(crate) struct SsoConnections(Vec<(String, SsoConnection)>);

impl SsoConnections {
    /// Adds a provider.
    pub(crate) fn with(mut self, name: &str, connection: SsoConnection) -> Self {
        self.0.push((name.to_owned(), connection));
        self
    }

    /// Checks the names, which are parts of URLs.
    ///
    /// A name belongs to one provider, even if no tenant has two of that name: both would have the same redirect URI, so a
    /// hostile provider could have a code of the other one sent to it (mix-up, RFC 9700 §4.4).
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for (at, (name, _)) in self.0.iter().enumerate() {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
            if !(1..=LONGEST_NAME).contains(&name.len()) || !name.bytes().all(is_plain) {
                let reason = "must be 1 to 32 lowercase letters, digits, dashes and underscores";
                return Err(ConfigError::new("provider", name, reason));
            }
            let reason = "is the name of two providers, which would share a redirect URI";
            ConfigError::refuse_if(self.0.iter().take(at).any(|(other, _)| other == name), "provider", name, reason)?;
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the providers of a tenant.
    pub(crate) fn iter_for_tenant(&self, tenant: &Tenant) -> impl Iterator<Item = (&str, &SsoConnection)> {
        let own = self.0.iter().filter(move |(_, connection)| connection.is_for(tenant));
        own.map(|(name, connection)| (name.as_str(), connection))
    }

    /// Finds a provider of a tenant by its name.
    pub(crate) fn find(&self, tenant: &Tenant, name: &str) -> Option<(&str, &SsoConnection)> {
        self.iter_for_tenant(tenant).find(|(own, _)| *own == name)
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
    fn providers_have_plain_names_and_each_name_belongs_to_one_provider() {
        let (acme, globex) = (Tenant::parse("acme").unwrap(), Tenant::parse("globex").unwrap());
        let add = |all: SsoConnections, name: &str, tenants: &[&Tenant]| {
            all.with(name, tenants.iter().fold(SsoConnection::new(Nobody), |own, tenant| own.only_tenant(tenant)))
        };
        let all = || add(add(SsoConnections::default(), "a", &[&acme]), "b-1_", &[]);
        assert_eq!(all().check(), Ok(()));
        assert_eq!(all().iter_for_tenant(&acme).map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b-1_"]);
        assert_eq!(all().iter_for_tenant(&globex).map(|(name, _)| name).collect::<Vec<_>>(), ["b-1_"]);
        assert!(all().find(&globex, "b-1_").is_some() && all().find(&acme, "c").is_none());
        for tenants in [&[][..], &[&acme], &[&globex]] {
            assert!(add(all(), "a", tenants).check().is_err(), "{tenants:?}");
        }
        for bad in ["", "A", "a b", "a/b", "ä", "{provider}", &"a".repeat(33)] {
            assert!(add(SsoConnections::default(), bad, &[]).check().is_err(), "{bad}");
        }
    }
}
