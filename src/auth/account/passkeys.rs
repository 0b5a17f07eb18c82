//! The passkeys of the user who calls.

use http::{Response, StatusCode};
use serde::Serialize;

use super::{
    call::{AccountCall, AccountFields},
    credentials::PasskeyShown,
};
use crate::{
    auth::{
        context::RequestContext,
        http::{
            answer,
            problem::{Code, Problem},
        },
        passkeys::{
            enrolments::{Enroller, EnrolmentError, passkey_name},
            rules::PasskeyRules,
        },
    },
    delivery::NoticeKind,
    event::EventKind,
    http::body::Body,
    policy::Method,
    webauthn::{self, CreationOptions, WebauthnError},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    public_key: CreationOptions,
}

/// Returns the options for a new passkey.
pub(super) async fn options(cx: &RequestContext<'_>, call: &AccountCall) -> Result<Response<Body>, Problem> {
    let rules = rules(cx)?;
    call.require_fresh(cx.core)?;
    let name = call.display_name();
    let display_name = call.account().display_name().unwrap_or(&name);
    let public_key = cx.core.passkey_enrolments.begin(enroller(call), rules, (&name, display_name)).await?;
    Ok(answer::json(StatusCode::OK, &Begun { public_key }))
}

/// Adds the passkey that was made for the options.
pub(super) async fn add(
    cx: &RequestContext<'_>,
    call: &AccountCall,
    fields: &AccountFields,
) -> Result<Response<Body>, Problem> {
    let rules = rules(cx)?;
    call.require_fresh(cx.core)?;
    let response = fields.response.clone().ok_or(Problem::invalid("response is missing"))?;
    let response = serde_json::from_value(response).map_err(|_| Problem::invalid("response is malformed"))?;
    let name = fields.name.as_deref().map(given_name).transpose()?;
    let made_with = (name, call.strength());
    let passkey = cx.core.passkey_enrolments.add(enroller(call), rules, &response, made_with).await?;
    let passkey = passkey.map_err(refused)?;
    call.changed(cx, NoticeKind::PasskeyAdded).await;
    Ok(answer::json(StatusCode::CREATED, &PasskeyShown::from(&passkey)))
}

/// Renames a passkey. This changes nothing about how the user signs in, so it needs no fresh proofs.
pub(super) async fn rename(
    cx: &RequestContext<'_>,
    call: &AccountCall,
    fields: &AccountFields,
) -> Result<Response<Body>, Problem> {
    let name = given_name(fields.name.as_deref().ok_or(Problem::invalid("name is missing"))?)?;
    let is_renamed = cx.core.passkey_enrolments.rename(enroller(call), &given_id(fields)?, name).await?;
    if is_renamed {
        let (who, keyed) = (call.session().authentication(), cx.core.keyed().await?);
        cx.core.journal.record(EventKind::CredentialRenamed, who, Some(Method::Passkey), keyed);
    }
    found(is_renamed)
}

/// Deletes a passkey.
pub(super) async fn delete(
    cx: &RequestContext<'_>,
    call: &AccountCall,
    fields: &AccountFields,
) -> Result<Response<Body>, Problem> {
    call.require_fresh(cx.core)?;
    let is_deleted = cx.core.passkey_enrolments.delete(enroller(call), &given_id(fields)?).await?;
    if is_deleted {
        call.changed(cx, NoticeKind::PasskeyRemoved).await;
    }
    found(is_deleted)
}

fn rules<'a>(cx: &RequestContext<'a>) -> Result<&'a PasskeyRules, Problem> {
    cx.core.passkeys.as_ref().ok_or(Problem::new(Code::NotFound, "passkeys are not enabled"))
}

fn enroller(call: &AccountCall) -> Enroller<'_> {
    Enroller { tenant: call.tenant(), user: call.session().user(), sid: call.session().sid() }
}

fn given_name(name: &str) -> Result<&str, Problem> {
    passkey_name(name).ok_or(Problem::invalid("name must have 1 to 64 characters, without control characters"))
}

fn given_id(fields: &AccountFields) -> Result<Vec<u8>, Problem> {
    let id = fields.id.as_deref().ok_or(Problem::invalid("id is missing"))?;
    webauthn::decode(id).ok_or(Problem::invalid("id is malformed"))
}

fn found(is_found: bool) -> Result<Response<Body>, Problem> {
    if is_found {
        Ok(answer::no_content())
    } else {
        Err(Problem::new(Code::NotFound, "this user has no passkey with this id"))
    }
}

fn refused(error: EnrolmentError) -> Problem {
    match error {
        EnrolmentError::NoChallenge => {
            Problem::new(Code::NoPendingChallenge, "no passkey was asked for, or too long ago; try again")
        }
        EnrolmentError::Refused(WebauthnError::Malformed(_)) => Problem::invalid("response is malformed"),
        EnrolmentError::Refused(_) => Problem::new(Code::InvalidAssertion, "the passkey was refused"),
        EnrolmentError::Taken => Problem::invalid("this passkey is already in use"),
        EnrolmentError::Full => Problem::invalid("this user has the maximum number of passkeys"),
    }
}
