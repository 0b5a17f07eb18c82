//! Whether tenants share buckets now, and since when.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// How many buckets there are, and in which epoch the first of them was made: both in one word, so that they agree.
#[derive(Debug, Default)]
pub(super) struct Overflow(AtomicU64);

impl Overflow {
    /// The epoch in which it began: a tenant that was named by then has never spent from a bucket of now.
    pub(super) fn began(&self) -> Option<u32> {
        let word = self.0.load(SeqCst);
        (word as u32 > 0).then_some((word >> 32) as u32)
    }

    /// Says whether it is the first.
    pub(super) fn one_more(&self, epoch: u32) -> bool {
        let more = |word: u64| match word as u32 {
            0 => u64::from(epoch) << 32 | 1,
            _ => word + 1,
        };
        self.0.fetch_update(SeqCst, SeqCst, |word| Some(more(word))).is_ok_and(|before| before as u32 == 0)
    }

    /// Says whether it was the last.
    pub(super) fn one_less(&self) -> bool {
        let less = |word: u64| (word as u32 > 0).then(|| word - 1);
        self.0.fetch_update(SeqCst, SeqCst, less).is_ok_and(|before| before as u32 == 1)
    }
}
