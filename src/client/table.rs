//! Clients in memory.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{clients::Clients, record::Client};
use crate::{store::StoreError, util::error::ConfigError};

/// The clients of a service, known at startup. Clones share the same table.
#[derive(Clone, Debug, Default)]
pub struct ClientTable(Arc<Contents>);

#[derive(Debug, Default)]
struct Contents {
    clients: HashMap<Box<str>, Arc<Client>>,
    origins: HashSet<Box<str>>,
}

const SETTING: &str = "clients";

impl ClientTable {
    /// Creates a table.
    ///
    /// # Errors
    ///
    /// Returns an error if a client lacks scopes or, unless it is a machine client, a redirect URI, or if two clients have
    /// the same id.
    pub fn new(clients: impl IntoIterator<Item = Client>) -> Result<Self, ConfigError> {
        let mut contents = Contents { clients: HashMap::new(), origins: HashSet::new() };
        for client in clients {
            let error = |reason: &'static str| Err(ConfigError::new(SETTING, client.id(), reason));
            if client.redirect_uris().is_empty() && !client.is_machine() {
                return error("must have a redirect URI");
            }
            if client.allowed_scopes().is_none() {
                return error("must have scopes");
            }
            if contents.clients.contains_key(client.id()) {
                return error("is listed twice");
            }
            contents.origins.extend(client.origins().map(Box::from));
            contents.clients.insert(client.id().into(), Arc::new(client));
        }
        Ok(Self(Arc::new(contents)))
    }

    /// Returns the client with this id.
    pub fn get(&self, client_id: &str) -> Option<&Arc<Client>> {
        self.0.clients.get(client_id)
    }

    /// Returns all clients in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Client>> {
        self.0.clients.values()
    }
}

impl Clients for ClientTable {
    async fn find(&self, client_id: &str) -> Result<Option<Arc<Client>>, StoreError> {
        Ok(self.get(client_id).cloned())
    }

    async fn allows_origin(&self, origin: &str) -> Result<bool, StoreError> {
        Ok(self.0.origins.contains(origin))
    }

    fn listed(&self) -> Vec<Arc<Client>> {
        self.iter().cloned().collect()
    }

    fn lists_all(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{super::clients::AnyClients, *};
    use crate::tenant::Tenant;

    fn client(id: &str) -> Client {
        let client = Client::new(id, Tenant::parse("acme").unwrap()).unwrap();
        client.redirect_uri("https://app.example/cb").unwrap().scopes("openid").unwrap()
    }

    #[test]
    fn errors_name_the_client() {
        let bare = |id| Client::new(id, Tenant::parse("acme").unwrap()).unwrap();
        let refused = |clients: Vec<Client>| ClientTable::new(clients).unwrap_err().to_string();
        assert_eq!(refused(vec![client("a"), client("b"), client("a")]), "clients: a is not usable: is listed twice");
        assert_eq!(
            refused(vec![bare("a").scopes("openid").unwrap()]),
            "clients: a is not usable: must have a redirect URI"
        );
        let without_scopes = bare("a").redirect_uri("https://app.example/cb").unwrap();
        assert_eq!(refused(vec![without_scopes]), "clients: a is not usable: must have scopes");
    }

    #[tokio::test]
    async fn clients_are_found_by_their_exact_id_and_origins_by_any_client() {
        let table = ClientTable::new([client("a"), client("b").origin("https://b.example").unwrap()]).unwrap();
        let any = AnyClients::from(Arc::new(table.clone()));
        for id in ["a", "b"] {
            assert_eq!(any.find(id).await.unwrap().unwrap().id(), id);
        }
        for id in ["", "A", "a ", "c", "a\0", "clients"] {
            assert!(any.find(id).await.unwrap().is_none(), "{id:?}");
        }
        assert!(any.allows_origin("https://b.example").await.unwrap());
        for origin in ["https://B.example", "https://a.example", "null", ""] {
            assert!(!any.allows_origin(origin).await.unwrap(), "{origin}");
        }
        assert!(format!("{any:?}").contains("ClientTable"));
        assert_eq!(table.iter().count(), 2);
    }
}
