//! How many requests do limiters of "600 a minute" admit in the worst minute?
//!
//!     cargo run --example worst_minute
//!
//! A client is silent for a minute and then sends a request every millisecond for two minutes. The example's clock does
//! not wait, so the answer comes at once. `governor` is the engine of tower_governor, with its own test clock. Many
//! services count in fixed windows, or estimate a sliding window from two of them; both are a few lines below.

#![expect(clippy::print_stdout, reason = "prints a table")]

use std::{
    error::Error,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use governor::{RateLimiter, clock::FakeRelativeClock};
use tollgate::{
    LimitKey, Limiter, Plans, Quota,
    clock::{Clock, Moment, UnixTime},
};

const LIMIT: u32 = 600;
const MINUTE: u64 = 60_000;
/// The flood begins 0.7 seconds before a fixed window ends, which is long enough for all of its requests.
const BEGIN: u64 = MINUTE - 700;
const END: u64 = 3 * MINUTE;

fn main() -> Result<(), Box<dyn Error>> {
    println!("limit: {LIMIT} a minute. Admitted in the worst minute of a flood:\n");
    let per_minute = governor::Quota::per_minute(NonZeroU32::new(LIMIT).ok_or("zero")?);
    let clock = FakeRelativeClock::default();
    let gcra = RateLimiter::direct_with_clock(per_minute, clock.clone());
    let mut last = 0;
    show("governor (GCRA), as in tower_governor", |now| {
        clock.advance(Duration::from_millis(now - last));
        last = now;
        gcra.check().is_ok()
    });
    let mut fixed = Windows::default();
    show("fixed windows", |now| fixed.admits(now, |own, _, _| own));
    let mut weighted = Windows::default();
    show("a sliding window estimated from two", |now| {
        weighted.admits(now, |own, before, passed| own + before * (MINUTE - passed) / MINUTE)
    });
    let clock = Arc::new(StoppedClock::default());
    let limiter = Limiter::builder(Plans::new(Quota::per_minute(LIMIT)?)).clock(Arc::clone(&clock)).build()?;
    let client = LimitKey::parse("client")?;
    show("tollgate", |now| {
        clock.0.store(now, Relaxed);
        limiter.check(&client, 1).is_admitted()
    });
    Ok(())
}

/// Prints the most requests that are admitted in any half-open window of a minute.
fn show(name: &str, mut admits: impl FnMut(u64) -> bool) {
    let admitted: Vec<u64> = (BEGIN..END).filter(|now| admits(*now)).collect();
    let in_window = |from: &u64| admitted.iter().filter(|at| (*from..from + MINUTE).contains(at)).count();
    println!("{:>6}  {name}", admitted.iter().map(in_window).max().unwrap_or(0));
}

/// The counts of the current window of the wall clock and of the one before.
#[derive(Default)]
struct Windows {
    number: u64,
    own: u64,
    before: u64,
}

impl Windows {
    fn admits(&mut self, now: u64, estimate: impl Fn(u64, u64, u64) -> u64) -> bool {
        let number = now / MINUTE;
        if number != self.number {
            self.before = if number == self.number + 1 { self.own } else { 0 };
            (self.number, self.own) = (number, 0);
        }
        let admits = estimate(self.own, self.before, now % MINUTE) < u64::from(LIMIT);
        self.own += u64::from(admits);
        admits
    }
}

/// Milliseconds that only the example moves.
#[derive(Debug, Default)]
struct StoppedClock(AtomicU64);

impl Clock for StoppedClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Relaxed) * 1_000_000)
    }

    fn unix(&self, moment: Moment) -> UnixTime {
        UnixTime::from_nanos(moment.as_nanos())
    }
}
