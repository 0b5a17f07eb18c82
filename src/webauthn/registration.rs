//! Verifies the registration of a credential (WebAuthn Level 3, §7.1).

use super::{
    attestation::{Attestation, AttestationObject},
    authenticator_data::AuthenticatorData,
    client_data::{ClientData, Operation},
    cose::CredentialKey,
    credential::StoredCredential,
    error::WebauthnError,
    relying_party::RelyingParty,
    response::RegistrationResponse,
};
use crate::jose::Algorithm;

/// A verified registration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistrationVerdict {
    /// The id of the new credential. Refuse ids that are already registered, even by other users.
    pub id: Vec<u8>,
    /// The public key as a COSE key.
    pub public_key: Vec<u8>,
    /// The algorithm of the key.
    pub algorithm: Algorithm,
    /// The signature counter.
    pub sign_count: u32,
    /// Whether the authenticator has verified its user.
    pub user_verified: bool,
    /// Whether the credential can be backed up (the flag BE), as synced passkeys can.
    pub backup_eligible: bool,
    /// Whether the credential is currently backed up (the flag BS).
    pub backed_up: bool,
    /// The outcome of checking the attestation.
    pub attestation: Attestation,
    /// The model that the authenticator claims to be. All zero if it claims none.
    pub aaguid: [u8; 16],
    /// How the browser can reach the authenticator, such as `internal` or `usb`.
    pub transports: Vec<String>,
}

impl RegistrationVerdict {
    /// Returns what to store for the user with this handle.
    pub fn stored(&self, user_handle: impl Into<Vec<u8>>) -> StoredCredential {
        StoredCredential {
            id: self.id.clone(),
            user_handle: user_handle.into(),
            public_key: self.public_key.clone(),
            sign_count: self.sign_count,
            backup_eligible: self.backup_eligible,
            backed_up: self.backed_up,
        }
    }
}

impl RelyingParty {
    /// Verifies the registration of a credential.
    ///
    /// The caller has to check that the challenge was issued to this user, is used for the first time and has not
    /// expired, and that no credential with this id exists.
    ///
    /// # Errors
    ///
    /// Returns the first check that fails, in the order of the specification. Malformed responses are found first.
    pub fn verify_registration(
        &self,
        challenge: &[u8],
        response: &RegistrationResponse,
    ) -> Result<RegistrationVerdict, WebauthnError> {
        Self::check_challenge(challenge)?;
        let (client_data, client_data_hash) = ClientData::parse(&response.client_data)?;
        let object = AttestationObject::parse(&response.attestation_object)?;
        let data = AuthenticatorData::parse(object.authenticator_data)?;
        let attested = data.attested.as_ref().ok_or(AuthenticatorData::malformed())?;

        if response.id != response.raw_id || response.raw_id != attested.id {
            return Err(WebauthnError::CredentialId);
        }
        client_data.check(Operation::Create, challenge, self)?;
        data.check(self)?;
        let key = CredentialKey::parse(attested.key)?;
        let attestation = object.verify(&key, &client_data_hash, self.attestation)?;
        Ok(RegistrationVerdict {
            id: attested.id.to_vec(),
            public_key: attested.key.to_vec(),
            algorithm: key.algorithm,
            sign_count: data.sign_count,
            user_verified: data.user_verified(),
            backup_eligible: data.backup_eligible(),
            backed_up: data.backed_up(),
            attestation,
            aaguid: attested.aaguid,
            transports: response.transports.clone(),
        })
    }
}
