//! The clients in the file of `--config`.

use std::{error::Error, path::Path};

use serde::Deserialize;
use tollgate::{Client, Tenant};

use crate::{client_secrets, policies::WrittenPolicy, secret_text::SecretText};

/// An entry of `[[clients]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenClient {
    pub(crate) id: String,
    pub(crate) tenant: String,
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
    third_party: bool,
    #[serde(default)]
    require_pushed_requests: bool,
    /// One, or the old and the new one.
    secrets: Option<Vec<SecretText>>,
    /// The public keys of a machine client, or of one with redirect URIs.
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
    /// Reads the client. Paths are relative to `directory`.
    pub(crate) fn read(&self, directory: &Path) -> Result<Client, Box<dyn Error>> {
        let tenant = Tenant::parse(&self.tenant).map_err(|error| format!("tenant: {:?}: {error}", self.tenant))?;
        let has_users = !self.redirect_uris.is_empty() || !self.insecure_localhost.is_empty();
        let client = match &self.jwks {
            Some(keys) if has_users => Client::new(&self.id, tenant)?.assertion_keys(&keys.to_string())?,
            Some(keys) => Client::machine(&self.id, tenant, &keys.to_string())?,
            None => Client::new(&self.id, tenant)?,
        };
        let client = client_secrets::add(client, self.secrets.as_deref(), directory)?;
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
        let client = if self.single_sign_on { client.single_sign_on() } else { client };
        self.with_tokens(if self.third_party { client.third_party() } else { client })
    }

    fn with_uris(&self, mut client: Client) -> Result<Client, Box<dyn Error>> {
        client = self.redirect_uris.iter().try_fold(client, |client, uri| client.redirect_uri(uri))?;
        client = self.insecure_localhost.iter().try_fold(client, |client, uri| client.insecure_localhost(uri))?;
        client = self.origins.iter().try_fold(client, |client, origin| client.origin(origin))?;
        client = self.after_logout.iter().try_fold(client, |client, uri| client.after_logout(uri))?;
        let mut local = self.insecure_localhost_after_logout.iter();
        Ok(local.try_fold(client, |client, uri| client.insecure_localhost_after_logout(uri))?)
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
