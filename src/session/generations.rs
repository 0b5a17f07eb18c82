//! Generation numbers of users, which end everything that a user has begun.

use std::sync::Arc;

use super::identity::UserId;
use crate::{
    gate::MaybeReady,
    store::{
        AnyStore, BoxFuture, StoreError,
        batch::{Batch, OfUser},
        compact::{row_struct, stored_row},
        table::{Change, RowCheck, Stored, Table},
    },
    tenant::Tenant,
    util::clock::{Clock, UnixTime},
};

/// The generation of every user. A user whose generation was never raised has 0.
///
/// Sign-ins, sessions, codes and refresh families carry the generation that was current when
/// the sign-in began. Raising it ends all of them, including sign-ins that are under way.
/// These are numbers and not times, so it does not matter whether clocks agree.
#[derive(Clone, Debug)]
pub(crate) struct Generations(Table<Generation>);

/// A batch whose outcomes show once the generation of its user was compared.
pub(crate) type UserBatch<'g> = Batch<'g, OfUser<'g, Generation>>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Generation(u64);

impl From<Generation> for u64 {
    fn from(Generation(number): Generation) -> Self {
        number
    }
}

stored_row!(Generation, 1, "not a generation number");
row_struct!(Generation(number));

impl Generations {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "generations", clock))
    }

    /// Returns the generation of a user; at once if the store answers at once.
    pub(crate) fn current(
        &self,
        tenant: &Tenant,
        user: &UserId,
    ) -> MaybeReady<BoxFuture<'static, Result<u64, StoreError>>> {
        self.0.get(Some(tenant), user.as_str().as_bytes()).map(|row| row.map(number_of))
    }

    /// Begins a batch for a user.
    pub(crate) fn batch(&self, tenant: &Tenant, user: &UserId) -> Result<UserBatch<'_>, StoreError> {
        Ok(Batch::of_user(self.0.prepare_row_read(Some(tenant), user.as_str().as_bytes())?))
    }

    /// Raises the generation of a user and returns the new one.
    pub(crate) async fn raise(&self, tenant: &Tenant, user: &UserId) -> Result<u64, StoreError> {
        let raise = |current: Option<&Generation>, _now| {
            let next = current.map_or(0, |current| current.0).saturating_add(1);
            // a refresh family could outlive any other limit
            Change::Put(Generation(next), UnixTime::FOREVER, next)
        };
        self.0.update(Some(tenant), user.as_str().as_bytes(), raise).await
    }

    /// Prepares a check of one user that can be repeated without allocating.
    pub(crate) fn check(&self, tenant: &Tenant, user: &UserId) -> Result<RowCheck<Generation>, StoreError> {
        self.0.check(Some(tenant), user.as_str().as_bytes())
    }
}

fn number_of(row: Option<Stored<Generation>>) -> u64 {
    row.map_or(0, |row| row.value.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        store::{
            Entry, Key, Memory, Operation, OperationOutcome, Record, Store, StoreErrorKind, Version, WriteOutcome,
            table::{ReadRow, Value},
        },
        testing::{ManualClock, block_on},
    };

    #[test]
    fn c119_a_batch_shows_nothing_once_the_generation_was_raised() {
        let (store, clock) = (AnyStore::from(Memory::new()), Arc::new(ManualClock::new()));
        let generations = Generations::new(store.clone(), clock.clone());
        let table: Table<String> = Table::new(store, "table", clock);
        let (acme, ada) = (Tenant::parse("acme").unwrap(), UserId::parse("ada").unwrap());
        let run = |over: &ReadRow<String>, value: &str| {
            let mut batch = generations.batch(&acme, &ada).unwrap();
            let write =
                batch.add(table.prepare_row_write(None, b"id", over, &value.to_owned(), UnixTime::FOREVER).unwrap());
            let read = batch.add(table.prepare_row_read(None, b"id").unwrap());
            (block_on(batch.run()).unwrap(), write, read)
        };
        let (outcomes, write, read) = run(&ReadRow::ABSENT, "first");
        let outcomes = outcomes.since(0).unwrap();
        let row = outcomes.row(&read).unwrap();
        assert_eq!((row.value().map(String::as_str), outcomes.generation()), (Some("first"), Some(0)));
        assert_eq!(outcomes.version(&write), row.live.as_ref().map(|read| read.version));
        assert!(outcomes.row(&write).is_err(), "it was done, so it lost against nothing");
        // nothing is read after a write that lost, but the row that it lost against is known
        block_on(generations.raise(&acme, &ada)).unwrap();
        let (outcomes, write, read) = run(&ReadRow::ABSENT, "second");
        let outcomes = outcomes.since(0).unwrap();
        assert_eq!((outcomes.version(&write), outcomes.generation()), (None, None));
        assert!(outcomes.row(&read).is_err());
        let lost = outcomes.row(&write).unwrap();
        assert!(run(&lost, "third").0.since(0).is_none(), "the write was done, and the user was ended before");
        assert_eq!(block_on(table.get(None, b"id").wait()).unwrap().unwrap().value, "third");
        let (outcomes, ..) = run(&ReadRow::found(&block_on(table.get(None, b"id").wait()).unwrap().unwrap()), "fourth");
        assert_eq!(outcomes.since(1).unwrap().generation(), Some(1));
    }

    /// Executes operations one by one, and ends after one too early.
    struct TooEarly(Memory);

    impl Store for TooEarly {
        fn get(
            &self,
            key: &Key,
        ) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
            self.0.get(key)
        }

        async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
            self.0.insert(key, record).await
        }

        async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
            self.0.swap(key, expected, record).await
        }

        async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
            self.0.take(key).await
        }

        async fn run(&self, mut operations: Vec<Operation>) -> Result<Vec<OperationOutcome>, StoreError> {
            operations.pop();
            self.0.run(operations).await
        }
    }

    #[test]
    fn c119_a_batch_without_its_generation_shows_nothing() {
        let (store, clock) = (AnyStore::from(TooEarly(Memory::new())), Arc::new(ManualClock::new()));
        let generations = Generations::new(store.clone(), clock.clone());
        let table: Table<String> = Table::new(store, "table", clock);
        let (acme, ada) = (Tenant::parse("acme").unwrap(), UserId::parse("ada").unwrap());
        let mut batch = generations.batch(&acme, &ada).unwrap();
        let _ = batch.add(
            table.prepare_row_write(None, b"id", &ReadRow::ABSENT, &"value".to_owned(), UnixTime::FOREVER).unwrap(),
        );
        assert_eq!(block_on(batch.run()).err().unwrap().kind(), StoreErrorKind::Corrupt);
    }

    #[test]
    fn c119_a_generation_begins_at_0_only_rises_and_is_kept_forever() {
        let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
        let generations = Generations::new(store.clone(), Arc::new(clock.clone()));
        let (acme, globex) = (Tenant::parse("acme").unwrap(), Tenant::parse("globex").unwrap());
        let (ada, grace) = (UserId::parse("ada").unwrap(), UserId::parse("grace").unwrap());
        let check = generations.check(&acme, &ada).unwrap();
        let is_above = |own| block_on(check.finds(move |current| current.0 > own).wait()).unwrap();
        let current = || block_on(generations.current(&acme, &ada).wait()).unwrap();
        assert!(current() == 0 && !is_above(0));
        assert_eq!(block_on(generations.raise(&acme, &ada)).unwrap(), 1);
        // a clock that runs backwards changes nothing
        clock.set_wall(UnixTime::from_secs(1));
        assert_eq!(block_on(generations.raise(&acme, &ada)).unwrap(), 2);
        clock.set_wall(UnixTime::from_secs(1_000_000_000));
        clock.advance(Duration::from_secs(400 * 365 * 86400));
        assert_eq!((current(), is_above(1), is_above(2)), (2, true, false));
        for (tenant, user) in [(&acme, &grace), (&globex, &ada)] {
            assert_eq!(block_on(generations.current(tenant, user).wait()).unwrap(), 0);
        }
        for bytes in [&[][..], &[1; 8], &[1; 10], &[2; 9]] {
            assert_eq!(Generation::decode_row(bytes).unwrap_err().kind(), StoreErrorKind::Corrupt);
        }
    }
}
