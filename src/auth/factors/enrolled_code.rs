//! The methods `totp` and `recovery_code`.

use http::Response;

use super::credentials::strength::Strength;
use super::{attempt::Attempt, method::LoginMethod, step::LoginStep};
use crate::{
    auth::{http::problem::Problem, state::guard::submitted},
    http::body::Body,
    login::{BoundUser, LoginCall, LoginError, Proved},
    policy::{EnrolledFactors, Method},
};

/// A method that checks a code of something that the user has enrolled here. Never the first step, so the user is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct EnrolledCodeMethod(pub(super) Method);

impl LoginMethod for EnrolledCodeMethod {
    async fn begin(&self, mut step: LoginStep<'_>) -> Result<Response<Body>, Problem> {
        let Self(method) = *self;
        let typed = step.fields.code.take().map(|typed| typed.0).unwrap_or_default();
        if typed.is_empty() {
            return Err(Problem::invalid("code is missing"));
        }
        let (step, keyed) = (&step, step.keyed);
        let user = step.login.subject.user().ok_or(Problem::denied(LoginError::MethodNotAllowed))?;
        let mut attempt = Attempt::begin(step, method, submitted::user(&user.id, keyed)).await?;
        let right = match check(step, &mut attempt, method, &typed).await {
            Ok(right) => right,
            Err(problem) => {
                attempt.withdraw().await;
                return Err(problem);
            }
        };
        let proved = right.as_ref().map(|(user, mark)| {
            let factors = EnrolledFactors::default();
            Proved { user, mark: Some(*mark), elsewhere: None, factors }
        });
        let update = step.apply(&LoginCall::Settle(method, proved)).await?;
        if proved.is_some() && update.answer.is_ok() {
            attempt.succeeded().await;
        }
        step.conclude(&update, method)
    }
}

/// Checks a code and uses it up. Returns the user and the mark of the proof if it was right.
async fn check(
    step: &LoginStep<'_>,
    attempt: &mut Attempt<'_>,
    method: Method,
    typed: &str,
) -> Result<Option<(BoundUser, [u8; 32])>, Problem> {
    let found = step.account(None).await?;
    let account = found.active();
    let below_ceiling = attempt.count_for(step.device_owner(&found, account)).await?;
    attempt.count_in_login().await?;
    let (Some(_), Some(user), true) = (account, found.user(), below_ceiling) else { return Ok(None) };
    let (enrolled_codes, keyed) = (&step.cx.core.enrolled_codes, step.keyed);
    let owner = (&step.login.tenant, &user.id);
    let counts = |strength: &Strength| strength.counts_as_factor(&step.login.plan);
    let mark = match method {
        Method::Totp => enrolled_codes.use_totp(owner, typed, counts, keyed).await?,
        _ => enrolled_codes.use_recovery_code(owner, typed, counts, keyed).await?,
    };
    Ok(mark.map(|mark| (user, mark)))
}
