//! Policies in JSON and TOML documents.

use serde::Deserialize;

use super::{demand::Policy, method::Method, method::MethodSet, policies::Policies};
use crate::{
    support::document::{self, Named, Object},
    tenant::Tenant,
    util::error::ConfigError,
};

const SETTING: &str = "policies";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    default: Option<Object<WrittenPolicy>>,
    #[serde(default)]
    tenants: Named<Object<WrittenPolicy>>,
    #[serde(default)]
    acr: Named<Object<WrittenPolicy>>,
}

/// A [`Policy`]: `{ steps = 2 }` or `{ slots = [["password"], ["sms", "email"]] }`, each also with
/// `self_enrolment = false` and `enrolled_second_factor = false`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenPolicy {
    steps: Option<usize>,
    slots: Option<Vec<Vec<String>>>,
    self_enrolment: Option<bool>,
    enrolled_second_factor: Option<bool>,
}

impl Policies {
    /// Reads policies from JSON.
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        document::from_json::<PolicyFile>(SETTING, text)?.read()
    }

    /// Reads policies from TOML.
    #[cfg(feature = "toml")]
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        document::from_toml::<PolicyFile>(SETTING, text)?.read()
    }
}

impl PolicyFile {
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

impl WrittenPolicy {
    /// Converts the policy found at this place in the document.
    pub(crate) fn read(self, place: &str) -> Result<Policy, ConfigError> {
        let policy = match (self.steps, self.slots) {
            (Some(steps), None) => Policy::any(steps).map_err(|error| error.at(place)),
            (None, Some(slots)) => {
                let slot = |(number, names): (usize, Vec<String>)| slot(&format!("{place}.slots[{number}]"), &names);
                let slots: Vec<MethodSet> = slots.into_iter().enumerate().map(slot).collect::<Result<_, _>>()?;
                Policy::slots(slots).map_err(|error| error.at(place))
            }
            _ => Err(ConfigError::new(SETTING, place, "must have either steps or slots")),
        }?;
        let policy = if self.self_enrolment == Some(false) { policy.without_self_enrolment() } else { policy };
        Ok(match self.enrolled_second_factor {
            Some(false) => policy.without_enrolled_second_factor(),
            Some(true) | None => policy,
        })
    }
}

fn slot(place: &str, names: &[String]) -> Result<MethodSet, ConfigError> {
    names.iter().try_fold(MethodSet::EMPTY, |set, name| {
        let error = |reason: &'static str| ConfigError::new(SETTING, name, reason).at(place);
        let method = Method::from_name(name).ok_or_else(|| error("is not a known method"))?;
        if set.contains(method) {
            return Err(error("is listed twice"));
        }
        Ok(set.with(method))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> Policies {
        let two = Policy::slots([Method::Password.into(), Method::Sms | Method::Email]).unwrap();
        Policies::new(Policy::any(3).unwrap())
            .tenant(Tenant::parse("acme").unwrap(), two)
            .acr("urn:example:2fa", Policy::any(2).unwrap())
            .unwrap()
    }

    #[test]
    fn policies_are_read_from_json() {
        let text = r#"{"default":{"steps":3},"tenants":{"acme":{"slots":[["password"],["sms","email"]]}},
            "acr":{"urn:example:2fa":{"steps":2}}}"#;
        assert_eq!(Policies::from_json(text), Ok(expected()));
        assert_eq!(Policies::from_json("{}"), Ok(Policies::default()));
        let strict = Policies::new(Policy::any(2).unwrap().without_self_enrolment());
        assert_eq!(Policies::from_json(r#"{"default":{"steps":2,"self_enrolment":false}}"#), Ok(strict));
        let lax = Policies::new(Policy::any(2).unwrap());
        assert_eq!(Policies::from_json(r#"{"default":{"steps":2,"self_enrolment":true}}"#), Ok(lax));
        let off = r#"{"default":{"steps":1,"enrolled_second_factor":false}}"#;
        let policy = Policy::any(1).unwrap().without_enrolled_second_factor();
        assert_eq!(Policies::from_json(off), Ok(Policies::new(policy)));
        assert_eq!(Policies::from_json(&off.replace("false", "true")), Ok(Policies::default()));
        assert!(Policies::from_json(r#"{"default":{"enrolled_second_factor":false}}"#).is_err());
    }

    #[cfg(feature = "toml")]
    #[test]
    fn policies_are_read_from_toml() {
        let text = "default = { steps = 3 }\n[tenants.acme]\nslots = [[\"password\"], [\"sms\", \"email\"]]\n\
            [acr.\"urn:example:2fa\"]\nsteps = 2\n";
        assert_eq!(Policies::from_toml(text), Ok(expected()));
        assert_eq!(Policies::from_toml(""), Ok(Policies::default()));
        for (text, message) in [
            (
                "[default]\nstep = 1",
                "policies: line 2 is not usable: unknown field `step`, expected one of `steps`, `slots`, `self_enrolment`, `enrolled_second_factor`",
            ),
            (
                "[tenants.acme]\nslots = [[\"fax\"]]",
                "policies: tenants.acme.slots[0]: fax is not usable: is not a known method",
            ),
        ] {
            assert_eq!(Policies::from_toml(text).unwrap_err().to_string(), message);
        }
        for bad in ["[default]\nsteps=1\n[default]\nsteps=1", "default = [1]", "x = 1", "default = {steps = -1}", "="] {
            assert!(Policies::from_toml(bad).is_err(), "{bad}");
        }
        assert!(Policies::from_toml(&"#".repeat((1 << 20) + 1)).is_err());
    }

    #[test]
    fn errors_name_their_place() {
        for (text, message) in [
            (r#"{"default":{}}"#, "policies: default is not usable: must have either steps or slots"),
            (
                r#"{"default":{"steps":1,"slots":[["sms"]]}}"#,
                "policies: default is not usable: must have either steps or slots",
            ),
            (r#"{"default":{"steps":7}}"#, "policy: default: 7 steps is not usable: must have 1 to 6 steps"),
            (
                r#"{"tenants":{"acme":{"slots":[["password"],["sms","sms"]]}}}"#,
                "policies: tenants.acme.slots[1]: sms is not usable: is listed twice",
            ),
            (
                r#"{"tenants":{"acme":{"slots":[["sms"],["whatsapp"]]}}}"#,
                "policy: tenants.acme: 2 steps: sms; and whatsapp is not usable: can't be satisfied by methods of \
                 different factor classes",
            ),
            (
                r#"{"acr":{"a b":{"steps":1}}}"#,
                "acr: a b is not usable: must be 1 to 255 visible ASCII characters except '\"' and '\\'",
            ),
            (
                "{\"default\":{\"steps\":1,\n\"Steps\":2}}",
                "policies: line 2, column 7 is not usable: unknown field `Steps`, expected one of `steps`, `slots`, `self_enrolment`, `enrolled_second_factor`",
            ),
            (
                r#"{"tenants":{"a":{"steps":1},"a":{"steps":2}}}"#,
                "policies: line 1, column 31 is not usable: duplicate name `a`",
            ),
        ] {
            assert_eq!(Policies::from_json(text).unwrap_err().to_string(), message);
        }
        for bad in [
            "",
            "[]",
            "null",
            "[null,{},{}]",
            r#"{"default":[1,null]}"#,
            r#"{"default":{"steps":1,"steps":1}}"#,
            r#"{"default":{"steps":1},"default":{"steps":1}}"#,
            r#"{"default":{"steps":1.0}}"#,
            r#"{"default":{"steps":"1"}}"#,
            r#"{"default":{"slots":[]}}"#,
            r#"{"default":{"slots":[[]]}}"#,
            r#"{"default":{"slots":["sms"]}}"#,
            r#"{"tenants":{"~anonymous":{"steps":1}}}"#,
            r#"{"tenants":{"":{"steps":1}}}"#,
            r#"{"tenant":{}}"#,
            "{} {}",
        ] {
            assert!(Policies::from_json(bad).is_err(), "{bad}");
        }
    }
}
