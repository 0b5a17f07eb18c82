//! The budgets of the tenants in the file of `--config`.

use std::{collections::HashSet, error::Error, path::Path};

use serde::Deserialize;
use tollgate::{ApiKeys, ConfigError, Plans, Quota, Tenant};
use toml::Spanned;

use crate::{demo::KEY_HEADER, problems::Problems, secret_text::SecretText};

/// The part of a budget that strangers can't spend.
const RESERVE: f64 = 0.5;
/// One address may send a tenth of the largest budget without a key or a token, but enough for three logins.
const PER_ADDRESS: u32 = 10;
const LEAST_PER_ADDRESS: u32 = 30;
/// The length of the shortest API key, as of the operator's key.
const SHORTEST_KEY: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenTenant {
    name: String,
    per_minute: u32,
    reserve: Option<f64>,
    #[serde(default)]
    api_keys: Vec<SecretText>,
}

pub(crate) struct Budgets {
    pub(crate) known: Known,
    pub(crate) keys: ApiKeys,
    pub(crate) plans: Plans,
    pub(crate) per_address: Option<Quota>,
}

/// The names of the tenants, unless some of them could not be read.
pub(crate) struct Known(Option<HashSet<String>>);

impl Known {
    pub(crate) fn check(&self, name: &str) -> Result<(), String> {
        match &self.0 {
            Some(names) if !names.contains(name) => Err(format!("no tenant has the name {name:?}")),
            _ => Ok(()),
        }
    }
}

impl Budgets {
    pub(crate) fn read(
        tenants: &[Spanned<WrittenTenant>],
        per_address: Option<&Spanned<u32>>,
        directory: &Path,
        problems: &mut Problems<'_>,
    ) -> Result<Self, ConfigError> {
        // requests without one of these tenants have a budget, too
        let (plans, keys) = (Plans::new(Quota::per_minute(600)?), ApiKeys::new(KEY_HEADER)?);
        for entry in tenants {
            let place = format!("tenants: {:?}: ", entry.get_ref().name);
            if let Some((tenant, quota)) = problems.read(&place, entry, WrittenTenant::plan) {
                plans.set(tenant, quota);
            }
            for key in &entry.get_ref().api_keys {
                problems.read(&place, entry, |tenant| tenant.add_key(key, &keys, directory));
            }
        }
        let is_complete = !problems.is_incomplete("tenants");
        let names = || tenants.iter().map(|tenant| tenant.get_ref().name.clone()).collect();
        let largest = tenants.iter().map(|tenant| tenant.get_ref().per_minute).max().unwrap_or_default();
        let quota = |per_minute| Quota::per_minute(per_minute)?.with_name("per-address");
        let per_address = match per_address {
            Some(written) => problems.read("per_address: ", written, |number| quota(*number)),
            None => Some(quota((largest / PER_ADDRESS).max(LEAST_PER_ADDRESS))?),
        };
        Ok(Self { known: Known(is_complete.then(names)), keys, plans, per_address })
    }
}

impl WrittenTenant {
    fn plan(&self) -> Result<(Tenant, Quota), Box<dyn Error>> {
        let tenant = Tenant::parse(&self.name)?;
        let quota = Quota::per_minute(self.per_minute).map_err(|error| format!("per_minute: {error}"))?;
        let quota = quota.with_name("per-minute")?.reserve(self.reserve.unwrap_or(RESERVE));
        Ok((tenant, quota.map_err(|error| format!("reserve: {error}"))?))
    }

    fn add_key(&self, key: &SecretText, keys: &ApiKeys, directory: &Path) -> Result<(), String> {
        let key = key.read(directory).map_err(|error| format!("api_keys: {error}"))?;
        if key.len() < SHORTEST_KEY {
            return Err(format!("api_keys: each must have at least {SHORTEST_KEY} bytes"));
        }
        // the clone shares the table
        keys.clone().key(key, &self.name).map(drop).map_err(|error| format!("api_keys: {error}"))
    }
}
