//! How many bytes all tenants may hold together.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    most: usize,
}

impl Budget {
    pub(super) fn new(most: usize) -> Self {
        Self { used: AtomicUsize::new(0), most }
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    pub(super) fn has_room(&self) -> bool {
        self.used() < self.most
    }

    /// Whether there was room for so many bytes, which are then taken.
    pub(super) fn take(&self, bytes: usize) -> bool {
        self.used
            .fetch_update(Relaxed, Relaxed, |used| used.checked_add(bytes).filter(|after| *after <= self.most))
            .is_ok()
    }

    /// Takes bytes whether there is room or not: for what has its own bound.
    pub(super) fn force(&self, bytes: usize) {
        self.used.fetch_add(bytes, Relaxed);
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Relaxed);
    }
}
