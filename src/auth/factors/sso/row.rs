//! The stored row of a link to an account at another identity provider, and the links that the user has removed.

use serde::{Deserialize, Serialize};

use super::super::credentials::credential::{Credential, CredentialId, StoredDigest, Strength, enrolment_mark};
use crate::{
    login::Keyed,
    policy::Method,
    util::{public_id::PublicId, secret::SecretDigest},
};

/// The maximum number of linked accounts of a user.
pub(crate) const MOST_LINKS: usize = 10;
/// The maximum number of removed links that are remembered.
pub(crate) const MOST_UNLINKED: usize = 50;

/// An account at another identity provider.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SsoLink {
    /// A random id, which marks the proofs by this link.
    #[serde(with = "crate::util::text")]
    pub(crate) enrolment: PublicId,
    pub(crate) issuer: String,
    pub(crate) subject: String,
    /// The name of the provider in the settings of this service.
    pub(crate) provider: String,
    /// The shown name: a name or an address at the provider.
    pub(crate) name: String,
    pub(crate) created_at: u64,
    pub(crate) strength: Strength,
}

/// The links that the user has removed. A hook can't make them again.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Unlinked(Vec<StoredDigest>);

impl SsoLink {
    pub(crate) fn link_id(&self) -> CredentialId<'_> {
        CredentialId::Link { provider: &self.provider, issuer: &self.issuer, subject: &self.subject }
    }

    /// Returns the id that the account page shows, which reveals neither the issuer nor the subject.
    pub(crate) fn shown_id(&self, keyed: &Keyed) -> String {
        PublicId::of_digest(&SecretDigest::from_bytes(self.mark(keyed))).to_string()
    }
}

impl Credential for SsoLink {
    fn method(&self) -> Method {
        Method::Sso
    }

    fn mark(&self, keyed: &Keyed) -> [u8; 32] {
        enrolment_mark(&self.enrolment, keyed)
    }

    fn id(&self) -> Option<CredentialId<'_>> {
        Some(self.link_id())
    }

    fn is_shown_as(&self, id: &str, keyed: &Keyed) -> bool {
        self.shown_id(keyed) == id
    }
}

impl Unlinked {
    /// Remembers a link that the user has removed.
    pub(crate) fn add(&mut self, id: CredentialId<'_>) {
        let digest = StoredDigest(id.digest());
        if self.0.len() < MOST_UNLINKED && !self.0.contains(&digest) {
            self.0.push(digest);
        }
    }

    /// Returns whether the user may have removed this link: if too many were removed to remember them all, any may be among
    /// them.
    pub(crate) fn may_contain(&self, id: CredentialId<'_>) -> bool {
        self.0.len() >= MOST_UNLINKED || self.0.contains(&StoredDigest(id.digest()))
    }

    /// Forgets that the user has removed this link, unless there may be others that are not remembered.
    pub(crate) fn remove(&mut self, id: CredentialId<'_>) {
        if self.0.len() < MOST_UNLINKED {
            self.0.retain(|unlinked| *unlinked != StoredDigest(id.digest()));
        }
    }
}
