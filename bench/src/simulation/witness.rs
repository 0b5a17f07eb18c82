//! Judges a run: what was admitted, against the promise and against an ideal limiter.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::{
    arrivals::Arrival,
    budget::{Micros, Window},
};

/// The log of all admissions.
#[derive(Debug, Default)]
pub struct Witness {
    /// Tenant, time and units of what the engine has charged.
    charged: Vec<(u32, Micros, u32)>,
    /// Units that a node admitted by itself, because it did not reach the engine.
    pub by_fallback: u64,
    /// Units of each tenant, with those of the fallback.
    admitted: HashMap<u32, u64, RandomState>,
}

impl Witness {
    /// Notes what was admitted by the reading of a clock at this time.
    pub fn admitted(&mut self, tenant: u32, at: Micros, units: u32) {
        self.charged.push((tenant, at, units));
        *self.admitted.entry(tenant).or_default() += u64::from(units);
    }

    /// Notes what a node admitted without the engine.
    pub fn fell_back(&mut self, tenant: u32, units: u32) {
        self.by_fallback += u64::from(units);
        *self.admitted.entry(tenant).or_default() += u64::from(units);
    }

    /// Returns how many units were admitted beyond the limit in some window.
    pub fn over(&mut self, window: &Window) -> u64 {
        self.charged.sort_unstable();
        let mut over = 0;
        for log in self.charged.chunk_by(|left, right| left.0 == right.0) {
            let (mut first, mut counts) = (0, 0_u64);
            for &(_, at, units) in log {
                counts += u64::from(units);
                while log[first].1 + window.length <= at {
                    counts -= u64::from(log[first].2);
                    first += 1;
                }
                over += counts.saturating_sub(u64::from(window.limit)).min(u64::from(units));
            }
        }
        over
    }

    /// Returns how many units were refused of those that an ideal limiter admits.
    pub fn under(&self, ideal: &Ideal) -> u64 {
        let admitted = |tenant| self.admitted.get(tenant).copied().unwrap_or(0);
        ideal.0.iter().map(|(tenant, ideal)| ideal.saturating_sub(admitted(tenant))).sum()
    }
}

/// The sum of the units that count, and when each were spent.
type UnitsInWindow = (u32, VecDeque<(Micros, u32)>);

/// The units of each tenant that an ideal limiter admits.
#[derive(Debug, Default)]
pub struct Ideal(HashMap<u32, u64, RandomState>);

impl Ideal {
    pub fn new(arrivals: &[Arrival], window: &Window) -> Self {
        let mut logs: HashMap<u32, UnitsInWindow, RandomState> = HashMap::default();
        let mut ideal = Self::default();
        for arrival in arrivals {
            let (used, log) = logs.entry(arrival.tenant).or_default();
            while let Some((_, units)) = log.pop_front_if(|(at, _)| *at + window.length <= arrival.at) {
                *used -= units;
            }
            if *used + arrival.units <= window.limit {
                *used += arrival.units;
                log.push_back((arrival.at, arrival.units));
                *ideal.0.entry(arrival.tenant).or_default() += u64::from(arrival.units);
            }
        }
        ideal
    }

    pub fn sum(&self) -> u64 {
        self.0.values().sum()
    }
}
