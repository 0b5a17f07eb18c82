//! The ways to prove a login step. Each method implements [`LoginMethod`] in a file with its name.

mod attempt;
mod otp;
mod password;
mod step;

use http::Response;

pub(crate) use self::step::LoginStep;
use self::{otp::OtpMethod, password::PasswordMethod};
use crate::{
    auth::{http::problem::Problem, inner::Config},
    delivery::Channel,
    http::body::Body,
    login::{Challenge, LoginCall, LoginError},
    policy::{Method, MethodSet},
};

/// One way to prove a login step. `state::proofs` defines the marks of its proofs.
trait LoginMethod {
    /// Returns whether the service is set up for this method.
    fn is_available(&self, config: &Config) -> bool;

    /// Handles `authenticate`: checks the secret in the request, or opens a challenge.
    async fn begin(&self, step: LoginStep<'_>) -> Result<Response<Body>, Problem>;

    /// Checks the answer to the open challenge. Methods that need no challenge refuse it.
    async fn verify(&self, step: LoginStep<'_>) -> Result<Response<Body>, Problem> {
        Err(step.problem(Problem::denied(LoginError::NoPendingChallenge)))
    }
}

/// Returns the methods that the service is set up for.
pub(crate) fn available(config: &Config) -> MethodSet {
    let is_available = |method: &Method| match otp(*method) {
        Some(otp) => otp.is_available(config),
        None => *method == Method::Password && PasswordMethod.is_available(config),
    };
    Method::ALL.iter().copied().filter(is_available).collect()
}

/// Handles a step by this method.
pub(crate) async fn begin(method: Method, step: LoginStep<'_>) -> Result<Response<Body>, Problem> {
    let expected = step.preview(&LoginCall::Attempt(method));
    // other problems of the login come before the method
    if let Err(problem) = &expected
        && !problem.is_method_not_allowed()
    {
        return Err(problem.clone());
    }
    if matches!(method, Method::Sso | Method::Passkey) {
        return Err(step.unsupported("this method is not supported"));
    }
    expected?;
    if !available(&step.context.inner.config).contains(method) {
        // it was available when the login began
        return Err(step.problem(Problem::denied(LoginError::MethodNotAllowed)));
    }
    match otp(method) {
        Some(otp) => otp.begin(step).await,
        None => PasswordMethod.begin(step).await,
    }
}

/// Handles the code that was typed for the open challenge.
pub(crate) async fn verify_otp(step: LoginStep<'_>) -> Result<Response<Body>, Problem> {
    let method = step.login.open.as_ref().map(Challenge::method).and_then(otp);
    // without a challenge, any of them gives the same answer
    method.unwrap_or(OtpMethod { method: Method::Sms, channel: Channel::Sms }).verify(step).await
}

fn otp(method: Method) -> Option<OtpMethod> {
    let channel = match method {
        Method::Sms => Channel::Sms,
        Method::Email => Channel::Email,
        Method::Whatsapp => Channel::Whatsapp,
        Method::Password | Method::Sso | Method::Passkey => return None,
    };
    Some(OtpMethod { method, channel })
}
