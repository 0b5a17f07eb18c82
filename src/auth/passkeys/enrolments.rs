//! Passkeys that users add to their account.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::rules::PasskeyRules;
use crate::{
    credential::{Added, CredentialTable, Credentials, Passkey},
    session::UserId,
    store::{
        AnyStore, StoreError,
        table::{Change, Table},
    },
    tenant::Tenant,
    util::{clock::Clock, handle::Handle},
    webauthn::{self, CreationOptions, CredentialOwner, RegistrationResponse, WebauthnError},
};

/// How long a new passkey can take.
const LIFETIME: Duration = Duration::from_secs(300);
/// The maximum length of the name of a passkey, in characters.
const LONGEST_NAME: usize = 64;

/// Enrols, renames and deletes passkeys. The caller checks that the user may do so.
#[derive(Clone, Debug)]
pub(crate) struct PasskeyEnrolments {
    pending: Table<PendingPasskey>,
    credentials: CredentialTable,
}

/// The challenge that the new passkey of a session signs.
#[derive(Debug, Serialize, Deserialize)]
struct PendingPasskey {
    challenge: [u8; 32],
    #[serde(with = "crate::util::text")]
    user: UserId,
}

/// A user in a signed-in session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enroller<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) user: &'a UserId,
    pub(crate) sid: Handle,
}

/// Why a passkey was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnrolmentError {
    /// This session has asked for no passkey, or too long ago.
    NoChallenge,
    Refused(WebauthnError),
    /// The passkey belongs to a user already.
    Taken,
    /// The user has too many passkeys.
    Full,
}

impl PasskeyEnrolments {
    pub(crate) fn new(store: &AnyStore, credentials: CredentialTable, clock: &Arc<dyn Clock>) -> Self {
        Self { pending: Table::new(store.clone(), "pending_passkeys", Arc::clone(clock)), credentials }
    }

    /// Returns the options for a new passkey. They replace earlier ones of this session.
    #[expect(clippy::expect_used, reason = "input cannot cause it, and there is no safe way to continue")]
    pub(crate) async fn begin(
        &self,
        who: Enroller<'_>,
        rules: &PasskeyRules,
        (name, display_name): (&str, &str),
    ) -> Result<CreationOptions, StoreError> {
        let handle = self.credentials.handle(who.tenant, who.user).await?;
        let row = self.credentials.get(who.tenant, who.user).await?;
        let existing: Vec<Vec<u8>> = row.into_iter().flat_map(|row| row.passkeys).map(|passkey| passkey.id).collect();
        let mut challenge = [0; 32];
        getrandom::fill(&mut challenge).expect("the operating system provides random bytes");
        let user = who.user.clone();
        let put =
            |_: Option<&_>, now| Change::Put(PendingPasskey { challenge, user: user.clone() }, now + LIFETIME, ());
        self.pending.update(Some(who.tenant), who.sid.as_bytes(), put).await?;
        let owner = CredentialOwner { handle: &handle, name, display_name };
        Ok(rules.of(who.tenant).creation_options(&challenge, &owner, &existing, LIFETIME))
    }

    /// Adds the passkey that was made for the options. They can be used once, even if the passkey is refused. `strength` is
    /// the number of factor classes that the user has freshly proved.
    pub(crate) async fn add(
        &self,
        who: Enroller<'_>,
        rules: &PasskeyRules,
        response: &RegistrationResponse,
        (name, strength): (Option<&str>, u8),
    ) -> Result<Result<Passkey, EnrolmentError>, StoreError> {
        let pending = self.pending.take(Some(who.tenant), who.sid.as_bytes()).await?;
        let Some(pending) = pending.map(|pending| pending.value).filter(|pending| pending.user == *who.user) else {
            return Ok(Err(EnrolmentError::NoChallenge));
        };
        let verdict = match rules.of(who.tenant).verify_registration(&pending.challenge, response) {
            Ok(verdict) => verdict,
            Err(error) => return Ok(Err(EnrolmentError::Refused(error))),
        };
        let passkey = Passkey {
            algorithm: webauthn::algorithm_number(verdict.algorithm),
            id: verdict.id,
            public_key: verdict.public_key,
            sign_count: verdict.sign_count,
            backup_eligible: verdict.backup_eligible,
            backed_up: verdict.backed_up,
            user_verified: verdict.user_verified,
            transports: verdict.transports,
            name: name.unwrap_or("Passkey").to_owned(),
            created_at: self.pending.now().as_secs(),
            last_used_at: None,
            strength,
        };
        Ok(match self.credentials.add_passkey(who.tenant, who.user, &passkey).await? {
            Added::Done => Ok(passkey),
            Added::Taken => Err(EnrolmentError::Taken),
            Added::Full => Err(EnrolmentError::Full),
        })
    }

    /// Renames a passkey of the user. Returns whether there is one with this id.
    pub(crate) async fn rename(&self, who: Enroller<'_>, id: &[u8], name: &str) -> Result<bool, StoreError> {
        let rename = |row: &mut Credentials| match row.passkeys.iter_mut().find(|own| own.id == id) {
            Some(passkey) => {
                name.clone_into(&mut passkey.name);
                true
            }
            None => false,
        };
        self.credentials.update(who.tenant, who.user, rename).await
    }

    /// Deletes a passkey of the user. Proofs by it stop counting. Returns whether there was one with this id.
    pub(crate) async fn delete(&self, who: Enroller<'_>, id: &[u8]) -> Result<bool, StoreError> {
        self.credentials.remove_passkey(who.tenant, who.user, id).await
    }
}

/// Returns the name without surrounding spaces, if it is usable.
pub(crate) fn passkey_name(name: &str) -> Option<&str> {
    let name = name.trim();
    let is_usable = (1..=LONGEST_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    is_usable.then_some(name)
}
