//! Pushed authorization requests (RFC 9126): their parameters go from server to server and never appear in a URL.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    store::{
        AnyStore, StoreError, StoreErrorKind, WriteOutcome,
        table::{Change, ReadRow, RowOperation, Table},
    },
    util::{
        clock::{Clock, UnixTime},
        secret::Secret,
    },
};

/// The start of a `request_uri`. The secret of the request follows.
const PREFIX: &str = "urn:ietf:params:oauth:request_uri:";
/// How long a request waits for its browser.
pub(crate) const UNUSED: Duration = Duration::from_secs(90);
/// How long it lives from then on: as long as a login may take.
const USED: Duration = Duration::from_secs(30 * 60);

/// A pushed request, stored under the digest of its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pushed {
    client_id: String,
    parameters: String,
    is_used: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct PushedRequests(Table<Pushed>);

/// Reads the secret from the `request_uri` of a pushed request: `None` if it is another kind of URI, `Some(None)` if the
/// secret is malformed.
pub(crate) fn secret_of(request_uri: &str) -> Option<Option<Secret>> {
    request_uri.strip_prefix(PREFIX).map(Secret::parse)
}

/// Writes the `request_uri` of a pushed request.
pub(crate) fn request_uri(secret: &Secret) -> String {
    format!("{PREFIX}{}", secret.expose())
}

impl PushedRequests {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "pushed_requests", clock))
    }

    /// Stores a request and returns its secret.
    pub(crate) async fn store_pushed_request(&self, client_id: &str, parameters: String) -> Result<Secret, StoreError> {
        let secret = Secret::generate();
        let row = Pushed { client_id: client_id.to_owned(), parameters, is_used: false };
        match self.0.insert(None, secret.digest().as_bytes(), &row, self.0.now() + UNUSED).await? {
            WriteOutcome::Done(_) => Ok(secret),
            WriteOutcome::Lost(_) => Err(StoreErrorKind::Busy.into()),
        }
    }

    /// Returns the parameters that this client pushed. The first use leaves time for a login.
    pub(crate) async fn open_pushed_request(
        &self,
        secret: &Secret,
        client_id: &str,
    ) -> Result<Option<String>, StoreError> {
        let open = |row: Option<&Pushed>, now| match row.filter(|row| row.client_id == client_id) {
            None => Change::Keep(None),
            Some(row) if row.is_used => Change::Keep(Some(row.parameters.clone())),
            Some(row) => Change::Put(Pushed { is_used: true, ..row.clone() }, now + USED, Some(row.parameters.clone())),
        };
        self.0.update(None, secret.digest().as_bytes(), open).await
    }

    /// Returns the operation that uses up a request whose code is issued, or `None` if that was done already.
    pub(crate) async fn prepare_use_up(&self, secret: &Secret) -> Result<Option<RowOperation<'_, Pushed>>, StoreError> {
        let id = secret.digest();
        let Some(read) = self.0.get(None, id.as_bytes()).wait().await? else { return Ok(None) };
        // it has expired by every clock, including those of other nodes that are behind
        self.0
            .prepare_row_write(None, id.as_bytes(), &ReadRow::found(&read), &read.value, UnixTime::from_nanos(0))
            .map(Some)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        gate::MaybeReady,
        store::{Entry, Key, Memory, Record, Store, Version, batch::Batch},
        testing::ManualClock,
    };

    /// Keeps expired entries, because it takes each write for an early one.
    pub(in crate::auth::state) struct Unswept(pub(in crate::auth::state) Memory);

    fn early(record: &Record) -> Result<Record, StoreError> {
        Record::new(record.value().clone(), UnixTime::from_nanos(0), record.expires_at())
    }

    impl Store for Unswept {
        fn get(
            &self,
            key: &Key,
        ) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
            self.0.get(key)
        }

        async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
            self.0.insert(key, early(&record)?).await
        }

        async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
            self.0.swap(key, expected, early(&record)?).await
        }

        async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
            self.0.take(key).await
        }
    }

    #[tokio::test]
    async fn c023_a_request_is_used_up_once_and_by_every_clock() {
        let (store, clock) = (AnyStore::from(Unswept(Memory::new())), ManualClock::new());
        let pushed = PushedRequests::new(store.clone(), Arc::new(clock.clone()));
        let secret = pushed.store_pushed_request("web", "scope=openid".to_owned()).await.unwrap();
        assert!(pushed.open_pushed_request(&secret, "web").await.unwrap().is_some());
        let (first, second) =
            (pushed.prepare_use_up(&secret).await.unwrap(), pushed.prepare_use_up(&secret).await.unwrap());
        let use_up = async |write: Option<RowOperation<'_, Pushed>>| {
            let mut batch = Batch::without_user(&store);
            let used_up = batch.add(write.unwrap());
            batch.run().await.unwrap().version(&used_up).is_some()
        };
        assert!(use_up(first).await && !use_up(second).await);
        assert!(pushed.prepare_use_up(&secret).await.unwrap().is_none());
        // as on another node, whose clock is behind
        clock.set_wall(UnixTime::from_nanos(pushed.0.now().as_nanos() - 1_000_000_000));
        assert!(pushed.prepare_use_up(&secret).await.unwrap().is_none());
        assert!(pushed.open_pushed_request(&secret, "web").await.unwrap().is_none());
    }
}
