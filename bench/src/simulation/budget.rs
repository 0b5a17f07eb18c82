//! A model of the script for one window: the budget of one tenant on the engine.

use std::collections::VecDeque;

/// Microseconds of the engine.
pub type Micros = u64;

/// A window: at most `limit` units in every `length`.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub limit: u32,
    pub length: Micros,
    /// Units spent within this time come back together.
    pub slice: Micros,
}

/// The units that were charged, the oldest first.
#[derive(Debug, Default)]
pub struct Budget {
    used: u32,
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    opened: Micros,
    last: Micros,
    units: u32,
}

/// Units that were charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    pub units: u32,
    /// Zero if they were charged at once.
    pub lifetime: Micros,
    /// When they were charged.
    pub mark: Micros,
    pub left: u32,
    /// How long until there are more.
    pub wait: Micros,
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub left: u32,
    /// How long until the units fit.
    pub wait: Micros,
}

impl Budget {
    /// Charges the units needed, and as many of those wanted as the engine gives.
    pub fn lease(
        &mut self,
        window: &Window,
        now: Micros,
        needed: u32,
        wanted: u32,
        lifetime: Micros,
    ) -> Result<Granted, Refused> {
        self.forget(window, now);
        let left = window.limit.saturating_sub(self.used);
        if needed > left {
            let over = self.used + needed - window.limit;
            return Err(Refused { left, wait: self.freed_at(window, over).saturating_sub(now) });
        }
        let more = if lifetime < 1000 { 0 } else { wanted.saturating_sub(needed).min((left - needed) / 4) };
        let lifetime = if more == 0 { 0 } else { lifetime };
        let units = needed + more;
        let mark = self.charge(window, now + lifetime, units);
        let wait = self.freed_at(window, 1).saturating_sub(now);
        Ok(Granted { units, lifetime, mark, left: window.limit - self.used, wait })
    }

    /// Returns units that were charged at this time.
    pub fn give_back(&mut self, window: &Window, now: Micros, mark: Micros, units: u32) {
        self.forget(window, now);
        let mut owed = units;
        let mut is_own = true;
        for entry in self.entries.iter_mut().rev().filter(|entry| entry.opened <= mark) {
            // the entry that has the charge has expired
            if owed == 0 || (is_own && entry.last < mark) {
                break;
            }
            is_own = false;
            let taken = owed.min(entry.units);
            entry.units -= taken;
            owed -= taken;
        }
        self.used -= units - owed;
    }

    fn forget(&mut self, window: &Window, now: Micros) {
        while let Some(oldest) = self.entries.front() {
            if oldest.units > 0 && oldest.last + window.length > now {
                return;
            }
            self.used -= oldest.units;
            self.entries.pop_front();
        }
    }

    fn charge(&mut self, window: &Window, at: Micros, units: u32) -> Micros {
        self.used += units;
        let at = self.entries.back().map_or(at, |newest| newest.last.max(at));
        match self.entries.back_mut().filter(|newest| at - newest.opened < window.slice) {
            Some(newest) => {
                newest.last = at;
                newest.units += units;
            }
            None => self.entries.push_back(Entry { opened: at, last: at, units }),
        }
        at
    }

    fn freed_at(&self, window: &Window, units: u32) -> Micros {
        let mut freed = 0;
        for entry in &self.entries {
            freed += entry.units;
            if freed >= units {
                return entry.last + window.length;
            }
        }
        Micros::MAX
    }
}
