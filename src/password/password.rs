use std::fmt;

use zeroize::Zeroizing;

/// What a person typed as their password.
///
/// Its `Debug` shows nothing, it can't be compared, and its memory is wiped when
/// it is dropped. It is taken exactly and whole: nothing is trimmed, cut off or
/// normalised, so `é` as one character and as two are two passwords.
///
/// ```
/// use tollgate::Password;
///
/// let password = Password::new("correct horse battery staple");
/// assert_eq!(format!("{password:?}"), "Password(..)");
/// ```
pub struct Password(Zeroizing<String>);

impl Password {
    /// The most bytes that a password may have. A longer one is never right.
    pub const MAX_LEN: usize = 1024;

    /// Takes what was typed, whatever it is. A `String` is taken as it is,
    /// without a copy, so that none is left behind.
    pub fn new(typed: impl Into<String>) -> Self {
        Self(Zeroizing::new(typed.into()))
    }

    #[cfg(test)]
    pub(super) fn inner(&self) -> &Zeroizing<String> {
        &self.0
    }

    /// The password, unless it is empty or too long to be one.
    pub(super) fn usable(&self) -> Option<&[u8]> {
        (1..=Self::MAX_LEN).contains(&self.0.len()).then_some(self.0.as_bytes())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}
