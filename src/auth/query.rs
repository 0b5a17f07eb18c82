//! What stands in the query of `/authorize`, and in that of the login page.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use http::Response;

use super::{
    answer, credentials,
    problem::{Code, Problem},
    pushed,
    request::{self, Addressed, Wrong},
    visit::Visit,
    wishes::Wishes,
};
use crate::{
    client::Client,
    http::body::Body,
    login::{Binding, ClientParameters},
    policy::LoginPlan,
    util::{
        form::{self, Form},
        secret::Secret,
    },
};

/// The longest `state` that is sent back.
pub(super) const LONGEST_STATE: usize = 4096;

/// The parameters that a page has to know: what its calls repeat, and what it goes by.
const OF_A_PAGE: [&str; 12] = [
    "client_id",
    "redirect_uri",
    "response_type",
    "scope",
    "code_challenge",
    "code_challenge_method",
    "acr_values",
    "prompt",
    "max_age",
    "claims",
    "login_hint",
    "ui_locales",
];

/// What is said of a code challenge that had its code.
pub(super) const REDEEMED: &str = "code_challenge was used before";

/// The parameters of a request.
pub(super) struct Query<'a> {
    /// What leads to it again.
    pub(super) raw: Cow<'a, str>,
    form: Form<'a>,
}

/// How a request came.
pub(super) enum Source {
    Url,
    /// It is being pushed.
    Body,
    /// It was pushed, and has this secret.
    Pushed(Secret),
}

/// A request that can be answered at its redirect URI.
pub(super) struct Asked<'a> {
    pub(super) query: Query<'a>,
    pub(super) source: Source,
    pub(super) to: Addressed,
    pub(super) parameters: ClientParameters,
}

impl<'a> Query<'a> {
    pub(super) fn of(visit: &Visit<'a>) -> Result<Self, Problem> {
        let raw = visit.parts.uri.query().unwrap_or_default();
        Ok(Self { raw: Cow::Borrowed(raw), ..Self::parse(raw.as_bytes())? })
    }

    pub(super) fn parse(text: &'a [u8]) -> Result<Self, Problem> {
        let form = Form::parse(text).map_err(|error| Problem::invalid(error.detail()))?;
        Ok(Self { raw: Cow::Borrowed(""), form })
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

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.form.pairs()
    }

    /// The client that it names, once.
    pub(super) fn client_id(&self) -> Option<&str> {
        self.value("client_id").filter(|_| !self.is_twice("client_id"))
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
    let client = visit.charged_client(query.client_id()).await?;
    let Some(secret) = query.value("request_uri").and_then(pushed::named) else {
        return addressed(query, Source::Url, client);
    };
    let unknown = || Problem::new(Code::InvalidRequestUri, "there is no such request of this client any more");
    let (Some(client), Some(secret)) = (client, secret) else {
        return Err(if query.client_id().is_some() { unknown() } else { Problem::invalid("client_id is missing") });
    };
    if query.is_twice("request_uri") {
        return Err(Problem::invalid("request_uri is given twice"));
    }
    let text = visit.inner.running().pushed.open(&secret, client.id()).await?.ok_or_else(unknown)?;
    let form = Query::parse(text.as_bytes())?.form.into_owned();
    let (id, uri) = (form::encode(client.id()), form::encode(query.value("request_uri").unwrap_or_default()));
    let query = Query { raw: Cow::Owned(format!("client_id={id}&request_uri={uri}")), form };
    addressed(query, Source::Pushed(secret), Some(client))
}

/// The same for a request that is being pushed.
pub(super) async fn pushing<'b>(
    visit: &mut Visit<'_>,
    query: Result<Query<'b>, Problem>,
) -> Result<Asked<'b>, Problem> {
    let query = match query {
        Ok(query) => query,
        Err(problem) => {
            visit.charge(None)?;
            return Err(problem);
        }
    };
    let client = visit.calling_client(query.client_id()).await?;
    credentials::refuse(&visit.parts.headers, |name| query.value(name))?;
    addressed(query, Source::Body, client)
}

fn addressed(query: Query<'_>, source: Source, client: Option<Arc<Client>>) -> Result<Asked<'_>, Problem> {
    for (name, detail) in [("client_id", "client_id is given twice"), ("redirect_uri", "redirect_uri is given twice")] {
        if query.is_twice(name) {
            return Err(Problem::invalid(detail));
        }
    }
    let parameters = query.parameters();
    let to = request::address(&parameters, client)?;
    Ok(Asked { query, source, to, parameters })
}

/// A request that is in order.
pub(super) struct Checked {
    /// What the login is to be for.
    pub(super) binding: Binding,
    pub(super) wishes: Wishes,
    /// What this request demands, which may be more than what a login began with; `None` if nothing meets it.
    pub(super) plan: Option<LoginPlan>,
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
        match (&self.source, self.query.value("request_uri")) {
            (Source::Body, Some(_)) => {
                return wrong(Code::InvalidRequest, "a request that is pushed has no request_uri");
            }
            (_, Some(_)) => return wrong(Code::RequestUriNotSupported, "only what was pushed here has a request_uri"),
            (Source::Url, None) if self.to.client.needs_pushed_requests() => {
                return wrong(Code::InvalidRequest, "requests of this client must be pushed");
            }
            _ => {}
        }
        if self.query.value("response_mode").is_some_and(|mode| mode != "query") {
            return wrong(Code::InvalidRequest, "response_mode must be query");
        }
        let binding = request::bind(&self.parameters, &self.to)?;
        let wishes = Wishes::read(|name| self.query.value(name))?;
        let plan = wishes.plan(visit, &self.to.client)?;
        Ok(Checked { binding, wishes, plan })
    }

    /// The secret of a request that was pushed.
    pub(super) fn pushed(&self) -> Option<&Secret> {
        match &self.source {
            Source::Pushed(secret) => Some(secret),
            Source::Url | Source::Body => None,
        }
    }

    /// What stands in no URL, as far as a page shows it or calls with it. All else is between the client and us: whoever
    /// has the URL can ask for this.
    pub(super) fn unseen(&self) -> Option<BTreeMap<&str, &str>> {
        self.pushed()?;
        Some(self.query.pairs().filter(|(name, _)| OF_A_PAGE.contains(name)).collect())
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
