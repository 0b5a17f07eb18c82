//! The ways to prove a login step. Each method implements [`LoginMethod`](method::LoginMethod) in a file with its name.

pub(crate) mod attempt;
pub(crate) mod contacts;
mod enrolled_code;
mod method;
mod otp;
mod passkey;
mod password;
#[cfg(feature = "external-providers")]
pub(crate) mod sso;
#[cfg(feature = "external-providers")]
pub(crate) mod sso_refusal;
mod step;

use http::Response;
use serde::Serialize;

use self::{
    enrolled_code::EnrolledCodeMethod, method::LoginMethod, otp::OtpMethod, passkey::PasskeyMethod,
    password::PasswordMethod,
};
pub(crate) use self::{otp::verify as verify_otp, step::LoginStep};
#[cfg(feature = "external-providers")]
use crate::{auth::methods::sso::SsoMethod, sso::SsoConnection};
use crate::{
    auth::{core::Core, http::problem::Problem},
    credential::Credentials,
    delivery::Channel,
    http::body::Body,
    login::{Login, LoginCall, LoginError},
    policy::{Method, MethodSet},
    tenant::Tenant,
    user::Account,
};

const UNSUPPORTED: &str = "this method is not supported";

/// Handles a step by this method.
pub(crate) async fn begin(method: Method, step: LoginStep<'_>) -> Result<Response<Body>, Problem> {
    let expected = step.preview(&LoginCall::Attempt(method));
    // other problems of the login come before the method
    if let Err(problem) = &expected
        && !problem.is_method_not_allowed()
    {
        return Err(problem.clone());
    }
    let passkeys = step.cx.core.passkeys.as_ref();
    let has_providers = step.cx.core.has_providers(&step.login.tenant);
    if (method == Method::Sso && !has_providers) || (method == Method::Passkey && passkeys.is_none()) {
        return Err(step.unsupported(UNSUPPORTED));
    }
    expected?;
    if !step.cx.core.enabled(&step.login.tenant).contains(method) {
        // it was available when the login began
        return Err(step.problem(Problem::denied(LoginError::MethodNotAllowed)));
    }
    match (method, passkeys) {
        (Method::Password, _) => PasswordMethod.begin(step).await,
        (Method::Sms, _) => OtpMethod { method, channel: Channel::Sms }.begin(step).await,
        (Method::Email, _) => OtpMethod { method, channel: Channel::Email }.begin(step).await,
        (Method::Whatsapp, _) => OtpMethod { method, channel: Channel::Whatsapp }.begin(step).await,
        (Method::Totp | Method::RecoveryCode, _) => EnrolledCodeMethod(method).begin(step).await,
        (Method::Passkey, Some(passkeys)) => PasskeyMethod { passkeys }.begin(step).await,
        #[cfg(feature = "external-providers")]
        (Method::Sso, _) => SsoMethod.begin(step).await,
        #[cfg(not(feature = "external-providers"))]
        (Method::Sso, _) => Err(step.unsupported(UNSUPPORTED)),
        (Method::Passkey, None) => Err(step.unsupported(UNSUPPORTED)),
    }
}

/// Another identity provider, as users see it.
#[derive(Serialize)]
#[cfg_attr(not(feature = "external-providers"), allow(dead_code, reason = "there are no providers"))]
pub(crate) struct OfferedProvider {
    name: String,
    label: String,
}

#[cfg(feature = "external-providers")]
impl From<(&str, &SsoConnection)> for OfferedProvider {
    fn from((name, connection): (&str, &SsoConnection)) -> Self {
        Self { name: name.to_owned(), label: connection.shown_label(name).to_owned() }
    }
}

/// Returns the providers of a tenant if `sso` is among these methods.
pub(crate) fn providers(core: &Core, tenant: &Tenant, methods: MethodSet) -> Vec<OfferedProvider> {
    #[cfg(feature = "external-providers")]
    if methods.contains(Method::Sso) {
        return core.providers.of(tenant).map(OfferedProvider::from).collect();
    }
    let _ = (core, tenant, methods);
    Vec::new()
}

/// Returns the providers of a tenant to which a user has no link.
pub(crate) fn unlinked_providers(core: &Core, tenant: &Tenant, row: Option<&Credentials>) -> Vec<OfferedProvider> {
    let is_linked = |name: &str| row.is_some_and(|row| row.links.iter().any(|link| link.provider == name));
    let all = providers(core, tenant, Method::Sso.into()).into_iter();
    all.filter(|provider| !is_linked(&provider.name)).collect()
}

/// Returns the providers at which a user can prove the next step of their login.
pub(crate) fn usable_providers(
    core: &Core,
    login: &Login,
    account: &Account,
    row: Option<&Credentials>,
) -> Vec<OfferedProvider> {
    #[cfg(feature = "external-providers")]
    {
        let is_usable = |(name, connection): &(&str, &SsoConnection)| {
            row.is_some_and(|row| sso::has_link(login, row, name)) || sso::may_link(login, connection, account)
        };
        core.providers.of(&login.tenant).filter(is_usable).map(OfferedProvider::from).collect()
    }
    #[cfg(not(feature = "external-providers"))]
    {
        let _ = (core, login, account, row);
        Vec::new()
    }
}

/// Returns what users see of a provider, or `None` if this tenant has no such provider.
pub(crate) fn provider_label<'c>(core: &'c Core, tenant: &Tenant, name: &str) -> Option<&'c str> {
    #[cfg(feature = "external-providers")]
    return core.providers.find(tenant, name).map(|(name, connection)| connection.shown_label(name));
    #[cfg(not(feature = "external-providers"))]
    {
        let _ = (core, tenant, name);
        None
    }
}
