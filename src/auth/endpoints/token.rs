//! `POST /token`: exchanges a code or a refresh token for tokens, and gives machine clients theirs.

use http::{Response, StatusCode};
use serde::Serialize;

use crate::{
    auth::{
        context::RequestContext,
        endpoints::{code_grant, form::Posted, machine_grant, proof::with_nonce, refresh_grant},
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
    let refused = |code, detail| Err(Problem::new(code, detail));
    let grant_type = posted.required("grant_type", "grant_type is missing")?;
    let (issued, is_bound) = match (grant_type, client.is_machine()) {
        ("authorization_code", false) => code_grant::redeem(cx, endpoints, &client, posted).await?,
        ("refresh_token", false) => refresh_grant::refresh(cx, endpoints, &client, posted).await?,
        ("client_credentials", true) => machine_grant::grant(cx, endpoints, &client, posted).await?,
        ("authorization_code" | "refresh_token", true) => {
            return refused(Code::UnauthorizedClient, "a machine client can only use client_credentials");
        }
        ("client_credentials", false) => {
            return refused(Code::UnauthorizedClient, "only machine clients can use client_credentials");
        }
        _ => return refused(Code::UnsupportedGrantType, "this grant_type is not supported"),
    };
    cx.core.journal.tally(EventKind::TokenIssued, Some(client.tenant()), None);
    let Issued { access_token, expires_in, refresh_token, id_token, scope } = issued;
    let token_type = if is_bound { "DPoP" } else { "Bearer" };
    let answer = Answer { access_token, token_type, expires_in, refresh_token, id_token, scope };
    Ok(with_nonce(endpoints, answer::json(StatusCode::OK, &answer)))
}
