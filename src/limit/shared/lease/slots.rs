//! [`LeaseSlots`]: the leases of a node.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
    time::Duration,
};

use foldhash::fast::RandomState;

use super::slot::{Admission, ClockReading, LeaseCall, LeaseReply, LeaseStep, LeaseWish, Slot, Unused};

/// A slot without requests for this many lifetimes is forgotten, and with it how many units the tenant needs.
const IDLE: u32 = 8;

/// The leases of a node, by tenant. Times and replies go in, decisions and calls come out; there is no I/O.
///
/// A lease is used only before it expires, measured from before the call was sent, so no promise depends on how long a call
/// takes. Its size adapts: it doubles if the units are used up early, and falls to what was used if they are not.
#[derive(Debug)]
pub struct LeaseSlots<K, T> {
    slots: HashMap<K, Slot<T>, RandomState>,
    largest: u32,
    lifetime: Duration,
    most_slots: usize,
    next_number: u64,
    is_closed: bool,
    returns: Vec<LeaseReturn<K, T>>,
}

/// Units that the node can't use any more, to be sent with the operation `return`: at most once, because units that came back
/// twice would be admitted twice.
#[derive(Clone, Debug)]
pub struct LeaseReturn<K, T> {
    /// The tenant.
    pub key: K,
    /// How many units.
    pub units: u32,
    /// The terms of the lease.
    pub terms: T,
}

impl<K: Clone + Eq + Hash, T: Clone> LeaseSlots<K, T> {
    /// Creates a node without leases, which holds at most `most_slots` of them and takes at most `largest` units at once.
    /// `lifetime` is the longest that a lease can last.
    pub fn new(largest: u32, lifetime: Duration, most_slots: usize) -> Self {
        Self {
            slots: HashMap::default(),
            largest,
            lifetime,
            most_slots,
            next_number: 1,
            is_closed: false,
            returns: Vec::new(),
        }
    }

    /// Decides on a request at this time.
    pub fn request(&mut self, key: &K, wish: LeaseWish, now: ClockReading) -> LeaseStep<T> {
        if self.is_closed || wish.units == 0 {
            return LeaseStep::Plain;
        }
        let is_full = self.slots.len() >= self.most_slots;
        let slot = match self.slots.entry(key.clone()) {
            Entry::Occupied(slot) => slot.into_mut(),
            Entry::Vacant(_) if is_full => return LeaseStep::Plain,
            Entry::Vacant(place) => place.insert(Slot::new(wish.plan, now)),
        };
        let (step, unused) = slot.request(wish, now, self.largest, &mut self.next_number);
        self.give_back(key, unused);
        step
    }

    /// Takes the reply to a call, and returns the step of the request that has sent it: admitted or refused, or `None` if
    /// there is no reply.
    pub fn replied(&mut self, key: &K, call: &LeaseCall, reply: LeaseReply<T>) -> Option<LeaseStep<T>> {
        // a slot with a call under way is not forgotten, except by `close`: it ends the call, too
        let mut closed = None;
        let slot = match self.slots.get_mut(key) {
            Some(slot) => slot,
            None => closed.insert(Slot::new(call.plan, call.sent)),
        };
        let (step, unused) = slot.replied(call, reply);
        self.give_back(key, unused);
        step
    }

    /// Puts the units of a request back into the lease with this number. Returns the lease, or `None` if it is not in hand
    /// any more, so that the units must be returned.
    pub fn refund(&mut self, key: &K, lease: u64, units: u32) -> Option<Admission<T>> {
        self.slots.get_mut(key)?.refund(lease, units)
    }

    /// Notes that units of the tenant have come back at the server.
    pub fn ask_again(&mut self, key: &K) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.ask_again();
        }
    }

    /// Forgets a tenant.
    pub fn forget(&mut self, key: &K) {
        let unused = self.slots.get_mut(key).and_then(Slot::clear);
        self.give_back(key, unused);
    }

    /// Returns the units of the tenant that can be used without a call.
    pub fn left(&self, key: &K, now: ClockReading) -> u32 {
        self.slots.get(key).map_or(0, |slot| slot.left(now))
    }

    /// Returns the number of tenants that are known.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether no tenant is known.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Ends leases that have expired, and forgets idle tenants.
    pub fn sweep(&mut self, now: ClockReading) {
        let (returns, idle) = (&mut self.returns, self.lifetime * IDLE);
        self.slots.retain(|key, slot| {
            if let Some((units, terms)) = slot.expire(now) {
                returns.push(LeaseReturn { key: key.clone(), units, terms });
            }
            !slot.is_idle(now, idle)
        });
    }

    /// Drops all leases. Later requests are checked without one.
    pub fn close(&mut self) {
        self.is_closed = true;
        for (key, mut slot) in self.slots.drain() {
            if let Some((units, terms)) = slot.clear() {
                self.returns.push(LeaseReturn { key, units, terms });
            }
        }
    }

    /// Takes the units that must be returned now.
    pub fn take_returns(&mut self) -> Vec<LeaseReturn<K, T>> {
        std::mem::take(&mut self.returns)
    }

    fn give_back(&mut self, key: &K, unused: Unused<T>) {
        if let Some((units, terms)) = unused {
            self.returns.push(LeaseReturn { key: key.clone(), units, terms });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::clock::Moment;

    #[tokio::test]
    async fn those_who_wait_learn_whether_there_was_a_reply() {
        let lifetime = Duration::from_secs(1);
        let (wish, now) = (LeaseWish { units: 1, plan: 1, lifetime }, ClockReading::default());
        let granted = LeaseReply::Granted { granted: 9, lifetime, terms: () };
        for (reply, has_reply) in [(LeaseReply::Failed, false), (granted, true)] {
            let mut slots = LeaseSlots::new(100, lifetime, 1);
            let LeaseStep::Call(call) = slots.request(&"acme", wish, now) else { panic!("nothing is held") };
            let waiting = [(); 3].map(|()| slots.request(&"acme", wish, now));
            assert_eq!(slots.replied(&"acme", &call, reply).is_some(), has_reply);
            for step in waiting {
                let LeaseStep::Wait(end) = step else { panic!("a call is under way") };
                assert_eq!(end.wait_for_reply().await, has_reply);
            }
        }
    }

    #[test]
    fn requests_that_waited_for_a_refusal_or_a_failure_make_no_lease_larger() {
        let lifetime = Duration::from_secs(1);
        let wish = LeaseWish { units: 1, plan: 1, lifetime };
        for reply in [LeaseReply::Failed, LeaseReply::Refused { wait: lifetime, terms: () }] {
            let mut slots = LeaseSlots::new(100, lifetime, 1);
            let (now, steady) = (ClockReading::default(), Moment::default() + lifetime);
            let LeaseStep::Call(call) = slots.request(&"acme", wish, now) else { panic!("nothing is held") };
            for _ in 0..50 {
                assert!(matches!(slots.request(&"acme", wish, now), LeaseStep::Wait(_)));
            }
            slots.replied(&"acme", &call, reply);
            let later = ClockReading { steady, ..now };
            let LeaseStep::Call(call) = slots.request(&"acme", wish, later) else { panic!("nothing holds any more") };
            assert_eq!(call.most, 1);
        }
    }
}
