//! The key under the keyed hashes: the operator's, or one that the store keeps.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    login::Keyed,
    store::{AnyStore, Outcome, StoreError, StoreErrorKind, table::Table},
    util::{
        clock::{Clock, UnixTime},
        secret::Secret,
    },
};

#[derive(Serialize, Deserialize)]
struct Stored {
    key: Zeroizing<String>,
}

/// The key of this store. The first who needs it makes it; nodes that share a store share its key.
pub(crate) async fn of_store(store: AnyStore, clock: Arc<dyn Clock>) -> Result<Keyed, StoreError> {
    const ID: &[u8] = b"hashes";
    let table: Table<Stored> = Table::new(store, "auth_keys", clock);
    let new = Secret::generate();
    let row = Stored { key: Zeroizing::new(new.expose().to_owned()) };
    match table.insert(None, ID, &row, UnixTime::from_nanos(u64::MAX)).await? {
        Outcome::Done(_) => Ok(Keyed::new(&new)),
        Outcome::Lost(Some(found)) => {
            let key = Secret::parse(found.value.key.as_str()).ok_or(StoreErrorKind::Corrupt)?;
            Ok(Keyed::new(&key))
        }
        Outcome::Lost(None) => Err(StoreErrorKind::Busy.into()),
    }
}
