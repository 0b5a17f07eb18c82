//! Takes the access of a third-party client away.

use http::Response;

use crate::{
    auth::{
        context::RequestContext,
        factors::enrolment::call::{AccountCall, AccountFields},
        http::{
            answer,
            problem::{Code, Problem},
        },
        state::journal::EventSource,
    },
    event::EventKind,
    http::body::Body,
};

/// Removes the decision of the user about a client, and revokes the tokens that the client has got for this user.
pub(super) async fn withdraw_consent(
    cx: &RequestContext<'_>,
    call: &AccountCall,
    fields: &AccountFields,
) -> Result<Response<Body>, Problem> {
    let client_id = fields.client_id.as_deref().ok_or(Problem::invalid("client_id is missing"))?;
    let (core, tenant, user) = (cx.core, call.tenant(), call.session().user());
    if !core.consents.list(tenant, user).await?.iter().any(|consent| consent.client_id == client_id) {
        return Err(Problem::new(Code::NotFound, "this user has allowed no client with this client_id"));
    }
    let revoke = async || match &core.tokens {
        Some(endpoints) => endpoints.service.revoke_client(tenant, user, client_id).await,
        None => Ok(()),
    };
    // if this fails, the client is still listed, and the user can try again
    revoke().await?;
    core.consents.withdraw(tenant, user, client_id).await?;
    // a code that was exchanged meanwhile either has found no decision, or its tokens are listed now
    revoke().await?;
    let source = EventSource::of_user(tenant, user);
    core.journal.tally_login(EventKind::ConsentRevoked, source, (None, None), core.keyed().await?);
    Ok(answer::no_content())
}
