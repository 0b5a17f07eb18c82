//! Verifies that a credential signs in (WebAuthn Level 3, §7.2).

use super::{
    authenticator_data::AuthenticatorData,
    client_data::{ClientData, Operation},
    cose::CredentialKey,
    credential::StoredCredential,
    error::WebauthnError,
    policy::CounterPolicy,
    relying_party::RelyingParty,
    response::AssertionResponse,
};
use crate::util::builder::setters;

/// Signatures of RSA keys with 4096 bits have 512 bytes.
const LONGEST_SIGNATURE: usize = 1024;

/// A valid key that no authenticator has: that of RFC 7515, appendix A.3.
const DECOY: [u8; 77] = [
    0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20, 0x7f, 0xcd, 0xce, 0x27, 0x70, 0xf6, 0xc4, 0x5d, 0x41,
    0x83, 0xcb, 0xee, 0x6f, 0xdb, 0x4b, 0x7b, 0x58, 0x07, 0x33, 0x35, 0x7b, 0xe9, 0xef, 0x13, 0xba, 0xcf, 0x6e, 0x3c,
    0x7b, 0xd1, 0x54, 0x45, 0x22, 0x58, 0x20, 0xc7, 0xf1, 0x44, 0xcd, 0x1b, 0xbd, 0x9b, 0x7e, 0x87, 0x2c, 0xdf, 0xed,
    0xb9, 0xee, 0xb9, 0xf4, 0xb3, 0x69, 0x5d, 0x6e, 0xa9, 0x0b, 0x24, 0xad, 0x8a, 0x46, 0x23, 0x28, 0x85, 0x88, 0xe5,
    0xad,
];

/// The request that a response belongs to.
#[derive(Clone, Copy, Debug)]
pub struct AssertionRequest<'a> {
    challenge: &'a [u8],
    allowed: &'a [Vec<u8>],
    user_handle: Option<&'a [u8]>,
}

impl<'a> AssertionRequest<'a> {
    /// Creates a request with this challenge, of at least 16 random bytes. The user is not known yet: the response
    /// must identify them.
    pub fn new(challenge: &'a [u8]) -> Self {
        Self { challenge, allowed: &[], user_handle: None }
    }

    setters! {
        /// Restricts the response to credentials with these ids. By default, and if the list is empty, all are allowed.
        pub fn allowed(ids: &'a [Vec<u8>]) { allowed: ids }

        /// Requires a credential of the user with this handle, for users who are identified already.
        pub fn user_handle(handle: &'a [u8]) { user_handle: Some(handle) }
    }
}

/// A verified assertion. Store `sign_count` and `backed_up`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AssertionVerdict {
    /// The new value of the signature counter. It never decreases.
    pub sign_count: u32,
    /// Whether the credential is currently backed up (the flag BS), for example synced to other devices.
    pub backed_up: bool,
    /// Whether the authenticator has verified its user.
    pub user_verified: bool,
    /// Whether the signature counter has not increased although it is in use. This is only possible with
    /// [`CounterPolicy::Report`].
    pub counter_stalled: bool,
}

impl AssertionVerdict {
    /// Updates the stored credential.
    pub fn update(&self, credential: &mut StoredCredential) {
        credential.sign_count = self.sign_count;
        credential.backed_up = self.backed_up;
    }
}

impl RelyingParty {
    /// Verifies that a credential signs in. `credential` is the stored one with the id of the response, if it exists.
    ///
    /// An unknown credential costs as much time as a known one: the signature is checked against a key without an owner.
    ///
    /// The caller has to check that the challenge was issued in this login, is used for the first time and has not
    /// expired. Afterwards the caller stores the new counter, in a way that only one of two concurrent responses wins.
    ///
    /// # Errors
    ///
    /// Returns the first check that fails, in the order of the specification. Malformed responses are found first, and do
    /// not depend on the credential.
    pub fn verify_assertion(
        &self,
        request: &AssertionRequest<'_>,
        credential: Option<&StoredCredential>,
        response: &AssertionResponse,
    ) -> Result<AssertionVerdict, WebauthnError> {
        Self::check_challenge(request.challenge)?;
        let (client_data, client_data_hash) = ClientData::parse(&response.client_data)?;
        let data = AuthenticatorData::parse(&response.authenticator_data)?;
        // only registrations contain a credential
        if data.attested.is_some() {
            return Err(AuthenticatorData::malformed());
        }
        if response.signature.len() > LONGEST_SIGNATURE {
            return Err(WebauthnError::Malformed("signature"));
        }
        let credential = credential.filter(|credential| credential.id == response.raw_id);
        let key = CredentialKey::parse(credential.map_or(&DECOY, |credential| &credential.public_key));
        let signed = [&response.authenticator_data[..], client_data_hash.as_bytes()].concat();
        let is_signed = key.as_ref().is_ok_and(|key| key.verifies(&signed, &response.signature));

        if response.id != response.raw_id {
            return Err(WebauthnError::CredentialId);
        }
        if !request.allowed.is_empty() && !request.allowed.contains(&response.raw_id) {
            return Err(WebauthnError::UnknownCredential);
        }
        let credential = credential.ok_or(WebauthnError::UnknownCredential)?;
        check_user(request, credential, response)?;
        client_data.check(Operation::Get, request.challenge, self)?;
        data.check(self)?;
        if data.backup_eligible() != credential.backup_eligible {
            return Err(WebauthnError::Backup);
        }
        key?;
        if !is_signed {
            return Err(WebauthnError::Signature);
        }
        let counter_stalled =
            (data.sign_count != 0 || credential.sign_count != 0) && data.sign_count <= credential.sign_count;
        if counter_stalled && self.counter == CounterPolicy::Refuse {
            return Err(WebauthnError::Counter);
        }
        Ok(AssertionVerdict {
            sign_count: data.sign_count.max(credential.sign_count),
            backed_up: data.backed_up(),
            user_verified: data.user_verified(),
            counter_stalled,
        })
    }
}

/// Checks that the credential belongs to the user: the known one, or the one that the response names.
fn check_user(
    request: &AssertionRequest<'_>,
    credential: &StoredCredential,
    response: &AssertionResponse,
) -> Result<(), WebauthnError> {
    let owner = credential.user_handle.as_slice();
    let is_owner = match (request.user_handle, response.user_handle()) {
        (Some(known), named) => known == owner && named.is_none_or(|named| named == owner),
        (None, Some(named)) => named == owner,
        (None, None) => false,
    };
    if is_owner { Ok(()) } else { Err(WebauthnError::User) }
}
