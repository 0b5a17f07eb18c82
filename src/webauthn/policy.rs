//! The choices that a relying party has.

use crate::util::fmt::named_enum;

/// Whether an assertion is accepted if its signature counter has not increased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CounterPolicy {
    /// Refuses an assertion whose counter has not increased, because the authenticator may have been cloned. Synced
    /// passkeys do not count and always send zero, which is accepted. The default.
    #[default]
    Refuse,
    /// Accepts the assertion and reports it in [`AssertionVerdict::counter_stalled`](super::AssertionVerdict).
    Report,
}

named_enum! {
    /// Whether the authenticator has to verify its user, for example by a PIN or a fingerprint.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum UserVerification {
        /// Refuses responses without user verification. The default.
        #[default]
        Required = "required",
        /// Asks for user verification, and accepts responses without it.
        Preferred = "preferred",
        /// Asks authenticators not to verify the user, and accepts responses with or without user verification.
        Discouraged = "discouraged",
    }

    pub(super) fn as_str;
}

/// Whether credentials may be backed up, as synced passkeys are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackupPolicy {
    /// Accepts all credentials. The default.
    #[default]
    Allow,
    /// Refuses credentials that can be backed up. The key then stays in one device, as far as the authenticator can be
    /// trusted.
    Refuse,
}

/// Which attestations are accepted when a credential is registered.
///
/// An attestation states which model of authenticator has made the key. This module has no list of trusted
/// manufacturers, so it verifies only that a self attestation is signed by the new key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttestationPolicy {
    /// Accepts attestations of other formats, and reports them as [`Attestation::Unverified`](super::Attestation). The
    /// default.
    #[default]
    AcceptUnverified,
    /// Refuses all attestations but `none` and self attestation.
    RefuseUnverified,
}
