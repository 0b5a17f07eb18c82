//! [`Policies`]: all demands of an operator.

use std::collections::BTreeMap;

use super::{Explanation, MethodSet, Plan, Policy, Unsatisfiable, explain::Source, file};
use crate::{error::ConfigError, tenant::Tenant};

/// What the operator demands of logins.
///
/// A login has to meet, all together, the policy of its tenant (the default
/// where the tenant has none), that of its client, and that of the `acr` which
/// its request asks for. So a client or a request can make a login stricter and
/// never laxer. The default is one step, by any method.
///
/// They can be written down, in JSON ([`from_json`](Self::from_json)) or TOML
/// (`from_toml`, feature `toml`):
///
/// ```toml
/// [default]
/// steps = 1
///
/// [tenants.acme]
/// slots = [["password"], ["sms", "email"]]
///
/// [acr."urn:example:2fa"]
/// steps = 2
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Policies {
    default: Policy,
    tenants: BTreeMap<Tenant, Policy>,
    acr: BTreeMap<String, Policy>,
}

impl Policies {
    /// Demands this of every tenant that has no policy of its own.
    pub fn new(default: Policy) -> Self {
        Self { default, ..Self::default() }
    }

    /// Demands this of one tenant, in place of the default and of what was
    /// demanded of it before.
    pub fn tenant(mut self, tenant: Tenant, policy: Policy) -> Self {
        self.tenants.insert(tenant, policy);
        self
    }

    /// Demands this of logins whose request asks for this name in `acr_values`:
    /// 1 to 255 visible ASCII characters, none of them `"` or `\`.
    pub fn acr(mut self, name: &str, policy: Policy) -> Result<Self, ConfigError> {
        let allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        if name.is_empty() || name.len() > 255 || !name.bytes().all(allowed) {
            let reason = "must be 1 to 255 visible ASCII characters, none of them '\"' or '\\'";
            return Err(ConfigError::new("acr", name, reason));
        }
        self.acr.insert(name.to_owned(), policy);
        Ok(self)
    }

    /// Reads them from JSON.
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        file::from_json(text)
    }

    /// Reads them from TOML.
    #[cfg(feature = "toml")]
    #[cfg_attr(docsrs, doc(cfg(feature = "toml")))]
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        file::from_toml(text)
    }

    /// The steps of a login of this tenant through a client with this policy.
    ///
    /// `acr_values` is the parameter of the request: names with spaces between
    /// them. The first that is known applies; they are wishes, so others are
    /// ignored.
    pub fn plan(
        &self,
        tenant: &Tenant,
        client: Option<&Policy>,
        acr_values: Option<&str>,
        enabled: MethodSet,
    ) -> Result<Plan, Unsatisfiable> {
        let demands = self.demands(tenant, client, acr_values);
        let acr = demands.iter().find_map(|(source, _)| source.acr());
        Plan::of(&demands.iter().map(|(_, policy)| *policy).collect::<Vec<_>>(), enabled, acr)
    }

    /// What [`plan`](Self::plan) does with the same arguments, and why, in words
    /// for the operator.
    pub fn explain(
        &self,
        tenant: &Tenant,
        client: Option<&Policy>,
        acr_values: Option<&str>,
        enabled: MethodSet,
    ) -> Explanation {
        let demands = self.demands(tenant, client, acr_values);
        Explanation::new(&demands, enabled, self.plan(tenant, client, acr_values, enabled))
    }

    /// Whether each login that these policies alone lead to can be met: each
    /// tenant's, with each `acr` and with none.
    ///
    /// What can't is found at the start, instead of by the first user.
    pub fn check(&self, enabled: MethodSet) -> Result<(), ConfigError> {
        let stranger = Tenant::anonymous();
        for tenant in self.tenants.keys().chain([&stranger]) {
            for acr in self.acr.keys().map(|name| Some(name.as_str())).chain([None]) {
                if self.plan(tenant, None, acr, enabled).is_err() {
                    let explanation = self.explain(tenant, None, acr, enabled).to_string();
                    return Err(ConfigError::new("policies", enabled, explanation));
                }
            }
        }
        Ok(())
    }

    fn demands<'a>(
        &'a self,
        tenant: &Tenant,
        client: Option<&'a Policy>,
        acr_values: Option<&str>,
    ) -> Vec<(Source<'a>, &'a Policy)> {
        let own = self.tenants.get_key_value(tenant);
        let first = own.map_or((Source::Default, &self.default), |(tenant, policy)| (Source::Tenant(tenant), policy));
        let requested = acr_values.into_iter().flat_map(|names| names.split(' '));
        let acr = requested.filter_map(|name| self.acr.get_key_value(name)).next();
        let client = client.map(|policy| (Source::Client, policy));
        [Some(first), client, acr.map(|(name, policy)| (Source::Acr(name), policy))].into_iter().flatten().collect()
    }
}
