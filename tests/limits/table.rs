//! The measured figures that the docs state, for 600 units per minute.

use tollgate::{Quota, clock::Clock, testing::ManualClock};

use crate::engine::{Engine, InMemory, nanos, tenant};

const MILLI: u64 = 1_000_000;
const MINUTE: u64 = 60_000 * MILLI;

/// Spends units in even steps. Returns the number of units in the fullest window, and the number of refusals.
fn measured(steps: u64, gap: u64, at_once: u64) -> (usize, u64) {
    let clock = ManualClock::new();
    let limiter = InMemory::new(clock.clone(), Quota::per_minute(600).unwrap());
    let acme = tenant("acme");
    let (mut admitted, mut refused) = (Vec::new(), 0);
    for _ in 0..steps {
        for _ in 0..at_once {
            match limiter.check(&acme, 1).is_admitted() {
                true => admitted.push(clock.now().as_nanos()),
                false => refused += 1,
            }
        }
        clock.advance(nanos(gap));
    }
    let until = |end: u64| admitted.partition_point(|at| *at < end);
    let fullest = admitted.iter().map(|start| until(start + MINUTE) - until(*start)).max();
    (fullest.unwrap_or(0), refused)
}

/// Entries span up to 900 ms, so the first unit of each comes back 900 ms late. That refuses nine of each 600, in each
/// of the 29 minutes that follow another one.
#[test]
fn at_a_steady_ten_per_second_261_of_18000_are_refused() {
    assert_eq!(measured(18_000, 100 * MILLI, 1), (600, 261));
}

#[test]
fn with_590_at_once_every_60_2_seconds_none_is_refused() {
    assert_eq!(measured(30, 60_200 * MILLI, 590), (590, 0));
}

#[test]
fn a_greedy_client_gets_600_in_any_minute_and_no_more() {
    assert_eq!(measured(30_000, 20 * MILLI, 1).0, 600);
    assert_eq!(measured(40, 7_001 * MILLI, 400).0, 600);
}
