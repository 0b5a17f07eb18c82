//! The stored row of a passkey.

use serde::{Deserialize, Serialize};

use crate::{
    auth::factors::credentials::credential::{Credential, CredentialId, Strength, base64url},
    login::Keyed,
    policy::Method,
    webauthn::{self, AssertionVerdict, RegistrationVerdict, StoredCredential},
};

/// The maximum number of passkeys of a user.
pub(crate) const MOST_PASSKEYS: usize = 20;

/// A public key that signs challenges.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Passkey {
    #[serde(with = "base64url")]
    pub(crate) id: Vec<u8>,
    /// As a COSE key.
    #[serde(with = "base64url")]
    pub(crate) public_key: Vec<u8>,
    pub(crate) sign_count: u32,
    pub(crate) backup_eligible: bool,
    pub(crate) backed_up: bool,
    pub(crate) name: String,
    pub(crate) created_at: u64,
    pub(crate) last_used_at: Option<u64>,
    pub(crate) strength: Strength,
}

impl Passkey {
    /// Creates the row of a passkey that was just registered.
    pub(crate) fn new(verdict: RegistrationVerdict, name: &str, created_at: u64, strength: Strength) -> Self {
        Self {
            id: verdict.id,
            public_key: verdict.public_key,
            sign_count: verdict.sign_count,
            backup_eligible: verdict.backup_eligible,
            backed_up: verdict.backed_up,
            name: name.to_owned(),
            created_at,
            last_used_at: None,
            strength,
        }
    }

    /// Returns what the verifier needs to know. `user_handle` is the one of its user.
    pub(crate) fn stored(&self, user_handle: &[u8]) -> StoredCredential {
        StoredCredential {
            id: self.id.clone(),
            user_handle: user_handle.to_vec(),
            public_key: self.public_key.clone(),
            sign_count: self.sign_count,
            backup_eligible: self.backup_eligible,
            backed_up: self.backed_up,
        }
    }

    /// Keeps what a use has changed.
    pub(crate) fn apply(&mut self, verdict: &AssertionVerdict, now: u64) {
        (self.sign_count, self.backed_up) = (verdict.sign_count, verdict.backed_up);
        self.last_used_at = Some(now);
    }
}

impl Credential for Passkey {
    fn method(&self) -> Method {
        Method::Passkey
    }

    /// It contains the key, because another one can be added under the same id once this one is removed.
    fn mark(&self, keyed: &Keyed) -> [u8; 32] {
        *keyed.hash("passkey mark", [&*self.id, &*self.public_key]).as_bytes()
    }

    fn id(&self) -> Option<CredentialId<'_>> {
        Some(CredentialId::Passkey(&self.id))
    }

    fn is_shown_as(&self, id: &str, _keyed: &Keyed) -> bool {
        webauthn::decode_base64(id).is_some_and(|id| id == self.id)
    }
}
