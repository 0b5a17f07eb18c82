//! The tenants, clients and users of the server: those of the demo (`demo.rs`) or of a file (`file.rs`).

use tollgate::{ApiKeys, ClientIp, ClientTable, Plans, Policies, Quota, auth::Pages};

use crate::{listen::Listen, person::Person, tokens::TokenSettings};

pub(crate) struct Facts {
    /// The public URL, if it differs from the address that the server listens on.
    pub(crate) issuer: Option<String>,
    /// Finds the addresses of callers.
    pub(crate) client_ip: ClientIp,
    /// Whether all connections come from proxies.
    pub(crate) is_behind_proxies: bool,
    /// The API keys of the tenants.
    pub(crate) keys: ApiKeys,
    pub(crate) operator_key: Option<String>,
    /// The number of requests that each tenant may send.
    pub(crate) plans: Plans,
    /// How many requests of the login one address may send without a key or a token.
    pub(crate) per_address: Option<Quota>,
    /// With `--redis`, takes several requests of a tenant with one call.
    pub(crate) leases: bool,
    /// With `--redis`, also looks up the plans of tenants there.
    pub(crate) redis_plans: bool,
    pub(crate) policies: Policies,
    pub(crate) clients: ClientTable,
    pub(crate) people: Vec<Person>,
    pub(crate) pages: Pages,
    /// Where the application begins, to which pages link.
    pub(crate) home_url: Option<String>,
    pub(crate) tokens: std::sync::Arc<TokenSettings>,
    /// Enables one-time codes, which are printed to stdout.
    pub(crate) prints_codes: bool,
    /// The issuer of the identity provider of `--sso-demo`.
    #[cfg(feature = "external-providers")]
    pub(crate) provider: Option<String>,
    /// Serves the demo's pages and shows its one-time codes to everyone.
    pub(crate) is_demo: bool,
}

impl Facts {
    /// Checks that a server with these settings may listen here.
    pub(crate) fn check_reach(&self, listen: Listen) -> Result<(), &'static str> {
        let is_behind_tls = self.issuer.as_ref().is_some_and(|issuer| issuer.starts_with("https://"));
        if is_behind_tls || listen.is_loopback() {
            return Ok(());
        }
        Err("others than this machine reach it only by TLS: `issuer` must be the https URL of the proxy before it.")
    }
}
