//! The token endpoints: `/token`, the endpoints that take tokens, and the metadata.

pub(crate) mod subject;
pub(crate) mod user_claims;
pub(crate) mod code_grant;
pub(crate) mod form;
pub(crate) mod introspect;
pub(crate) mod logout;
pub(crate) mod machine_grant;
pub(crate) mod metadata;
pub(crate) mod dpop_proof;
pub(crate) mod refresh_grant;
pub(crate) mod revoke;
pub(crate) mod token;
pub(crate) mod userinfo;

use http::{HeaderValue, Response, StatusCode, header};

use self::form::Posted;
use crate::{
    auth::{
        context::incoming::IncomingRequest,
        http::{
            answer::{self, in_box},
            bodies::RequestBody,
            fields,
            problem::{Code, EndpointResult, Problem},
            route::TokenRoute,
        },
        state::token_endpoints::TokenEndpoints,
    },
    http::body::Body,
};

/// How long clients may keep the public keys and the metadata: much less than the time for which a key is published before it
/// signs.
const KEPT: HeaderValue = HeaderValue::from_static("public, max-age=300");

pub(crate) async fn serve_token_route(
    request: &mut IncomingRequest<'_>,
    route: TokenRoute,
    body: &mut RequestBody,
) -> EndpointResult {
    let Some(endpoints) = request.token_endpoints() else {
        return Err(Problem::new(Code::NotFound, "there is no such endpoint"));
    };
    match route {
        TokenRoute::Keys => {
            request.charge_asset().await?;
            Ok(kept(answer::response_with_body(StatusCode::OK, answer::JSON, endpoints.service.key_set().await?)))
        }
        TokenRoute::Metadata => {
            let cx = request.charge_asset().await?;
            let document = metadata::document(cx.core, endpoints.service.algorithm());
            Ok(kept(answer::response_with_body(StatusCode::OK, answer::JSON, document)))
        }
        TokenRoute::UserInfo => in_box(|| userinfo::userinfo(request, endpoints)).await,
        TokenRoute::Logout => {
            in_box(|| logout::logout(request, &endpoints.service, body)).await.map_err(Problem::into_error_page)
        }
        TokenRoute::Exchange => {
            // RFC 6749 §5.1 and §5.2 require it in addition to `Cache-Control`
            const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
            let mut response =
                posted(request, endpoints, route, body).await.map_err(|it| it.header(header::PRAGMA, NO_CACHE))?;
            response.headers_mut().insert(header::PRAGMA, NO_CACHE);
            Ok(response)
        }
        TokenRoute::Revoke | TokenRoute::Introspect => posted(request, endpoints, route, body).await,
    }
}

/// Serves what a client posts as a form.
async fn posted(
    request: &mut IncomingRequest<'_>,
    endpoints: &TokenEndpoints,
    route: TokenRoute,
    body: &mut RequestBody,
) -> EndpointResult {
    let body = fields::form(request.parts, body).await;
    let body = request.or_charge(body).await?;
    let posted = Posted::from_form_body(&body);
    match route {
        TokenRoute::Exchange => token::serve_token_request(request, endpoints, posted).await,
        TokenRoute::Revoke => in_box(|| revoke::revoke_token_family(request, endpoints, posted)).await,
        _ => in_box(|| introspect::introspect(request, endpoints, posted)).await,
    }
}

/// Lets caches keep an answer, and pages of every origin read it.
fn kept(response: Response<Body>) -> Response<Body> {
    let mut response = answer::for_every_origin(response);
    response.headers_mut().insert(header::CACHE_CONTROL, KEPT);
    response
}
