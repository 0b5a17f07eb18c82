//! The clients in the file of `--config`.

use std::error::Error;

use serde::Deserialize;
use tollgate::{Client, Tenant};

use crate::policies::WrittenPolicy;

/// An entry of `[[clients]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenClient {
    pub(crate) id: String,
    tenant: String,
    name: Option<String>,
    #[serde(default)]
    redirect_uris: Vec<String>,
    /// On `localhost`, for development.
    #[serde(default)]
    insecure_localhost: Vec<String>,
    scopes: Vec<String>,
    #[serde(default)]
    origins: Vec<String>,
    policy: Option<WrittenPolicy>,
    #[serde(default)]
    single_sign_on: bool,
    #[serde(default)]
    require_pushed_requests: bool,
    /// The public keys of a machine client.
    jwks: Option<serde_json::Value>,
    audience: Option<String>,
    #[serde(default)]
    resources: Vec<String>,
    id_token_algorithm: Option<String>,
    #[serde(default = "yes")]
    refresh_tokens: bool,
    #[serde(default = "yes")]
    id_token_on_refresh: bool,
    #[serde(default)]
    require_dpop: bool,
    #[serde(default)]
    recheck_policy: bool,
    #[serde(default)]
    after_logout: Vec<String>,
    /// On `localhost`, for development.
    #[serde(default)]
    insecure_localhost_after_logout: Vec<String>,
}

fn yes() -> bool {
    true
}

impl WrittenClient {
    pub(crate) fn read(&self) -> Result<Client, Box<dyn Error>> {
        let tenant = Tenant::parse(&self.tenant).map_err(|error| format!("tenant: {:?}: {error}", self.tenant))?;
        let client = match &self.jwks {
            Some(keys) => Client::machine(&self.id, tenant, &keys.to_string())?,
            None => Client::new(&self.id, tenant)?,
        };
        // the form that `Client::scopes` expects
        if let Some(bad) = self.scopes.iter().find(|name| name.contains(' ')) {
            return Err(format!("scopes: {bad:?} is not a valid scope name").into());
        }
        let mut client = client.scopes(&self.scopes.join(" "))?;
        if let Some(name) = &self.name {
            client = client.name(name)?;
        }
        if let Some(policy) = &self.policy {
            client = client.policy(policy.read().map_err(|error| format!("policy: {error}"))?);
        }
        client = self.with_uris(client)?;
        if self.require_pushed_requests {
            client = client.require_pushed_requests();
        }
        if self.single_sign_on {
            client = client.single_sign_on();
        }
        self.with_tokens(client)
    }

    fn with_uris(&self, mut client: Client) -> Result<Client, Box<dyn Error>> {
        for uri in &self.redirect_uris {
            client = client.redirect_uri(uri)?;
        }
        for uri in &self.insecure_localhost {
            client = client.insecure_localhost(uri)?;
        }
        for origin in &self.origins {
            client = client.origin(origin)?;
        }
        for uri in &self.after_logout {
            client = client.after_logout(uri)?;
        }
        for uri in &self.insecure_localhost_after_logout {
            client = client.insecure_localhost_after_logout(uri)?;
        }
        Ok(client)
    }

    fn with_tokens(&self, mut client: Client) -> Result<Client, Box<dyn Error>> {
        if let Some(audience) = &self.audience {
            client = client.audience(audience)?;
        }
        for uri in &self.resources {
            client = client.resource(uri)?;
        }
        if let Some(name) = &self.id_token_algorithm {
            let algorithm = name.parse().map_err(|error| format!("id_token_algorithm: {name:?}: {error}"))?;
            client = client.id_token_algorithm(algorithm);
        }
        if !self.refresh_tokens {
            client = client.without_refresh_tokens();
        }
        if !self.id_token_on_refresh {
            client = client.without_id_token_on_refresh();
        }
        if self.require_dpop {
            client = client.require_dpop();
        }
        Ok(if self.recheck_policy { client.recheck_policy() } else { client })
    }
}
