//! A step by a typed code of something that the user has enrolled. Never the first step, so the user is known.

use super::{
    attempt::{Attempt, RightSecret},
    step::LoginStep,
};
use crate::{
    auth::{
        http::problem::{EndpointResult, Problem},
        state::guard::submitted,
    },
    login::LoginError,
    policy::{EnrolledFactors, Method},
    session::UserId,
    store::StoreError,
    tenant::Tenant,
};

/// Takes the code out of the request.
pub(crate) fn typed_code(step: &mut LoginStep<'_>) -> Result<zeroize::Zeroizing<String>, Problem> {
    let typed = step.fields.code.take().map(|typed| typed.0).unwrap_or_default();
    if typed.is_empty() { Err(Problem::invalid("code is missing")) } else { Ok(typed) }
}

/// Counts an attempt, uses up the code, and settles the step. `use_code` returns the mark of the proof if the code is right.
pub(crate) async fn prove_by_code(
    step: &LoginStep<'_>,
    method: Method,
    use_code: impl AsyncFnOnce((&Tenant, &UserId)) -> Result<Option<[u8; 32]>, StoreError>,
) -> EndpointResult {
    let user = step.login.subject.user().ok_or(Problem::denied(LoginError::MethodNotAllowed))?;
    let mut attempt = Attempt::start_attempt(step, method, submitted::user(&user.id, step.keyed)).await?;
    let right = check_typed_code(step, &mut attempt, use_code).await;
    step.conclude(&attempt.settle(right).await?, method)
}

/// Checks a code and uses it up.
async fn check_typed_code(
    step: &LoginStep<'_>,
    attempt: &mut Attempt<'_>,
    use_code: impl AsyncFnOnce((&Tenant, &UserId)) -> Result<Option<[u8; 32]>, StoreError>,
) -> Result<Option<RightSecret>, Problem> {
    let found = step.account(None).await?;
    let account = found.active();
    let below_ceiling = attempt.count_for(step.device_owner(&found, account)).await?;
    attempt.count_in_login().await?;
    let (Some(_), Some(user), true) = (account, found.user(), below_ceiling) else { return Ok(None) };
    let mark = use_code((&step.login.tenant, &user.id)).await?;
    Ok(mark.map(|mark| RightSecret { user, mark: Some(mark), factors: EnrolledFactors::default() }))
}
