//! A step by a code of an authenticator app.

use crate::{
    auth::{
        factors::{
            credentials::{credential::Credential, row::Credentials},
            step::LoginStep,
            typed_code::{prove_by_code, typed_code},
        },
        http::problem::EndpointResult,
    },
    policy::Method,
};

/// Checks the code in the request, and uses it up with one compare-and-swap: of requests with the same code, one succeeds.
/// A key whose strength does not count in this login accepts no code.
pub(crate) async fn prove_by_totp(mut step: LoginStep<'_>) -> EndpointResult {
    let typed = typed_code(&mut step)?;
    let step = &step;
    prove_by_code(step, Method::Totp, async |(tenant, user)| {
        let Some(settings) = &step.cx.core.factors.totp else { return Ok(None) };
        let accept = |row: &mut Credentials| {
            let key = row.totp.as_mut().filter(|key| key.strength.counts_as_factor(&step.login.plan))?;
            let is_right = key.accept((tenant, user), &typed, step.now(), &settings.seal);
            is_right.then(|| key.mark(step.keyed))
        };
        step.cx.core.credentials.update(tenant, user, accept).await
    })
    .await
}
