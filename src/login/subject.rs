//! The user that a login is for.

use serde::{Deserialize, Serialize};

use crate::{session::UserId, util::public_id::PublicId};

/// The public id of a login. It is shown and sent freely: without the secret in the cookie it gives access to nothing.
pub(crate) type LoginId = PublicId;

/// Which user can prove the steps of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// No name was given. The first proved step decides.
    Unbound,
    /// The name that was given at the start belongs to no account, so every proof is wrong.
    Unknown,
    /// Only this user, even if the names of the account change.
    User(BoundUser),
}

/// A user, and the generation that was current when a login was bound to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BoundUser {
    #[serde(with = "crate::util::text")]
    pub(crate) id: UserId,
    pub(crate) generation: u64,
}

impl Subject {
    pub(crate) fn user(&self) -> Option<&BoundUser> {
        match self {
            Self::User(user) => Some(user),
            Self::Unbound | Self::Unknown => None,
        }
    }

    /// Returns whether this user can prove a step.
    pub(crate) fn accepts(&self, id: &UserId) -> bool {
        match self {
            Self::Unbound => true,
            Self::Unknown => false,
            Self::User(user) => user.id == *id,
        }
    }
}
