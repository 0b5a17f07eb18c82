//! The key under the keyed hashes: the operator's, or one that the store keeps.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    login::Keyed,
    store::{AnyStore, StoreError, StoreErrorKind, WriteOutcome, table::Table},
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
        WriteOutcome::Done(_) => Ok(Keyed::new(&new)),
        WriteOutcome::Lost(Some(found)) => {
            let key = Secret::parse(found.value.key.as_str()).ok_or(StoreErrorKind::Corrupt)?;
            Ok(Keyed::new(&key))
        }
        WriteOutcome::Lost(None) => Err(StoreErrorKind::Busy.into()),
    }
}
