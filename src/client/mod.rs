//! The applications that send people here to sign in.
//!
//! A [`Client`] is a public one: it has no secret, so what protects it is where
//! its answers go. A [`RedirectUri`] is registered in full and compared
//! character by character; only the port of a loopback address may differ
//! (RFC 8252 §7.3). [`Clients`] finds them, be they in a [`ClientTable`] or in a
//! database of yours.
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

mod any;
mod file;
mod record;
mod redirect;
mod scopes;
mod table;
#[cfg(feature = "tokens")]
mod tokens;

use std::{future::Future, sync::Arc};

pub use self::{
    any::AnyClients,
    record::Client,
    redirect::{RedirectUri, RequestedRedirect},
    scopes::{ScopeError, Scopes},
    table::ClientTable,
};
use crate::store::StoreError;

/// Finds clients.
///
/// Write the methods as `async fn`. [`ClientTable`] is one that stands in memory.
///
/// ```
/// use std::sync::Arc;
/// use tollgate::{Client, Clients, store::StoreError};
///
/// struct Database;
///
/// impl Clients for Database {
///     async fn find(&self, client_id: &str) -> Result<Option<Arc<Client>>, StoreError> {
///         Ok(None) // ask your database
///     }
///
///     async fn allows_origin(&self, origin: &str) -> Result<bool, StoreError> {
///         Ok(false) // ask your database
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` finds no clients",
    note = "use a `tollgate::ClientTable`, or implement `tollgate::Clients` for a source of your own"
)]
pub trait Clients: Send + Sync + 'static {
    /// The client with exactly this id. The id comes from a request: it can be any text.
    fn find(&self, client_id: &str) -> impl Future<Output = Result<Option<Arc<Client>>, StoreError>> + Send;

    /// Whether any client allows calls from pages of this origin: a CORS
    /// preflight does not say which client it is for.
    fn allows_origin(&self, origin: &str) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// The clients that are known from the start, to be checked then; none, where they come and go.
    fn listed(&self) -> Vec<Arc<Client>> {
        Vec::new()
    }
}

impl<C: Clients> Clients for Arc<C> {
    async fn find(&self, client_id: &str) -> Result<Option<Arc<Client>>, StoreError> {
        (**self).find(client_id).await
    }

    async fn allows_origin(&self, origin: &str) -> Result<bool, StoreError> {
        (**self).allows_origin(origin).await
    }

    fn listed(&self) -> Vec<Arc<Client>> {
        (**self).listed()
    }
}
