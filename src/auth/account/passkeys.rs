//! The passkeys of the user who calls.

use std::iter;

use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::{
    call::{self, AccountCall, AccountFields},
    credentials::PasskeyShown,
    pending::PendingEnrolments,
};
use crate::{
    auth::{
        context::RequestContext,
        http::{
            answer,
            problem::{Code, Problem},
        },
        passkeys::PasskeyRules,
    },
    credential::{Added, Credentials, MOST_PASSKEYS, Passkey},
    delivery::NoticeKind,
    event::EventKind,
    http::{body::Body, user_agent},
    login::PasskeyChallenge,
    policy::Method,
    webauthn::{self, CreationOptions, CredentialOwner, RegistrationResponse, WebauthnError},
};

/// The table of challenges that no new passkey has signed yet.
const PENDING: &str = "pending_passkeys";
const NO_PASSKEY: &str = "this user has no passkey with this id";
/// The maximum length of the name of a passkey, in characters.
const LONGEST_NAME: usize = 64;

/// The challenge for a new passkey.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PendingPasskey([u8; 32]);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    public_key: CreationOptions,
}

/// Returns the options for a new passkey. They replace earlier ones of this session.
pub(super) async fn options(cx: &RequestContext<'_>, call: &AccountCall) -> Result<Response<Body>, Problem> {
    let rules = rules(cx)?;
    call.require_fresh(cx.core)?;
    let (core, (tenant, user)) = (cx.core, call.owner());
    let handle = core.credentials.handle(tenant, user).await?;
    let (_, challenge) = PasskeyChallenge::generate(core.logins.now());
    PendingEnrolments::of(core, PENDING).begin(call.session(), &PendingPasskey(challenge)).await?;
    let passkeys = call.credentials.iter().flat_map(|row| &row.passkeys);
    let existing: Vec<Vec<u8>> = passkeys.map(|passkey| passkey.id.clone()).collect();
    let name = call.display_name();
    let display_name = call.account().display_name().unwrap_or(&name);
    let owner = CredentialOwner { handle: &handle, name: &name, display_name };
    let public_key = rules.of(tenant).creation_options(&challenge, &owner, &existing, PasskeyChallenge::LIFETIME);
    Ok(answer::json(StatusCode::OK, &Begun { public_key }))
}

/// Adds the passkey that was made for the options. They can be used once, even if the passkey is refused.
pub(super) async fn add(
    cx: &RequestContext<'_>,
    call: &AccountCall,
    fields: &AccountFields,
) -> Result<Response<Body>, Problem> {
    let rules = rules(cx)?;
    call.require_fresh(cx.core)?;
    let response = fields.response.clone().ok_or(Problem::invalid("response is missing"))?;
    let response: RegistrationResponse =
        serde_json::from_value(response).map_err(|_| Problem::invalid("response is malformed"))?;
    let name = fields.name.as_deref().map(given_name).transpose()?;

    let rows = PendingEnrolments::<PendingPasskey>::of(cx.core, PENDING);
    let nothing = || Problem::new(Code::NoPendingChallenge, "no passkey is being added in this session");
    let pending = rows.find(call.session()).await?.ok_or_else(nothing)?;
    if !rows.take(call.session(), &pending).await? {
        return Err(nothing());
    }
    let (tenant, user) = call.owner();
    let verdict = rules.of(tenant).verify_registration(&pending.value.0, &response).map_err(refused)?;
    let name = name.map_or_else(|| unused_name(cx, call), str::to_owned);
    let passkey = Passkey::new(verdict, &name, cx.core.logins.now().as_secs(), call.strength());
    match cx.core.credentials.add_passkey(tenant, user, &passkey).await? {
        Added::Done => {}
        Added::Taken => return Err(Problem::invalid("this passkey is already in use")),
        Added::Refused => return Err(Problem::invalid("this user has the maximum number of passkeys")),
    }
    let discard = cx.core.credentials.remove_passkey(call.owner(), &passkey.id, |_, _| true);
    call.keep(cx.core, discard).await?;
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
pub(super) async fn delete(
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

fn rules<'a>(cx: &RequestContext<'a>) -> Result<&'a PasskeyRules, Problem> {
    cx.core.passkeys.as_ref().ok_or(Problem::new(Code::NotFound, "passkeys are not enabled here"))
}

/// Returns the name without surrounding spaces.
fn given_name(name: &str) -> Result<&str, Problem> {
    let name = name.trim();
    if !(1..=LONGEST_NAME).contains(&name.chars().count()) || name.chars().any(char::is_control) {
        return Err(Problem::invalid("name must have 1 to 64 characters, without control characters"));
    }
    Ok(name)
}

/// Returns a name that no other passkey of the user has: the browser and the system of the request, and a number if needed.
fn unused_name(cx: &RequestContext<'_>, call: &AccountCall) -> String {
    let device = user_agent::device(&cx.parts.headers).unwrap_or_else(|| "Passkey".to_owned());
    let is_taken = |name: &String| call.credentials.iter().flat_map(|row| &row.passkeys).any(|one| one.name == *name);
    let numbered = (2..=MOST_PASSKEYS).map(|number| format!("{device} ({number})"));
    iter::once(device.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or(device)
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
