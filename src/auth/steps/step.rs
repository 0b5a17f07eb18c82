//! The steps of a login: what every one of them goes through, and which is which.

use std::time::Duration;

use http::{Response, StatusCode};

use crate::{
    auth::{
        context::RequestContext,
        http::{
            answer::{self, Counters},
            fields::Fields,
            problem::{Code, Problem},
            route::Route,
        },
        methods::{otp, password},
        state::logins::Moved,
    },
    event::EventKind,
    http::body::Body,
    login::{Call, Denied, Keyed, Login, Step, View, step as consult},
    policy::Method,
    session::UserId,
    store::StoreError,
    user::{Account, Identifier},
    util::secret::Digest,
};

/// A call that came in for a login of its browser, with the parameters that the login began with.
pub(crate) struct Entered {
    pub(crate) digest: Digest,
    pub(crate) login: Login,
    pub(crate) fields: Fields,
}

/// Finds the login of a call and holds the call to what the login began with. Whatever fails here changes nothing.
pub(crate) async fn enter(cx: &mut RequestContext<'_>, mut fields: Fields) -> Result<Entered, Problem> {
    let sent = fields.client();
    let (digest, login) = cx.own_login(sent.client_id.as_deref(), fields.session_id.as_deref()).await?;
    let now = cx.core.logins.now();
    if login.has_ended(now) {
        let keyed = cx.core.keyed().await?;
        cx.core.journal.tally_login(EventKind::SessionUseAfterExpire, &login, None, keyed);
        return Err(Problem::denied(Denied::Expired).of(login.view(now)));
    }
    if let Some(name) = login.binding.mismatch(&sent) {
        let keyed = cx.core.keyed().await?;
        cx.core.journal.tally_login(EventKind::SequenceFailed, &login, None, keyed);
        return Err(Problem::invalid(mismatch(name)).of(login.view(now)));
    }
    Ok(Entered { digest, login, fields })
}

fn mismatch(name: &'static str) -> &'static str {
    match name {
        "client_id" => "client_id is not that of the login",
        "redirect_uri" => "redirect_uri is not that of the login",
        "response_type" => "response_type is not that of the login",
        "scope" => "scope is not that of the login",
        "code_challenge" => "code_challenge is not that of the login",
        _ => "code_challenge_method is not that of the login",
    }
}

/// `POST /authentication/authenticate` and `/authentication/verify-otp`.
pub(crate) async fn step(cx: &mut RequestContext<'_>, route: Route, fields: Fields) -> Result<Response<Body>, Problem> {
    let entered = enter(cx, fields).await?;
    if route == Route::VerifyOtp {
        return otp::verify(cx, entered).await;
    }
    let method = entered.method(cx)?;
    match (entered.foresee(cx, &Call::Try(method)), method) {
        // whatever else is wrong with the login comes first
        (Err(problem), _) if problem.code != Code::MethodNotAllowed => Err(problem),
        (_, Method::Sso | Method::Passkey) => Err(entered.unsupported(cx, "this method is not served here")),
        (Err(problem), _) => Err(problem),
        (Ok(()), Method::Password) if !cx.core.without_passwords => password::authenticate(cx, entered).await,
        (Ok(()), method) => otp::send(cx, entered, method).await,
    }
}

impl Entered {
    fn method(&self, cx: &RequestContext<'_>) -> Result<Method, Problem> {
        let name = self.fields.method.as_deref().ok_or(Problem::invalid("method is missing"))?;
        Method::from_name(name).ok_or_else(|| self.unsupported(cx, "there is no such method"))
    }

    fn unsupported(&self, cx: &RequestContext<'_>, detail: &'static str) -> Problem {
        let now = cx.core.logins.now();
        Problem::new(Code::UnsupportedMethod, detail).of(self.login.view(now))
    }

    /// Moves the login on.
    pub(crate) async fn step(&self, cx: &RequestContext<'_>, call: &Call<'_>) -> Result<Moved, Problem> {
        let moved = cx.core.logins.step(&self.digest, call).await?;
        moved.ok_or_else(|| Problem::denied(Denied::Expired))
    }

    /// What the table would say of a call, with nothing counted and nothing changed.
    pub(crate) fn foresee(&self, cx: &RequestContext<'_>, call: &Call<'_>) -> Result<(), Problem> {
        let now = cx.core.logins.now();
        match consult(&self.login, call, now) {
            Step { next: None, answer: Err(denied) } => Err(Problem::denied(denied).of(self.login.view(now))),
            _ => Ok(()),
        }
    }

    /// Refuses a try for the failures before it.
    pub(crate) fn locked(&self, cx: &RequestContext<'_>, method: Method, wait: Duration, keyed: &Keyed) -> Problem {
        cx.core.journal.tally_login(EventKind::LoginLocked, &self.login, Some(method), keyed);
        let now = cx.core.logins.now();
        let problem = Problem::new(Code::TooManyAttempts, "too many attempts; wait");
        problem.of(self.login.view(now)).retry_in(wait)
    }

    /// The account that the login was begun for, if there is one that may log in.
    pub(crate) async fn account(&self, cx: &RequestContext<'_>) -> Result<Option<Account>, StoreError> {
        let found = cx.core.users.find(&self.login.tenant, &self.login.identifier).await?;
        Ok(found.filter(|account| !account.is_disabled()))
    }

    /// Whether this name leads to that account too. It is asked for whether there is one or not.
    pub(crate) async fn leads_to(
        &self,
        cx: &RequestContext<'_>,
        name: &Identifier,
        account: Option<&UserId>,
    ) -> Result<bool, StoreError> {
        if *name == self.login.identifier {
            return Ok(account.is_some());
        }
        let found = cx.core.users.find(&self.login.tenant, name).await?;
        Ok(found.is_some_and(|found| Some(found.id()) == account))
    }

    /// Answers a step that was tried, and notes how it ended.
    pub(crate) fn conclude(
        cx: &RequestContext<'_>,
        moved: &Moved,
        method: Method,
        keyed: &Keyed,
    ) -> Result<Response<Body>, Problem> {
        let journal = &cx.core.journal;
        match moved.answer {
            Ok(_) => journal.record(EventKind::LoginStepProved, &moved.login, Some(method), keyed),
            Err(Denied::Wrong(_)) => journal.tally_login(EventKind::LoginFailed, &moved.login, Some(method), keyed),
            Err(Denied::SessionFailed) => {
                journal.tally_login(EventKind::LoginFailedMost, &moved.login, Some(method), keyed);
            }
            Err(_) => {}
        }
        moved.told(cx.core.logins.now()).map(shown)
    }
}

fn shown(view: View) -> Response<Body> {
    answer::json(StatusCode::OK, &Counters::from(view))
}
