//! How much a user must have proved within the last minutes to change how they sign in.

use std::iter;

use super::{
    factors::Factors,
    fresh_proofs::{FRESH, FreshProofs},
};
use crate::{
    auth::{
        core::Core,
        http::route::{ACCOUNT_PAGE, SIGN_IN},
    },
    tenant::Tenant,
    util::{clock::UnixTime, form},
};

/// The proofs that a change needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freshness {
    /// The number of factor classes, each by a proof that counts in a login of as many steps.
    classes: usize,
    /// Whether the one class is not enough, because the account has a passkey or an app that such logins ask for.
    needs_factor: bool,
    /// Whether the policy of the site refuses the second factors that users enrol by themselves.
    refuses_self_enrolment: bool,
}

impl Freshness {
    /// As many factor classes as the longest login of this tenant that the account can complete has steps, and at least two if
    /// the account can complete a login of two.
    ///
    /// A credential counts here for the logins that would accept it, and no others. If a weak one were one of two factors, its
    /// owner could never prove two; if proofs of it made two, a thief of the first factor could enrol the second. So it is
    /// needed in addition: a login of one step asks for it.
    pub(super) fn required_for(factors: Factors<'_>) -> Self {
        let Factors { core, tenant, .. } = factors;
        let listed = core.clients.listed_at(tenant);
        let clients = listed.iter().map(|client| client.demands());
        let most = core.policies.most_steps(tenant, clients, factors.usable(1), |plan| factors.usable_in(plan));
        let of_two = factors.longer_plan(2);
        let refuses_self_enrolment = of_two.as_ref().is_some_and(|plan| plan.without_self_enrolment);
        let classes = most.max(if of_two.is_some() { 2 } else { 1 });
        Self { classes, needs_factor: classes < 2 && factors.is_asked_for_enrolled(), refuses_self_enrolment }
    }

    /// Returns the URL of a login after which the proofs are fresh, although one fresh proof may not count. That one must not
    /// end the login early: a new login asks for the factor that the account has enrolled, and others for one step more.
    pub(super) fn login_url_besides(self, core: &Core, has_other: bool, has_enrolled: bool) -> String {
        match has_enrolled {
            true => login_url(core, Some((0, self.classes))),
            false => Self { classes: self.classes + usize::from(has_other), ..self }.login_url(core),
        }
    }

    /// Returns the number of different factors to prove.
    pub(crate) fn proofs(self) -> usize {
        if self.needs_factor { 2 } else { self.classes }
    }

    /// Returns until when these proofs are enough, if they are.
    pub(super) fn until(self, fresh: &FreshProofs) -> Option<UnixTime> {
        match self {
            Self { needs_factor: true, .. } => fresh.until_with_factor(),
            Self { refuses_self_enrolment: true, classes, .. } => fresh.without_self_enrolled(classes).until(classes),
            Self { classes, .. } => fresh.until(classes),
        }
    }

    /// Returns the URL of a login after which they are.
    pub(crate) fn login_url(self, core: &Core) -> String {
        // a proof of this age is still accepted there, and must then be fresh here; only a whole new login asks for the factor
        let age = if self.needs_factor { 0 } else { FRESH.as_secs().saturating_sub(1) };
        login_url(core, Some((age, self.classes)))
    }
}

/// Returns whether a login of this tenant can ask for more of a factor than that the user has it: it names methods, or refuses
/// factors that users enrol by themselves.
pub(super) fn needs_vouching(core: &Core, tenant: &Tenant) -> bool {
    let listed = core.clients.listed_at(tenant);
    let clients = listed.iter().map(|client| client.demands());
    let levels = || core.policies.levels().map(Some).chain([None]);
    let plan = |client, level| core.policies.plan(tenant, client, level, core.enabled(tenant)).ok();
    let mut plans = clients.chain([None]).flat_map(|client| levels().filter_map(move |level| plan(client, level)));
    plans.any(|plan| plan.names_methods() || plan.without_self_enrolment)
}

/// Returns whether anything of the account can begin a login.
pub(super) fn can_sign_in_at_all(factors: Factors<'_>) -> bool {
    !factors.usable(1).that_can_be_first().is_empty()
}

/// Returns whether the account can sign in to this site with these credentials.
pub(crate) fn can_sign_in(factors: Factors<'_>) -> bool {
    let policies = &factors.core.policies;
    policies.most_steps(factors.tenant, iter::empty(), factors.usable(1), |plan| factors.usable_in(plan)) > 0
}

/// Returns the URL of a sign-in that leads back to the account page: with at least this many proofs of at most this age in
/// seconds, or with any. Proofs of the session that are young enough count there.
pub(crate) fn login_url(core: &Core, fresh: Option<(u64, usize)>) -> String {
    let base = core.issuer.path();
    let (page, fresh) =
        (format!("{base}{ACCOUNT_PAGE}"), fresh.map(|(age, steps)| (age.to_string(), steps.to_string())));
    let fresh = fresh.as_ref().map(|(age, steps)| [("max_age", age.as_str()), ("steps", steps)]);
    let pairs = [("return_to", page.as_str())].into_iter().chain(fresh.into_iter().flatten());
    format!("{base}{SIGN_IN}?{}", form::encode_pairs(pairs))
}
