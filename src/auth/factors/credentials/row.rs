//! The stored credentials of a user.

use std::{fmt, iter};

use serde::{Deserialize, Serialize};

use super::credential::{Credential, CredentialId, Strength, base64url};
use crate::{
    login::Keyed,
    policy::{EnrolledFactors, LoginPlan, Method, MethodSet},
    session::Proof,
    util::secret::Secret,
};

/// Declares the row, with a field for each kind of credential, and the iterators over all credentials.
macro_rules! credentials {
    ($($field:ident: $kind:ty,)*) => {
        /// Everything that a user has enrolled.
        ///
        /// All times are Unix seconds. The `strength` of a credential is what vouched for it when it was enrolled.
        #[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) struct Credentials {
            /// The user handle of WebAuthn. It is random, so that it tells nothing about the user.
            #[serde(with = "base64url")]
            pub(crate) handle: [u8; 32],
            $(
                #[serde(default, skip_serializing_if = "is_default")]
                pub(crate) $field: $kind,
            )*
            #[serde(default, skip_serializing_if = "is_default")]
            pub(crate) unlinked: crate::auth::factors::sso::row::Unlinked,
        }

        impl Credentials {
            /// Returns all credentials, with what vouched for each when it was enrolled.
            pub(crate) fn all(&self) -> impl Iterator<Item = (&dyn Credential, &Strength)> {
                iter::empty()$(.chain(self.$field.iter().map(|it| (it as &dyn Credential, &it.strength))))*
            }

            /// Sets the strength of the first credential that `is_meant` accepts to full. Returns `None` if it accepts none.
            pub(crate) fn vouch_for(&mut self, is_meant: impl Fn(&dyn Credential) -> bool) -> Option<()> {
                let mut strengths = iter::empty()$(.chain(
                    self.$field.iter_mut().filter(|it| is_meant(&**it)).map(|it| &mut it.strength)
                ))*;
                strengths.next().map(|strength| strength.clone_from(Strength::FULL))
            }
        }
    };
}

credentials! {
    passkeys: Vec<crate::auth::factors::passkey::row::Passkey>,
    totp: Option<crate::auth::factors::totp::key::TotpKey>,
    recovery: Option<crate::auth::factors::recovery::code::RecoveryCodes>,
    links: Vec<crate::auth::factors::sso::row::SsoLink>,
}

impl Credentials {
    /// Creates the row of a user without credentials.
    pub(super) fn new() -> Self {
        Self { handle: *Secret::generate().digest().as_bytes(), ..Self::default() }
    }

    /// Returns whether the user has a credential for this method whose strength `counts`.
    pub(crate) fn can_prove(&self, method: Method, counts: impl Fn(&Strength) -> bool) -> bool {
        self.all().any(|(it, strength)| it.method() == method && counts(strength) && it.is_usable())
    }

    /// Returns whether the recovery codes of the user count, even if all of them are used.
    pub(crate) fn has_recovery_codes(&self, counts: impl Fn(&Strength) -> bool) -> bool {
        self.recovery.as_ref().is_some_and(|codes| counts(&codes.strength))
    }

    /// Returns the second factors that the user has enrolled and can prove by these methods in a login. Ignores those that were
    /// enrolled with fewer proofs than the policies need steps, because a thief of one factor could have added them: the owner of
    /// two factors must not need them.
    pub(crate) fn factors(&self, enabled: MethodSet, plan: &LoginPlan) -> EnrolledFactors {
        let provable = |counts: &dyn Fn(&Strength) -> bool| -> MethodSet {
            let methods = MethodSet::ENROLLED.intersection(enabled);
            methods.iter().filter(|method| self.can_prove(*method, counts)).collect()
        };
        let all = provable(&|strength| strength.counts_for_steps(plan));
        if all.without(Method::RecoveryCode).is_empty() {
            return EnrolledFactors::default();
        }
        EnrolledFactors { all, counting: provable(&|strength| strength.counts_for(plan)), reset: None }
    }

    /// Returns whether the user has this credential.
    pub(crate) fn holds(&self, id: CredentialId<'_>) -> bool {
        self.ids().any(|held| held == id)
    }

    /// Returns the ids of all credentials that only one user can have.
    pub(super) fn ids(&self) -> impl Iterator<Item = CredentialId<'_>> {
        self.all().filter_map(|(it, _)| it.id())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().map(|(it, _)| it.method())).finish()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Returns the strength of the credential that was proved, if the user still has it. Proofs that need no credential have
/// full strength.
pub(crate) fn strength<'c>(credentials: Option<&'c Credentials>, proof: &Proof, keyed: &Keyed) -> Option<&'c Strength> {
    let Some(mark) = proof.mark.filter(|_| is_of_credential(proof)) else { return Some(Strength::FULL) };
    let method = Method::from_name(&proof.method)?;
    let proved = credentials?.all().find(|(it, _)| it.method() == method && it.mark(keyed) == mark);
    proved.map(|(_, strength)| strength)
}

/// Returns whether a proof counts only as long as the user has a credential.
pub(crate) fn is_of_credential(proof: &Proof) -> bool {
    let method = Method::from_name(&proof.method);
    let is_enrolled = matches!(method, Some(Method::Sso | Method::Passkey | Method::Totp | Method::RecoveryCode));
    is_enrolled && proof.mark.is_some()
}
