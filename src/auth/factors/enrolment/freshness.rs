//! How much a user must have proved within the last minutes to change how they sign in.

use std::iter;

use super::factors::Factors;

/// Returns how many factor classes must be proved: as many as the longest login of this tenant that the account can
/// complete has steps, and at least two if the account can complete a login of two.
///
/// A credential counts here for the logins that would accept it, and no others. If a weak one were a second factor, its
/// owner could never prove two; if proofs of it made two, a thief of the first factor could enrol the second.
pub(super) fn required(factors: Factors<'_>) -> usize {
    let Factors { core, tenant, .. } = factors;
    let listed = core.clients.listed();
    let clients = listed.iter().filter(|client| client.tenant() == tenant).map(|client| client.demands());
    let most = core.policies.most_steps(tenant, clients, factors.usable(1), |plan| factors.usable_in(plan));
    let of_two = |methods| core.policies.longer_plan(tenant, None, None, (methods, 2));
    let has_two = of_two(factors.usable(2)).is_ok_and(|plan| of_two(factors.usable_in(&plan)).is_ok());
    most.max(if has_two { 2 } else { 1 })
}

/// Returns whether the account can sign in to this site with these credentials.
pub(super) fn can_sign_in(factors: Factors<'_>) -> bool {
    let policies = &factors.core.policies;
    policies.most_steps(factors.tenant, iter::empty(), factors.usable(1), |plan| factors.usable_in(plan)) > 0
}
