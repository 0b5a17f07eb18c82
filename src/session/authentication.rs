//! Who a user is and how they proved it.

use serde::{Deserialize, Serialize};

use super::UserId;
use crate::{tenant::Tenant, util::clock::UnixTime};

/// Who a user is and how they proved it. Logins, sessions, authorization codes and
/// refresh families all carry this one type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Authentication {
    #[serde(with = "crate::util::text")]
    pub(crate) tenant: Tenant,
    #[serde(with = "crate::util::text")]
    pub(crate) user: UserId,
    /// The generation of the user when the sign-in began. Raising the generation ends
    /// everything that carries a lower one.
    pub(crate) generation: u64,
    /// Empty if an application created the session itself.
    pub(crate) proofs: Vec<Proof>,
    pub(crate) acr: Option<Box<str>>,
}

/// One proved step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Proof {
    pub(crate) method: Box<str>,
    /// In Unix nanoseconds.
    pub(crate) at: u64,
    /// The version of what was proved: of the password, the contact or the credential.
    pub(crate) mark: Option<[u8; 32]>,
}

#[cfg_attr(not(feature = "login"), allow(dead_code, reason = "only the login service reads proofs"))]
impl Authentication {
    /// Returns the time of the latest proof.
    pub(crate) fn auth_time(&self) -> Option<UnixTime> {
        self.proofs.iter().map(|proof| proof.at).max().map(UnixTime::from_nanos)
    }

    /// Returns the methods that were proved, in the order of the proofs.
    pub(crate) fn methods(&self) -> impl Iterator<Item = &str> {
        self.proofs.iter().map(|proof| &*proof.method)
    }
}
