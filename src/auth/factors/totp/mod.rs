//! The method `totp`: codes of authenticator apps.

pub(crate) mod enrol;
pub(crate) mod key;
pub(crate) mod login;
mod qr;
pub(crate) mod settings;

use self::settings::Totp;
use crate::auth::builder::AuthServiceBuilder;

impl AuthServiceBuilder {
    /// Lets users enrol authenticator apps and recovery codes, and use them after another step. Off by default.
    ///
    /// Users need two other factors for that, such as a password and a verified contact. They enrol on the account
    /// page, which exists only with [`first_party`](Self::first_party). A service without it accepts what was enrolled at another
    /// service on the same store.
    pub fn totp(mut self, totp: Totp) -> Self {
        self.factors.totp = Some(totp);
        self
    }
}
