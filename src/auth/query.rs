//! What stands in the query of `/authorize`, and in that of the login page.

use std::time::Duration;

use http::Response;

use super::{
    answer,
    problem::{Code, Problem},
    request::{self, Addressed, Wrong},
    visit::Visit,
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

/// Wishes of OpenID Connect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    /// `prompt=none`: nobody is to be asked anything.
    pub(super) silent: bool,
    /// How long ago the last proof may be.
    pub(super) max_age: Option<Duration>,
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
    pub(super) fn back(&self, visit: &Visit<'_>, parameters: &[(&str, &str)]) -> Result<Response<Body>, Problem> {
        let state = self.state().filter(|state| state.len() <= LONGEST_STATE).map(|state| ("state", state));
        let issuer = ("iss", visit.inner.config.issuer.as_str());
        let all: Vec<_> = parameters.iter().copied().chain(state).chain([issuer]).collect();
        let location = self.to.redirect.answer(&all);
        answer::redirect(&location).ok_or_else(|| Problem::invalid("the answer is too long to be sent"))
    }

    /// What this request demands, which may be more than what a login began with; `None` if nothing meets it.
    pub(super) fn plan(&self, visit: &Visit<'_>) -> Option<Plan> {
        let (client, acr_values) = (&self.to.client, self.query.value("acr_values"));
        let policies = &visit.inner.config.policies;
        policies.plan(client.tenant(), client.demands(), acr_values, visit.inner.enabled()).ok()
    }

    /// What the client wishes of OpenID Connect, as far as it is served here.
    pub(super) fn wishes(&self) -> Result<Wishes, Wrong> {
        let wrong = |detail| Wrong { code: Code::InvalidRequest, detail };
        let prompts: Vec<&str> = self.query.value("prompt").unwrap_or_default().split(' ').collect();
        let silent = prompts.contains(&"none");
        if silent && prompts.len() > 1 {
            return Err(wrong("prompt has none beside others"));
        }
        let max_age = match self.query.value("max_age") {
            None => None,
            Some(seconds) if seconds.bytes().all(|byte| byte.is_ascii_digit()) => {
                // more than fits is as good as none, and 0 wants a login of its own, which each is
                seconds.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
            }
            Some(_) => return Err(wrong("max_age is no number of seconds")),
        };
        Ok(Wishes { silent, max_age })
    }

    pub(super) fn error(&self, visit: &Visit<'_>, wrong: Wrong) -> Result<Response<Body>, Problem> {
        self.back(visit, &[("error", wrong.code.as_str()), ("error_description", wrong.detail)])
    }
}
