//! Enrolments that the user has not confirmed yet: one row for each session or login, valid for
//! five minutes, usable once.

use std::{sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    auth::core::Core,
    store::{
        StoreError,
        table::{Change, Stored, Table},
    },
    util::public_id::PublicId,
};

/// How long an enrolment can be confirmed.
const LIFETIME: Duration = Duration::from_secs(300);

/// The pending enrolments of one kind.
pub(crate) struct PendingEnrolments<T>(Table<T>);

impl<T: Serialize + DeserializeOwned + Clone + Send + Sync + 'static> PendingEnrolments<T> {
    /// Returns those in the table of this name.
    pub(crate) fn of_table(core: &Core, table: &'static str) -> Self {
        Self(Table::new(core.store.clone(), table, Arc::clone(&core.clock)))
    }

    /// Begins an enrolment in the session or login with this id. It replaces an earlier one.
    pub(crate) async fn start_enrolment(&self, place: &PublicId, pending: &T) -> Result<(), StoreError> {
        let put = |_: Option<&T>, now| Change::Put(pending.clone(), now + LIFETIME, ());
        self.0.update(None, place.as_bytes(), put).await
    }

    /// Returns what was begun there, if it is recent enough.
    pub(crate) async fn find(&self, place: &PublicId) -> Result<Option<Stored<T>>, StoreError> {
        self.0.get(None, place.as_bytes()).wait().await
    }

    /// Uses up what was begun there, and returns it to one caller only.
    pub(crate) async fn take_enrolment(&self, place: &PublicId) -> Result<Option<Stored<T>>, StoreError> {
        self.0.take_value(None, place.as_bytes()).await
    }

    /// Uses up an enrolment that was found. Returns `true` to one caller only.
    pub(crate) async fn take_found(&self, place: &PublicId, found: &Stored<T>) -> Result<bool, StoreError> {
        Ok(self.take_enrolment(place).await?.is_some_and(|taken| taken.version == found.version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        store::{AnyStore, Memory},
        testing::{ManualClock, block_on},
    };

    #[test]
    fn c117_an_enrolment_is_taken_once_in_its_session_and_not_after_a_newer_one() {
        let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
        let (own, other) = (PublicId::random(), PublicId::random());
        let rows = PendingEnrolments::<u8>(Table::new(store, "pending", Arc::new(clock.clone())));
        let begin = |pending| block_on(rows.start_enrolment(&own, &pending)).unwrap();
        let find = || block_on(rows.find(&own)).unwrap();
        let take = |found| block_on(rows.take_found(&own, found)).unwrap();

        begin(1);
        let first = find().unwrap();
        assert!(block_on(rows.find(&other)).unwrap().is_none());
        assert!(!block_on(rows.take_found(&other, &first)).unwrap());
        // another tab begins a new one between the two calls
        begin(2);
        assert!(!take(&first));
        begin(3);
        let third = find().unwrap();
        assert_eq!(third.value, 3);
        assert!(take(&third) && !take(&third));
        begin(4);
        clock.advance(LIFETIME);
        assert!(find().is_none());
    }
}
