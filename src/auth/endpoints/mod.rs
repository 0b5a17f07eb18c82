//! The endpoints that a code leads to: `/token` and those that take tokens, and what describes the service.

pub(crate) mod claims;
pub(crate) mod code_grant;
pub(crate) mod form;
pub(crate) mod introspect;
pub(crate) mod logout;
pub(crate) mod metadata;
pub(crate) mod proof;
pub(crate) mod refresh_grant;
pub(crate) mod revoke;
pub(crate) mod settings;
pub(crate) mod token;
pub(crate) mod userinfo;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use self::{form::Posted, settings::TokenEndpoints};
use crate::{
    auth::{
        http::{
            answer, fields,
            problem::{Code, Problem},
            route::TokenRoute,
        },
        visit::Visit,
    },
    http::body::Body,
};

/// How long clients may keep the public keys and the metadata: much shorter than a key is published before it signs.
const KEPT: HeaderValue = HeaderValue::from_static("public, max-age=300");

pub(crate) async fn serve<B>(visit: &mut Visit<'_>, route: TokenRoute, body: B) -> Result<Response<Body>, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let Some(endpoints) = &visit.inner.running().tokens else {
        return Err(Problem::new(Code::NotFound, "nothing is here"));
    };
    match route {
        TokenRoute::Keys => {
            visit.charge_asset()?;
            Ok(kept(answer::whole(StatusCode::OK, answer::JSON, endpoints.service.key_set().await?)))
        }
        TokenRoute::Metadata => {
            visit.charge_asset()?;
            let document = metadata::document(visit.inner, endpoints.service.algorithm());
            Ok(kept(answer::json(StatusCode::OK, &document)))
        }
        TokenRoute::UserInfo => userinfo::userinfo(visit, endpoints).await,
        TokenRoute::Logout => logout::logout(visit, &endpoints.service, body).await,
        TokenRoute::Exchange => {
            // RFC 6749 §5.1 and §5.2 require it beside `Cache-Control`
            const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
            let mut response =
                posted(visit, endpoints, route, body).await.map_err(|it| it.header(header::PRAGMA, NO_CACHE))?;
            response.headers_mut().insert(header::PRAGMA, NO_CACHE);
            Ok(response)
        }
        TokenRoute::Revoke | TokenRoute::Introspect => posted(visit, endpoints, route, body).await,
    }
}

/// Serves what a client posts as a form.
async fn posted<B>(
    visit: &mut Visit<'_>,
    endpoints: &TokenEndpoints,
    route: TokenRoute,
    body: B,
) -> Result<Response<Body>, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let body = match fields::form(visit.parts, body).await {
        Ok(body) => body,
        Err(problem) => {
            visit.charge(None)?;
            return Err(problem);
        }
    };
    let posted = Posted::of(&body);
    match route {
        TokenRoute::Exchange => token::token(visit, endpoints, posted).await,
        TokenRoute::Revoke => revoke::revoke(visit, endpoints, posted).await,
        _ => introspect::introspect(visit, endpoints, posted).await,
    }
}

/// Lets caches keep an answer, and pages of every origin read it.
fn kept(response: Response<Body>) -> Response<Body> {
    let mut response = answer::for_every_origin(response);
    response.headers_mut().insert(header::CACHE_CONTROL, KEPT);
    response
}
