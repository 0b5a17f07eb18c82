//! The endpoints that a code leads to: tokens, what is known of them, and their end.

pub(crate) mod claims;
pub(crate) mod client;
pub(crate) mod exchange;
pub(crate) mod introspect;
pub(crate) mod logout;
pub(crate) mod metadata;
pub(crate) mod refresh;
pub(crate) mod revoke;
pub(crate) mod userinfo;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use self::client::Posted;
use crate::{
    auth::{
        context::RequestContext,
        http::{
            answer, fields,
            problem::{Code, Problem},
            route::TokenRoute,
        },
        state::token_config::TokenConfig,
    },
    dpop,
    http::body::Body,
    tokens::Tokens,
};

/// How long the published keys, and what describes the service, may be kept: much shorter than a key is published before
/// it signs.
const KEPT: HeaderValue = HeaderValue::from_static("public, max-age=300");

pub(crate) async fn serve<B>(cx: &mut RequestContext<'_>, route: TokenRoute, body: B) -> Result<Response<Body>, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let Some(config) = &cx.core.tokens else {
        return Err(Problem::new(Code::NotFound, "nothing is here"));
    };
    let tokens = &config.tokens;
    match route {
        TokenRoute::Keys => {
            cx.charge_asset()?;
            keys(tokens).await
        }
        TokenRoute::Metadata => {
            cx.charge_asset()?;
            Ok(kept(answer::json(StatusCode::OK, &metadata::document(cx.core, config))))
        }
        TokenRoute::UserInfo => userinfo::userinfo(cx, tokens).await,
        TokenRoute::Logout => logout::logout(cx, tokens, body).await,
        TokenRoute::Exchange => {
            // RFC 6749 §5.1 and §5.2 show it beside `Cache-Control`
            const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
            let mut response =
                posted(cx, config, route, body).await.map_err(|it| it.header(header::PRAGMA, NO_CACHE))?;
            response.headers_mut().insert(header::PRAGMA, NO_CACHE);
            Ok(response)
        }
        TokenRoute::Revoke | TokenRoute::Introspect => posted(cx, config, route, body).await,
    }
}

/// What a client posts as a form.
async fn posted<B>(
    cx: &mut RequestContext<'_>,
    config: &TokenConfig,
    route: TokenRoute,
    body: B,
) -> Result<Response<Body>, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let body = match fields::form(cx.parts, body).await {
        Ok(body) => body,
        Err(problem) => {
            cx.charge(None)?;
            return Err(problem);
        }
    };
    let (tokens, posted) = (&config.tokens, Posted::of(&body));
    match route {
        TokenRoute::Exchange => exchange::exchange(cx, config, posted).await,
        TokenRoute::Revoke => revoke::revoke(cx, tokens, posted).await,
        _ => introspect::introspect(cx, config, posted).await,
    }
}

/// `GET /jwks`.
async fn keys(tokens: &Tokens) -> Result<Response<Body>, Problem> {
    Ok(kept(answer::whole(StatusCode::OK, answer::JSON, tokens.published().await?)))
}

/// With the value that the next proof has to hold, where one is demanded.
fn with_nonce(cx: &RequestContext<'_>, mut response: Response<Body>) -> Response<Body> {
    let nonce = cx.core.proofs.nonce();
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
