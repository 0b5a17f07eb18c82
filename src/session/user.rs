use std::{fmt, str::FromStr, sync::Arc};

/// Who signed in, as the app knows them: a name that never changes, such as the
/// key of the account, not an e-mail address that may.
///
/// In tokens it is the `sub`, by which most clients and APIs know a user, whatever
/// the tenant: so it must be unique over all tenants of one issuer.
///
/// It exists only when valid: 1 to 255 visible ASCII characters, so that it fits
/// the `sub` of a token.
///
/// ```
/// use tollgate::UserId;
///
/// assert_eq!(UserId::parse("u-1815")?.as_str(), "u-1815");
/// assert!(UserId::parse("").is_err());
/// # Ok::<(), tollgate::session::IdentityError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct UserId(Arc<str>);

impl UserId {
    /// The most bytes that an id may have.
    pub const MAX_LEN: usize = 255;

    /// Reads the id of a user.
    pub fn parse(id: impl AsRef<str>) -> Result<Self, IdentityError> {
        let id = id.as_ref();
        if !is_visible(id, Self::MAX_LEN) {
            return Err(IdentityError("the id of a user must have 1 to 255 visible ASCII characters"));
        }
        Ok(Self(id.into()))
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserId({})", self.0)
    }
}

impl FromStr for UserId {
    type Err = IdentityError;

    fn from_str(id: &str) -> Result<Self, IdentityError> {
        Self::parse(id)
    }
}

/// What can't stand in an identity, and why. It repeats nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityError(pub(super) &'static str);

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for IdentityError {}

/// Whether this is 1 to `most` visible ASCII characters.
pub(super) fn is_visible(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
