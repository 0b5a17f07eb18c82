//! The system's allocator with counters that can be switched on.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

pub struct Counting;

static ON: AtomicBool = AtomicBool::new(false);

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

/// The allocations of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Calls of the allocator that returned memory, including reallocations.
    pub allocations: u64,
    /// Bytes allocated minus bytes freed, as the allocator rounds them.
    pub live: i64,
}

/// Counts the allocations of `work` on this thread.
pub fn count<T>(work: impl FnOnce() -> T) -> (T, Counts) {
    let before = counts();
    ON.store(true, Relaxed);
    let result = work();
    ON.store(false, Relaxed);
    let after = counts();
    let counts = Counts { allocations: after.allocations - before.allocations, live: after.live - before.live };
    (result, counts)
}

/// Counts from now on.
pub fn watch() {
    ON.store(true, Relaxed);
}

/// Returns the bytes of this thread that are still allocated, of those allocated since [`watch`].
pub fn live() -> i64 {
    LIVE.get()
}

fn counts() -> Counts {
    Counts { allocations: ALLOCATIONS.get(), live: LIVE.get() }
}

/// Returns the number of bytes that glibc's malloc uses: one extra word, in steps of 16 bytes, and whole pages for
/// large blocks.
fn rounded(bytes: usize) -> i64 {
    let taken = match bytes {
        0..=24 => 32,
        25..131_072 => (bytes + 8).next_multiple_of(16),
        _ => (bytes + 16).next_multiple_of(4096),
    };
    taken as i64
}

/// Counts, if counting is on. Otherwise costs one load, so that subjects that allocate often are not at a disadvantage.
#[inline]
fn note(counts: impl FnOnce() -> (u64, i64)) {
    if ON.load(Relaxed) {
        let (allocations, live) = counts();
        ALLOCATIONS.set(ALLOCATIONS.get() + allocations);
        LIVE.set(LIVE.get() + live);
    }
}

// SAFETY: each call goes to the system's allocator as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(|| (1, rounded(layout.size())));
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(|| (1, rounded(layout.size())));
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(|| (1, rounded(size) - rounded(layout.size())));
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        note(|| (0, -rounded(layout.size())));
        unsafe { System.dealloc(place, layout) }
    }
}
