//! The time before which everything that was begun has ended, such as all sessions.
//!
//! It is one row. A process keeps it in memory and reads it again only when
//! [`Store::complete_since`](super::Store::complete_since) has moved, so it usually costs no call of the store. All processes
//! notice when the row is written.

use std::{sync::Arc, time::Duration};

use super::{
    any::AnyStore,
    compact::{row_struct, stored_row},
    contract::BoxFuture,
    error::StoreError,
    key::Key,
    record::Entry,
    table::{Change, Table, Value as _},
};
use crate::{
    gate::MaybeReady,
    util::clock::{Clock, UnixTime},
};

/// How much the clocks of the processes may differ.
const SKEW: Duration = Duration::from_secs(1);
const TABLE: &str = "cutoffs";
const ID: &[u8] = b"everything";

struct Cutoff(UnixTime);

stored_row!(Cutoff, 1, "not a time");
row_struct!(Cutoff(time));

impl AnyStore {
    /// Returns the time before which everything that was begun has ended; at once if it is known.
    pub(crate) fn cutoff(&self) -> MaybeReady<BoxFuture<'static, Result<UnixTime, StoreError>>> {
        let (since, known) = (self.own_complete_since(), self.known_cutoff());
        if known.is_of(since) {
            return MaybeReady::Ready(Ok(known.time()));
        }
        let keep = move |store: &Self, found: Option<Entry>| {
            let time =
                found.map(|entry| Cutoff::decode_row(&entry.value)).transpose()?.map_or(UnixTime::default(), |it| it.0);
            // as of before the read, which may have shown that it has moved again
            store.known_cutoff().keep(time, since);
            Ok(store.known_cutoff().time())
        };
        let found = Key::new(TABLE, None, ID).map(|key| self.get(&key));
        match found {
            Err(error) => MaybeReady::Ready(Err(error)),
            Ok(MaybeReady::Ready(found)) => MaybeReady::Ready(found.and_then(|found| keep(self, found))),
            Ok(MaybeReady::Pending(found)) => {
                let store = self.clone();
                MaybeReady::Pending(Box::pin(async move { keep(&store, found.await?) }))
            }
        }
    }

    /// Returns the time as far as it is known, for a caller that has awaited [`cutoff`](Self::cutoff) before.
    #[inline]
    pub(crate) fn last_cutoff(&self) -> UnixTime {
        self.known_cutoff().time()
    }

    /// Returns whether the time is known, so that [`cutoff`](Self::cutoff) answers at once.
    #[inline]
    pub(crate) fn knows_cutoff(&self) -> bool {
        self.known_cutoff().is_of(self.own_complete_since())
    }

    /// Ends everything that was begun until now, in all processes that share the store.
    pub(crate) async fn end_everything(&self, clock: Arc<dyn Clock>) -> Result<(), StoreError> {
        let table: Table<Cutoff> = Table::new(self.clone(), TABLE, clock);
        // a process whose clock is ahead may have begun something that looks newer than now
        let raise = |row: Option<&Cutoff>, now: UnixTime| {
            let time = row.map_or(now, |row| row.0.max(now)) + SKEW;
            Change::Put(Cutoff(time), UnixTime::FOREVER, time)
        };
        let time = table.update(None, ID, raise).await?;
        self.known_cutoff().keep(time, self.own_complete_since());
        self.begin_epoch().await
    }
}
