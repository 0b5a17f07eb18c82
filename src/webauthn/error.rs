//! Why a response is refused.

use std::fmt;

/// Why the response of an authenticator is refused.
///
/// The texts name the failed check and contain nothing from the response, so they can be logged. Do not send them to
/// callers: which check failed can reveal whether a credential exists. [`Malformed`](Self::Malformed) is the exception,
/// because it depends on the response alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WebauthnError {
    /// This part of the response cannot be parsed, is too long, or has trailing bytes.
    Malformed(&'static str),
    /// `id`, `rawId` and the id inside the response differ.
    CredentialId,
    /// The credential is unknown or not allowed.
    UnknownCredential,
    /// The credential belongs to another user, or the response does not identify its user.
    User,
    /// The response belongs to another operation, such as a registration instead of an assertion.
    Type,
    /// The response answers another challenge, or the expected challenge has fewer than 16 bytes.
    Challenge,
    /// The page's origin is not allowed.
    Origin,
    /// The page was embedded in another site that is not allowed.
    Embedded,
    /// The response was made for another relying party.
    RelyingParty,
    /// The user was not present.
    UserPresence,
    /// The user was not verified.
    UserVerification,
    /// The backup flags contradict each other or the stored credential, or backups are not allowed.
    Backup,
    /// The public key is not a usable ES256, EdDSA or RS256 key.
    PublicKey,
    /// The signature is invalid.
    Signature,
    /// The signature counter has not increased, so the authenticator may have been cloned.
    Counter,
    /// The attestation is invalid, or of a kind that is not allowed.
    Attestation,
}

impl fmt::Display for WebauthnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed(part) => return write!(f, "malformed {part}"),
            Self::CredentialId => "the credential ids differ",
            Self::UnknownCredential => "unknown credential",
            Self::User => "the credential belongs to another user",
            Self::Type => "the response belongs to another operation",
            Self::Challenge => "the challenge differs",
            Self::Origin => "the origin is not allowed",
            Self::Embedded => "the page was embedded in another site",
            Self::RelyingParty => "the response was made for another relying party",
            Self::UserPresence => "the user was not present",
            Self::UserVerification => "the user was not verified",
            Self::Backup => "the backup flags are not acceptable",
            Self::PublicKey => "the public key is not supported",
            Self::Signature => "the signature is invalid",
            Self::Counter => "the signature counter has not increased",
            Self::Attestation => "the attestation is not acceptable",
        })
    }
}

impl std::error::Error for WebauthnError {}
