//! All policies of an operator.

use std::collections::BTreeMap;

use super::{
    demand::Policy,
    explain::{DemandSource, Explanation},
    method::MethodSet,
    plan::{LoginPlan, Unsatisfiable},
};
use crate::{tenant::Tenant, util::error::ConfigError};

/// The policies for logins.
///
/// A login must satisfy the policy of its tenant (or the default), the policy of its client, and
/// the policy of the requested `acr`. Clients and requests can therefore make a login stricter, but
/// never weaker. The default policy is one step with any method.
///
/// Policies can be loaded from JSON ([`from_json`](Self::from_json)) or TOML (`from_toml`, feature
/// `toml`):
///
/// ```toml
/// [default]
/// steps = 1
///
/// [tenants.acme]
/// slots = [["password"], ["sms", "email"]]
///
/// [tenants.globex]
/// steps = 1
/// enrolled_second_factor = false
///
/// [acr."urn:example:2fa"]
/// steps = 2
/// self_enrolment = false # see `Policy::without_self_enrolment`
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Policies {
    default: Policy,
    tenants: BTreeMap<Tenant, Policy>,
    acr: BTreeMap<String, Policy>,
}

impl Policies {
    /// Creates policies with this default for tenants without a policy of their own.
    pub fn new(default: Policy) -> Self {
        Self { default, ..Self::default() }
    }

    /// Sets the policy of a tenant, which replaces the default.
    pub fn tenant(mut self, tenant: Tenant, policy: Policy) -> Self {
        self.tenants.insert(tenant, policy);
        self
    }

    /// Sets the policy for requests with this name in `acr_values`.
    ///
    /// # Errors
    ///
    /// Returns an error unless `name` consists of 1 to 255 visible ASCII characters other than `"`
    /// and `\`.
    pub fn acr(mut self, name: &str, policy: Policy) -> Result<Self, ConfigError> {
        let allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        if name.is_empty() || name.len() > 255 || !name.bytes().all(allowed) {
            let reason = "must be 1 to 255 visible ASCII characters except '\"' and '\\'";
            return Err(ConfigError::new("acr", name, reason));
        }
        self.acr.insert(name.to_owned(), policy);
        Ok(self)
    }

    /// Returns the names that a request can ask for.
    pub(crate) fn levels(&self) -> impl Iterator<Item = &str> {
        self.acr.keys().map(String::as_str)
    }

    /// Returns the plan for a login of this tenant through a client with this policy.
    ///
    /// `acr_values` is the request parameter, a list of names separated by spaces. The first known
    /// name applies, and unknown names are ignored because they are voluntary.
    ///
    /// # Errors
    ///
    /// Returns an error if the enabled methods can't satisfy the policies.
    pub fn plan(
        &self,
        tenant: &Tenant,
        client: Option<&Policy>,
        acr_values: Option<&str>,
        enabled: MethodSet,
    ) -> Result<LoginPlan, Unsatisfiable> {
        self.longer_plan(tenant, client, acr_values, (enabled, 1))
    }

    /// Returns the [`plan`](Self::plan) of a login that has at least this many steps.
    pub(crate) fn longer_plan(
        &self,
        tenant: &Tenant,
        client: Option<&Policy>,
        acr_values: Option<&str>,
        (enabled, least): (MethodSet, usize),
    ) -> Result<LoginPlan, Unsatisfiable> {
        let demands = self.demands(tenant, client, acr_values);
        let acr = demands.iter().find_map(|(source, _)| source.acr());
        LoginPlan::of(&demands.iter().map(|(_, policy)| *policy).collect::<Vec<_>>(), (enabled, least), acr)
    }

    /// Returns the number of steps of the longest login of a tenant, with any of these clients and any requested name,
    /// among those that an account can complete with these methods. `usable_in` returns those that it can use in a login of a
    /// plan.
    pub(crate) fn most_steps<'a>(
        &self,
        tenant: &Tenant,
        clients: impl Iterator<Item = Option<&'a Policy>>,
        usable: MethodSet,
        usable_in: impl Fn(&LoginPlan) -> MethodSet,
    ) -> usize {
        let steps = |client: Option<&Policy>, acr: Option<&str>| {
            let mut methods = usable;
            loop {
                let plan = self.plan(tenant, client, acr, methods).ok()?;
                let fewer = methods.iter().filter(|method| usable_in(&plan).contains(*method)).collect();
                if fewer == methods {
                    return Some(plan.steps());
                }
                methods = fewer;
            }
        };
        // most clients have the same policy, or none
        let mut clients: Vec<Option<&Policy>> = clients.chain([None]).collect();
        clients.sort_unstable_by_key(|client| client.map(Policy::sets));
        clients.dedup();
        let levels = || self.acr.keys().map(|name| Some(name.as_str())).chain([None]);
        clients.iter().flat_map(|client| levels().filter_map(|acr| steps(*client, acr))).max().unwrap_or_default()
    }

    /// Explains the result of [`plan`](Self::plan) to the operator.
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

    /// Checks that the enabled methods can satisfy the policies of every tenant, with every `acr`
    /// and with none.
    ///
    /// Call it at startup, so that a misconfiguration is not discovered by the first user.
    pub fn check(&self, enabled: MethodSet) -> Result<(), ConfigError> {
        let stranger = Tenant::anonymous();
        for tenant in self.tenants.keys().chain([&stranger]) {
            self.check_demands(tenant, None, enabled)
                .map_err(|why| ConfigError::new("enabled methods", enabled, why))?;
        }
        Ok(())
    }

    /// Like [`check`](Self::check) but for a client of a tenant.
    pub(crate) fn check_demands(
        &self,
        tenant: &Tenant,
        client: Option<&Policy>,
        enabled: MethodSet,
    ) -> Result<(), String> {
        for acr in self.acr.keys().map(|name| Some(name.as_str())).chain([None]) {
            if self.plan(tenant, client, acr, enabled).is_err() {
                return Err(self.explain(tenant, client, acr, enabled).to_string().replace('\n', " "));
            }
        }
        Ok(())
    }

    fn demands<'a>(
        &'a self,
        tenant: &Tenant,
        client: Option<&'a Policy>,
        acr_values: Option<&str>,
    ) -> Vec<(DemandSource<'a>, &'a Policy)> {
        let own = self.tenants.get_key_value(tenant);
        let first = own
            .map_or((DemandSource::Default, &self.default), |(tenant, policy)| (DemandSource::Tenant(tenant), policy));
        let requested = acr_values.into_iter().flat_map(|names| names.split(' '));
        let acr = requested.filter_map(|name| self.acr.get_key_value(name)).next();
        let client = client.map(|policy| (DemandSource::Client, policy));
        [Some(first), client, acr.map(|(name, policy)| (DemandSource::Acr(name), policy))]
            .into_iter()
            .flatten()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Method, *};

    const ALL: MethodSet = MethodSet::ALL;

    fn acme() -> Tenant {
        Tenant::parse("acme").unwrap()
    }

    fn slots(slots: &[MethodSet]) -> Policy {
        Policy::slots(slots.iter().copied()).unwrap()
    }

    fn policies() -> Policies {
        Policies::new(Policy::any(2).unwrap())
            .tenant(acme(), slots(&[Method::Password | Method::Passkey]))
            .acr("two", Policy::any(2).unwrap())
            .unwrap()
            .acr("key", slots(&[Method::Passkey.into()]))
            .unwrap()
    }

    #[test]
    fn the_policy_of_a_tenant_replaces_the_default() {
        assert_eq!(policies().plan(&acme(), None, None, ALL).unwrap().methods(), Method::Password | Method::Passkey);
        let other = Tenant::parse("globex").unwrap();
        assert_eq!(policies().plan(&other, None, None, ALL).unwrap().steps(), 2);
        assert_eq!(Policies::default().plan(&other, None, None, ALL).unwrap().methods(), ALL.that_can_be_first());
    }

    #[test]
    fn clients_and_requests_make_a_login_stricter_never_weaker() {
        let client = slots(&[Method::Sms | Method::Password, Method::Email.into()]);
        let plan = policies().plan(&acme(), Some(&client), Some("key"), ALL).unwrap();
        assert_eq!(plan.steps(), 3);
        assert_eq!(plan.next(Method::Passkey | Method::Email), Method::Password | Method::Sms);
        let lax = Policy::default();
        let plan = policies().plan(&acme(), Some(&lax), Some("two"), ALL).unwrap();
        assert_eq!(plan.steps(), 2);
        assert!(plan.is_met_by(Method::Password | Method::Sso) && !plan.is_met_by(Method::Email | Method::Sso));
    }

    #[test]
    fn the_first_known_acr_applies_and_others_are_ignored() {
        let acr = |values| policies().plan(&acme(), None, Some(values), ALL).unwrap().acr().map(str::to_owned);
        assert_eq!(acr("key two").as_deref(), Some("key"));
        assert_eq!(acr("gold  two key").as_deref(), Some("two"));
        assert_eq!(acr("gold silver Two TWO two\tkey"), None);
        assert_eq!((acr(""), acr(" ")), (None, None));
        assert_eq!(policies().plan(&acme(), None, None, ALL).unwrap().acr(), None);
    }

    #[test]
    fn b09_a_login_without_the_demand_for_enrolment_in_person_does_not_answer_one_with_it() {
        let two = Policy::any(2).unwrap();
        let policies = Policies::new(two.clone()).acr("strict", two.without_self_enrolment()).unwrap();
        let [lax, strict] = [None, Some("strict")].map(|acr| policies.plan(&acme(), None, acr, ALL).unwrap());
        assert!(!lax.refuses_self_enrolment() && strict.refuses_self_enrolment());
        assert!(!lax.is_no_weaker_than(&strict) && strict.is_no_weaker_than(&lax));
        assert!(strict.is_no_weaker_than(&strict));
    }

    #[test]
    fn unsatisfiable_policies_have_no_plan() {
        let enabled = Method::Password | Method::Sms | Method::Whatsapp;
        assert!(policies().plan(&acme(), None, Some("key"), enabled).is_err());
        assert!(policies().plan(&acme(), Some(&Policy::any(3).unwrap()), None, enabled).is_err());
        assert!(policies().plan(&acme(), None, None, MethodSet::EMPTY).is_err());
        let error = policies().plan(&acme(), None, None, Method::Sms.into()).unwrap_err();
        assert_eq!(error.to_string(), "the enabled methods can't satisfy the policies of this login");
        assert!(policies().check(ALL).is_ok());
        let error = policies().check(enabled).unwrap_err();
        assert_eq!((error.setting(), error.value()), ("enabled methods", "password, sms, whatsapp"));
        assert!(error.reason().ends_with("The requested acr \"key\" can't be satisfied: none of passkey is enabled."));
        assert!(Policies::default().check(MethodSet::EMPTY).is_err());
    }

    #[test]
    fn invalid_acr_names_are_rejected() {
        let (long, huge) = ("x".repeat(255), "x".repeat(256));
        assert!(Policies::default().acr(&long, Policy::default()).is_ok());
        for bad in ["", " ", "a b", "a\"", "a\\", "é", "a\n", &huge] {
            assert!(Policies::default().acr(bad, Policy::default()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_explanation_names_all_policies_and_the_problem() {
        let client = slots(&[Method::Sms.into()]);
        let explain = |enabled, acr| policies().explain(&acme(), Some(&client), acr, enabled).to_string();
        assert_eq!(
            explain(Method::Password | Method::Sms | Method::Passkey, None),
            "Tenant acme requires 1 step: password or passkey.\n\
             The client requires 1 step: sms.\n\
             Enabled: password, sms, passkey.\n\
             The login has 2 steps.\n\
             Accepted: password and sms; or sms and passkey."
        );
        let last = |text: String| text.lines().last().unwrap().to_owned();
        let one = |policy| Policies::new(policy).explain(&acme(), None, None, Method::Password.into()).to_string();
        assert_eq!(last(one(Policy::default())), "Accepted: password.");
        assert_eq!(
            last(one(Policy::default().without_enrolled_second_factor())),
            "A second factor that the user has enrolled is not asked for."
        );
        assert_eq!(
            last(explain(Method::Password.into(), None)),
            "The client can't be satisfied: none of sms is enabled."
        );
        assert_eq!(
            last(explain(Method::Sms | Method::Whatsapp, Some("two"))),
            "Tenant acme can't be satisfied: none of password, passkey is enabled."
        );
        let two = Policies::new(Policy::any(2).unwrap());
        assert_eq!(
            two.explain(&acme(), None, None, Method::Sms | Method::Whatsapp).to_string(),
            "The default policy requires 2 steps: each by any method.\n\
             Enabled: sms, whatsapp.\n\
             The default policy can't be satisfied: the enabled methods have too few different factor classes."
        );
        let phone = Policies::new(slots(&[Method::Whatsapp.into()]));
        assert_eq!(
            last(phone.explain(&acme(), Some(&client), None, ALL).to_string()),
            "Each policy can be satisfied, but not all of them by methods of different factor classes."
        );
        assert!(two.explain(&acme(), None, None, MethodSet::EMPTY).to_string().contains("No method is enabled."));
        let codes = two.explain(&acme(), None, None, Method::Totp | Method::RecoveryCode);
        assert_eq!(last(codes.to_string()), "No enabled method can be the first step of a login.");
    }
}
