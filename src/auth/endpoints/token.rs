//! `POST /token`: exchanges a code or a refresh token for tokens.

use http::{Response, StatusCode};
use serde::Serialize;

use crate::{
    auth::{
        context::RequestContext,
        endpoints::{code_grant, form::Posted, proof::with_nonce, refresh_grant},
        http::{
            answer,
            problem::{Code, Problem},
        },
        state::token_endpoints::TokenEndpoints,
    },
    event::EventKind,
    http::body::Body,
    tokens::Issued,
};

/// The answer with tokens (RFC 6749 §5.1).
#[derive(Serialize)]
struct Answer {
    access_token: String,
    token_type: &'static str,
    expires_in: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id_token: Option<String>,
    scope: String,
}

pub(crate) async fn token(
    cx: &mut RequestContext<'_>,
    endpoints: &TokenEndpoints,
    posted: Posted<'_>,
) -> Result<Response<Body>, Problem> {
    let answer = issue(cx, endpoints, &posted).await;
    if let (Err(problem), Some(token)) = (&answer, posted.value("refresh_token"))
        // without a budget, or while the store fails, nothing more is read
        && !matches!(problem.code, Code::RateLimitExceeded | Code::TemporarilyUnavailable)
    {
        refresh_grant::revoke_if_reused(cx, endpoints, token).await?;
    }
    answer
}

async fn issue(
    cx: &mut RequestContext<'_>,
    endpoints: &TokenEndpoints,
    posted: &Posted<'_>,
) -> Result<Response<Body>, Problem> {
    let client = posted.client(cx).await?;
    let (issued, is_bound) = match posted.required("grant_type", "grant_type is missing")? {
        "authorization_code" => code_grant::redeem(cx, endpoints, &client, posted).await?,
        "refresh_token" => refresh_grant::refresh(cx, endpoints, &client, posted).await?,
        _ => {
            let detail = "grant_type must be authorization_code or refresh_token";
            return Err(Problem::new(Code::UnsupportedGrantType, detail));
        }
    };
    cx.core.journal.tally(EventKind::TokenIssued, Some(client.tenant()), None);
    let Issued { access_token, expires_in, refresh_token, id_token, scope } = issued;
    let token_type = if is_bound { "DPoP" } else { "Bearer" };
    let answer = Answer { access_token, token_type, expires_in, refresh_token, id_token, scope };
    Ok(with_nonce(endpoints, answer::json(StatusCode::OK, &answer)))
}
