//! The budgets of the tenants in the file of `--config`.

use std::{collections::HashSet, error::Error, path::Path};

use serde::Deserialize;
use tollgate::{ApiKeys, Plans, Quota, Tenant};

use crate::{demo::KEY_HEADER, secret_text::SecretText};

/// The part of a budget that strangers can't spend.
const RESERVE: f64 = 0.5;
/// One address may send a tenth of the largest budget without a key or a token, but enough for three logins.
const PER_ADDRESS: u32 = 10;
const LEAST_PER_ADDRESS: u32 = 30;

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
    pub(crate) known: HashSet<Tenant>,
    pub(crate) keys: ApiKeys,
    pub(crate) plans: Plans,
    pub(crate) per_address: Quota,
}

impl Budgets {
    pub(crate) fn read(
        tenants: Vec<WrittenTenant>,
        per_address: Option<u32>,
        directory: &Path,
    ) -> Result<Self, Box<dyn Error>> {
        let largest = tenants.iter().map(|tenant| tenant.per_minute).max().unwrap_or_default();
        let per_address = per_address.unwrap_or((largest / PER_ADDRESS).max(LEAST_PER_ADDRESS));
        // requests without one of these tenants have a budget, too
        let plans = Plans::new(Quota::per_minute(600)?);
        let (mut known, mut keys) = (HashSet::new(), ApiKeys::new(KEY_HEADER)?);
        for WrittenTenant { name, per_minute, reserve, api_keys } in tenants {
            let tenant = Tenant::parse(&name).map_err(|error| format!("tenants: {name:?}: {error}"))?;
            let quota = Quota::per_minute(per_minute).and_then(|quota| quota.with_name("per-minute"));
            let quota = quota.and_then(|quota| quota.reserve(reserve.unwrap_or(RESERVE)))?;
            plans.set(tenant.clone(), quota);
            for key in api_keys {
                let key = key.read(directory).map_err(|error| format!("tenants: {name:?}: api_keys: {error}"))?;
                keys = keys.key(key, &name)?;
            }
            known.insert(tenant);
        }
        let per_address = Quota::per_minute(per_address).and_then(|quota| quota.with_name("per-address"));
        Ok(Self { known, keys, plans, per_address: per_address? })
    }
}
