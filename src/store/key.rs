use super::error::{StoreError, StoreErrorKind};
use crate::tenant::{Tenant, inline::InlineBytes};

/// The key of a value: a table, a tenant and an id.
///
/// Table names are 1 to 64 bytes long, ids at most 1,024. The binary form is unambiguous, because
/// it stores the length of each part: different keys never collide.
///
/// The tables of this crate have names of lower-case letters and `_`. If you keep data of your own in the same store, put
/// a `.` into the names of your tables.
///
/// ```
/// use tollgate::{Tenant, store::Key};
///
/// let acme = Tenant::parse("acme")?;
/// let key = Key::new("shop.carts", Some(&acme), "bc")?;
/// assert_eq!((key.table(), key.tenant(), key.id()), ("shop.carts", Some("acme"), &b"bc"[..]));
/// assert_eq!(key.as_bytes(), b"\x0ashop.carts\x04acmebc");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(InlineBytes<IN_PLACE>);

/// Room for a table name of 12 bytes, a UUID as tenant, and a SHA-256 as id.
const IN_PLACE: usize = 86;

impl Key {
    /// The maximum length of a table name in bytes.
    pub const MAX_TABLE: usize = 64;
    /// The maximum length of an id in bytes.
    pub const MAX_ID: usize = 1024;

    /// Creates the key of `id` in `table`. `tenant` is `None` for data without a tenant.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`StoreErrorKind::TooLarge`] if the table name is empty, or a
    /// part is too long.
    #[inline]
    pub fn new(table: &str, tenant: Option<&Tenant>, id: impl AsRef<[u8]>) -> Result<Self, StoreError> {
        let id = id.as_ref();
        // tenant names are never empty
        let tenant = tenant.map(Tenant::as_bytes).unwrap_or_default();
        if table.is_empty() || table.len() > Self::MAX_TABLE || id.len() > Self::MAX_ID {
            return Err(StoreErrorKind::TooLarge.into());
        }
        let (Ok(table_len), Ok(tenant_len)) = (u8::try_from(table.len()), u8::try_from(tenant.len())) else {
            return Err(StoreErrorKind::TooLarge.into());
        };
        Ok(Self(InlineBytes::new(&[&[table_len], table.as_bytes(), &[tenant_len], tenant, id])))
    }

    /// Reads the [binary form](Self::as_bytes) of a key, for stores that list their entries.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`StoreErrorKind::Corrupt`] if these are not the bytes of a key.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let (table, rest) = split_part(bytes);
        let (tenant, id) = split_part(rest);
        let read = || {
            let table = std::str::from_utf8(table).ok()?;
            let tenant = Some(tenant).filter(|name| !name.is_empty()).map(Tenant::parse).transpose().ok()?;
            Self::new(table, tenant.as_ref(), id).ok().filter(|key| key.as_bytes() == bytes)
        };
        read().ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt, "not the bytes of a key"))
    }

    /// Returns the table.
    pub fn table(&self) -> &str {
        let (table, _) = split_part(self.as_bytes());
        std::str::from_utf8(table).unwrap_or_default()
    }

    /// Returns the name of the tenant, if there is one.
    pub fn tenant(&self) -> Option<&str> {
        let (_, rest) = split_part(self.as_bytes());
        let (tenant, _) = split_part(rest);
        std::str::from_utf8(tenant).ok().filter(|name| !name.is_empty())
    }

    /// Returns the id.
    pub fn id(&self) -> &[u8] {
        let (_, rest) = split_part(self.as_bytes());
        split_part(rest).1
    }

    /// Returns the complete binary key, for stores without separate tables and tenants.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Splits off a part that is preceded by its length.
fn split_part(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes.split_first().and_then(|(len, rest)| rest.split_at_checked(usize::from(*len))).unwrap_or_default()
}

// Omits the id, because it may contain user input.
crate::util::fmt::debug_fields!(Key, |own| table: own.table(), tenant: own.tenant());

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn keys_return_their_parts_and_are_unique(
            parts in vec((".{1,20}", option::of("[a-z]{1,128}"), vec(any::<u8>(), 0..=200)), 2),
        ) {
            let keys = parts.iter().map(|(table, tenant, id)| {
                let tenant = tenant.as_deref().map(|name| Tenant::parse(name).unwrap());
                Key::new(table, tenant.as_ref(), id)
            });
            let keys = keys.collect::<Result<Vec<_>, _>>();
            prop_assume!(keys.is_ok());
            let keys = keys.unwrap();
            for (key, (table, tenant, id)) in keys.iter().zip(&parts) {
                prop_assert_eq!(key.table(), table);
                prop_assert_eq!(key.tenant(), tenant.as_deref());
                prop_assert_eq!(key.id(), id);
                prop_assert_eq!(&Key::from_bytes(key.as_bytes()).unwrap(), key);
            }
            prop_assert_eq!(keys[0] == keys[1], parts[0] == parts[1]);
        }
    }

    #[test]
    fn other_bytes_are_no_key() {
        for bytes in [&b""[..], b"\0\0id", b"\x01", b"\x01t", b"\x02t\0", b"\x01t\x02a", b"\x01\xff\0", b"\x01t\x01 "] {
            assert_eq!(Key::from_bytes(bytes).unwrap_err().kind(), StoreErrorKind::Corrupt, "{bytes:?}");
        }
    }

    #[test]
    fn short_keys_are_inline_and_long_ones_shared() {
        for len in [0, IN_PLACE - 4, IN_PLACE - 3, IN_PLACE - 2, Key::MAX_ID] {
            assert_eq!(Key::new("t", None, vec![7; len]).unwrap().id(), vec![7; len]);
        }
    }

    #[test]
    fn out_of_range_parts_are_rejected() {
        let too_large = |result: Result<Key, StoreError>| result.unwrap_err().kind() == StoreErrorKind::TooLarge;
        assert!(too_large(Key::new("t", None, [0; Key::MAX_ID + 1])));
        assert!(too_large(Key::new("", None, "id")));
        assert!(too_large(Key::new(&"t".repeat(Key::MAX_TABLE + 1), None, "id")));
        assert!(Key::new(&"t".repeat(Key::MAX_TABLE), None, [0; Key::MAX_ID]).is_ok());
    }
}
