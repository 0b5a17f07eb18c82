//! The passkeys of the user who calls.

use http::{Response, StatusCode};
use serde::Serialize;

use super::enrol;
use crate::{
    auth::{
        account::credentials::PasskeyShown,
        context::RequestContext,
        factors::{
            credentials::row::{Credentials, Passkey},
            enrolment::{
                call::{self, AccountCall, AccountFields, with_cookie},
                new_credential::NewCredential,
            },
        },
        http::{
            answer,
            problem::{Code, Problem},
        },
    },
    delivery::NoticeKind,
    event::EventKind,
    http::body::Body,
    policy::Method,
    webauthn::{self, CreationOptions, WebauthnError},
};

const NO_PASSKEY: &str = "this user has no passkey with this id";
/// The maximum length of the name of a passkey, in characters.
const LONGEST_NAME: usize = 64;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    public_key: CreationOptions,
}

/// Returns the options for a new passkey. They replace earlier ones of this session.
pub(crate) async fn options(cx: &RequestContext<'_>, call: &AccountCall) -> Result<Response<Body>, Problem> {
    check_enabled(cx)?;
    call.vouching(cx.core, Method::Passkey)?;
    let owner = (call.tenant(), call.account());
    let public_key = enrol::begin(cx.core, &call.place(), owner, call.credentials.as_ref()).await?;
    Ok(answer::json(StatusCode::OK, &Begun { public_key }))
}

/// Adds the passkey that was made for the options.
pub(crate) async fn add(
    cx: &RequestContext<'_>,
    call: &AccountCall,
    fields: &AccountFields,
) -> Result<Response<Body>, Problem> {
    check_enabled(cx)?;
    let vouching = call.vouching(cx.core, Method::Passkey)?;
    let response = enrol::response(fields.response.clone())?;
    let name = fields.name.as_deref().map(given_name).transpose()?;
    let verdict = enrol::verify(cx.core, &call.place(), call.tenant(), &response).await?.map_err(refused)?;
    let unused = || enrol::unused_name(&cx.parts.headers, call.credentials.as_ref());
    let name = name.map_or_else(unused, str::to_owned);
    let passkey = Passkey::new(verdict, &name, cx.core.logins.now().as_secs(), vouching.strength);
    let added = answer::json(StatusCode::CREATED, &PasskeyShown::from(&passkey));
    let cookie = call.enrol(cx, &NewCredential::Passkey(passkey), vouching.is_first).await?;
    Ok(with_cookie(added, cookie))
}

/// Renames a passkey. This changes nothing about how the user signs in, so it needs no fresh proofs.
pub(crate) async fn rename(
    cx: &RequestContext<'_>,
    call: &AccountCall,
    fields: &AccountFields,
) -> Result<Response<Body>, Problem> {
    let name = given_name(fields.name.as_deref().ok_or(Problem::invalid("name is missing"))?)?;
    let (id, (tenant, user)) = (given_id(fields)?, call.owner());
    let rename = |row: &mut Credentials| match row.passkeys.iter_mut().find(|own| own.id == id) {
        Some(passkey) => {
            name.clone_into(&mut passkey.name);
            true
        }
        None => false,
    };
    found(cx.core.credentials.update(tenant, user, rename).await?)?;
    let (who, keyed) = (&call.session().authentication(), cx.core.keyed().await?);
    cx.core.journal.tally_login(EventKind::CredentialRenamed, who, (Some(Method::Passkey), None), keyed);
    Ok(answer::no_content())
}

/// Deletes a passkey. Proofs by it stop counting.
pub(crate) async fn delete(
    cx: &RequestContext<'_>,
    call: &AccountCall,
    fields: &AccountFields,
) -> Result<Response<Body>, Problem> {
    call.require_fresh(cx.core)?;
    let id = given_id(fields)?;
    let removed = cx.core.credentials.remove_passkey(call.owner(), &id, call.may_change(cx.core)).await?;
    call::removed(removed, NO_PASSKEY)?;
    call.changed(cx, NoticeKind::PasskeyRemoved).await;
    Ok(answer::no_content())
}

fn check_enabled(cx: &RequestContext<'_>) -> Result<(), Problem> {
    if cx.core.passkeys.is_some() { Ok(()) } else { Err(enrol::not_enabled()) }
}

/// Returns the name without surrounding spaces.
fn given_name(name: &str) -> Result<&str, Problem> {
    let name = name.trim();
    if !(1..=LONGEST_NAME).contains(&name.chars().count()) || name.chars().any(char::is_control) {
        return Err(Problem::invalid("name must have 1 to 64 characters, without control characters"));
    }
    Ok(name)
}

fn given_id(fields: &AccountFields) -> Result<Vec<u8>, Problem> {
    let id = fields.id.as_deref().ok_or(Problem::invalid("id is missing"))?;
    webauthn::decode(id).ok_or(Problem::invalid("id is malformed"))
}

fn found(is_found: bool) -> Result<(), Problem> {
    if is_found { Ok(()) } else { Err(Problem::new(Code::NotFound, NO_PASSKEY)) }
}

fn refused(error: WebauthnError) -> Problem {
    match error {
        WebauthnError::Malformed(_) => Problem::invalid("response is malformed"),
        _ => Problem::new(Code::InvalidAssertion, "the passkey was refused"),
    }
}
