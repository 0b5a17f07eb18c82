//! All policies of an operator.

use std::collections::BTreeMap;

use super::{
    demand::Policy,
    method::MethodSet,
    plan::{LoginPlan, Unsatisfiable},
};
use crate::{tenant::Tenant, util::error::ConfigError};

/// The policies for logins.
///
/// A login must satisfy the policy of its tenant (or the default), the policy of its client, and
/// the policy of the requested `acr`. Clients and requests can therefore make a login stricter, but
/// never weaker. The default policy is one step with any method.
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
        let reason = "must be 1 to 255 visible ASCII characters except '\"' and '\\'";
        ConfigError::refuse_if(name.is_empty() || name.len() > 255 || !name.bytes().all(allowed), "acr", name, reason)?;
        self.acr.insert(name.to_owned(), policy);
        Ok(self)
    }

    /// Returns the names that a request can ask for.
    pub(crate) fn levels(&self) -> impl Iterator<Item = &str> {
        self.acr.keys().map(String::as_str)
    }

    /// Returns the plan for a login of this tenant through a client with this policy.
    ///
    /// `acr_values` is the request parameter, a list of names separated by spaces. The first known name applies, and
    /// unknown names are ignored, because OpenID Connect makes `acr_values` voluntary.
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
        let (demands, acr) = self.demands(Some(tenant), client, acr_values);
        LoginPlan::from_policies(&demands, (enabled, least), acr)
    }

    /// Returns the number of steps of the longest of the [`completable_plans`](Self::completable_plans).
    pub(crate) fn most_steps<'a>(
        &self,
        tenant: &Tenant,
        clients: impl Iterator<Item = Option<&'a Policy>>,
        usable: MethodSet,
        usable_in: impl Fn(&LoginPlan) -> MethodSet,
    ) -> usize {
        let plans = self.completable_plans(tenant, clients, usable, usable_in);
        plans.iter().map(LoginPlan::steps).max().unwrap_or_default()
    }

    /// Returns the plans of the logins of a tenant, with any of these clients and any requested name, that an account can
    /// complete with these methods. `usable_in` returns those that it can use in a login of a plan.
    pub(crate) fn completable_plans<'a>(
        &self,
        tenant: &Tenant,
        clients: impl Iterator<Item = Option<&'a Policy>>,
        usable: MethodSet,
        usable_in: impl Fn(&LoginPlan) -> MethodSet,
    ) -> Vec<LoginPlan> {
        let completable = |client: Option<&Policy>, acr: Option<&str>| {
            let mut methods = usable;
            loop {
                let plan = self.plan(tenant, client, acr, methods).ok()?;
                let fewer = methods.iter().filter(|method| usable_in(&plan).contains(*method)).collect();
                if fewer == methods {
                    return Some(plan);
                }
                methods = fewer;
            }
        };
        // most clients have the same policy, or none
        let mut clients: Vec<Option<&Policy>> = clients.chain([None]).collect();
        clients.sort_unstable_by_key(|client| client.map(|policy| &policy.slots));
        clients.dedup();
        let levels = || self.acr.keys().map(|name| Some(name.as_str())).chain([None]);
        clients.iter().flat_map(|client| levels().filter_map(|acr| completable(*client, acr))).collect()
    }

    /// Checks that the enabled methods can satisfy the policies of every tenant, with every `acr`
    /// and with none.
    ///
    /// Call it at startup, so that a misconfiguration is not discovered by the first user.
    pub fn check(&self, enabled: MethodSet) -> Result<(), ConfigError> {
        for tenant in self.tenants.keys().map(Some).chain([None]) {
            self.check_demands(tenant, None, enabled)
                .map_err(|why| ConfigError::new("enabled methods", enabled, why))?;
        }
        Ok(())
    }

    /// Like [`check`](Self::check) but for a client of a tenant, or of one without a policy of its own.
    pub(crate) fn check_demands(
        &self,
        tenant: Option<&Tenant>,
        client: Option<&Policy>,
        enabled: MethodSet,
    ) -> Result<(), String> {
        for acr in self.acr.keys().map(|name| Some(name.as_str())).chain([None]) {
            let (demands, acr_name) = self.demands(tenant, client, acr);
            if LoginPlan::from_policies(&demands, (enabled, 1), acr_name).is_err() {
                let demands: Vec<String> = demands.iter().map(|policy| format!("({policy})")).collect();
                let by = acr.map(|name| format!(" of the acr {name:?}")).unwrap_or_default();
                return Err(format!("can't satisfy the policies {}{by} together", demands.join(" and ")));
            }
        }
        Ok(())
    }

    /// Returns the policies that apply to a login, and the requested name that does.
    fn demands<'a>(
        &'a self,
        tenant: Option<&Tenant>,
        client: Option<&'a Policy>,
        acr_values: Option<&str>,
    ) -> (Vec<&'a Policy>, Option<&'a str>) {
        let own = tenant.and_then(|tenant| self.tenants.get(tenant)).unwrap_or(&self.default);
        let mut requested = acr_values.into_iter().flat_map(|names| names.split(' '));
        let acr = requested.find_map(|name| self.acr.get_key_value(name));
        let demands = [Some(own), client, acr.map(|(_, policy)| policy)].into_iter().flatten().collect();
        (demands, acr.map(|(name, _)| name.as_str()))
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
    fn a_policy_says_whether_enrolled_factors_are_asked_for() {
        let plan = |policy| Policies::new(policy).plan(&acme(), None, None, ALL).unwrap();
        assert!(plan(Policy::any(1).unwrap()).asks_enrolled);
        assert!(!plan(Policy::any(1).unwrap().without_enrolled_second_factor()).asks_enrolled);
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
        assert!(!lax.without_self_enrolment && strict.without_self_enrolment);
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
        let reason = "can't satisfy the policies (1 step: password or passkey) and (1 step: passkey) of the acr \"key\" together";
        assert_eq!(error.reason(), reason);
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
}
