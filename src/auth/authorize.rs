//! `GET /authorize`: where a login begins, and where its code is had.

use http::{HeaderName, Method, Response};

use super::{
    answer,
    cookies::Carried,
    grant::Grant,
    page,
    problem::{Code, Problem},
    request::{self, Addressed, Wrong},
    visit::Visit,
};
use crate::{
    accept,
    body::Body,
    event::EventKind,
    form::Form,
    login::{Binding, Call, ClientParameters, Login},
    policy::Plan,
    secret::Secret,
    store::{StoreError, StoreErrorKind},
};

const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_PURPOSE: HeaderName = HeaderName::from_static("sec-purpose");
/// The longest `state` that is sent back.
const LONGEST_STATE: usize = 4096;

/// What stands in the query of `/authorize`, and in that of the page.
pub(super) struct Query<'a> {
    /// As it came: it is passed on untouched.
    pub(super) raw: &'a str,
    form: Form<'a>,
}

/// A query that can be answered at its redirect URI.
pub(super) struct Asked<'a> {
    pub(super) query: Query<'a>,
    pub(super) to: Addressed,
    pub(super) parameters: ClientParameters,
}

impl<'a> Query<'a> {
    pub(super) fn of(visit: &Visit<'a>) -> Result<Self, Problem> {
        let raw = visit.parts.uri.query().unwrap_or_default();
        let form = Form::parse(raw.as_bytes()).map_err(|error| Problem::invalid(error.detail()))?;
        Ok(Self { raw, form })
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.form.value(name)
    }

    fn parameters(&self) -> ClientParameters {
        let own = |name| self.value(name).map(str::to_owned);
        ClientParameters {
            client_id: own("client_id"),
            redirect_uri: own("redirect_uri"),
            response_type: own("response_type"),
            scope: own("scope"),
            code_challenge: own("code_challenge"),
            code_challenge_method: own("code_challenge_method"),
        }
    }

    pub(super) fn is_twice(&self, name: &str) -> bool {
        self.form.values(name).nth(1).is_some()
    }
}

/// Reads the query and charges the request. An error here is shown, for there is nowhere to send it.
pub(super) async fn asked<'a>(visit: &mut Visit<'a>) -> Result<Asked<'a>, Problem> {
    let query = match Query::of(visit) {
        Ok(query) => query,
        Err(problem) => {
            visit.charge(None)?;
            return Err(problem);
        }
    };
    let parameters = query.parameters();
    let client_id = parameters.client_id.as_deref().filter(|_| !query.is_twice("client_id"));
    let client = visit.charged_client(client_id).await?;
    for (name, detail) in [("client_id", "client_id is given twice"), ("redirect_uri", "redirect_uri is given twice")] {
        if query.is_twice(name) {
            return Err(Problem::invalid(detail));
        }
    }
    let to = request::address(&parameters, client).map_err(|wrong| Problem::new(wrong.code, wrong.detail))?;
    Ok(Asked { query, to, parameters })
}

impl Asked<'_> {
    /// What the login is to be for; what is wrong with it is told at the redirect URI.
    pub(super) fn binding(&self) -> Result<Binding, Wrong> {
        if self.query.form.has_duplicates() {
            return Err(Wrong { code: Code::InvalidRequest, detail: "a parameter is given twice" });
        }
        if self.state().is_some_and(|state| state.len() > LONGEST_STATE) {
            return Err(Wrong { code: Code::InvalidRequest, detail: "state is longer than 4096 bytes" });
        }
        request::bind(&self.parameters, &self.to)
    }

    fn state(&self) -> Option<&str> {
        self.query.value("state").filter(|_| !self.query.is_twice("state"))
    }

    /// Sends the browser back to the client with these parameters, its own `state`, and our name.
    fn back(&self, visit: &Visit<'_>, parameters: &[(&str, &str)]) -> Result<Response<Body>, Problem> {
        let state = self.state().filter(|state| state.len() <= LONGEST_STATE).map(|state| ("state", state));
        let issuer = ("iss", visit.inner.config.issuer.as_str());
        let all: Vec<_> = parameters.iter().copied().chain(state).chain([issuer]).collect();
        let location = self.to.redirect.answer(&all);
        answer::redirect(&location).ok_or_else(|| Problem::invalid("the answer is too long to be sent"))
    }

    pub(super) fn error(&self, visit: &Visit<'_>, wrong: Wrong) -> Result<Response<Body>, Problem> {
        self.back(visit, &[("error", wrong.code.as_str()), ("error_description", wrong.detail)])
    }
}

pub(super) async fn authorize(visit: &mut Visit<'_>) -> Result<Response<Body>, Problem> {
    let asked = match asked(visit).await {
        Ok(asked) => asked,
        Err(problem) => return page::shown(visit, problem),
    };
    let binding = match asked.binding() {
        Ok(binding) => binding,
        Err(wrong) => return asked.error(visit, wrong),
    };
    if visit.parts.headers.contains_key(SEC_PURPOSE) {
        // a browser that guesses drops an answer that failed, and asks again when it is sure
        return Err(Problem::new(Code::TemporarilyUnavailable, "this is not for fetching ahead"));
    }
    let cookies = visit.inner.config.cookies;
    let carried = cookies.carried(&visit.parts.headers);
    let outcome = match visit.parts.method {
        Method::GET => hand_out(visit, &asked, &binding, &carried).await,
        _ => Ok(None),
    };
    match outcome {
        Ok(Some(response)) => Ok(response),
        Ok(None) if !carried.is_empty() || is_navigation(visit) => to_login(visit, &asked),
        Ok(None) => Err(Problem::new(Code::LoginRequired, "the user has to log in first")),
        Err(error) => {
            let problem = Problem::from(error);
            asked.error(visit, Wrong { code: problem.code, detail: problem.detail })
        }
    }
}

/// The code, if a login of this browser is completed for this very request.
async fn hand_out(
    visit: &Visit<'_>,
    asked: &Asked<'_>,
    binding: &Binding,
    carried: &[Carried<'_>],
) -> Result<Option<Response<Body>>, StoreError> {
    let Some((cookie, login)) = newest_completed(visit, asked, binding, carried).await? else { return Ok(None) };
    let demanded = demanded(visit, asked, &login);
    let Some(grant) = Grant::of(&login, demanded.as_ref().and_then(Plan::acr)) else { return Ok(None) };
    let running = visit.inner.running();
    let keyed = visit.inner.keyed().await?;
    // the account may have been closed since its steps were proved
    let account = visit.inner.config.users.find(&login.tenant, &login.identifier).await?;
    if !account.is_some_and(|account| !account.is_disabled() && *account.id() == grant.user) {
        let wrong = Wrong { code: Code::AccessDenied, detail: "the account may not log in" };
        return Ok(asked.error(visit, wrong).ok());
    }
    let code = Secret::generate();
    // first the login is spent, then the code exists: what fails in between costs a login and never gives two codes
    let spent = running.logins.step(&cookie.digest, &Call::Consume(&code.digest())).await?;
    if spent.is_none_or(|moved| moved.answer.is_err()) {
        return Ok(None);
    }
    running.codes.issue(&code.digest(), &grant).await?;
    let session = grant.session().map_err(|_| StoreError::from(StoreErrorKind::Corrupt))?;
    let (session_cookie, _) = running.sessions.create(session).await?;
    // the cookie takes the place of the one before, and so nobody could end that session any more
    if let Err(error) = running.sessions.end_presented(&visit.parts.headers).await {
        crate::trace::warning!("the session before could not be ended: {error}");
    }
    let journal = visit.inner.journal();
    journal.record(EventKind::LoginSucceeded, &login, None, keyed);
    journal.record(EventKind::CodeIssued, &login, None, keyed);
    let Ok(mut response) = asked.back(visit, &[("code", code.expose())]) else { return Ok(None) };
    session_cookie.append_to(response.headers_mut());
    if let Some(removal) = visit.inner.config.cookies.removal(cookie.name) {
        removal.append_to(response.headers_mut());
    }
    Ok(Some(response))
}

async fn newest_completed<'c>(
    visit: &Visit<'_>,
    asked: &Asked<'_>,
    binding: &Binding,
    carried: &'c [Carried<'c>],
) -> Result<Option<(&'c Carried<'c>, Login)>, StoreError> {
    let logins = &visit.inner.running().logins;
    let mut newest: Option<(&Carried<'_>, Login)> = None;
    for cookie in carried {
        let Some(login) = logins.find(&cookie.digest).await? else { continue };
        let answers = login.is_completed(logins.now())
            && login.binding == *binding
            && cookie.name == visit.inner.config.cookies.name_of(&login.id)
            && demanded(visit, asked, &login).is_some_and(|plan| plan.is_met_by(login.proved()));
        if answers && newest.as_ref().is_none_or(|(_, other)| other.began < login.began) {
            newest = Some((cookie, login));
        }
    }
    Ok(newest)
}

/// What this request demands, which may be more than what the login began with.
fn demanded(visit: &Visit<'_>, asked: &Asked<'_>, login: &Login) -> Option<Plan> {
    let acr_values = asked.query.value("acr_values");
    let policies = &visit.inner.config.policies;
    policies.plan(&login.tenant, asked.to.client.demands(), acr_values, visit.inner.enabled()).ok()
}

/// To the login page, with the query as it came.
fn to_login(visit: &Visit<'_>, asked: &Asked<'_>) -> Result<Response<Body>, Problem> {
    let config = &visit.inner.config;
    let page = match &config.login_url {
        Some(url) => url.clone(),
        None => format!("{}/authentication/start", config.issuer.path()),
    };
    let location = format!("{page}?{}", asked.query.raw);
    answer::redirect(&location).ok_or_else(|| Problem::invalid("the query can't be passed on"))
}

/// Whether a person opens a page: the browser says so; without it, whoever takes HTML or anything is one.
fn is_navigation(visit: &Visit<'_>) -> bool {
    let headers = &visit.parts.headers;
    match headers.get(SEC_FETCH_MODE) {
        Some(mode) => mode == "navigate",
        None => accept::favourite(headers).is_none_or(|best| best == "*/*") || accept::prefers_html(headers),
    }
}
