//! What stands in the query of `/authorize`, and in that of the login page.

use http::Response;

use super::{
    answer,
    problem::{Code, Problem},
    request::{self, Addressed, Wrong},
    visit::Visit,
    wishes::Wishes,
};
use crate::{
    body::Body,
    form::Form,
    login::{Binding, ClientParameters},
    policy::Plan,
};

/// The longest `state` that is sent back.
const LONGEST_STATE: usize = 4096;

/// The parameters of a query.
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
    let to = request::address(&parameters, client)?;
    Ok(Asked { query, to, parameters })
}

/// A request that is in order.
pub(super) struct Checked {
    /// What the login is to be for.
    pub(super) binding: Binding,
    pub(super) wishes: Wishes,
    /// What this request demands, which may be more than what a login began with; `None` if nothing meets it.
    pub(super) plan: Option<Plan>,
}

impl Asked<'_> {
    /// The whole request; what is wrong with it is told at the redirect URI.
    pub(super) fn checked(&self, visit: &Visit<'_>) -> Result<Checked, Wrong> {
        let wrong = |code, detail| Err(Wrong { code, detail });
        if self.query.form.has_duplicates() {
            return wrong(Code::InvalidRequest, "a parameter is given twice");
        }
        if self.state().is_some_and(|state| state.len() > LONGEST_STATE) {
            return wrong(Code::InvalidRequest, "state is longer than 4096 bytes");
        }
        if self.query.value("request").is_some() {
            return wrong(Code::RequestNotSupported, "request is not served here");
        }
        if self.query.value("request_uri").is_some() {
            return wrong(Code::RequestUriNotSupported, "request_uri is not served here");
        }
        if self.query.value("response_mode").is_some_and(|mode| mode != "query") {
            return wrong(Code::InvalidRequest, "response_mode must be query");
        }
        let binding = request::bind(&self.parameters, &self.to)?;
        let wishes = Wishes::read(|name| self.query.value(name))?;
        let plan = wishes.plan(visit, &self.to.client)?;
        Ok(Checked { binding, wishes, plan })
    }

    fn state(&self) -> Option<&str> {
        self.query.value("state").filter(|_| !self.query.is_twice("state"))
    }

    /// Sends the browser back to the client with these parameters, its own `state`, and our name.
    pub(super) fn back(&self, visit: &Visit<'_>, parameters: &[(&str, &str)]) -> Result<Response<Body>, Problem> {
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
