//! Clients as they are written down. One shape serves JSON and TOML.

use serde::Deserialize;

use super::Client;
use crate::{
    document::{self, Object},
    error::ConfigError,
    policy,
    tenant::Tenant,
};

const SETTING: &str = "clients";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    clients: Vec<Object<Written>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: String,
    tenant: String,
    name: Option<String>,
    redirect_uris: Vec<String>,
    /// On `localhost`, for development.
    #[serde(default)]
    insecure_localhost: Vec<String>,
    scopes: Vec<String>,
    #[serde(default)]
    origins: Vec<String>,
    policy: Option<Object<policy::file::Written>>,
}

pub(super) fn from_json(text: &str) -> Result<Vec<Client>, ConfigError> {
    document::from_json::<File>(SETTING, text)?.read()
}

#[cfg(feature = "toml")]
pub(super) fn from_toml(text: &str) -> Result<Vec<Client>, ConfigError> {
    document::from_toml::<File>(SETTING, text)?.read()
}

impl File {
    fn read(self) -> Result<Vec<Client>, ConfigError> {
        let read = |(number, Object(written)): (usize, Object<Written>)| {
            let place = format!("clients[{number}] \"{}\"", written.id.escape_debug());
            written.read().map_err(|error| error.at(&place))
        };
        self.clients.into_iter().enumerate().map(read).collect()
    }
}

impl Written {
    fn read(self) -> Result<Client, ConfigError> {
        let tenant = Tenant::parse(&self.tenant);
        let tenant = tenant.map_err(|error| ConfigError::new("tenant", self.tenant.escape_debug(), error.detail()))?;
        let mut client = Client::new(&self.id, tenant)?.scopes(&self.distinct_scopes()?)?;
        for uri in &self.redirect_uris {
            client = client.redirect_uri(uri)?;
        }
        for uri in &self.insecure_localhost {
            client = client.insecure_localhost(uri)?;
        }
        for origin in &self.origins {
            client = client.origin(origin)?;
        }
        if let Some(name) = &self.name {
            client = client.name(name)?;
        }
        Ok(match self.policy {
            Some(Object(policy)) => client.policy(policy.read("policy")?),
            None => client,
        })
    }

    /// As [`Client::scopes`] takes them.
    fn distinct_scopes(&self) -> Result<String, ConfigError> {
        let mut names: Vec<&str> = self.scopes.iter().map(String::as_str).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find_map(|pair| matches!(pair, [a, b] if a == b).then(|| pair.first())) {
            return Err(ConfigError::new("scopes", twice.copied().unwrap_or_default(), "stands there twice"));
        }
        if let Some(bad) = names.iter().find(|name| name.contains(' ')) {
            return Err(ConfigError::new("scopes", bad.escape_debug(), "is no name of a scope"));
        }
        Ok(names.join(" "))
    }
}
