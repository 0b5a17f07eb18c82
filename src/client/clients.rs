//! Sources of clients.

use std::{any::type_name, fmt, future::Future, sync::Arc};

use super::record::Client;
use crate::store::{BoxFuture, StoreError};

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

/// Any [`Clients`], their type forgotten; clones are the same ones.
///
/// What serves clients takes `impl Into<AnyClients>`.
#[derive(Clone)]
pub struct AnyClients(Arc<dyn DynClients>);

impl AnyClients {
    /// See [`Clients::find`].
    pub async fn find(&self, client_id: &str) -> Result<Option<Arc<Client>>, StoreError> {
        self.0.find(client_id).await
    }

    /// See [`Clients::allows_origin`].
    pub async fn allows_origin(&self, origin: &str) -> Result<bool, StoreError> {
        self.0.allows_origin(origin).await
    }

    /// See [`Clients::listed`].
    pub fn listed(&self) -> Vec<Arc<Client>> {
        self.0.listed()
    }
}

impl<C: Clients> From<C> for AnyClients {
    fn from(clients: C) -> Self {
        Self(Arc::new(clients))
    }
}

impl fmt::Debug for AnyClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyClients").field(&self.0.name()).finish()
    }
}

/// [`Clients`] as an object.
trait DynClients: Send + Sync {
    fn find<'a>(&'a self, client_id: &'a str) -> BoxFuture<'a, Result<Option<Arc<Client>>, StoreError>>;
    fn allows_origin<'a>(&'a self, origin: &'a str) -> BoxFuture<'a, Result<bool, StoreError>>;
    fn listed(&self) -> Vec<Arc<Client>>;
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

    fn name(&self) -> &'static str {
        type_name::<C>()
    }
}
