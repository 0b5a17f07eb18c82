//! Reads the parameters of an authorization request: from the URL, from the body of `/par`, or pushed.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use http::Response;

use crate::{
    auth::{
        authorize::{
            oidc::OidcParameters,
            request::{self, Recipient},
        },
        context::{ClientReach, RequestContext},
        http::{
            answer, credentials,
            problem::{Code, Problem},
        },
        state::pushed,
    },
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
pub(crate) const LONGEST_STATE: usize = 4096;

/// The parameters that a login page needs: its calls repeat them, or it depends on them.
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

/// The error of a code challenge that was already redeemed.
pub(crate) const REDEEMED: &str = "code_challenge was used before";

/// The parameters of a request.
pub(crate) struct Query<'a> {
    /// The query of a URL that repeats the request.
    pub(crate) raw: Cow<'a, str>,
    form: Form<'a>,
}

/// How a request arrived.
pub(crate) enum Source {
    Url,
    /// In the body of `/par`.
    Body,
    /// It was pushed before and is found by this secret.
    Pushed(Secret),
}

/// A request whose errors can be sent to its redirect URI.
pub(crate) struct Asked<'a> {
    pub(crate) query: Query<'a>,
    pub(crate) source: Source,
    pub(crate) to: Recipient,
    pub(crate) parameters: ClientParameters,
}

impl<'a> Query<'a> {
    pub(crate) fn of(cx: &RequestContext<'a>) -> Result<Self, Problem> {
        let raw = cx.parts.uri.query().unwrap_or_default();
        Ok(Self { raw: Cow::Borrowed(raw), ..Self::parse(raw.as_bytes())? })
    }

    pub(crate) fn parse(text: &'a [u8]) -> Result<Self, Problem> {
        let form = Form::parse(text).map_err(|error| Problem::invalid(error.detail()))?;
        Ok(Self { raw: Cow::Borrowed(""), form })
    }

    pub(crate) fn value(&self, name: &str) -> Option<&str> {
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

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.form.pairs()
    }

    /// Returns the client id, if it is given exactly once.
    pub(crate) fn client_id(&self) -> Option<&str> {
        self.value("client_id").filter(|_| !self.is_twice("client_id"))
    }

    #[cfg(feature = "external-providers")]
    pub(crate) fn has_duplicates(&self) -> bool {
        self.form.has_duplicates()
    }

    pub(crate) fn is_twice(&self, name: &str) -> bool {
        self.form.values(name).nth(1).is_some()
    }
}

/// Reads the query and charges the request. Errors are shown to the user, because no redirect URI is known to be valid.
pub(crate) async fn asked<'a>(cx: &mut RequestContext<'a>, reach: ClientReach) -> Result<Asked<'a>, Problem> {
    let query = cx.or_charge(Query::of(cx)).await?;
    let client = cx.charged_client(query.client_id(), reach).await?;
    let Some(secret) = query.value("request_uri").and_then(pushed::secret_of) else {
        return addressed(query, Source::Url, client);
    };
    let unknown =
        || Problem::new(Code::InvalidRequestUri, "request_uri is unknown, expired or belongs to another client");
    let (Some(client), Some(secret)) = (client, secret) else {
        return Err(if query.client_id().is_some() { unknown() } else { Problem::invalid("client_id is missing") });
    };
    if query.is_twice("request_uri") {
        return Err(Problem::invalid("request_uri appears more than once"));
    }
    let text = cx.core.pushed.open(&secret, client.id()).await?.ok_or_else(unknown)?;
    let form = Query::parse(text.as_bytes())?.form.into_owned();
    let (id, uri) = (form::encode(client.id()), form::encode(query.value("request_uri").unwrap_or_default()));
    let query = Query { raw: Cow::Owned(format!("client_id={id}&request_uri={uri}")), form };
    addressed(query, Source::Pushed(secret), Some(client))
}

/// Reads a request in the body of `/par` in the same way.
pub(crate) async fn pushing<'b>(
    cx: &mut RequestContext<'_>,
    query: Result<Query<'b>, Problem>,
) -> Result<Asked<'b>, Problem> {
    let query = cx.or_charge(query).await?;
    let client = cx.calling_client(query.client_id(), ClientReach::Registered).await?;
    credentials::refuse(&cx.parts.headers, |name| query.value(name))?;
    addressed(query, Source::Body, client)
}

fn addressed(query: Query<'_>, source: Source, client: Option<Arc<Client>>) -> Result<Asked<'_>, Problem> {
    for (name, detail) in
        [("client_id", "client_id appears more than once"), ("redirect_uri", "redirect_uri appears more than once")]
    {
        if query.is_twice(name) {
            return Err(Problem::invalid(detail));
        }
    }
    let parameters = query.parameters();
    let to = request::recipient(&parameters, client)?;
    Ok(Asked { query, source, to, parameters })
}

/// A valid request.
pub(crate) struct Checked {
    /// The parameters that the login is bound to.
    pub(crate) binding: Binding,
    pub(crate) oidc: OidcParameters,
    /// The steps that this request needs, which can be more than those of a login that began earlier. `None` if no
    /// login here can meet the requirements.
    pub(crate) plan: Option<LoginPlan>,
}

impl Asked<'_> {
    /// Checks the rest of the request. The errors are sent to the redirect URI.
    pub(crate) fn checked(&self, cx: &RequestContext<'_>) -> Result<Checked, Problem> {
        let wrong = |code, detail| Err(Problem::new(code, detail));
        if self.query.form.has_duplicates() {
            return wrong(Code::InvalidRequest, "a parameter appears more than once");
        }
        if self.state().is_some_and(|state| state.len() > LONGEST_STATE) {
            return wrong(Code::InvalidRequest, "state is longer than 4096 bytes");
        }
        if self.query.value("request").is_some() {
            return wrong(Code::RequestNotSupported, "the parameter request is not supported");
        }
        match (&self.source, self.query.value("request_uri")) {
            (Source::Body, Some(_)) => {
                return wrong(Code::InvalidRequest, "a pushed request must not contain request_uri");
            }
            (_, Some(_)) => {
                return wrong(Code::RequestUriNotSupported, "request_uri must refer to a request that was pushed here");
            }
            (Source::Url, None) if self.to.client.needs_pushed_requests() => {
                return wrong(Code::InvalidRequest, "this client must push its requests");
            }
            _ => {}
        }
        if self.query.value("response_mode").is_some_and(|mode| mode != "query") {
            return wrong(Code::InvalidRequest, "response_mode must be query");
        }
        let binding = request::bind(&self.parameters, &self.to, &cx.core.journal)?;
        let oidc = OidcParameters::read(|name| self.query.value(name))?;
        let plan = oidc.plan(cx, &self.to.client)?;
        Ok(Checked { binding, oidc, plan })
    }

    /// Returns the secret of a pushed request.
    pub(crate) fn pushed(&self) -> Option<&Secret> {
        match &self.source {
            Source::Pushed(secret) => Some(secret),
            Source::Url | Source::Body => None,
        }
    }

    /// Returns the parameters that a login page needs and that are not in its URL, because the request was pushed.
    /// Anybody with the URL can read them, so the other parameters are left out.
    pub(crate) fn unseen(&self) -> Option<BTreeMap<&str, &str>> {
        self.pushed()?;
        Some(self.query.pairs().filter(|(name, _)| OF_A_PAGE.contains(name)).collect())
    }

    fn state(&self) -> Option<&str> {
        self.query.value("state").filter(|_| !self.query.is_twice("state"))
    }

    /// Redirects the browser to the client with these parameters, its `state` and the issuer.
    pub(crate) fn back(&self, cx: &RequestContext<'_>, parameters: &[(&str, &str)]) -> Result<Response<Body>, Problem> {
        let state = self.state().filter(|state| state.len() <= LONGEST_STATE).map(|state| ("state", state));
        let issuer = ("iss", cx.core.issuer.as_str());
        let all: Vec<_> = parameters.iter().copied().chain(state).chain([issuer]).collect();
        let location = self.to.redirect.answer(&all);
        answer::redirect(&location).ok_or_else(|| Problem::invalid("the response is too long to send"))
    }

    pub(crate) fn error(&self, cx: &RequestContext<'_>, error: &Problem) -> Result<Response<Body>, Problem> {
        let (code, detail) = (error.code.as_str(), error.detail);
        cx.log(error);
        self.back(cx, &[("error", code), ("error_description", detail)])
    }
}
