//! [`Grant`]: the permission that a user gave to a client.

use crate::{client::Scopes, login::Binding, policy::MethodSet, session::Authentication, util::public_id::PublicId};

/// The scope that lets refresh tokens outlive the session.
pub(crate) const OFFLINE_ACCESS: &str = "offline_access";

/// The permission that a user gave to a client, and how the user authenticated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grant {
    pub(crate) who: Authentication,
    /// The `sid` of the session that the code was issued in.
    pub(crate) session: PublicId,
    /// The client, the scope, and what the client must show to redeem the code.
    pub(crate) binding: Binding,
    /// The thumbprint of the key that all tokens are bound to.
    pub(crate) jkt: Option<String>,
    /// The claims that the client requested by name for the id_token and for `/userinfo`.
    pub(crate) id_token: Vec<String>,
    pub(crate) userinfo: Vec<String>,
    /// The resources that the client requested, sorted. If empty, its tokens are for the default audience.
    pub(crate) resources: Vec<String>,
}

impl Grant {
    pub(crate) fn client_id(&self) -> &str {
        &self.binding.client_id
    }

    pub(crate) fn scope(&self) -> &Scopes {
        &self.binding.scope
    }

    /// Returns whether the grant outlives a sign-out.
    pub(crate) fn outlives_session(&self) -> bool {
        self.scope().contains(OFFLINE_ACCESS)
    }
}

/// Returns the `amr` values of RFC 8176 for the proofs, with `mfa` if there is more than one method.
pub(super) fn amr(who: &Authentication) -> Vec<String> {
    MethodSet::of_proofs(&who.proofs).amr().into_iter().map(str::to_owned).collect()
}
