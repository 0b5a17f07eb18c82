//! Judges a run: what was admitted, against the promise and against an ideal limiter.

use std::collections::{HashMap, VecDeque};

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
    admitted: HashMap<u32, u64>,
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

    /// Returns how many units an ideal limiter would have admitted, and how many of those were refused.
    pub fn under(&self, arrivals: &[Arrival], window: &Window) -> (u64, u64) {
        let mut logs: HashMap<u32, (u32, VecDeque<(Micros, u32)>, u64)> = HashMap::new();
        for arrival in arrivals {
            let (used, log, admitted) = logs.entry(arrival.tenant).or_default();
            while let Some(&(at, units)) = log.front().filter(|(at, _)| at + window.length <= arrival.at) {
                debug_assert!(at <= arrival.at);
                *used -= units;
                log.pop_front();
            }
            if *used + arrival.units <= window.limit {
                *used += arrival.units;
                log.push_back((arrival.at, arrival.units));
                *admitted += u64::from(arrival.units);
            }
        }
        let mut sums = (0, 0);
        for (tenant, (.., ideal)) in logs {
            sums.0 += ideal;
            sums.1 += ideal.saturating_sub(self.admitted.get(&tenant).copied().unwrap_or(0));
        }
        sums
    }
}
