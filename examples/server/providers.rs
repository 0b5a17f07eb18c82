//! Other identity providers in the file of `--config`, and the accounts that they create.

use std::{error::Error, path::Path};

use serde::Deserialize;
use tollgate::{
    Identifier, NewUser, Tenant, UserId, Users,
    sso::{ClientSecret, CreateAccount, GitHub, OidcProvider, ProviderUser, SsoConnection},
    user::EmailAddress,
};

use crate::{secret_text::SecretText, users::AccountTable};

/// An entry of `[[providers]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenProvider {
    pub(crate) name: String,
    /// Without one, the provider is GitHub.
    issuer: Option<String>,
    client_id: String,
    secret: Option<SecretText>,
    label: Option<String>,
    scopes: Option<String>,
    #[serde(default)]
    userinfo: bool,
    #[serde(default)]
    trusted_email_domains: Vec<String>,
    #[serde(default)]
    tenants: Vec<String>,
    #[serde(default)]
    create_accounts: bool,
}

/// A provider, without what creates accounts.
pub(crate) struct Provider {
    pub(crate) name: String,
    connection: SsoConnection,
    creates_accounts: bool,
}

impl Provider {
    pub(crate) fn connection(self, users: &AccountTable) -> (String, SsoConnection) {
        let new_accounts = || NewAccounts { provider: self.name.clone(), users: users.clone() };
        let connection = match self.creates_accounts {
            true => self.connection.create_account(new_accounts()),
            false => self.connection,
        };
        (self.name, connection)
    }
}

impl WrittenProvider {
    pub(crate) fn read(&self, directory: &Path) -> Result<Provider, Box<dyn Error>> {
        let secret = self.secret.as_ref().map(|secret| secret.read(directory)).transpose();
        let secret = secret.map_err(|error| format!("secret: {error}"))?.map(ClientSecret::new);
        let connection = match (&self.issuer, secret) {
            (None, Some(secret)) => SsoConnection::new(GitHub::new(&self.client_id, secret)?),
            (None, None) => return Err("GitHub needs a `secret`, and other providers an `issuer`".into()),
            (Some(issuer), secret) => {
                let mut provider = OidcProvider::new(issuer, &self.client_id)?;
                if let Some(secret) = secret {
                    provider = provider.secret(secret);
                }
                if let Some(scopes) = &self.scopes {
                    provider = provider.scopes(scopes);
                }
                SsoConnection::new(if self.userinfo { provider.userinfo() } else { provider })
            }
        };
        let mut connection = match &self.label {
            Some(label) => connection.label(label),
            None => connection,
        };
        for domain in &self.trusted_email_domains {
            connection = connection.trust_email_domain(domain)?;
        }
        for name in &self.tenants {
            let tenant = Tenant::parse(name).map_err(|error| format!("tenants: {name:?}: {error}"))?;
            connection = connection.only_tenant(&tenant);
        }
        Ok(Provider { name: self.name.clone(), connection, creates_accounts: self.create_accounts })
    }
}

/// Creates accounts for users of a provider whose address no account has yet.
pub(crate) struct NewAccounts {
    pub(crate) provider: String,
    pub(crate) users: AccountTable,
}

impl CreateAccount for NewAccounts {
    type Error = Box<dyn Error + Send + Sync>;

    async fn account(&self, tenant: &Tenant, user: &ProviderUser) -> Result<Option<UserId>, Self::Error> {
        let id = UserId::parse(format!("{}-{}", self.provider, user.subject()))?;
        if self.users.by_id(tenant, &id).await?.is_some() {
            return Ok(Some(id));
        }
        let Some(email) = user.email().filter(|_| user.email_verified()) else { return Ok(None) };
        let identifier = Identifier::parse(email)?;
        // an address is no proof: the owner of that account links it by signing in there first
        if self.users.find(tenant, &identifier).await?.is_some() {
            return Ok(None);
        }
        let new = NewUser::new(id.clone(), identifier).contact(EmailAddress::parse(email)?);
        self.users.create(tenant, new.name(user.name().unwrap_or(email))).await?;
        Ok(Some(id))
    }
}
