//! The ways to prove a login step. Each method implements [`LoginMethod`](method::LoginMethod) in a file with its name.

mod attempt;
mod authenticator;
mod method;
mod otp;
mod password;
mod step;

use http::Response;

pub(crate) use self::step::LoginStep;
use self::{authenticator::AuthenticatorMethod, method::LoginMethod, otp::OtpMethod, password::PasswordMethod};
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
    if matches!(method, Method::Sso | Method::Passkey) {
        return Err(step.unsupported("this method is not supported"));
    }
    expected?;
    if !step.cx.core.enabled().contains(method) {
        // it was available when the login began
        return Err(step.problem(Problem::denied(LoginError::MethodNotAllowed)));
    }
    match (method, otp(method)) {
        (_, Some(otp)) => otp.begin(step).await,
        (Method::Totp | Method::RecoveryCode, None) => AuthenticatorMethod(method).begin(step).await,
        (_, None) => PasswordMethod.begin(step).await,
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
