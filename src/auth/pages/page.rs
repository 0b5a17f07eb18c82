//! The login page, error pages, and their assets.

use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};

use crate::{
    auth::{
        core::Core,
        http::{
            answer,
            problem::{Code, Problem},
            route::{ACCOUNT_PAGE, FINISH_SIGN_IN, Path, Route, SIGN_OUT},
        },
        pages::{
            built::{self, BuiltPages, Template},
            custom::LoginPage,
        },
    },
    http::body::Body,
    words::{self, Language},
};

pub(crate) const OPENAPI: &str = include_str!("../openapi.json");

/// Returns the URL of the login page, without a query.
pub(crate) fn url(core: &Core) -> String {
    match &core.pages.own.login {
        LoginPage::Url(url) => url.clone(),
        LoginPage::BuiltIn | LoginPage::Html(_) => format!("{}/authentication/start", core.issuer.path()),
    }
}

/// Returns the login page for people who can't sign in yet, or not any more. Its script knows the mode from the path.
pub(crate) fn entry(pages: &BuiltPages, language: Language) -> Response<Body> {
    built_in_login(pages, language, "authentication/")
}

fn built_in_login(pages: &BuiltPages, language: Language, root: &'static str) -> Response<Body> {
    let template = Template { built_in: include_str!("page.html"), own: None, root };
    pages.page(StatusCode::OK, template, language, |name| {
        (name == "words").then(|| pages.script_words(language, &["login.", "shared."]))
    })
}

/// Returns the login page.
pub(crate) fn login(pages: &BuiltPages, language: Language) -> Response<Body> {
    let LoginPage::Html(text) = &pages.own.login else {
        let mut response = built_in_login(pages, language, "");
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept, accept-language"));
        return response;
    };
    let mut response = answer::response_with_body(StatusCode::OK, "text/html; charset=utf-8", text.clone());
    let policy = pages.own.login_policy.as_deref().and_then(|policy| HeaderValue::from_str(policy).ok());
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy.unwrap_or(answer::OWN_PAGE));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// Returns the page of an error that is sent nowhere.
pub(crate) fn error(core: &Core, parts: &Parts, problem: Problem) -> Response<Body> {
    let status = problem.code.status();
    let (pages, language) = (&core.pages, built::language_of(parts));
    let is_unknown = matches!(problem.code, Code::NotFound | Code::MethodNotAllowedHere);
    let is_passing = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let [title, heading] = match (is_unknown, is_passing) {
        (true, _) => ["error.no_page"; 2],
        (_, true) => ["error.not_now"; 2],
        _ if [SIGN_OUT, "/logout"].iter().any(|path| parts.uri.path().ends_with(path)) => ["logout.title"; 2],
        _ => ["error.title", "error.heading"],
    };
    let advice = match (status, problem.seconds_to_wait()) {
        (StatusCode::FORBIDDEN, _) => pages.text(language, "error.unavailable"),
        (StatusCode::TOO_MANY_REQUESTS, Some(seconds)) => wait(pages, language, seconds),
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, _) => pages.text(language, "error.wait"),
        _ if problem.code == Code::SsoFailed => pages.text(language, "error.provider"),
        _ if is_unknown => pages.text(language, "error.check_address"),
        _ => pages.text(language, "error.link"),
    };
    // a path of this service, whose characters need no escapes, or this page again
    let target = match problem.sign_in_url() {
        Some(url) => Some((url, "error.sign_in_again")),
        None => (is_passing && parts.method == Method::GET).then_some(("", "error.try_again")),
    };
    let link = target.map(|(url, key)| format!(r#"<p><a href="{url}">{}</a></p>"#, pages.text(language, key)));
    let absolute = format!("{}/authentication/", core.issuer.path());
    let root = match parts.uri.path() {
        path if is_unknown || Path::match_request_path(path, core.issuer.path()).is_none() => &absolute,
        path if path.ends_with("/authentication/start") => "",
        path if path.ends_with("/callback") => "../../",
        path if path.ends_with(FINISH_SIGN_IN) || path.ends_with(ACCOUNT_PAGE) => "../authentication/",
        _ => "authentication/",
    };
    let template = Template { built_in: include_str!("error.html"), own: pages.own.error.as_deref(), root };
    let mut response = pages.page(status, template, language, |name| match name {
        "title" => Some(pages.text(language, title)),
        "heading" => Some(pages.text(language, heading)),
        "advice" => Some(advice.clone()),
        "link" => Some(link.clone().unwrap_or_default()),
        "code" => Some(problem.code.as_str().to_owned()),
        "detail" => Some(problem.detail.to_owned()),
        _ => None,
    });
    let plain = problem.into_response(&parts.headers, &core.realm);
    for (name, value) in plain.headers().iter().filter(|(name, _)| **name != header::CONTENT_TYPE) {
        response.headers_mut().append(name, value.clone());
    }
    response
}

/// Returns when to try again, rounded up.
fn wait(pages: &BuiltPages, language: Language, seconds: u64) -> String {
    let (key, count) = match seconds {
        0..=1 => ("error.second", 1),
        2..100 => ("error.seconds", seconds),
        100..5400 => ("error.minutes", seconds.div_ceil(60)),
        _ => ("error.hours", seconds.div_ceil(3600)),
    };
    let time = words::fill_values(&pages.text(language, key), &[("count", &count.to_string())]);
    words::fill_values(&pages.text(language, "error.retry"), &[("time", &time)])
}

/// Returns the page on which signed-in users manage their account.
pub(crate) fn account(pages: &BuiltPages, language: Language) -> Response<Body> {
    let template = Template { built_in: include_str!("account.html"), own: None, root: "../authentication/" };
    pages.page(StatusCode::OK, template, language, |name| {
        (name == "words").then(|| pages.script_words(language, &["account.", "login.scope_", "shared."]))
    })
}

/// Returns the scripts, the style and the logo of the pages, and the description of the endpoints.
pub(crate) fn asset(pages: &BuiltPages, route: Route) -> Response<Body> {
    if let (Route::Logo, Some(logo)) = (route, &pages.logo) {
        return logo.response();
    }
    match route {
        Route::Script => {
            answer::response_with_body(StatusCode::OK, "text/javascript; charset=utf-8", include_str!("page.js"))
        }
        Route::AccountScript => {
            answer::response_with_body(StatusCode::OK, "text/javascript; charset=utf-8", include_str!("account.js"))
        }
        Route::Style => answer::response_with_body(StatusCode::OK, "text/css; charset=utf-8", pages.style.clone()),
        _ => answer::for_every_origin(answer::response_with_body(StatusCode::OK, answer::JSON, OPENAPI)),
    }
}
