//! `grant_type=client_credentials`: an access token for a machine client itself (RFC 6749 §4.4).

use super::{dpop_proof::check_bound, form::TokenCall};
use crate::{
    auth::http::problem::{Code, Problem},
    client::Scopes,
    tokens::Issued,
};

/// Returns the token. The client has authenticated.
pub(crate) async fn grant_to_machine(call: TokenCall<'_>) -> Result<Issued, Problem> {
    let TokenCall { cx, endpoints, client, posted } = call;
    let invalid_scope = |detail| Problem::new(Code::InvalidScope, detail);
    let asked = posted.value("scope").map(Scopes::parse).transpose();
    let asked = asked.map_err(|_| invalid_scope("scope is malformed"))?;
    let scope = asked.as_ref().or(client.allowed_scopes()).ok_or_else(|| invalid_scope("scope is missing"))?;
    if !client.allows_scopes(scope) {
        return Err(invalid_scope("scope has a name that this client may not request"));
    }
    let audience = endpoints.machine_audience(client, posted.resources())?;
    let jkt = cx.spend_request_proof("/token").await?;
    check_bound(client, jkt.as_deref())?;
    Ok(endpoints.service.machine_token(client, scope, audience, jkt).await?)
}
