//! [`ClientTable`]: clients that stand in memory.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{Client, Clients, file};
use crate::{store::StoreError, util::error::ConfigError};

/// Clients that are known when the service starts; a clone is the same table.
///
/// They can be written down, in JSON ([`from_json`](Self::from_json)) or TOML
/// (`from_toml`, feature `toml`):
///
/// ```toml
/// [[clients]]
/// id = "demo-web"
/// tenant = "acme"
/// name = "Demo"                         # optional
/// redirect_uris = ["http://127.0.0.1:8080/demo/callback"]
/// scopes = ["openid", "profile", "email"]
/// origins = ["https://app.example"]     # optional
/// policy = { steps = 2 }                # optional
/// single_sign_on = true                 # optional
/// require_pushed_requests = true        # optional
///
/// # with the feature `tokens`, all optional
/// audience = "https://api.example"
/// id_token_algorithm = "RS256"
/// refresh_tokens = false
/// require_dpop = true
/// after_logout = ["http://127.0.0.1:8080/demo/"]
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClientTable(Arc<Contents>);

#[derive(Debug, Default)]
struct Contents {
    clients: HashMap<Box<str>, Arc<Client>>,
    origins: HashSet<Box<str>>,
}

const SETTING: &str = "clients";

impl ClientTable {
    /// A table of these, each with an id of its own, a redirect URI and scopes.
    pub fn new(clients: impl IntoIterator<Item = Client>) -> Result<Self, ConfigError> {
        let mut contents = Contents { clients: HashMap::new(), origins: HashSet::new() };
        for client in clients {
            let error = |reason: &'static str| Err(ConfigError::new(SETTING, client.id(), reason));
            if client.redirect_uris().is_empty() {
                return error("must have a redirect URI");
            }
            if client.allowed_scopes().is_none() {
                return error("must have scopes");
            }
            if contents.clients.contains_key(client.id()) {
                return error("stands there twice");
            }
            contents.origins.extend(client.origins().map(Box::from));
            contents.clients.insert(client.id().into(), Arc::new(client));
        }
        Ok(Self(Arc::new(contents)))
    }

    /// Reads them from JSON.
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        Self::new(file::from_json(text)?)
    }

    /// Reads them from TOML.
    #[cfg(feature = "toml")]
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Self::new(file::from_toml(text)?)
    }

    /// The client with this id.
    pub fn get(&self, client_id: &str) -> Option<&Arc<Client>> {
        self.0.clients.get(client_id)
    }

    /// Each client, in no order.
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
}

#[cfg(test)]
mod tests {
    use super::{super::AnyClients, *};
    use crate::tenant::Tenant;

    fn client(id: &str) -> Client {
        let client = Client::new(id, Tenant::parse("acme").unwrap()).unwrap();
        client.redirect_uri("https://app.example/cb").unwrap().scopes("openid").unwrap()
    }

    #[test]
    fn a_client_that_cannot_be_used_is_refused_by_its_name() {
        let bare = |id| Client::new(id, Tenant::parse("acme").unwrap()).unwrap();
        let refused = |clients: Vec<Client>| ClientTable::new(clients).unwrap_err().to_string();
        assert_eq!(
            refused(vec![client("a"), client("b"), client("a")]),
            "clients: a is not usable: stands there twice"
        );
        assert_eq!(
            refused(vec![bare("a").scopes("openid").unwrap()]),
            "clients: a is not usable: must have a redirect URI"
        );
        let without_scopes = bare("a").redirect_uri("https://app.example/cb").unwrap();
        assert_eq!(refused(vec![without_scopes]), "clients: a is not usable: must have scopes");
    }

    #[tokio::test]
    async fn a_client_is_found_by_exactly_its_id_and_an_origin_if_any_client_has_it() {
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
