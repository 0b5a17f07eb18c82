//! Several operations in one call of the store, with typed outcomes.

use super::{
    any::AnyStore,
    error::{StoreError, StoreErrorKind},
    record::{Operation, OperationOutcome, Version, WriteOutcome},
    table::{ReadRow, RowOperation, Table, Value},
};

/// Operations that a store executes in their order, up to the first write that loses.
///
/// `U` is the user that they are for. The outcomes of [`of_user`](Self::of_user) show only after the generation of the
/// user was compared.
pub(crate) struct Batch<'t, U> {
    store: &'t AnyStore,
    operations: Vec<Operation>,
    user: U,
}

/// A batch that is for no user, or for one whose generation was compared before.
pub(crate) struct WithoutUser;

/// A batch for a user. It reads their generation after its writes, or first if it only reads. So an end of everything that
/// the user has begun either sees the writes or is seen here, as [`Store::run`](super::Store::run) demands.
pub(crate) struct OfUser<'t, G> {
    generation: RowOperation<'t, G>,
    is_first: bool,
}

/// The place of the outcome of an operation.
pub(crate) struct Slot<'t, T> {
    at: usize,
    table: &'t Table<T>,
}

/// The outcomes of a batch.
#[must_use]
pub(crate) struct Outcomes {
    all: Vec<OperationOutcome>,
    /// The generation of the user, if it was read: a write that loses comes before it.
    generation: Option<u64>,
}

/// The outcomes of a batch for a user, before their generation was compared.
#[must_use]
pub(crate) struct UserOutcomes(Outcomes);

impl<'t> Batch<'t, WithoutUser> {
    pub(crate) fn without_user(store: &'t AnyStore) -> Self {
        Self { store, operations: Vec::with_capacity(4), user: WithoutUser }
    }

    pub(crate) async fn run(self) -> Result<Outcomes, StoreError> {
        Ok(Outcomes { all: self.store.run(self.operations).await?, generation: None })
    }
}

impl<'t, G: Value + Into<u64>> Batch<'t, OfUser<'t, G>> {
    /// Begins a batch for the user whose generation this operation reads.
    pub(crate) fn of_user(generation: RowOperation<'t, G>) -> Self {
        let store = generation.table.store();
        Self { store, operations: Vec::with_capacity(8), user: OfUser { generation, is_first: false } }
    }

    /// Reads the generation before the writes, so that nothing is written if it cannot be read. Only for writes that grant
    /// nothing before a later batch compares the generation again.
    pub(crate) fn generation_first(mut self) -> Self {
        self.user.is_first = true;
        self
    }

    pub(crate) async fn run(mut self) -> Result<UserOutcomes, StoreError> {
        let OfUser { generation: RowOperation { operation, table }, is_first } = self.user;
        let is_write = |operation: &Operation| matches!(operation, Operation::Write(..));
        // a batch that only reads begins with it, like callers that need it to know what to read
        let at = if !is_first && self.operations.iter().any(is_write) { self.operations.len() } else { 0 };
        self.operations.insert(at, operation);
        let mut outcomes = Outcomes { all: self.store.run(self.operations).await?, generation: None };
        if outcomes.all.len() > at {
            let row = outcomes.row(&Slot { at, table })?;
            outcomes.generation = Some(row.live.map_or(0, |read| read.value.into()));
            drop(outcomes.all.remove(at));
        } else if !matches!(outcomes.all.last(), Some(OperationOutcome::Write(WriteOutcome::Lost(_)))) {
            // without a write that lost, a store has to return all outcomes, and nothing may show without a generation
            return Err(StoreErrorKind::Corrupt.into());
        }
        Ok(UserOutcomes(outcomes))
    }
}

impl<U> Batch<'_, U> {
    /// Adds an operation after the others.
    pub(crate) fn add<'o, T>(&mut self, RowOperation { operation, table }: RowOperation<'o, T>) -> Slot<'o, T> {
        self.operations.push(operation);
        Slot { at: self.operations.len() - 1, table }
    }

    /// Adds several operations in this order.
    pub(crate) fn add_all<'o, T: 'o>(
        &mut self,
        operations: impl IntoIterator<Item = RowOperation<'o, T>>,
    ) -> Vec<Slot<'o, T>> {
        operations.into_iter().map(|operation| self.add(operation)).collect()
    }
}

impl UserOutcomes {
    /// Returns the outcomes, or `None` if the generation of the user was raised since it was this one.
    pub(crate) fn since(self, generation: u64) -> Option<Outcomes> {
        Some(self.0).filter(|outcomes| outcomes.generation.is_none_or(|current| current <= generation))
    }
}

impl Outcomes {
    /// Returns the row that an operation read, or that a write lost against.
    ///
    /// # Errors
    ///
    /// Returns an error if the operation is a write that was done, or was not executed.
    pub(crate) fn row<T: Value>(&self, slot: &Slot<'_, T>) -> Result<ReadRow<T>, StoreError> {
        match self.all.get(slot.at) {
            Some(OperationOutcome::Read(entry) | OperationOutcome::Write(WriteOutcome::Lost(entry))) => {
                slot.table.read_row(entry.as_ref())
            }
            // a store has to return the outcomes of all operations up to the first that loses
            _ => Err(StoreErrorKind::Corrupt.into()),
        }
    }

    /// Returns the version of a write that was done. Returns `None` if it lost, or was not executed.
    pub(crate) fn version<T>(&self, slot: &Slot<'_, T>) -> Option<Version> {
        match self.all.get(slot.at) {
            Some(OperationOutcome::Write(WriteOutcome::Done(version))) => Some(*version),
            _ => None,
        }
    }

    /// Returns the generation of the user, if it was read.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.generation
    }
}
