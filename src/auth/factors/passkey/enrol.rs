//! Enrols passkeys, on the account page and within a login; renames and deletes them.

use std::iter;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::{
    login::{CHALLENGE_LIFETIME, new_challenge},
    row::{MOST_PASSKEYS, Passkey},
    settings::PasskeyRules,
};
use crate::{
    auth::{
        context::RequestContext,
        core::Core,
        factors::{
            credentials::{
                credential::CredentialId,
                row::Credentials,
                table::{Added, CredentialTable, MayChange, Removed},
            },
            enrolment::{
                call::{self, AccountCall},
                in_login::Enrolment,
                new_credential::NewCredential,
                pending::PendingEnrolments,
            },
            step::LoginStep,
        },
        http::{
            answer,
            problem::{Code, EndpointResult, Problem},
            route::PasskeyChange,
            user_agent,
        },
        state::accounts::shown_name,
    },
    delivery::NoticeKind,
    event::EventKind,
    policy::Method,
    session::UserId,
    store::StoreError,
    tenant::Tenant,
    user::Account,
    util::public_id::PublicId,
    webauthn::{self, CreationOptions, CredentialOwner, RegistrationResponse, RegistrationVerdict, WebauthnError},
    words::Language,
};

/// The table of challenges that no new passkey has signed yet.
const PENDING: &str = "pending_passkeys";

const NO_PASSKEY: &str = "this user has no passkey with this id";
/// The maximum length of the name of a passkey, in characters.
const LONGEST_NAME: usize = 64;

/// Returns the options for a new passkey. They replace earlier ones of this session or login.
async fn new_options(
    core: &Core,
    place: &PublicId,
    (tenant, account): (&Tenant, &Account),
    credentials: Option<&Credentials>,
) -> Result<CreationOptions, Problem> {
    let rules = enabled_rules(core)?;
    let handle = core.credentials.handle(tenant, account.id()).await?;
    let (_, challenge) = new_challenge(core.logins.now());
    PendingEnrolments::of_table(core, PENDING).start_enrolment(place, &challenge).await?;
    let passkeys = credentials.iter().flat_map(|row| &row.passkeys);
    let existing: Vec<Vec<u8>> = passkeys.map(|passkey| passkey.id.clone()).collect();
    let name = shown_name(account);
    let display_name = account.display_name().unwrap_or(name);
    let owner = CredentialOwner { handle: &handle, name, display_name };
    Ok(rules.party_for_tenant(tenant).creation_options(&challenge, &owner, &existing, CHALLENGE_LIFETIME))
}

/// Reads the answer of a browser.
fn registration(sent: Option<Value>) -> Result<RegistrationResponse, Problem> {
    let sent = sent.ok_or(Problem::invalid("response is missing"))?;
    serde_json::from_value(sent).map_err(|_| Problem::invalid("response is malformed"))
}

/// Verifies the passkey that was made for the options. They can be used once, even if the passkey is refused.
async fn verify_new_passkey(
    core: &Core,
    place: &PublicId,
    tenant: &Tenant,
    response: &RegistrationResponse,
) -> Result<Result<RegistrationVerdict, WebauthnError>, Problem> {
    let rules = enabled_rules(core)?;
    let pending = PendingEnrolments::<[u8; 32]>::of_table(core, PENDING).take_enrolment(place).await?;
    let pending = pending.ok_or(Problem::new(Code::NoPendingChallenge, "no passkey is being added here"))?;
    Ok(rules.party_for_tenant(tenant).verify_registration(&pending.value, response))
}

/// Returns a name that no other passkey of the user has: the browser and the system of the request, and a number if needed.
fn unused_name(cx: &RequestContext<'_>, language: Language, credentials: Option<&Credentials>) -> String {
    let words = |browser: &str, system: &str| {
        let values = [("browser", browser), ("system", system)];
        cx.core.pages.words.fill(language, "account.device", &values).chars().take(LONGEST_NAME).collect()
    };
    let device = user_agent::describe_device_in_words(&cx.parts.headers, words);
    let device = device.unwrap_or_else(|| "Passkey".to_owned());
    let is_taken = |name: &String| credentials.iter().flat_map(|row| &row.passkeys).any(|one| one.name == *name);
    let numbered = (2..=MOST_PASSKEYS).map(|number| format!("{device} ({number})"));
    iter::once(device.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or(device)
}

fn enabled_rules(core: &Core) -> Result<&PasskeyRules, Problem> {
    core.factors.passkey.as_ref().ok_or(Problem::new(Code::NotFound, "passkeys are not enabled here"))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    public_key: CreationOptions,
}

/// Adds a passkey within a login: returns options, or verifies the passkey in the request.
pub(crate) async fn set_up_passkey_in_login(mut step: LoginStep<'_>) -> EndpointResult {
    let sent = step.fields.response.take().map(|sent| registration(Some(sent))).transpose()?;
    let enrolment = Enrolment::of_login_step(&step, Method::Passkey).await?;
    if let Some(response) = sent {
        return enrolment.finish(verified(&enrolment, &response)).await;
    }
    let (owner, credentials) = ((&step.login.tenant, &enrolment.account), enrolment.credentials.as_ref());
    let public_key = new_options(step.cx.core, &enrolment.step.login.id, owner, credentials).await?;
    Ok(enrolment.begun(Begun { public_key }))
}

async fn verified(enrolment: &Enrolment<'_, '_>, response: &RegistrationResponse) -> Result<Option<Passkey>, Problem> {
    let step = enrolment.step;
    let verdict = verify_new_passkey(step.cx.core, &enrolment.step.login.id, &step.login.tenant, response).await?;
    let name = unused_name(step.cx, step.cx.language(&step.login), enrolment.credentials.as_ref());
    let new = |verdict| Passkey::new(verdict, &name, step.now().as_secs(), enrolment.strength.clone());
    Ok(verdict.ok().map(new))
}

/// A passkey, as the account page shows it.
#[derive(Serialize)]
pub(crate) struct PasskeyShown<'a> {
    id: String,
    name: &'a str,
    created_at: u64,
    last_used_at: Option<u64>,
    backed_up: bool,
}

impl<'a> PasskeyShown<'a> {
    pub(crate) fn from_passkey(passkey: &'a Passkey) -> Self {
        Self {
            id: URL_SAFE_NO_PAD.encode(&passkey.id),
            name: &passkey.name,
            created_at: passkey.created_at,
            last_used_at: passkey.last_used_at,
            backed_up: passkey.backed_up,
        }
    }
}

/// Returns the passkeys of a user.
pub(crate) fn list_passkeys(row: Option<&Credentials>) -> Vec<PasskeyShown<'_>> {
    row.into_iter().flat_map(|row| &row.passkeys).map(PasskeyShown::from_passkey).collect()
}

/// Serves the calls about passkeys.
pub(crate) async fn serve_passkey_change(change: PasskeyChange, call: &AccountCall<'_>) -> EndpointResult {
    match change {
        PasskeyChange::Begin => registration_options(call).await,
        PasskeyChange::Add => register_passkey(call).await,
        PasskeyChange::Rename => rename_passkey(call).await,
        PasskeyChange::Delete => delete_passkey(call).await,
    }
}

/// Returns the options for a new passkey. They replace earlier ones of this session.
async fn registration_options(call: &AccountCall<'_>) -> EndpointResult {
    enabled_rules(call.cx.core)?;
    call.vouching(Method::Passkey)?;
    let owner = (call.tenant(), call.account());
    let public_key = new_options(call.cx.core, &call.session().sid(), owner, call.credentials.as_ref()).await?;
    Ok(answer::json(StatusCode::OK, &Begun { public_key }))
}

/// Adds the passkey that was made for the options.
async fn register_passkey(call: &AccountCall<'_>) -> EndpointResult {
    enabled_rules(call.cx.core)?;
    let vouching = call.vouching(Method::Passkey)?;
    let response = registration(call.fields.response.clone())?;
    let name = call.fields.name.as_deref().map(given_name).transpose()?;
    let verdict = verify_new_passkey(call.cx.core, &call.session().sid(), call.tenant(), &response)
        .await?
        .map_err(registration_problem)?;
    let unused = || unused_name(call.cx, Language::accepted(&call.cx.parts.headers), call.credentials.as_ref());
    let name = name.map_or_else(unused, str::to_owned);
    let passkey = Passkey::new(verdict, &name, call.cx.core.logins.now().as_secs(), vouching.strength);
    let added = answer::json(StatusCode::CREATED, &PasskeyShown::from_passkey(&passkey));
    call.enrol_credential(&passkey, vouching.is_first, added).await
}

/// Renames a passkey. This changes nothing about how the user signs in, so it needs no fresh proofs.
async fn rename_passkey(call: &AccountCall<'_>) -> EndpointResult {
    let name = given_name(call.fields.name.as_deref().ok_or(Problem::invalid("name is missing"))?)?;
    let (id, (tenant, user)) = (given_id(call)?, call.owner());
    let rename = |row: &mut Credentials| match row.passkeys.iter_mut().find(|own| own.id == id) {
        Some(passkey) => {
            name.clone_into(&mut passkey.name);
            true
        }
        None => false,
    };
    if !call.cx.core.credentials.update(tenant, user, rename).await? {
        return Err(Problem::new(Code::NotFound, NO_PASSKEY));
    }
    let (who, keyed) = (&call.session().authentication(), call.cx.core.keyed().await?);
    call.cx.core.journal.tally_login(EventKind::CredentialRenamed, who, (Some(Method::Passkey), None), keyed);
    Ok(answer::no_content())
}

/// Deletes a passkey. Proofs by it stop counting.
async fn delete_passkey(call: &AccountCall<'_>) -> EndpointResult {
    call.require_fresh()?;
    let id = given_id(call)?;
    call.require_current().await?;
    let removed = call.cx.core.credentials.remove_passkey(call.owner(), &id, call.may_change()).await?;
    call::removed(removed, NO_PASSKEY)?;
    call.changed(NoticeKind::PasskeyRemoved).await;
    Ok(answer::no_content())
}

/// Returns the name without surrounding spaces.
fn given_name(name: &str) -> Result<&str, Problem> {
    let name = name.trim();
    if !(1..=LONGEST_NAME).contains(&name.chars().count()) || name.chars().any(char::is_control) {
        return Err(Problem::invalid("name must have 1 to 64 characters, without control characters"));
    }
    Ok(name)
}

fn given_id(call: &AccountCall<'_>) -> Result<Vec<u8>, Problem> {
    let id = call.fields.id.as_deref().ok_or(Problem::invalid("id is missing"))?;
    webauthn::decode_base64(id).ok_or(Problem::invalid("id is malformed"))
}

fn registration_problem(error: WebauthnError) -> Problem {
    match error {
        WebauthnError::Malformed(_) => Problem::invalid("response is malformed"),
        _ => Problem::new(Code::InvalidAssertion, "the passkey was refused"),
    }
}

impl NewCredential for Passkey {
    const ADDED: NoticeKind = NoticeKind::PasskeyAdded;

    async fn store(
        &self,
        credentials: &CredentialTable,
        owner: (&Tenant, &UserId),
        may: impl Fn(&Credentials) -> bool + Send + Sync,
    ) -> Result<Added, StoreError> {
        // asked in the compare-and-swap
        let add = |row: &mut Credentials| match row.passkeys.len() < MOST_PASSKEYS {
            _ if !may(row) => Added::Outdated,
            true => {
                row.passkeys.push(self.clone());
                Added::Done
            }
            false => Added::Refused,
        };
        let remove = |row: &mut Credentials| row.passkeys.retain(|own| own.id != self.id);
        credentials.add(owner, CredentialId::Passkey(&self.id), add, remove).await
    }

    async fn discard(&self, credentials: &CredentialTable, owner: (&Tenant, &UserId)) -> Result<(), StoreError> {
        credentials.remove_passkey(owner, &self.id, |_, _| true).await.map(|_| ())
    }
}

impl CredentialTable {
    /// Removes a passkey, if `may` allows it.
    pub(crate) async fn remove_passkey(
        &self,
        owner: (&Tenant, &UserId),
        id: &[u8],
        may: impl MayChange,
    ) -> Result<Removed, StoreError> {
        let remove = |row: &mut Credentials| row.passkeys.retain(|passkey| passkey.id != id);
        self.remove(owner, CredentialId::Passkey(id), remove, may).await
    }
}
