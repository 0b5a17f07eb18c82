use std::fmt;

/// Why a password could not be hashed or checked, as far as a caller can act on
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PasswordErrorKind {
    /// As many callers wait already as may; see
    /// [`Passwords::waiting`](super::Passwords::waiting).
    Busy,
    /// The password to be hashed is empty or has more than 1024 bytes. Checking
    /// one never answers with this.
    Unusable,
    /// There is no memory for it, no tokio runtime, or the work was torn down.
    Failed,
}

/// A password that could not be hashed or checked. It says nothing of whether
/// it is right, and repeats nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordError(PasswordErrorKind);

impl PasswordError {
    /// What went wrong.
    pub fn kind(&self) -> PasswordErrorKind {
        self.0
    }
}

impl From<PasswordErrorKind> for PasswordError {
    fn from(kind: PasswordErrorKind) -> Self {
        Self(kind)
    }
}

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            PasswordErrorKind::Busy => "too many passwords are being checked at once",
            PasswordErrorKind::Unusable => "a password must have 1 to 1024 bytes",
            PasswordErrorKind::Failed => "the password could not be checked",
        })
    }
}

impl std::error::Error for PasswordError {}

/// Why a text is not the hash of a password that can be checked here. It
/// repeats nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordHashError(pub(super) &'static str);

impl fmt::Display for PasswordHashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for PasswordHashError {}
