//! A node: its clocks, its leases, and the requests that wait.

use std::{collections::HashMap, time::Duration};

use foldhash::fast::RandomState;
use tollgate::{
    clock::{Moment, UnixTime},
    testing::lease::{ClockReading, LeaseSlots},
};

use super::{
    arrivals::fraction,
    budget::{Budget, Micros, Window},
};
use crate::random::Random;

/// A request at a node.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub tenant: u32,
    pub units: u32,
    /// After this time, the fallback decides.
    pub deadline: Micros,
}

pub struct Node {
    /// Changes with each crash, so that nothing from before reaches the node.
    pub life: u32,
    pub down_until: Micros,
    pub paused_until: Micros,
    pub cut_off: (Micros, Micros),
    /// Units of a lease come with the mark of their charge.
    pub slots: LeaseSlots<u32, Micros>,
    /// Requests that wait for the call of another one, by tenant.
    pub waiting: HashMap<u32, Vec<Request>, RandomState>,
    /// The units that the node has admitted by itself.
    own: HashMap<u32, Budget, RandomState>,
    /// How fast its clocks run.
    rate: f64,
    /// Time that its steady clock has missed, because the machine was suspended.
    missed: Micros,
    is_suspended_in_pauses: bool,
}

impl Node {
    pub fn new(random: &mut Random, lifetime: Duration) -> Self {
        Self {
            life: 0,
            down_until: 0,
            paused_until: 0,
            cut_off: (0, 0),
            slots: slots(lifetime),
            waiting: HashMap::default(),
            own: HashMap::default(),
            // up to half of a percent too fast or too slow
            rate: 1.0 + (fraction(random) - 0.5) / 100.0,
            missed: 0,
            is_suspended_in_pauses: random.below(2) == 0,
        }
    }

    /// Reads its clocks.
    pub fn clock(&self, now: Micros) -> ClockReading {
        let reading = |micros: Micros| (micros as f64 * self.rate * 1e3) as u64;
        let wall = 1_800_000_000_000_000_000 + reading(now);
        ClockReading { steady: Moment::from_nanos(reading(now - self.missed)), wall: UnixTime::from_nanos(wall) }
    }

    pub fn is_cut_off(&self, now: Micros) -> bool {
        (self.cut_off.0..self.cut_off.1).contains(&now)
    }

    /// Loses everything that it knows.
    pub fn crash(&mut self, until: Micros, lifetime: Duration) {
        self.life += 1;
        self.down_until = until;
        self.slots = slots(lifetime);
        self.waiting.clear();
        self.own.clear();
    }

    pub fn pause(&mut self, now: Micros, until: Micros) {
        self.paused_until = until;
        if self.is_suspended_in_pauses {
            self.missed += until - now;
        }
    }

    /// Counts alone. Returns whether the request is admitted.
    pub fn admits(&mut self, window: &Window, now: Micros, request: &Request) -> bool {
        let budget = self.own.entry(request.tenant).or_default();
        budget.lease(window, now, request.units, request.units, 0).is_ok()
    }
}

fn slots(lifetime: Duration) -> LeaseSlots<u32, Micros> {
    LeaseSlots::new(1_000, lifetime, 1_000_000)
}
