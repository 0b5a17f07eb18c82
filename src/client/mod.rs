//! The applications (OAuth clients) that send users to sign in.
//!
//! Clients with users are public: they have no secret, so the security of the login depends on where
//! responses are sent. Machine clients, which act for themselves, authenticate with a key
//! (`Client::machine`, feature `tokens`). A [`RedirectUri`] is registered in full and compared character by character.
//! Only the port of a loopback address may differ (RFC 8252 §7.3). [`Clients`] finds clients, for
//! example in a [`ClientTable`] or in your database.
//!
//! ```
//! use tollgate::{Client, ClientTable, Policy, Tenant, client::Scopes};
//!
//! let web = Client::new("demo-web", Tenant::parse("acme")?)?
//!     .redirect_uri("https://app.example/callback?from=login")?
//!     .scopes("openid profile email")?
//!     .origin("https://app.example")?
//!     .policy(Policy::any(2)?);
//!
//! assert!(web.allows_scopes(&Scopes::parse("email openid")?));
//! assert!(web.redirect("https://app.example/callback").is_none());
//! let redirect = web.redirect("https://app.example/callback?from=login").unwrap();
//! assert_eq!(redirect.answer(&[("code", "a b")]), "https://app.example/callback?from=login&code=a%20b");
//!
//! let clients = ClientTable::new([web])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod clients;
mod file;
mod record;
mod redirect;
mod scopes;
mod table;

pub use self::{
    clients::{AnyClients, Clients},
    record::Client,
    redirect::{RedirectUri, RequestedRedirect},
    scopes::{ScopeError, Scopes},
    table::ClientTable,
};
