//! `POST /token`: exchanges a code or a refresh token for tokens, and gives machine clients theirs.

use http::StatusCode;

use super::{
    code_grant,
    dpop_proof::with_nonce,
    form::{Posted, TokenCall},
    machine_grant, refresh_grant,
};
use crate::{
    auth::{
        context::incoming::IncomingRequest,
        http::{
            answer::{self, in_box},
            problem::{Code, EndpointResult, Problem},
        },
        state::token_endpoints::TokenEndpoints,
    },
    event::EventKind,
};

pub(crate) async fn serve_token_request(
    request: &mut IncomingRequest<'_>,
    endpoints: &TokenEndpoints,
    posted: Posted<'_>,
) -> EndpointResult {
    let (cx, client) = posted.charged_client(request).await?;
    let answer = match client {
        Ok(client) => issue_tokens(TokenCall { cx: &cx, endpoints, client: &client, posted: &posted }).await,
        Err(problem) => Err(problem),
    };
    if let (Err(problem), Some(token)) = (&answer, posted.value("refresh_token"))
        // without a budget, or while the store fails, nothing more is read
        && !matches!(problem.code, Code::RateLimitExceeded | Code::TemporarilyUnavailable)
    {
        in_box(|| refresh_grant::revoke_if_reused(&cx, endpoints, token)).await?;
    }
    answer
}

async fn issue_tokens(call: TokenCall<'_>) -> EndpointResult {
    let refused = |code, detail| Err(Problem::new(code, detail));
    let grant_type = call.posted.required("grant_type", "grant_type is missing")?;
    let issued = match (grant_type, call.client.is_machine()) {
        ("authorization_code", false) => in_box(|| code_grant::redeem(call)).await?,
        ("refresh_token", false) => refresh_grant::exchange_refresh_token(call).await?,
        ("client_credentials", true) => in_box(|| machine_grant::grant_to_machine(call)).await?,
        ("authorization_code" | "refresh_token", true) => {
            return refused(Code::UnauthorizedClient, "a machine client can only use client_credentials");
        }
        ("client_credentials", false) => {
            return refused(Code::UnauthorizedClient, "only machine clients can use client_credentials");
        }
        _ => return refused(Code::UnsupportedGrantType, "this grant_type is not supported"),
    };
    call.cx.core.journal.tally(EventKind::TokenIssued, Some(call.client.tenant()), None);
    Ok(with_nonce(call.endpoints, answer::json(StatusCode::OK, &issued)))
}
