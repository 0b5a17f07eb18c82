//! `POST /account/consents/revoke`: withdraws the consent to a third-party client.

use crate::auth::{
    context::RequestContext,
    factors::enrolment::call::{AccountCall, AccountFields},
    http::{
        answer,
        problem::{Code, EndpointResult, Problem},
    },
};

/// Removes the user's decisions about a client, and revokes its tokens for this user.
pub(super) async fn withdraw_consent(
    cx: &RequestContext<'_>,
    call: &AccountCall,
    fields: &AccountFields,
) -> EndpointResult {
    let client_id = fields.client_id.as_deref().ok_or(Problem::invalid("client_id is missing"))?;
    match cx.core.withdraw_consent(call.tenant(), call.session().user(), client_id).await? {
        true => Ok(answer::no_content()),
        false => Err(Problem::new(Code::NotFound, "this user has allowed no client with this client_id")),
    }
}
