use serde::{Deserialize, Serialize};

use crate::util::secret::{Secret, SecretDigest};

/// A version of an account's password.
///
/// It changes with the password and stays the same when the password is only hashed again, for example with stronger
/// parameters. Logins, sessions and codes remember the mark of the password that proved them, and stop counting when
/// the account has another one.
///
/// [`StoredUsers`](crate::StoredUsers) keeps a mark for each password. Applications with their own accounts create one
/// from anything that changes with the password: a counter, or the time of the last change.
///
/// The value is a digest of 32 bytes. Comparisons take constant time, and `Debug` shows nothing.
///
/// ```
/// use tollgate::password::PasswordMark;
///
/// let changed_at = "2024-02-29T12:00:00.000001Z";
/// assert_eq!(PasswordMark::of_version(changed_at), PasswordMark::of_version(changed_at));
/// assert_ne!(PasswordMark::of_version(changed_at), PasswordMark::of_version("2024-03-01T09:30:00.000002Z"));
/// ```
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct PasswordMark(#[serde(with = "text")] SecretDigest);

impl PasswordMark {
    /// Creates the mark for a version of the password. Equal bytes give equal marks.
    pub fn of_version(version: impl AsRef<[u8]>) -> Self {
        Self(SecretDigest::of_secret(version))
    }

    /// Creates a random mark.
    pub(crate) fn generate() -> Self {
        Self(Secret::generate().digest())
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

crate::store::compact::row_struct!(PasswordMark(digest));

impl PartialEq for PasswordMark {
    fn eq(&self, other: &Self) -> bool {
        self.0.matches(&other.0)
    }
}

impl Eq for PasswordMark {}

crate::util::fmt::opaque_debug!(PasswordMark);

/// For serde's `with`: stores a digest as base64url.
mod text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::util::{
        encoding::{base64url_of_32, base64url_to_32},
        secret::SecretDigest,
    };

    pub(crate) fn serialize<S: Serializer>(digest: &SecretDigest, serializer: S) -> Result<S::Ok, S::Error> {
        // the default is never used: base64url is ASCII
        serializer.serialize_str(std::str::from_utf8(&base64url_of_32(digest.as_bytes())).unwrap_or_default())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretDigest, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = base64url_to_32(text.as_bytes()).ok_or_else(|| D::Error::custom("invalid digest"))?;
        Ok(SecretDigest::from_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_equals_only_itself_and_survives_a_store() {
        let (one, other) = (PasswordMark::generate(), PasswordMark::generate());
        assert!(one == one && one != other);
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!((text.len(), serde_json::from_str::<PasswordMark>(&text).unwrap()), (45, one));
        assert!(serde_json::from_str::<PasswordMark>("\"short\"").is_err());
    }

    #[test]
    fn debug_shows_nothing_of_a_mark() {
        assert_eq!(format!("{:?}", PasswordMark::of_version("7")), "PasswordMark(..)");
    }
}
