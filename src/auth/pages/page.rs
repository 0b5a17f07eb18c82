//! What a person sees: the page of a login, errors of `/authorize`, and the parts of both.

use std::collections::BTreeMap;

use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::{
    auth::{
        authorize::{hint::Meant, query, signed_in::SignedIn},
        context::RequestContext,
        http::{answer, problem::Problem, route::Route},
    },
    client::RequestedRedirect,
    http::{accept, body::Body},
    policy::Method,
};

pub(crate) const OPENAPI: &str = include_str!("../openapi.json");

/// What a login page has to know of a request.
#[derive(Serialize)]
struct Description<'a> {
    client_id: &'a str,
    client_name: &'a str,
    available_methods: Vec<&'static str>,
    required_steps: usize,
    scopes: Vec<&'a str>,
    redirect: Redirect<'a>,
    /// By which name somebody is signed in whose steps count here; our own pages alone may know.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_in: Option<&'a str>,
    /// Whether they are asked before a code rests on that.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmation_required: Option<bool>,
    /// What was pushed, and stands in no URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<BTreeMap<&'a str, &'a str>>,
}

/// Where the answer goes, as a person can judge it.
#[derive(Serialize)]
struct Redirect<'a> {
    kind: &'static str,
    host: &'a str,
}

impl<'a> Redirect<'a> {
    fn of(redirect: &'a RequestedRedirect) -> Self {
        let (scheme, rest) = redirect.as_str().split_once(':').unwrap_or_default();
        let host = rest.strip_prefix("//").unwrap_or_default();
        let host = host.split(['/', '?']).next().unwrap_or_default();
        match scheme {
            "https" => Self { kind: "site", host },
            "http" => Self { kind: "loopback", host },
            _ => Self { kind: "app", host: scheme },
        }
    }
}

/// `GET /authentication/start`: the page, or what it shows for a page of your own.
pub(crate) async fn start(cx: &mut RequestContext<'_>) -> Result<Response<Body>, Problem> {
    let asked = match query::asked(cx).await {
        Ok(asked) => asked,
        Err(problem) => return shown(cx, problem),
    };
    let checked = match asked.checked(cx) {
        Ok(checked) => checked,
        Err(wrong) => return asked.error(cx, wrong),
    };
    let client = &asked.to.client;
    if accept::favourite(&cx.parts.headers).is_none_or(|best| !best.eq_ignore_ascii_case(answer::JSON)) {
        return Ok(by_accept(html(StatusCode::OK, include_str!("page.html"))));
    }
    let plan = checked.plan.as_ref().ok_or_else(Problem::unmet)?;
    let signed_in = match cx.reader {
        None => SignedIn::find(cx, client, &checked.wishes).await?,
        // scripts of other origins need not know who is signed in
        Some(_) => None,
    };
    let now = cx.core.evidences.now();
    let signed_in = signed_in.filter(|it| it.carried(plan, &checked.wishes, client, now).is_some());
    // nobody goes on as another than whom the request means; what is wrong with its hint is told at the end
    let signed_in = match signed_in {
        None => None,
        Some(it) => {
            let meant = Meant::by(cx, &checked.wishes, client).await;
            Some(it).filter(|it| meant.is_ok_and(|meant| meant.is(it.session.user())))
        }
    };
    let description = Description {
        client_id: client.id(),
        client_name: client.display_name(),
        available_methods: plan.methods().iter().map(Method::as_str).collect(),
        required_steps: plan.steps(),
        scopes: checked.binding.scope.iter().collect(),
        redirect: Redirect::of(&asked.to.redirect),
        signed_in: signed_in.as_ref().and_then(|it| it.evidence.identifier.as_ref().map(|it| it.as_str())),
        confirmation_required: signed_in.as_ref().map(|_| checked.wishes.asking || !asked.to.redirect.is_of_a_site()),
        parameters: asked.unseen(),
    };
    Ok(by_accept(answer::json(StatusCode::OK, &description)))
}

/// An error that goes nowhere else: as a page for a person, as JSON for a program.
pub(crate) fn shown(cx: &RequestContext<'_>, problem: Problem) -> Result<Response<Body>, Problem> {
    if !accept::prefers_html(&cx.parts.headers) {
        return Err(problem);
    }
    let status = problem.code.status();
    let advice = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            "Wait a little, and then load this page again."
        }
        _ => "The link that led here does not work. Go back to the application and start again from there.",
    };
    // relative, for whoever mounts this knows best under which path
    let is_start = cx.parts.uri.path().ends_with("/authentication/start");
    let text = include_str!("error.html")
        .replace("{style}", if is_start { "page.css" } else { "authentication/page.css" })
        .replace("{advice}", advice)
        .replace("{code}", problem.code.as_str())
        .replace("{detail}", problem.detail);
    let mut response = html(status, text);
    // its other headers are those of any answer to this problem
    let plain = problem.into_response(&cx.parts.headers, &cx.core.realm);
    for (name, value) in plain.headers().iter().filter(|(name, _)| **name != header::CONTENT_TYPE) {
        response.headers_mut().append(name, value.clone());
    }
    Ok(response)
}

/// The parts of the page, and the description of the endpoints.
pub(crate) fn asset(route: Route) -> Response<Body> {
    match route {
        Route::Script => answer::whole(StatusCode::OK, "text/javascript; charset=utf-8", include_str!("page.js")),
        Route::Style => answer::whole(StatusCode::OK, "text/css; charset=utf-8", include_str!("page.css")),
        _ => answer::whole(StatusCode::OK, answer::JSON, OPENAPI),
    }
}

/// The same URL has a page and a description of it.
fn by_accept(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

fn html(status: StatusCode, text: impl Into<Body>) -> Response<Body> {
    answer::whole(status, "text/html; charset=utf-8", text)
}
