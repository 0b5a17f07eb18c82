//! `POST /account/consents/revoke`: withdraws the consent to a third-party client.

use crate::auth::{
    factors::enrolment::call::AccountCall,
    http::{
        answer,
        problem::{Code, EndpointResult, Problem},
    },
};

/// Removes the user's decisions about a client, and revokes its tokens for this user.
pub(super) async fn withdraw_consent(call: &AccountCall<'_>) -> EndpointResult {
    let client_id = call.fields.client_id.as_deref().ok_or(Problem::invalid("client_id is missing"))?;
    match call.cx.core.withdraw_consent(call.tenant(), call.session().user(), client_id).await? {
        true => Ok(answer::no_content()),
        false => Err(Problem::new(Code::NotFound, "this user has allowed no client with this client_id")),
    }
}
