//! Where password managers and browsers find the account page.

use http::{Response, StatusCode};

use crate::{
    auth::{
        context::RequestContext,
        http::{
            answer,
            problem::{EndpointResult, Problem},
            route::ACCOUNT_PAGE,
        },
    },
    http::body::Body,
    util::json_object::JsonObject,
};

/// Serves `/.well-known/change-password` (W3C, A Well-Known URL for Changing Passwords).
pub(crate) fn redirect_to_password(cx: &RequestContext<'_>) -> EndpointResult {
    let page = format!("{}{ACCOUNT_PAGE}", cx.core.issuer.path());
    answer::see_other(&page).ok_or_else(Problem::unavailable)
}

/// Serves `/.well-known/passkey-endpoints` (W3C, A Well-Known URL for Relying Party Passkey Endpoints).
pub(crate) fn list_passkey_endpoints(cx: &RequestContext<'_>) -> Response<Body> {
    let page = format!("{}{ACCOUNT_PAGE}", cx.core.issuer.as_str());
    let endpoints = JsonObject::new().text("enroll", &page).text("manage", &page).end();
    answer::response_with_body(StatusCode::OK, answer::JSON, endpoints)
}
