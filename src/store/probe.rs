//! Whether a store can be read and written.

use std::{sync::Arc, time::Duration};

use super::{
    any::AnyStore,
    error::StoreError,
    table::{Change, Table},
};
use crate::util::clock::Clock;

/// How long the row of a check is kept.
const KEPT: Duration = Duration::from_secs(60);

impl AnyStore {
    /// Reads and writes one row.
    pub(crate) async fn check(&self, clock: Arc<dyn Clock>) -> Result<(), StoreError> {
        let table: Table<()> = Table::new(self.clone(), "checks", clock);
        table.update(None, b"store", |_, now| Change::Put((), now + KEPT, ())).await
    }
}
