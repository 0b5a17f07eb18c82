//! The ways to prove a login step. Each method implements [`LoginMethod`](method::LoginMethod) in a file with its name.

mod attempt;
mod method;
mod otp;
mod password;
mod step;

use http::Response;

pub(crate) use self::step::LoginStep;
use self::{method::LoginMethod, otp::OtpMethod, password::PasswordMethod};
use crate::{
    auth::http::problem::Problem,
    delivery::Channel,
    http::body::Body,
    login::{Challenge, LoginCall, LoginError},
    policy::Method,
};

/// Handles a step by this method.
pub(crate) async fn begin(method: Method, step: LoginStep<'_>) -> Result<Response<Body>, Problem> {
    let expected = step.preview(&LoginCall::Attempt(method));
    // other problems of the login come before the method
    if let Err(problem) = &expected
        && !problem.is_method_not_allowed()
    {
        return Err(problem.clone());
    }
    if matches!(method, Method::Sso | Method::Passkey | Method::Totp | Method::RecoveryCode) {
        return Err(step.unsupported("this method is not supported"));
    }
    expected?;
    if !step.cx.core.enabled().contains(method) {
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
        Method::Password | Method::Sso | Method::Passkey | Method::Totp | Method::RecoveryCode => return None,
    };
    Some(OtpMethod { method, channel })
}
