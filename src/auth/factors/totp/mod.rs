//! The method `totp`: codes of authenticator apps.

pub(crate) mod enrol;
pub(crate) mod key;
pub(crate) mod login;
mod qr;
pub(crate) mod settings;

use self::settings::Totp;
use crate::{auth::builder::AuthServiceBuilder, policy::Method};

impl AuthServiceBuilder {
    /// Lets users enrol authenticator apps and recovery codes, and use them after another step. Off by default.
    ///
    /// An app needs one other factor, such as a password, and recovery codes need two. Users enrol on the account page, which
    /// exists only with [`first_party`](Self::first_party), or set up an app within a login of two steps. A service also
    /// accepts what was enrolled at another service on the same store.
    pub fn totp(mut self, totp: Totp) -> Self {
        self.factors.totp = Some(totp);
        self.factors.enrolled = self.factors.enrolled.with(Method::Totp).with(Method::RecoveryCode);
        self
    }
}
