//! [`Newcomers`]: which new names get a key of their own on the server.

use std::{sync::Mutex, time::Duration};

use crate::{
    tenant::LimitKey,
    util::{clock::Moment, lock::lock},
};

const MINUTE: Duration = Duration::from_secs(60);
/// The number of keys that other new names share.
const SHARED_KEYS: u64 = 1024;

/// Counts the new names of each minute, so that callers who make names up can't fill the server.
#[derive(Debug)]
pub(super) struct Newcomers {
    pub(super) most: u32,
    minute: Mutex<Minute>,
}

#[derive(Debug, Default)]
struct Minute {
    ends: Moment,
    names: u32,
}

impl Newcomers {
    pub(super) fn new(most: u32) -> Self {
        Self { most, minute: Mutex::default() }
    }

    /// Returns whether one more new name gets its own key, and when the minute ends in which it counts if `is_used`.
    pub(super) fn room(&self, is_used: bool, now: Moment) -> Option<Moment> {
        let mut minute = lock(&self.minute);
        if now >= minute.ends {
            *minute = Minute { ends: now + MINUTE, names: 0 };
        }
        let has_room = minute.names < self.most;
        if has_room && is_used {
            minute.names += 1;
        }
        has_room.then_some(minute.ends)
    }

    /// Takes back a name that has counted in the minute that ends then, and got no key.
    pub(super) fn give_back(&self, counted_until: Moment) {
        let mut minute = lock(&self.minute);
        if minute.ends == counted_until {
            minute.names = minute.names.saturating_sub(1);
        }
    }
}

/// Returns the name whose key a new name shares. It is the same in all nodes.
pub(super) fn shared_name(tenant: &LimitKey) -> LimitKey {
    // FNV-1a. Its last bytes reach few of the lower bits, so the upper ones count.
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = tenant.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, mix);
    LimitKey::trusted(format!("~new-{}", (hash ^ hash >> 32) % SHARED_KEYS).as_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_minute_has_room_for_so_many_new_names() {
        let (newcomers, began) = (Newcomers::new(2), Moment::from_nanos(7));
        let room = |is_used, now| newcomers.room(is_used, now);
        let ends = room(false, began);
        assert_eq!((ends, room(true, began), room(true, began)), (Some(began + MINUTE), ends, ends));
        let last = began + MINUTE - Duration::from_nanos(1);
        assert_eq!((room(true, last), room(false, last)), (None, None));
        newcomers.give_back(began + MINUTE);
        assert_eq!((room(true, last), room(true, last)), (ends, None));
        let next = room(true, began + MINUTE);
        // a name of the minute before
        newcomers.give_back(began + MINUTE);
        assert_eq!((next, room(true, began + MINUTE), room(true, began + MINUTE)), (next, next, None));
        assert_eq!(Newcomers::new(0).room(true, began), None);
    }

    #[test]
    fn names_are_spread_over_all_shared_keys() {
        let shared = |number: u32| shared_name(&LimitKey::address(number.to_be_bytes().into()));
        let names: BTreeSet<_> = (0..20_000).map(|number| shared(number).to_string()).collect();
        assert_eq!(names.len() as u64, SHARED_KEYS);
        assert!(names.iter().all(|name| LimitKey::parse(name).is_err()), "callers can't send them");
        // other nodes find the same one
        assert_eq!(shared(1).to_string(), "~new-38");
    }
}
