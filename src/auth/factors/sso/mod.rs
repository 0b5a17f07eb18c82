//! The method `sso`: accounts at other identity providers. A user leaves for the provider (`login.rs`), comes back
//! (`callback.rs`), and is found by a link (`account.rs`).

mod account;
pub(crate) mod callback;
mod connect;
pub(crate) mod links;
pub(crate) mod login;
mod outcome;
pub(crate) mod providers;
mod round_trip;
pub(crate) mod row;

use crate::{auth::builder::AuthServiceBuilder, sso::SsoConnection};

impl AuthServiceBuilder {
    /// Lets users sign in through another identity provider, which enables the method `sso`. `name` is part of the URL
    /// to which the provider sends users back: `/authentication/sso/<name>/callback` below the issuer. Users see
    /// providers in the order in which they were added.
    ///
    /// A name belongs to one provider: two need different names, even if they are for
    /// [different tenants](crate::sso::SsoConnection::only_tenant). Links of users belong to the name, so another name
    /// unlinks them all. Use [`SsoConnection::label`](crate::sso::SsoConnection::label) to change what users see.
    pub fn sso(mut self, name: &str, provider: impl Into<SsoConnection>) -> Self {
        self.factors.sso = self.factors.sso.with(name, provider.into());
        self
    }
}
