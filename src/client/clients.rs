//! Sources of clients.

use std::{any::type_name, future::Future, sync::Arc};

use super::record::Client;
use crate::{
    store::{BoxFuture, StoreError},
    tenant::Tenant,
};

/// Finds clients by their id.
///
/// Implement the methods as `async fn`. [`ClientTable`](super::ClientTable) keeps clients in
/// memory.
///
/// ```
/// use std::sync::Arc;
/// use tollgate::{Client, client::Clients, store::StoreError};
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
    message = "`{Self}` doesn't implement `Clients`",
    note = "use a `tollgate::ClientTable`, or implement `tollgate::client::Clients`"
)]
pub trait Clients: Send + Sync + 'static {
    /// Returns the client with exactly this id. The id comes from a request and can be any text.
    fn find(&self, client_id: &str) -> impl Future<Output = Result<Option<Arc<Client>>, StoreError>> + Send;

    /// Returns whether any client allows calls from pages of this origin. A CORS preflight does not identify its
    /// client.
    fn allows_origin(&self, origin: &str) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Returns the clients that are known at startup, so that they can be checked. Returns none by
    /// default.
    fn listed(&self) -> Vec<Arc<Client>> {
        Vec::new()
    }

    /// Returns whether [`listed`](Self::listed) always returns all clients. Defaults to `false`. Unlisted clients may
    /// then need two steps, so users who have two factors must prove two of them to reset a password.
    fn lists_all(&self) -> bool {
        false
    }
}

/// A type-erased [`Clients`]. Clones share the same source.
///
/// Services take `impl Into<AnyClients>`.
#[derive(Clone)]
pub struct AnyClients(Arc<dyn DynClients>);

impl AnyClients {
    /// Calls [`Clients::find`].
    pub async fn find(&self, client_id: &str) -> Result<Option<Arc<Client>>, StoreError> {
        self.0.find(client_id).await
    }

    /// Calls [`Clients::allows_origin`].
    pub async fn allows_origin(&self, origin: &str) -> Result<bool, StoreError> {
        self.0.allows_origin(origin).await
    }

    /// Calls [`Clients::listed`].
    pub fn listed(&self) -> Vec<Arc<Client>> {
        self.0.listed()
    }

    /// Returns the listed clients of this tenant.
    pub(crate) fn listed_at(&self, tenant: &Tenant) -> Vec<Arc<Client>> {
        let mut listed = self.listed();
        listed.retain(|client| client.tenant() == tenant);
        listed
    }

    /// Calls [`Clients::lists_all`].
    pub fn lists_all(&self) -> bool {
        self.0.lists_all()
    }
}

impl<C: Clients> From<C> for AnyClients {
    fn from(clients: C) -> Self {
        Self::from(Arc::new(clients))
    }
}

impl<C: Clients> From<Arc<C>> for AnyClients {
    fn from(clients: Arc<C>) -> Self {
        Self(clients)
    }
}

crate::util::fmt::debug_text!(AnyClients, |own| own.0.name());

/// The dyn-compatible form of [`Clients`].
trait DynClients: Send + Sync {
    fn find<'a>(&'a self, client_id: &'a str) -> BoxFuture<'a, Result<Option<Arc<Client>>, StoreError>>;
    fn allows_origin<'a>(&'a self, origin: &'a str) -> BoxFuture<'a, Result<bool, StoreError>>;
    fn listed(&self) -> Vec<Arc<Client>>;
    fn lists_all(&self) -> bool;
    fn name(&self) -> &'static str;
}

impl<C: Clients> DynClients for C {
    fn find<'a>(&'a self, client_id: &'a str) -> BoxFuture<'a, Result<Option<Arc<Client>>, StoreError>> {
        Box::pin(Clients::find(self, client_id))
    }

    fn allows_origin<'a>(&'a self, origin: &'a str) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(Clients::allows_origin(self, origin))
    }

    fn listed(&self) -> Vec<Arc<Client>> {
        Clients::listed(self)
    }

    fn lists_all(&self) -> bool {
        Clients::lists_all(self)
    }

    fn name(&self) -> &'static str {
        type_name::<C>()
    }
}
