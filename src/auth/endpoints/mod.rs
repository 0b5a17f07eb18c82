//! The endpoints that a code leads to: tokens, what is known of them, and their end.

pub(crate) mod claims;
pub(crate) mod client;
pub(crate) mod exchange;
pub(crate) mod introspect;
pub(crate) mod logout;
pub(crate) mod metadata;
pub(crate) mod refresh;
pub(crate) mod revoke;
pub(crate) mod settings;
pub(crate) mod userinfo;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use self::client::Posted;
pub(crate) use self::settings::TokenConfig;
use crate::{
    auth::{
        http::{
            answer, fields,
            problem::{Code, Problem},
            route::TokenRoute,
        },
        visit::Visit,
    },
    dpop,
    http::body::Body,
    tokens::Tokens,
};

/// How long the published keys, and what describes the service, may be kept: much shorter than a key is published before
/// it signs.
const KEPT: HeaderValue = HeaderValue::from_static("public, max-age=300");

pub(crate) async fn serve<B>(visit: &mut Visit<'_>, route: TokenRoute, body: B) -> Result<Response<Body>, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let Some(config) = &visit.inner.config.tokens else {
        return Err(Problem::new(Code::NotFound, "nothing is here"));
    };
    let tokens = &config.tokens;
    match route {
        TokenRoute::Keys => {
            visit.charge_asset()?;
            keys(tokens).await
        }
        TokenRoute::Metadata => {
            visit.charge_asset()?;
            Ok(kept(answer::json(StatusCode::OK, &metadata::document(visit.inner, config))))
        }
        TokenRoute::UserInfo => userinfo::userinfo(visit, tokens).await,
        TokenRoute::Logout => logout::logout(visit, tokens, body).await,
        TokenRoute::Exchange => {
            // RFC 6749 §5.1 and §5.2 show it beside `Cache-Control`
            const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
            let mut response =
                posted(visit, config, route, body).await.map_err(|it| it.header(header::PRAGMA, NO_CACHE))?;
            response.headers_mut().insert(header::PRAGMA, NO_CACHE);
            Ok(response)
        }
        TokenRoute::Revoke | TokenRoute::Introspect => posted(visit, config, route, body).await,
    }
}

/// What a client posts as a form.
async fn posted<B>(
    visit: &mut Visit<'_>,
    config: &TokenConfig,
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
    let (tokens, posted) = (&config.tokens, Posted::of(&body));
    match route {
        TokenRoute::Exchange => exchange::exchange(visit, config, posted).await,
        TokenRoute::Revoke => revoke::revoke(visit, tokens, posted).await,
        _ => introspect::introspect(visit, config, posted).await,
    }
}

/// `GET /jwks`.
async fn keys(tokens: &Tokens) -> Result<Response<Body>, Problem> {
    Ok(kept(answer::whole(StatusCode::OK, answer::JSON, tokens.published().await?)))
}

/// With the value that the next proof has to hold, where one is demanded.
fn with_nonce(visit: &Visit<'_>, mut response: Response<Body>) -> Response<Body> {
    let nonce = visit.inner.running().proofs.nonce();
    if let Some(nonce) = nonce.and_then(|nonce| HeaderValue::try_from(nonce).ok()) {
        response.headers_mut().insert(dpop::NONCE, nonce);
    }
    response
}

/// May be kept, by whoever passes it on too, but not for pages of other origins than the one that it names.
fn kept(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CACHE_CONTROL, KEPT);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("origin"));
    response
}
