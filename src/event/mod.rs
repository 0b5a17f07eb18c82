//! What happened: an [`Event`] for each refusal and each change of state, in
//! an [`EventLog`] that is read in process, over HTTP through [`EventService`],
//! or through a [`Sink`].

mod access;
mod answer;
mod budget;
mod coalesce;
mod json;
mod log;
mod page;
mod pump;
mod query;
mod record;
mod ring;
mod service;
mod shared;
mod sink;
mod sink_seat;
mod stream;
mod stream_seat;
mod streams;

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "tracing")]
pub use self::sink::TracingSink;
pub use self::{
    access::{Access, TenantsAndOperator, Viewer},
    log::EventLog,
    page::{Page, Stats},
    query::{Query, QueryError},
    record::{Event, EventKind, Mode},
    service::EventService,
    sink::{Channel, JsonLines, Sink},
};

/// Locks, also after a panic of another thread: nothing here is left half done by one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_outlives_a_panic_of_its_holder() {
        let mutex = Mutex::new(1);
        let holder = || {
            let _guard = lock(&mutex);
            panic!("with the lock in hand");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(holder)).is_err());
        assert_eq!(*lock(&mutex), 1);
    }
}
