//! The working memory of argon2.

use std::sync::Mutex;

use argon2::Block;

use crate::util::lock::lock;

/// The least room that a buffer reserves, in blocks of 1 KiB. Only what argon2 uses of it becomes resident.
///
/// Above 32 MiB, glibc always maps an allocation on its own and returns it to the system when it is freed. It keeps
/// smaller buffers in its heap, where they stay resident.
const LEAST_ROOM: usize = 33 * 1024;

/// Buffers that one check hands on to the next, so that they need not be allocated and faulted in for each.
///
/// There are as many buffers as checks run at once. One of them is kept when the last check ends. Argon2 writes every block
/// before it reads it, so nothing passes from one check to another.
pub(super) struct Memory {
    /// Larger buffers, which hashes with other parameters need, are not kept.
    most_blocks: usize,
    buffers: Mutex<Buffers>,
}

#[derive(Default)]
struct Buffers {
    in_use: usize,
    free: Vec<Vec<Block>>,
}

impl Memory {
    pub(super) fn new(most_blocks: usize) -> Self {
        Self { most_blocks, buffers: Mutex::default() }
    }

    /// Runs some work with at least this many blocks. Returns `None` if there is no memory for them.
    pub(super) fn with<T>(&self, blocks: usize, work: impl FnOnce(&mut [Block]) -> T) -> Option<T> {
        let mut buffer = {
            let mut buffers = lock(&self.buffers);
            buffers.in_use += 1;
            buffers.free.pop().unwrap_or_default()
        };
        let room = blocks.max(LEAST_ROOM);
        let has_room = buffer.try_reserve_exact(room.saturating_sub(buffer.len())).is_ok();
        let done = has_room.then(|| {
            buffer.resize(blocks.max(buffer.len()), Block::new());
            work(&mut buffer)
        });
        let mut buffers = lock(&self.buffers);
        buffers.in_use -= 1;
        if buffer.len() <= self.most_blocks {
            buffers.free.push(buffer);
        }
        if buffers.in_use == 0 {
            buffers.free.truncate(1);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_and_given_back_when_no_check_runs() {
        let memory = Memory::new(8);
        let place = |blocks| memory.with(blocks, |buffer| buffer.as_ptr()).unwrap();
        let first = place(8);
        assert_eq!((place(8), place(3)), (first, first));
        let both = memory.with(8, |one| memory.with(8, |other| one.as_ptr() != other.as_ptr()));
        assert_eq!(both, Some(Some(true)));
        assert_eq!(lock(&memory.buffers).free.len(), 1);
        // larger buffers are not kept, and impossible ones are refused
        assert_eq!(memory.with(9, |buffer| buffer.len()), Some(9));
        assert!(lock(&memory.buffers).free.is_empty());
        assert_eq!(memory.with(usize::MAX, |_| ()), None);
        assert_eq!(lock(&memory.buffers).in_use, 0);
    }
}
