//! The key under the keyed hashes: the operator's, or one that the store keeps.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    clock::{Clock, UnixTime},
    login::Keyed,
    secret::Secret,
    store::{AnyStore, Outcome, StoreError, StoreErrorKind, table::Table},
};

#[derive(Serialize, Deserialize)]
struct Stored {
    key: Zeroized,
}

/// For serde, which does not know `Zeroizing`.
struct Zeroized(Zeroizing<String>);

impl Serialize for Zeroized {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Zeroized {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

/// The key of this store. The first who needs it makes it; nodes that share a store share its key.
pub(super) async fn of_store(store: AnyStore, clock: Arc<dyn Clock>) -> Result<Keyed, StoreError> {
    const ID: &[u8] = b"hashes";
    let table: Table<Stored> = Table::new(store, "auth_keys", clock);
    let new = Secret::generate();
    let row = Stored { key: Zeroized(Zeroizing::new(new.expose().to_owned())) };
    match table.insert(None, ID, &row, UnixTime::from_nanos(u64::MAX)).await? {
        Outcome::Done(_) => Ok(Keyed::new(&new)),
        Outcome::Lost(Some(found)) => {
            let key = Secret::parse(found.value.key.0.as_str()).ok_or(StoreErrorKind::Corrupt)?;
            Ok(Keyed::new(&key))
        }
        Outcome::Lost(None) => Err(StoreErrorKind::Busy.into()),
    }
}
