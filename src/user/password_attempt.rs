use super::account::Account;
use crate::{
    password::{Password, PasswordError, PasswordErrorKind, PasswordHash, PasswordMark, Passwords, Verdict},
    tenant::Tenant,
    util::trace,
};

/// A password to check: the argument of [`Users::verify_password`](super::Users::verify_password).
///
/// It holds the typed password, the account it was typed for, and the pool of threads that hashes passwords. There is
/// no account if the name is unknown, if the account is disabled, or if it had too many failures. Such an attempt must
/// do the same work as any other, so that its time does not reveal this. [`argon2`](Self::argon2) and
/// [`blocking`](Self::blocking) take care of that.
#[derive(Debug)]
pub struct PasswordAttempt<'a> {
    tenant: &'a Tenant,
    account: Option<&'a Account>,
    password: Password,
    passwords: &'a Passwords,
}

/// The outcome of a [`PasswordAttempt`].
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub enum PasswordCheck {
    /// The password is right. This answer is ignored for an attempt without an account.
    Right {
        /// The version of the password. Defaults to the [mark of the account](Account::current_password_mark). If
        /// you return one, set the same mark on the account.
        mark: Option<PasswordMark>,
        /// A new hash of the same password, if the stored one should be replaced.
        upgrade: Option<PasswordHash>,
    },
    /// The password is wrong, or there is no account or no password to compare it with.
    Wrong,
    /// The password can't be checked right now. The attempt is not counted as a failure.
    Busy,
}

/// The outcome of [`Users::upgrade_password`](super::Users::upgrade_password).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PasswordUpgrade {
    /// The account has a new hash of the same password. Another login may have replaced it at the same time.
    Replaced,
    /// These accounts keep their hashes.
    NotSupported,
    /// The password was changed after it was checked, or the account is gone. The login fails.
    PasswordChanged,
}

impl<'a> PasswordAttempt<'a> {
    /// Creates an attempt. The login service does this itself; use it to test your own [`Users`](super::Users).
    ///
    /// A disabled account counts as no account.
    pub fn new(tenant: &'a Tenant, account: Option<&'a Account>, password: Password, passwords: &'a Passwords) -> Self {
        Self { tenant, account: account.filter(|account| !account.is_disabled()), password, passwords }
    }

    /// Returns the tenant.
    pub fn tenant(&self) -> &'a Tenant {
        self.tenant
    }

    /// Returns the account, unless the user is unknown or may not sign in.
    pub fn account(&self) -> Option<&'a Account> {
        self.account
    }

    /// Returns the typed password.
    pub fn password(&self) -> &Password {
        &self.password
    }

    /// Checks the password against the [argon2 hash](Account::password) of the account.
    pub async fn argon2(self) -> PasswordCheck {
        let stored = self.account.and_then(Account::password_hash).cloned();
        let verdict = self.passwords.of_tenant(self.tenant).verify(self.password, stored).await;
        outcome(self.account, verdict)
    }

    /// Checks the password against the [foreign hash](Account::foreign_hash) of the account, with your own function.
    ///
    /// `check` receives a hash and the password. It may block, because it runs in the same pool of threads as argon2.
    /// It runs at most once. If there is no foreign hash to check, it runs on `decoy_hash` and the result is ignored.
    /// The decoy must be a valid hash with the same parameters as yours.
    ///
    /// If the password is right, the outcome has an argon2 hash of it as the `upgrade`. Accounts that have an argon2
    /// hash already are checked against that one, so both kinds can coexist. A wrong password always costs one `check`
    /// and one argon2 hash.
    pub async fn blocking(
        self,
        decoy_hash: impl Into<String>,
        check: impl FnOnce(&str, &str) -> bool + Send + 'static,
    ) -> PasswordCheck {
        let stored = self.account.and_then(|account| account.password.clone());
        let passwords = self.passwords.of_tenant(self.tenant);
        let verdict = passwords.verify_either(self.password, stored, decoy_hash.into(), check).await;
        outcome(self.account, verdict)
    }

    /// Returns whether a password can be right here at all: there is an account, and the password has a usable length.
    pub(super) fn can_succeed(&self) -> bool {
        self.account.is_some() && self.password.usable().is_some()
    }
}

fn outcome(account: Option<&Account>, verdict: Result<Verdict, PasswordError>) -> PasswordCheck {
    match verdict {
        Ok(Verdict::Right { rehashed }) => {
            PasswordCheck::Right { mark: account.and_then(Account::current_password_mark), upgrade: rehashed }
        }
        Ok(Verdict::Wrong) => PasswordCheck::Wrong,
        Err(error) => {
            if error.kind() != PasswordErrorKind::Busy {
                trace::warning!("a password could not be checked: {error}");
            }
            PasswordCheck::Busy
        }
    }
}
