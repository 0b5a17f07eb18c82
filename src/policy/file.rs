//! Policies as they are written down. One shape serves JSON and TOML.

use serde::Deserialize;

use super::{Method, MethodSet, Policies, Policy};
use crate::{
    document::{self, Named, Object},
    error::ConfigError,
    tenant::Tenant,
};

const SETTING: &str = "policies";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    default: Option<Object<Written>>,
    #[serde(default)]
    tenants: Named<Object<Written>>,
    #[serde(default)]
    acr: Named<Object<Written>>,
}

/// A [`Policy`]: `{ steps = 2 }` or `{ slots = [["password"], ["sms", "email"]] }`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    steps: Option<usize>,
    slots: Option<Vec<Vec<String>>>,
}

pub(super) fn from_json(text: &str) -> Result<Policies, ConfigError> {
    document::from_json::<File>(SETTING, text)?.read()
}

#[cfg(feature = "toml")]
pub(super) fn from_toml(text: &str) -> Result<Policies, ConfigError> {
    document::from_toml::<File>(SETTING, text)?.read()
}

impl File {
    fn read(self) -> Result<Policies, ConfigError> {
        let default = self.default.map(|Object(written)| written.read("default")).transpose()?;
        let mut policies = Policies::new(default.unwrap_or_default());
        for (name, Object(written)) in self.tenants.0 {
            let place = format!("tenants.{name}");
            let tenant = Tenant::parse(&name).map_err(|error| ConfigError::new(SETTING, &place, error.detail()))?;
            policies = policies.tenant(tenant, written.read(&place)?);
        }
        for (name, Object(written)) in self.acr.0 {
            let policy = written.read(&format!("acr.\"{name}\""))?;
            policies = policies.acr(&name, policy)?;
        }
        Ok(policies)
    }
}

impl Written {
    /// The policy that stands at this place.
    pub(crate) fn read(self, place: &str) -> Result<Policy, ConfigError> {
        match (self.steps, self.slots) {
            (Some(steps), None) => Policy::any(steps).map_err(|error| error.at(place)),
            (None, Some(slots)) => {
                let slot = |(number, names): (usize, Vec<String>)| slot(&format!("{place}.slots[{number}]"), &names);
                let slots: Vec<MethodSet> = slots.into_iter().enumerate().map(slot).collect::<Result<_, _>>()?;
                Policy::slots(slots).map_err(|error| error.at(place))
            }
            _ => Err(ConfigError::new(SETTING, place, "must have either steps or slots")),
        }
    }
}

fn slot(place: &str, names: &[String]) -> Result<MethodSet, ConfigError> {
    names.iter().try_fold(MethodSet::EMPTY, |set, name| {
        let error = |reason: &'static str| ConfigError::new(SETTING, name, reason).at(place);
        let method = Method::from_name(name).ok_or_else(|| error("is no method"))?;
        if set.contains(method) {
            return Err(error("stands there twice"));
        }
        Ok(set.with(method))
    })
}
