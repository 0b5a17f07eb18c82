//! The ring: the newest events, numbered without a gap.

use std::collections::VecDeque;

use super::Event;

/// The newest events up to a number; the oldest make room.
#[derive(Debug)]
pub(super) struct Ring {
    events: VecDeque<Event>,
    capacity: usize,
    newest: u64,
}

/// Room that is taken from the start, so that a ring of the usual size is never moved.
const ROOM_AT_FIRST: usize = 10_000;

impl Ring {
    pub(super) fn new(capacity: usize) -> Self {
        Self { events: VecDeque::with_capacity(capacity.min(ROOM_AT_FIRST)), capacity, newest: 0 }
    }

    /// The number of the newest event that was ever recorded.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    pub(super) fn push(&mut self, mut event: Event) -> u64 {
        if self.events.len() >= self.capacity {
            self.events.pop_front();
        }
        self.newest += 1;
        event.id = self.newest;
        self.events.push_back(event);
        self.newest
    }

    /// How many events after `after` are gone, and at most `most` of those that follow them.
    pub(super) fn scan(&self, after: u64, most: usize) -> (u64, impl Iterator<Item = &Event>) {
        let oldest = self.newest - self.events.len() as u64 + 1;
        let wanted = after.saturating_add(1);
        let lost = oldest.saturating_sub(wanted);
        let skip = usize::try_from(wanted.saturating_sub(oldest)).unwrap_or(usize::MAX);
        (lost, self.events.range(skip.min(self.events.len())..).take(most))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{event::EventKind, util::clock::UnixTime};

    proptest! {
        #[test]
        fn what_is_kept_and_what_is_lost_is_everything(
            capacity in 1_usize..20, recorded in 0_u64..60, after in 0_u64..80, most in 0_usize..30,
        ) {
            let mut ring = Ring::new(capacity);
            for id in 1..=recorded {
                prop_assert_eq!(ring.push(Event::new(EventKind::TenantReset, UnixTime::default())), id);
            }
            let (lost, events) = ring.scan(after, most);
            let ids: Vec<u64> = events.map(|event| event.id).collect();
            let kept = recorded.saturating_sub(capacity as u64);
            prop_assert_eq!(lost, kept.saturating_sub(after));
            let expected: Vec<u64> = (after.max(kept) + 1..=recorded).take(most).collect();
            prop_assert_eq!(ids, expected);
        }
    }
}
