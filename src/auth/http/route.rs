//! The paths that are served, and their methods.

use http::Method;

use crate::user::OfferedChange;

/// The endpoint of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    Authorize,
    AuthorizeForm,
    /// The decision of a user about a third-party client.
    Consent,
    StartPage,
    Start,
    Status,
    Choices,
    Authenticate,
    VerifyOtp,
    Enrol,
    Complete,
    Par,
    Script,
    Style,
    /// The image that the operator has set.
    Logo,
    OpenApi,
    /// The return from another identity provider.
    SsoCallback,
    SignIn,
    FinishSignIn,
    SignOut,
    /// The page that asks whether to sign out.
    SignOutPage,
    /// The pages on which users create an account, and set a new password for a forgotten one.
    SignUpPage,
    ResetPage,
    SignUp(SignUpRoute),
    Reset(ResetRoute),
    /// The page on which users manage their account, and its script.
    AccountPage,
    AccountScript,
    Account(AccountRoute),
    /// Where password managers and browsers find the account page.
    ChangePassword,
    PasskeyEndpoints,
    Token(TokenRoute),
}

/// The calls that create an account, in a login without a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SignUpRoute {
    SendCode,
    Verify,
    Invitation,
    Create,
}

/// The calls that set a new password for a forgotten one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ResetRoute {
    Start,
    Link,
    SetPassword,
}

/// The calls of signed-in users of this site about their own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AccountRoute {
    Credentials,
    Change(FactorChange),
    Password,
    Name,
    BeginContact,
    ConfirmContact,
    Delete,
    EndSession,
    EndOtherSessions,
    /// Withdraws the consent to a third-party client.
    WithdrawConsent,
    SignOutEverywhere,
}

/// The calls that change what a user has enrolled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FactorChange {
    Passkey(PasskeyChange),
    Totp(TotpChange),
    RenewRecoveryCodes,
    Link(LinkChange),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PasskeyChange {
    Begin,
    Add,
    Rename,
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TotpChange {
    Begin,
    Confirm,
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LinkChange {
    Begin,
    Delete,
}

/// The endpoints of a service that issues tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TokenRoute {
    Exchange,
    Revoke,
    Introspect,
    UserInfo,
    Keys,
    Metadata,
    Logout,
}

/// A path, and its endpoint for each method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) path: &'static str,
    get: Option<Route>,
    post: Option<Route>,
}

pub(crate) const PATHS: &[Path] = &[
    Path { path: "/authorize", get: Some(Route::Authorize), post: Some(Route::AuthorizeForm) },
    Path::post("/consent", Route::Consent),
    Path { path: "/authentication/start", get: Some(Route::StartPage), post: Some(Route::Start) },
    Path::get("/authentication/status", Route::Status),
    Path::get("/authentication/choices", Route::Choices),
    Path::post("/authentication/authenticate", Route::Authenticate),
    Path::post("/authentication/verify-otp", Route::VerifyOtp),
    Path::post("/authentication/enrol", Route::Enrol),
    Path::post("/authentication/complete", Route::Complete),
    Path::get(SSO_CALLBACK, Route::SsoCallback),
    Path::post("/par", Route::Par),
    Path::get("/authentication/page.js", Route::Script),
    Path::get("/authentication/page.css", Route::Style),
    Path::get("/authentication/logo", Route::Logo),
    Path::get("/openapi.json", Route::OpenApi),
    Path::get(SIGN_IN, Route::SignIn),
    Path::get(FINISH_SIGN_IN, Route::FinishSignIn),
    Path { path: SIGN_OUT, get: Some(Route::SignOutPage), post: Some(Route::SignOut) },
    Path { path: SIGN_UP_PAGE, get: Some(Route::SignUpPage), post: Some(Route::SignUp(SignUpRoute::Create)) },
    Path::post("/sign-up/code", Route::SignUp(SignUpRoute::SendCode)),
    Path::post("/sign-up/verify", Route::SignUp(SignUpRoute::Verify)),
    Path::post("/sign-up/invitation", Route::SignUp(SignUpRoute::Invitation)),
    Path { path: RESET_PAGE, get: Some(Route::ResetPage), post: Some(Route::Reset(ResetRoute::SetPassword)) },
    Path::post("/reset-password/start", Route::Reset(ResetRoute::Start)),
    Path::post("/reset-password/link", Route::Reset(ResetRoute::Link)),
    Path::get(ACCOUNT_PAGE, Route::AccountPage),
    Path::get("/account/security.js", Route::AccountScript),
    Path::get("/account/credentials", Route::Account(AccountRoute::Credentials)),
    Path::post("/account/passkeys/options", changes(FactorChange::Passkey(PasskeyChange::Begin))),
    Path::post("/account/passkeys", changes(FactorChange::Passkey(PasskeyChange::Add))),
    Path::post("/account/passkeys/rename", changes(FactorChange::Passkey(PasskeyChange::Rename))),
    Path::post("/account/passkeys/delete", changes(FactorChange::Passkey(PasskeyChange::Delete))),
    Path::post("/account/totp/begin", changes(FactorChange::Totp(TotpChange::Begin))),
    Path::post("/account/totp", changes(FactorChange::Totp(TotpChange::Confirm))),
    Path::post("/account/totp/delete", changes(FactorChange::Totp(TotpChange::Delete))),
    Path::post("/account/recovery-codes", changes(FactorChange::RenewRecoveryCodes)),
    Path::post("/account/links/begin", changes(FactorChange::Link(LinkChange::Begin))),
    Path::post("/account/links/delete", changes(FactorChange::Link(LinkChange::Delete))),
    Path::post("/account/password", Route::Account(AccountRoute::Password)),
    Path::post("/account/name", Route::Account(AccountRoute::Name)),
    Path::post("/account/contacts/begin", Route::Account(AccountRoute::BeginContact)),
    Path::post("/account/contacts", Route::Account(AccountRoute::ConfirmContact)),
    Path::post("/account/delete", Route::Account(AccountRoute::Delete)),
    Path::get("/.well-known/change-password", Route::ChangePassword),
    Path::get("/.well-known/passkey-endpoints", Route::PasskeyEndpoints),
    Path::post("/account/sessions/end", Route::Account(AccountRoute::EndSession)),
    Path::post("/account/sessions/end-others", Route::Account(AccountRoute::EndOtherSessions)),
    Path::post("/account/sign-out-everywhere", Route::Account(AccountRoute::SignOutEverywhere)),
    Path::post("/account/consents/revoke", Route::Account(AccountRoute::WithdrawConsent)),
    Path::post("/token", Route::Token(TokenRoute::Exchange)),
    Path::post("/revoke", Route::Token(TokenRoute::Revoke)),
    Path::post("/introspect", Route::Token(TokenRoute::Introspect)),
    Path::both("/userinfo", Route::Token(TokenRoute::UserInfo)),
    Path::get("/jwks", Route::Token(TokenRoute::Keys)),
    Path::both("/logout", Route::Token(TokenRoute::Logout)),
    Path::get(OPENID_CONFIGURATION, Route::Token(TokenRoute::Metadata)),
    Path::get(SERVER_METADATA, Route::Token(TokenRoute::Metadata)),
];

const fn changes(change: FactorChange) -> Route {
    Route::Account(AccountRoute::Change(change))
}

/// Where users come back from another identity provider.
const SSO_CALLBACK: &str = "/authentication/sso/{provider}/callback";
/// The only variable segment of a path.
const PROVIDER: &str = "{provider}";

/// Signs in to the site itself.
pub(crate) const SIGN_IN: &str = "/sign-in";
/// Where such a sign-in ends.
pub(crate) const FINISH_SIGN_IN: &str = "/sign-in/finish";
pub(crate) const SIGN_OUT: &str = "/sign-out";
/// Where users create an account.
pub(crate) const SIGN_UP_PAGE: &str = "/sign-up";
/// Where users set a new password for a forgotten one.
pub(crate) const RESET_PAGE: &str = "/reset-password";
/// Where users manage their passkeys and sessions.
pub(crate) const ACCOUNT_PAGE: &str = "/account/security";

/// Below the path of the issuer (OpenID Connect Discovery §4).
const OPENID_CONFIGURATION: &str = "/.well-known/openid-configuration";
/// Above it (RFC 8414 §3).
const SERVER_METADATA: &str = "/.well-known/oauth-authorization-server";

impl Path {
    const fn get(path: &'static str, route: Route) -> Self {
        Self { path, get: Some(route), post: None }
    }

    const fn post(path: &'static str, route: Route) -> Self {
        Self { path, get: None, post: Some(route) }
    }

    const fn both(path: &'static str, route: Route) -> Self {
        Self { path, get: Some(route), post: Some(route) }
    }

    /// Returns the endpoints of this path.
    pub(crate) fn routes(&self) -> impl Iterator<Item = Route> {
        [self.get, self.post].into_iter().flatten()
    }

    /// Finds the path of a request. A router may have stripped the path of the issuer.
    pub(crate) fn match_request_path(path: &str, base: &str) -> Option<&'static Self> {
        let known = |path: &str| {
            let exact = PATHS.iter().find(|known| known.path == path);
            exact.or_else(|| PATHS.iter().find(|known| provider_in(known.path, path).is_some()))
        };
        if path.strip_suffix(base) == Some(SERVER_METADATA) {
            return known(SERVER_METADATA);
        }
        known(path).or_else(|| known(path.strip_prefix(base)?))
    }

    /// Returns the endpoint for this method. HEAD uses that of GET.
    pub(crate) fn route(&self, method: &Method) -> Option<Route> {
        match *method {
            Method::GET | Method::HEAD => self.get,
            Method::POST => self.post,
            _ => None,
        }
    }

    /// Returns the methods of the path, as `Allow` lists them.
    pub(crate) const fn allow(&self) -> &'static str {
        match (self.get, self.post) {
            (Some(_), Some(_)) => "GET, HEAD, POST, OPTIONS",
            (Some(_), None) => "GET, HEAD, OPTIONS",
            _ => "POST, OPTIONS",
        }
    }

    /// Returns whether scripts of other origins may call it, if a client allows them.
    pub(crate) fn is_for_scripts(&self) -> bool {
        self.routes().any(Route::is_for_scripts)
    }
}

/// Returns the path of the callback of a provider.
pub(crate) fn sso_callback(provider: &str) -> String {
    SSO_CALLBACK.replace(PROVIDER, provider)
}

/// Returns the name of the provider in the path of a callback. A router may have stripped the path of the issuer.
pub(crate) fn provider_of<'p>(path: &'p str, base: &str) -> Option<&'p str> {
    provider_in(SSO_CALLBACK, path).or_else(|| provider_in(SSO_CALLBACK, path.strip_prefix(base)?))
}

/// Returns the value of the variable segment of a pattern.
fn provider_in<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    let (before, after) = pattern.split_once(PROVIDER)?;
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

impl AccountRoute {
    /// Returns the change that [`Users`](crate::Users) must offer for a call that changes the account itself.
    pub(crate) const fn needed_change(self) -> Option<OfferedChange> {
        match self {
            Self::Password => Some(OfferedChange::SetPassword),
            Self::Name => Some(OfferedChange::SetName),
            Self::BeginContact | Self::ConfirmContact => Some(OfferedChange::SetContact),
            Self::Delete => Some(OfferedChange::Remove),
            _ => None,
        }
    }

    /// Returns whether the call has a body.
    pub(crate) const fn has_body(self) -> bool {
        use FactorChange::{Passkey, RenewRecoveryCodes, Totp};
        match self {
            Self::Change(Passkey(change)) => !matches!(change, PasskeyChange::Begin),
            Self::Change(Totp(change)) => matches!(change, TotpChange::Confirm),
            Self::Change(RenewRecoveryCodes) | Self::Credentials | Self::EndOtherSessions | Self::SignOutEverywhere => {
                false
            }
            _ => true,
        }
    }
}

impl Route {
    /// Returns whether scripts call this endpoint. Others are opened by a person.
    pub(crate) const fn is_for_scripts(self) -> bool {
        if let Self::Token(route) = self {
            return !matches!(route, TokenRoute::Logout | TokenRoute::Introspect);
        }
        matches!(
            self,
            Self::Start
                | Self::Status
                | Self::Choices
                | Self::Authenticate
                | Self::VerifyOtp
                | Self::Enrol
                | Self::Complete
                | Self::SignUp(_)
                | Self::Reset(_)
                | Self::Par
                | Self::OpenApi
        )
    }
}
