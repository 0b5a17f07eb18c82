//! The challenge for a new passkey, and its answer.

use std::iter;

use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pending::PendingEnrolments;
use crate::{
    auth::{
        core::Core,
        http::{
            problem::{Code, Problem},
            user_agent,
        },
        state::accounts::shown_name,
    },
    credential::{Credentials, MOST_PASSKEYS},
    login::PasskeyChallenge,
    tenant::Tenant,
    user::Account,
    util::handle::Handle,
    webauthn::{CreationOptions, CredentialOwner, RegistrationResponse, RegistrationVerdict, WebauthnError},
};

/// The table of challenges that no new passkey has signed yet.
const PENDING: &str = "pending_passkeys";

/// The challenge for a new passkey.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PendingPasskey([u8; 32]);

/// Returns the options for a new passkey. They replace earlier ones of this session or login.
pub(crate) async fn begin(
    core: &Core,
    place: &Handle,
    (tenant, account): (&Tenant, &Account),
    credentials: Option<&Credentials>,
) -> Result<CreationOptions, Problem> {
    let rules = core.passkeys.as_ref().ok_or_else(not_enabled)?;
    let handle = core.credentials.handle(tenant, account.id()).await?;
    let (_, challenge) = PasskeyChallenge::generate(core.logins.now());
    PendingEnrolments::of(core, PENDING).begin(place, &PendingPasskey(challenge)).await?;
    let passkeys = credentials.iter().flat_map(|row| &row.passkeys);
    let existing: Vec<Vec<u8>> = passkeys.map(|passkey| passkey.id.clone()).collect();
    let name = shown_name(account);
    let display_name = account.display_name().unwrap_or(name);
    let owner = CredentialOwner { handle: &handle, name, display_name };
    Ok(rules.of(tenant).creation_options(&challenge, &owner, &existing, PasskeyChallenge::LIFETIME))
}

/// Reads the answer of a browser.
pub(crate) fn response(sent: Option<Value>) -> Result<RegistrationResponse, Problem> {
    let sent = sent.ok_or(Problem::invalid("response is missing"))?;
    serde_json::from_value(sent).map_err(|_| Problem::invalid("response is malformed"))
}

/// Verifies the passkey that was made for the options. They can be used once, even if the passkey is refused.
pub(crate) async fn verify(
    core: &Core,
    place: &Handle,
    tenant: &Tenant,
    response: &RegistrationResponse,
) -> Result<Result<RegistrationVerdict, WebauthnError>, Problem> {
    let rules = core.passkeys.as_ref().ok_or_else(not_enabled)?;
    let pending = PendingEnrolments::<PendingPasskey>::of(core, PENDING).take(place).await?;
    let pending = pending.ok_or(Problem::new(Code::NoPendingChallenge, "no passkey is being added here"))?;
    Ok(rules.of(tenant).verify_registration(&pending.value.0, response))
}

/// Returns a name that no other passkey of the user has: the browser and the system of the request, and a number if needed.
pub(crate) fn unused_name(headers: &HeaderMap, credentials: Option<&Credentials>) -> String {
    let device = user_agent::device(headers).unwrap_or_else(|| "Passkey".to_owned());
    let is_taken = |name: &String| credentials.iter().flat_map(|row| &row.passkeys).any(|one| one.name == *name);
    let numbered = (2..=MOST_PASSKEYS).map(|number| format!("{device} ({number})"));
    iter::once(device.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or(device)
}

pub(crate) fn not_enabled() -> Problem {
    Problem::new(Code::NotFound, "passkeys are not enabled here")
}
