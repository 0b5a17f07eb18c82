//! The exact log of admitted units: slow and obviously right.

use tollgate::clock::Moment;

use crate::schedule::{PlanSpec, QuotaSpec};

/// Two kinds of time. The engine sees `clock`, which may step back. `real` only increases.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub(crate) struct Now {
    pub(crate) clock: u64,
    pub(crate) real: u64,
}

/// All units admitted for one tenant.
#[derive(Debug)]
pub(crate) struct Log {
    admitted: Vec<Admitted>,
    /// The newest plan with limits.
    limits: Vec<QuotaSpec>,
    changes: u64,
    /// The longest slice of any plan so far, plus the rounding of long windows.
    slack: u64,
    /// Units spent before this time may count as if they were spent at this time.
    blurred_until: u64,
}

#[derive(Debug)]
struct Admitted {
    at: Now,
    /// Units that must count, and the names of the quotas that count them.
    must: u32,
    names: [bool; 3],
    /// Units that may count.
    may: u32,
    changes_before: u64,
}

impl Log {
    pub(crate) fn new(plan: &PlanSpec) -> Self {
        let mut log = Self { admitted: Vec::new(), limits: Vec::new(), changes: 0, slack: 0, blurred_until: 0 };
        log.limits = plan.quotas().to_vec();
        log.widen_slack();
        log
    }

    /// Adds admitted units, and returns their place in the log.
    pub(crate) fn add(&mut self, now: Now, units: u32) -> usize {
        let mut names = [false; 3];
        for quota in self.limits.iter().filter(|quota| !quota.shadow) {
            names[quota.name] = true;
        }
        let (must, may, changes_before) = (units, units, self.changes);
        self.admitted.push(Admitted { at: now, must, names, may, changes_before });
        self.admitted.len() - 1
    }

    /// Removes refunded units. The engine may still count them if the plan has changed since.
    pub(crate) fn refund(&mut self, place: usize) {
        let entry = &mut self.admitted[place];
        entry.must = 0;
        if entry.changes_before == self.changes {
            entry.may = 0;
        }
    }

    pub(crate) fn void(&mut self) {
        for entry in &mut self.admitted {
            (entry.must, entry.may) = (0, 0);
        }
    }

    /// From now on, the engine may count earlier units as if they were spent as late as `clock`.
    pub(crate) fn blur(&mut self, clock: u64) {
        self.blurred_until = self.blurred_until.max(clock);
    }

    /// Changes the plan. A quota continues from the quota with its name, or else from the longest one that covers its
    /// window, or else from any. Units that have left under the old plan are forgotten. Another rule starts from the
    /// units that count.
    pub(crate) fn change_plan(&mut self, now: Now, latest_clock: u64, plan: &PlanSpec) {
        self.changes += 1;
        let PlanSpec::Limited(new) = plan else { return };
        let old = std::mem::replace(&mut self.limits, new.clone());
        self.widen_slack();
        for entry in &mut self.admitted {
            let names = std::mem::take(&mut entry.names);
            for is in new {
                let counts =
                    |was: &QuotaSpec| was.slice().is_some() && names[was.name] && now.real - entry.at.real < was.window;
                let enforced: Vec<_> = old.iter().filter(|was| !was.shadow).collect();
                let whole = enforced.iter().filter(|was| was.slice().is_some() && was.window >= is.window);
                let counted = match old.iter().find(|was| was.name == is.name) {
                    Some(was) => counts(was),
                    None => match whole.max_by_key(|was| was.window) {
                        Some(was) => counts(was),
                        None => !enforced.is_empty() && enforced.iter().all(|was| counts(was)),
                    },
                };
                entry.names[is.name] = is.slice().is_some() && counted;
            }
        }
        if old.iter().chain(new).any(|quota| quota.slice().is_none()) {
            self.blur(latest_clock);
        }
    }

    /// Units that must count against this quota: spent less than a window ago.
    pub(crate) fn must_count(&self, quota: &QuotaSpec, now: Now) -> u64 {
        let counts = |entry: &&Admitted| entry.names[quota.name] && now.real - entry.at.real < quota.window;
        self.admitted.iter().filter(counts).map(|entry| u64::from(entry.must)).sum()
    }

    /// Units that may count. An entry of the engine's log counts for a window after its last unit, and spans less than
    /// a slice. A unit therefore counts for less than a window and a slice. Returns `None` if the past is blurred.
    pub(crate) fn may_count(&self, quota: &QuotaSpec, now: Now) -> Option<u64> {
        let lives = quota.window.saturating_add(self.slack);
        if self.blurred_until > 0 && now.clock < self.blurred_until.saturating_add(lives) {
            return None;
        }
        let counts = |entry: &&Admitted| entry.at.clock.saturating_add(lives) > now.clock;
        Some(self.admitted.iter().filter(counts).map(|entry| u64::from(entry.may)).sum())
    }

    pub(crate) fn admissions(&self) -> impl ExactSizeIterator<Item = Moment> {
        self.admitted.iter().map(|entry| Moment::from_nanos(entry.at.clock))
    }

    fn widen_slack(&mut self) {
        for slice in self.limits.iter().filter_map(QuotaSpec::slice) {
            // the length of an entry is stored in 32 bits and rounded up, which adds at most one of these for each new
            // plan
            let tick = if slice >> 32 == 0 { 0 } else { slice >> 31 };
            self.slack = self.slack.max(slice) + tick;
        }
    }
}
