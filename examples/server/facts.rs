//! The tenants, clients and users of the server: those of the demo (`demo.rs`) or of a file (`file.rs`).

use std::error::Error;

use tollgate::{
    ApiKeys, ClientIp, ClientTable, Identifier, NewUser, Password, PasswordHash, Passwords, Policies, Quota, Quotas,
    StoredUsers, Tenant, UserId, Users,
    user::{EmailAddress, PhoneNumber},
};

use crate::tokens::TokenSettings;

pub(crate) struct Facts {
    /// Under which URL people reach it, where it is not the address that it listens on.
    pub(crate) issuer: Option<String>,
    /// How the addresses of callers are known.
    pub(crate) client_ip: ClientIp,
    /// The API keys of the tenants.
    pub(crate) keys: ApiKeys,
    pub(crate) operator_key: Option<String>,
    /// How many requests each tenant may send.
    pub(crate) quotas: Quotas,
    /// How many requests of the login one address may send without a key or a token.
    pub(crate) per_address: Option<Quota>,
    pub(crate) policies: Policies,
    pub(crate) clients: ClientTable,
    pub(crate) people: Vec<Person>,
    pub(crate) tokens: std::sync::Arc<TokenSettings>,
    /// Whether one-time codes are sent at all, on stdout.
    pub(crate) prints_codes: bool,
    /// Whether there are the pages of the demo, and its one-time codes for all to read.
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
    /// Makes the account, unless it is there already, as `--data` keeps it.
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
        users.create(&self.tenant, user).await?;
        Ok(())
    }
}
