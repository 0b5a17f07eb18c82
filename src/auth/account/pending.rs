//! Enrolments that the user has not confirmed yet: one row for each session, valid for five minutes, usable once.

use std::{sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    auth::core::Core,
    session::Session,
    store::{
        StoreError,
        table::{Change, Stored, Table},
    },
};

/// How long an enrolment can be confirmed.
const LIFETIME: Duration = Duration::from_secs(300);

/// The pending enrolments of one kind.
pub(crate) struct PendingEnrolments<T>(Table<T>);

impl<T: Serialize + DeserializeOwned + Clone + Send + Sync + 'static> PendingEnrolments<T> {
    /// Returns those in the table of this name.
    pub(crate) fn of(core: &Core, table: &'static str) -> Self {
        Self(Table::new(core.store.clone(), table, Arc::clone(&core.clock)))
    }

    /// Begins an enrolment in a session. It replaces an earlier one.
    pub(crate) async fn begin(&self, session: &Session, pending: &T) -> Result<(), StoreError> {
        let put = |_: Option<&T>, now| Change::Put(pending.clone(), now + LIFETIME, ());
        self.0.update(None, session.sid().as_bytes(), put).await
    }

    /// Returns what was begun in this session, if it is recent enough.
    pub(crate) async fn find(&self, session: &Session) -> Result<Option<Stored<T>>, StoreError> {
        self.0.get(None, session.sid().as_bytes()).wait().await
    }

    /// Uses up an enrolment that was found. Returns `true` to one caller only.
    pub(crate) async fn take(&self, session: &Session, found: &Stored<T>) -> Result<bool, StoreError> {
        let taken = self.0.take(None, session.sid().as_bytes()).await?;
        Ok(taken.is_some_and(|taken| taken.version == found.version))
    }
}
