//! Reads the parameters of an authorization request: from the URL, from the body of `/par`, or pushed.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use crate::{
    auth::{
        authorize::{
            oidc::OidcParameters,
            request::{self, Recipient},
        },
        context::{RequestContext, client_authentication, incoming::IncomingRequest, stages::ClientReach},
        http::{
            answer,
            problem::{Code, EndpointResult, Problem},
        },
        query::Query,
        state::pushed,
    },
    client::{Client, RESOURCE, select_resources},
    login::Binding,
    policy::LoginPlan,
    util::{form, secret::Secret},
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
    /// The answer of the user to the question about a third-party client.
    pub(crate) decision: Option<Decision>,
}

/// A decision about a third-party client, with the ticket of the page that asked.
pub(crate) struct Decision {
    pub(crate) ticket: String,
    pub(crate) allows: bool,
}

/// Reads the query and charges the request. Errors are shown to the user, because no redirect URI is known to be valid.
pub(crate) async fn read_authorize_request<'a>(
    request: &mut IncomingRequest<'a>,
    reach: ClientReach,
) -> Result<(RequestContext<'a>, Asked<'a>), Problem> {
    let query = Query::from_request_uri(request.parts);
    read_request_of_query(request, query, reach).await
}

/// Reads a request from this query in the same way.
pub(crate) async fn read_request_of_query<'a, 'q>(
    request: &mut IncomingRequest<'a>,
    query: Result<Query<'q>, Problem>,
    reach: ClientReach,
) -> Result<(RequestContext<'a>, Asked<'q>), Problem> {
    let query = request.or_charge(query).await?;
    let (cx, client) = request.charged_client(query.client_id(), reach).await?;
    let Some(secret) = query.value("request_uri").and_then(pushed::secret_of) else {
        return Ok((cx, addressed(query, Source::Url, client)?));
    };
    let unknown =
        || Problem::new(Code::InvalidRequestUri, "request_uri is unknown, expired or belongs to another client");
    let (Some(client), Some(secret)) = (client, secret) else {
        return Err(if query.client_id().is_some() { unknown() } else { Problem::invalid("client_id is missing") });
    };
    if query.is_twice("request_uri") {
        return Err(Problem::invalid("request_uri appears more than once"));
    }
    let text = cx.core.pushed.open_pushed_request(&secret, client.id()).await?.ok_or_else(unknown)?;
    let form = Query::parse(text.as_bytes())?.form.into_owned();
    let (id, uri) =
        (form::encode_form_value(client.id()), form::encode_form_value(query.value("request_uri").unwrap_or_default()));
    let query = Query { raw: Cow::Owned(format!("client_id={id}&request_uri={uri}")), form };
    Ok((cx, addressed(query, Source::Pushed(secret), Some(client))?))
}

/// Reads a request in the body of `/par` in the same way.
pub(crate) async fn pushing<'a, 'b>(
    request: &mut IncomingRequest<'a>,
    query: Result<Query<'b>, Problem>,
) -> Result<(RequestContext<'a>, Asked<'b>), Problem> {
    let query = request.or_charge(query).await?;
    let id = client_authentication::named_client(&request.parts.headers, |name| query.value(name));
    let (cx, client) = request.charged_caller(id.as_deref(), ClientReach::Registered).await?;
    let client = client?;
    client_authentication::authenticate_caller(&cx, client.as_deref(), |name| query.value(name)).await?;
    Ok((cx, addressed(query, Source::Body, client)?))
}

fn addressed(query: Query<'_>, source: Source, client: Option<Arc<Client>>) -> Result<Asked<'_>, Problem> {
    for (name, detail) in
        [("client_id", "client_id appears more than once"), ("redirect_uri", "redirect_uri appears more than once")]
    {
        if query.is_twice(name) {
            return Err(Problem::invalid(detail));
        }
    }
    let to = request::recipient(|name| query.value(name), client)?;
    Ok(Asked { query, source, to, decision: None })
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
        if self.query.form.has_duplicates_except(Some(RESOURCE)) {
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
        let value = |name: &str| self.query.value(name);
        let binding = request::bind(value, &self.to, &cx.core.journal)?;
        let mut oidc = OidcParameters::read_oidc_parameters(&self.to.client, value)?;
        let allowed = cx.core.allowed_resources(&self.to.client);
        oidc.wanted.resources = select_resources(self.query.form.values(RESOURCE), &allowed)?;
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
    pub(crate) fn back(&self, cx: &RequestContext<'_>, parameters: &[(&str, &str)]) -> EndpointResult {
        let state = self.state().filter(|state| state.len() <= LONGEST_STATE).map(|state| ("state", state));
        let issuer = ("iss", cx.core.issuer.as_str());
        let all: Vec<_> = parameters.iter().copied().chain(state).chain([issuer]).collect();
        let location = self.to.redirect.with_parameters(&all);
        let response = match self.decision {
            // after a form
            Some(_) => answer::see_other(&location),
            None => answer::redirect(&location),
        };
        response.ok_or_else(|| Problem::invalid("the response is too long to send"))
    }

    pub(crate) fn error(&self, cx: &RequestContext<'_>, error: &Problem) -> EndpointResult {
        let (code, detail) = (error.code.as_str(), error.detail);
        cx.log(error);
        self.back(cx, &[("error", code), ("error_description", detail)])
    }
}
