//! The tenants, clients and users of the server: those of the demo (`demo.rs`) or of a file (`file.rs`).

use std::error::Error;

use tollgate::{
    ApiKeys, ClientIp, ClientTable, Identifier, NewUser, Password, PasswordHash, Passwords, Policies, Quota, Quotas,
    StoredUsers, Tenant, UserId, Users,
    user::{EmailAddress, PhoneNumber, UserError},
};

use crate::tokens::TokenSettings;

pub(crate) struct Facts {
    /// The public URL, if it differs from the address that the server listens on.
    pub(crate) issuer: Option<String>,
    /// Finds the addresses of callers.
    pub(crate) client_ip: ClientIp,
    /// Whether all connections come from proxies.
    pub(crate) is_behind_proxies: bool,
    /// The API keys of the tenants.
    pub(crate) keys: ApiKeys,
    pub(crate) operator_key: Option<String>,
    /// The number of requests that each tenant may send.
    pub(crate) quotas: Quotas,
    /// How many requests of the login one address may send without a key or a token.
    pub(crate) per_address: Option<Quota>,
    /// With `--redis`, takes several requests of a tenant with one call.
    pub(crate) leases: bool,
    /// With `--redis`, also looks up the plans of tenants there.
    pub(crate) redis_plans: bool,
    pub(crate) policies: Policies,
    pub(crate) clients: ClientTable,
    pub(crate) people: Vec<Person>,
    pub(crate) tokens: std::sync::Arc<TokenSettings>,
    /// Enables one-time codes, which are printed to stdout.
    pub(crate) prints_codes: bool,
    /// The issuer of the identity provider of `--sso-demo`.
    #[cfg(feature = "sso")]
    pub(crate) provider: Option<String>,
    /// Serves the demo's pages and shows its one-time codes to everyone.
    pub(crate) is_demo: bool,
}

/// A user.
pub(crate) struct Person {
    pub(crate) tenant: Tenant,
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) identifiers: Vec<String>,
    pub(crate) password: Option<Proof>,
    pub(crate) email: Option<String>,
    pub(crate) phone: Option<String>,
}

pub(crate) enum Proof {
    Password(&'static str),
    Hash(PasswordHash),
}

impl Person {
    /// Creates the account, unless the store has it from an earlier run or from another server.
    pub(crate) async fn add_to(self, users: &StoredUsers) -> Result<(), Box<dyn Error>> {
        let id = UserId::parse(&self.id)?;
        if users.by_id(&self.tenant, &id).await?.is_some() {
            return Ok(());
        }
        let mut identifiers = self.identifiers.iter().map(Identifier::parse);
        let mut user = NewUser::new(id, identifiers.next().ok_or("has no identifier")??);
        for identifier in identifiers {
            user = user.identifier(identifier?);
        }
        if let Some(name) = self.name {
            user = user.name(name);
        }
        if let Some(email) = self.email {
            user = user.contact(EmailAddress::parse(email)?);
        }
        if let Some(phone) = self.phone {
            user = user.contact(PhoneNumber::parse(phone)?);
        }
        user = match self.password {
            Some(Proof::Password(password)) => user.password(Passwords::new().hash(Password::new(password)).await?),
            Some(Proof::Hash(hash)) => user.password(hash),
            None => user,
        };
        match users.create(&self.tenant, user).await {
            // another server, which has started at the same time, may have created it
            Ok(_) | Err(UserError::Exists) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
