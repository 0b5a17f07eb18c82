//! Passkeys: verifies registrations and assertions as the relying party (WebAuthn Level 3, §7.1 and §7.2).
//!
//! Everything here is pure. A [`RelyingParty`] holds the rules. It verifies the response of a browser against a challenge
//! and a stored credential, and returns a verdict or the first check that fails. It accepts ES256, EdDSA and RS256 keys.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::webauthn::{AssertionRequest, AssertionResponse, RelyingParty, StoredCredential, WebauthnError};
//!
//! let party = RelyingParty::new("example.com")?.origin("https://login.example.com")?;
//!
//! // Send these options to the browser. Keep the challenge for one use, at most five minutes.
//! let challenge = [7; 32]; // random bytes in your code
//! let options = party.request_options(&challenge, &[], Duration::from_secs(300)).to_string();
//!
//! /// Verifies what `credential.toJSON()` returned in the browser, and updates the stored credential.
//! fn sign_in(
//!     party: &RelyingParty,
//!     challenge: &[u8],
//!     body: &[u8],
//!     find: impl FnOnce(&[u8]) -> Option<StoredCredential>,
//! ) -> Result<StoredCredential, WebauthnError> {
//!     let response = AssertionResponse::from_json(body)?;
//!     let stored = find(response.credential_id());
//!     let verdict = party.verify_assertion(&AssertionRequest::new(challenge), stored.as_ref(), &response)?;
//!     let mut stored = stored.ok_or(WebauthnError::UnknownCredential)?;
//!     verdict.update(&mut stored);
//!     Ok(stored)
//! }
//!
//! let refused = sign_in(&party, &challenge, b"{}", |_| None);
//! assert_eq!(refused, Err(WebauthnError::Malformed("response")));
//! # assert!(options.contains(r#""rpId":"example.com""#));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## What the caller does
//!
//! - Each challenge has at least 16 random bytes, is used once, expires, and belongs to one login or one user.
//! - Credential ids are unique among all users.
//! - The new signature counter is stored so that only one of two concurrent responses wins.
//!
//! ## What is refused
//!
//! Besides failed checks: CBOR that is not canonical, is truncated, or has trailing bytes; names that appear twice in JSON;
//! RSA keys with fewer than 2048 or more than 4096 bits; challenges of fewer than 16 bytes. Everything is bounded in size.
//!
//! Attestation certificates are not verified. See [`AttestationPolicy`].

mod assertion;
mod attestation;
mod authenticator_data;
mod cbor;
mod client_data;
mod cose;
mod credential;
mod error;
mod options;
mod policy;
mod registration;
mod relying_party;
mod response;

#[cfg(feature = "login")]
pub(crate) use self::response::decode_base64;
pub use self::{
    assertion::{AssertionRequest, AssertionVerdict},
    attestation::Attestation,
    credential::StoredCredential,
    error::WebauthnError,
    options::{CreationOptions, CredentialOwner, RequestOptions},
    policy::{AttestationPolicy, BackupPolicy, CounterPolicy, UserVerification},
    registration::RegistrationVerdict,
    relying_party::RelyingParty,
    response::{AssertionResponse, RegistrationResponse},
};
