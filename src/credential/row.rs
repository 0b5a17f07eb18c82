//! The stored credentials of a user.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::strength::Strength;
use crate::{
    policy::{EnrolledFactors, LoginPlan, Method, MethodSet},
    store::seal::Sealed,
    util::{handle::Handle, secret::Digest},
    webauthn::{AssertionVerdict, RegistrationVerdict, StoredCredential},
};

/// The maximum number of passkeys of a user.
pub(crate) const MOST_PASSKEYS: usize = 20;
/// The maximum number of linked accounts of a user.
#[cfg(any(feature = "external-providers", test))]
pub(crate) const MOST_LINKS: usize = 10;
/// The maximum number of removed links that are remembered.
pub(super) const MOST_UNLINKED: usize = 50;

/// Everything that a user has enrolled.
///
/// All times are Unix seconds. The `strength` of a credential is what vouched for it when it was enrolled.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credentials {
    /// The user handle of WebAuthn. It is random, so that it tells nothing about the user.
    #[serde(with = "base64url")]
    pub(crate) handle: [u8; 32],
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) passkeys: Vec<Passkey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) totp: Option<TotpKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) recovery: Option<RecoveryCodes>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) links: Vec<SsoLink>,
    /// The links that the user has removed. A hook can't make them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unlinked: Vec<UnlinkedId>,
}

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

/// The key that an authenticator app shares with this service.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TotpKey {
    /// A random id, which marks the proofs by this key.
    #[serde(with = "crate::util::text")]
    pub(crate) enrolment: Handle,
    pub(crate) secret: Sealed,
    pub(crate) kind: TotpKind,
    /// The time step of the last accepted code. No code of this step or an earlier one is accepted any more.
    pub(crate) last_step: u64,
    pub(crate) created_at: u64,
    pub(crate) strength: Strength,
}

/// How the codes of an app are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TotpKind {
    pub(crate) algorithm: TotpAlgorithm,
    pub(crate) digits: u8,
}

/// The hash function of an authenticator app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TotpAlgorithm {
    Sha1,
    Sha256,
}

/// Codes for users who have lost their other authenticators.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecoveryCodes {
    /// A random id, which marks the proofs by these codes.
    #[serde(with = "crate::util::text")]
    pub(crate) enrolment: Handle,
    /// Keyed digests of the codes that were not used yet.
    pub(crate) unused: Vec<CodeDigest>,
    pub(crate) created_at: u64,
    pub(crate) strength: Strength,
}

/// A keyed digest of a recovery code.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct CodeDigest(#[serde(with = "base64url")] pub(crate) [u8; 32]);

/// The digest of the id of a link that the user has removed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct UnlinkedId(#[serde(with = "base64url")] [u8; 32]);

/// An account at another identity provider.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SsoLink {
    /// A random id, which marks the proofs by this link.
    #[serde(with = "crate::util::text")]
    pub(crate) enrolment: Handle,
    pub(crate) issuer: String,
    pub(crate) subject: String,
    /// The name of the provider in the settings of this service.
    pub(crate) provider: String,
    /// The shown name: a name or an address at the provider.
    pub(crate) name: String,
    pub(crate) created_at: u64,
    pub(crate) strength: Strength,
}

/// Identifies a credential that only one user of a tenant can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CredentialId<'a> {
    /// The credential id of a passkey.
    Passkey(&'a [u8]),
    /// An account at another identity provider.
    Link { provider: &'a str, issuer: &'a str, subject: &'a str },
}

impl Credentials {
    /// Creates the row of a user without credentials.
    #[expect(clippy::expect_used, reason = "input cannot cause it, and there is no safe way to continue")]
    pub(super) fn new() -> Self {
        let mut handle = [0; 32];
        getrandom::fill(&mut handle).expect("the operating system provides random bytes");
        Self { handle, passkeys: Vec::new(), totp: None, recovery: None, links: Vec::new(), unlinked: Vec::new() }
    }

    /// Returns whether the user has an authenticator for this method whose strength `counts`. Links to other providers depend
    /// on the settings too, so they are not authenticators here.
    pub(crate) fn can_prove(&self, method: Method, counts: impl Fn(&Strength) -> bool) -> bool {
        match method {
            Method::Passkey => self.passkeys.iter().any(|passkey| counts(&passkey.strength)),
            Method::Totp => self.totp.as_ref().is_some_and(|key| counts(&key.strength)),
            Method::RecoveryCode => {
                self.recovery.as_ref().is_some_and(|codes| counts(&codes.strength) && !codes.unused.is_empty())
            }
            Method::Password | Method::Sms | Method::Email | Method::Whatsapp | Method::Sso => false,
        }
    }

    /// Returns the second factors that the user has enrolled and can prove by these methods in a login. Ignores those that were
    /// enrolled with fewer proofs than the policies need steps, because a thief of one factor could have added them: the owner of
    /// two factors must not need them.
    pub(crate) fn factors(&self, enabled: MethodSet, plan: &LoginPlan) -> EnrolledFactors {
        let provable = |counts: &dyn Fn(&Strength) -> bool| -> MethodSet {
            let methods = EnrolledFactors::METHODS.intersection(enabled);
            methods.iter().filter(|method| self.can_prove(*method, counts)).collect()
        };
        let all = provable(&|strength| strength.counts_for_steps(plan));
        if all.without(Method::RecoveryCode).is_empty() {
            return EnrolledFactors::default();
        }
        EnrolledFactors { all, counting: provable(&|strength| strength.counts_for(plan)) }
    }

    /// Returns whether the user has this credential.
    pub(crate) fn holds(&self, id: CredentialId<'_>) -> bool {
        self.ids().any(|held| held == id)
    }

    /// Returns the ids of all credentials that only one user can have.
    pub(super) fn ids(&self) -> impl Iterator<Item = CredentialId<'_>> {
        self.passkeys.iter().map(Passkey::id).chain(self.links.iter().map(SsoLink::id))
    }

    pub(super) fn remove(&mut self, id: CredentialId<'_>) {
        self.passkeys.retain(|passkey| passkey.id() != id);
        self.links.retain(|link| link.id() != id);
    }

    /// Removes a link that the user no longer wants, and remembers that.
    pub(super) fn unlink(&mut self, id: CredentialId<'_>) {
        self.remove(id);
        let digest = UnlinkedId(id.digest());
        if self.unlinked.len() < MOST_UNLINKED && !self.unlinked.contains(&digest) {
            self.unlinked.push(digest);
        }
    }

    /// Returns whether the user may have removed this link: if too many were removed to remember them all, any may be among
    /// them.
    #[cfg(any(feature = "external-providers", test))]
    pub(super) fn may_be_unlinked(&self, id: CredentialId<'_>) -> bool {
        self.unlinked.len() >= MOST_UNLINKED || self.unlinked.contains(&UnlinkedId(id.digest()))
    }

    /// Forgets that the user has removed this link, unless there may be others that are not remembered.
    #[cfg(any(feature = "external-providers", test))]
    pub(super) fn relink(&mut self, id: CredentialId<'_>) {
        if self.unlinked.len() < MOST_UNLINKED {
            self.unlinked.retain(|unlinked| *unlinked != UnlinkedId(id.digest()));
        }
    }
}

impl CredentialId<'_> {
    /// Returns a digest of constant length. Ids of passkeys can be too long for a key of the store.
    pub(super) fn digest(self) -> [u8; 32] {
        let bytes = match self {
            CredentialId::Passkey(id) => [b"passkey:", id].concat(),
            // the lengths keep the parts apart
            CredentialId::Link { provider, issuer, subject } => {
                let lengths = [provider, issuer].map(|part| (part.len() as u64).to_be_bytes());
                [b"link:", lengths.as_flattened(), provider.as_bytes(), issuer.as_bytes(), subject.as_bytes()].concat()
            }
        };
        *Digest::of(bytes).as_bytes()
    }
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

    pub(super) fn id(&self) -> CredentialId<'_> {
        CredentialId::Passkey(&self.id)
    }
}

impl SsoLink {
    pub(super) fn id(&self) -> CredentialId<'_> {
        CredentialId::Link { provider: &self.provider, issuer: &self.issuer, subject: &self.subject }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("passkeys", &self.passkeys.len())
            .field("totp", &self.totp.is_some())
            .field("recovery", &self.recovery.as_ref().map(|codes| codes.unused.len()))
            .field("links", &self.links.len())
            .finish_non_exhaustive()
    }
}

/// For serde's `with`: bytes as base64url.
mod base64url {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: impl AsRef<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(bytes))
    }

    pub(super) fn deserialize<'de, T: TryFrom<Vec<u8>>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| D::Error::custom("invalid base64url"))?;
        bytes.try_into().map_err(|_| D::Error::custom("wrong number of bytes"))
    }
}
