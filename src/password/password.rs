use zeroize::Zeroizing;

/// A password as the user typed it.
///
/// It is used exactly as typed: not trimmed, truncated or normalized, so `é` as one character and as two are different
/// passwords. `Debug` shows nothing, passwords can't be compared, and the memory is wiped on drop.
///
/// ```
/// use tollgate::Password;
///
/// let password = Password::new("correct horse battery staple");
/// assert_eq!(format!("{password:?}"), "Password(..)");
/// ```
pub struct Password(Zeroizing<String>);

impl Password {
    /// The maximum length in bytes. A longer password is always wrong.
    pub const MAX_LEN: usize = 1024;

    /// Creates a password from what was typed. A `String` is moved, not copied, so no second copy stays in memory.
    pub fn new(typed: impl Into<String>) -> Self {
        Self(Zeroizing::new(typed.into()))
    }

    /// Returns the password as text, to pass it to another system, such as an LDAP server.
    ///
    /// The text may be empty. Many LDAP servers accept an empty password for any user, so don't send one.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the password, unless it is empty or too long.
    pub(crate) fn usable(&self) -> Option<&str> {
        (1..=Self::MAX_LEN).contains(&self.0.len()).then_some(self.0.as_str())
    }
}

#[cfg(test)]
impl Password {
    pub(super) fn inner(&self) -> &Zeroizing<String> {
        &self.0
    }
}

crate::util::fmt::opaque_debug!(Password);
