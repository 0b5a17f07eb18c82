//! The method `passkey`. The signatures are checked by [`webauthn`](crate::webauthn).

pub(crate) mod enrol;
pub(crate) mod login;
pub(crate) mod row;
pub(crate) mod settings;

use self::settings::Passkeys;
use crate::{auth::builder::AuthServiceBuilder, policy::Method};

impl AuthServiceBuilder {
    /// Lets users sign in with passkeys. See [`Passkeys`].
    ///
    /// Users add passkeys on the account page, which exists only with [`first_party`](Self::first_party), or, as their first
    /// second factor, within a login of two steps. A service also accepts passkeys that were added at another service
    /// on the same store.
    pub fn passkeys(mut self, passkeys: Passkeys) -> Self {
        self.factors.passkey = Some(passkeys);
        self.factors.enrolled = self.factors.enrolled.with(Method::Passkey);
        self
    }
}
