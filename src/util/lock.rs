//! Locking that ignores poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if another thread panicked while it held the lock. Only for data that every critical section
/// leaves consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_lock_survives_a_panic_of_its_holder() {
        let mutex = Mutex::new(1);
        let holder = || {
            let _guard = lock(&mutex);
            panic!("while holding the lock");
        };
        assert!(catch_unwind(AssertUnwindSafe(holder)).is_err());
        assert_eq!(*lock(&mutex), 1);
    }
}
