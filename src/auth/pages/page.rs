//! The login page, error pages, and their assets.

use http::{HeaderValue, Response, StatusCode, header, request::Parts};

use crate::{
    auth::{
        core::Core,
        http::{
            answer,
            problem::{Code, Problem},
            route::{ACCOUNT_PAGE, FINISH_SIGN_IN, Route},
        },
        pages::custom::{LoginPage, Pages},
    },
    http::body::Body,
};

pub(crate) const OPENAPI: &str = include_str!("../openapi.json");

/// Returns the URL of the login page, without a query.
pub(crate) fn url(core: &Core) -> String {
    match &core.pages.login {
        LoginPage::Url(url) => url.clone(),
        LoginPage::BuiltIn | LoginPage::Html(_) => format!("{}/authentication/start", core.issuer.path()),
    }
}

/// Returns the login page.
pub(crate) fn login(pages: &Pages) -> Response<Body> {
    let LoginPage::Html(text) = &pages.login else { return html(StatusCode::OK, include_str!("page.html")) };
    let mut response = html(StatusCode::OK, text.clone());
    let policy = pages.login_policy.as_deref().and_then(|policy| HeaderValue::from_str(policy).ok());
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy.unwrap_or(answer::OWN_PAGE));
    response
}

/// Returns the page of an error that is sent nowhere.
pub(crate) fn error(core: &Core, parts: &Parts, problem: Problem) -> Response<Body> {
    let status = problem.code.status();
    let advice = match status {
        StatusCode::FORBIDDEN => "Sign-in is currently unavailable. Please contact your administrator.",
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            "Please wait a moment, then reload this page."
        }
        _ if problem.code == Code::SsoFailed => {
            "Your sign-in at the other provider took too long, or it began in another browser. Please sign in again."
        }
        _ => "This link does not work. Please go back to the application and try again.",
    };
    // a path of this service, whose characters need no escapes
    let link = problem.sign_in_url().map(|url| format!(r#"<p><a href="{url}">Sign in again</a></p>"#));
    // relative, because the service can be mounted below any path
    let style = match parts.uri.path() {
        path if path.ends_with("/authentication/start") => "page.css",
        path if path.ends_with("/callback") => "../../page.css",
        path if path.ends_with(FINISH_SIGN_IN) || path.ends_with(ACCOUNT_PAGE) => "../authentication/page.css",
        _ => "authentication/page.css",
    };
    let text = core.pages.error.as_deref().unwrap_or(include_str!("error.html"));
    let text = text
        .replace("{style}", style)
        .replace("{advice}", advice)
        .replace("{link}", link.as_deref().unwrap_or_default())
        .replace("{code}", problem.code.as_str())
        .replace("{detail}", problem.detail);
    let mut response = html(status, text);
    if core.pages.error.is_some() {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, answer::OWN_PAGE);
    }
    let plain = problem.into_response(&parts.headers, &core.realm);
    for (name, value) in plain.headers().iter().filter(|(name, _)| **name != header::CONTENT_TYPE) {
        response.headers_mut().append(name, value.clone());
    }
    response
}

/// Returns the page on which signed-in users manage their account.
pub(crate) fn account() -> Response<Body> {
    html(StatusCode::OK, include_str!("account.html"))
}

/// Returns the scripts and the style of the pages, and the description of the endpoints.
pub(crate) fn asset(route: Route) -> Response<Body> {
    match route {
        Route::Script => {
            answer::response_with_body(StatusCode::OK, "text/javascript; charset=utf-8", include_str!("page.js"))
        }
        Route::AccountScript => {
            answer::response_with_body(StatusCode::OK, "text/javascript; charset=utf-8", include_str!("account.js"))
        }
        Route::Style => answer::response_with_body(StatusCode::OK, "text/css; charset=utf-8", include_str!("page.css")),
        _ => answer::for_every_origin(answer::response_with_body(StatusCode::OK, answer::JSON, OPENAPI)),
    }
}

fn html(status: StatusCode, text: impl Into<Body>) -> Response<Body> {
    answer::response_with_body(status, "text/html; charset=utf-8", text)
}
