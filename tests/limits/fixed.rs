//! `fixed`: the calendar window.

use std::time::Duration;

use proptest::{collection::vec, prelude::*, sample::select};
use tollgate::{
    Plan, Quota,
    clock::{Clock, UnixTime},
    testing::ManualClock,
};

use crate::{
    engine::{Engine, InMemory, nanos, tenant},
    schedule::cases,
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

fn clock_at(wall: UnixTime) -> ManualClock {
    let clock = ManualClock::new();
    clock.set_wall(wall);
    clock
}

fn wall(clock: &ManualClock) -> UnixTime {
    clock.read().1
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn b26_a_calendar_window_follows_the_wall_clock_and_never_begins_twice(
        limit in 1..20_u32,
        period in select(vec![1_000_000, 7_000_000, 60_000_000_000, 86_400_000_000_000_u64]),
        start in 1_000_000_000_000_000_000..4_000_000_000_000_000_000_u64,
        requests in vec((0..2_400_u64, 1..5_u32, any::<bool>(), prop_oneof![8 => Just(0_i64), 1 => -3_000..3_000_i64]), 1..150),
    ) {
        let clock = clock_at(UnixTime::from_nanos(start));
        let limiter = InMemory::new(clock.clone(), Quota::fixed(limit, nanos(period)).unwrap());
        let (mut admitted, mut latest, mut has_jumped) = (Vec::new(), 0, false);
        for (parts, units, at_once, jump) in requests {
            // it is open whether a request that can never be admitted begins a window
            let units = units.min(limit);
            if !at_once {
                clock.advance(nanos(period / 1_200 * parts));
            }
            // a suspend, or a change of the wall clock
            if jump != 0 {
                let by = period as i64 / 1_200 * jump;
                clock.set_wall(UnixTime::from_nanos(wall(&clock).as_nanos().saturating_add_signed(by)));
                has_jumped = true;
            }
            let (now, unix_now) = (clock.now().as_nanos(), wall(&clock).as_nanos());
            latest = unix_now.max(latest);
            let this_window = latest / period;
            let spent = |counts: &dyn Fn(u64, u64) -> bool| -> u32 {
                let counted = admitted.iter().filter(|(at, window, _)| counts(*at, *window));
                counted.map(|(_, _, units)| units).sum()
            };
            let here = spent(&|_, window| window == this_window);
            let around = spent(&|at, _| now - at < period);
            let decision = limiter.check(&tenant("acme"), units);
            prop_assert_eq!(decision.is_admitted(), here + units <= limit);
            if decision.is_admitted() {
                prop_assert!(has_jumped || around + units <= 2 * limit);
                admitted.push((now, this_window, units));
            } else {
                let ends = (this_window + 1) * period;
                prop_assert_eq!(decision.standing().unwrap().reset_unix().unwrap().as_nanos(), ends);
                prop_assert_eq!(decision.standing().unwrap().reset().as_nanos() - now, ends - unix_now);
            }
        }
    }
}

/// The machine was suspended: its wall clock has moved on, and its steady clock has not.
#[test]
fn b26_a_refused_tenant_is_admitted_at_once_in_the_window_of_a_resumed_machine() {
    let daily = Quota::per_day(9).unwrap().with_name("daily").unwrap();
    for plan in
        [Plan::from(Quota::fixed(2, HOUR).unwrap()), Plan::new([Quota::fixed(2, HOUR).unwrap(), daily]).unwrap()]
    {
        let clock = clock_at(UnixTime::from_secs(1_800_000_000));
        let limiter = InMemory::new(clock.clone(), plan);
        for _ in 0..3 {
            assert_eq!([1; 3].map(|units| limiter.check(&tenant("acme"), units).is_admitted()), [true, true, false]);
            let reset = limiter.check(&tenant("acme"), 1).standing().unwrap().reset_unix().unwrap();
            assert_eq!(reset.as_nanos(), (wall(&clock) + HOUR).as_nanos());
            clock.set_wall(reset);
        }
    }
}

#[test]
fn b26_no_window_begins_twice_after_its_rows_were_removed() {
    let start = UnixTime::from_secs(1_800_000_000);
    let clock = clock_at(start);
    let limiter = InMemory::new(clock.clone(), Quota::fixed(1, MINUTE).unwrap());
    let checks = |name: &str| limiter.check(&tenant(name), 1).is_admitted();
    assert!(checks("acme") && !checks("acme"));
    // requests of others sweep
    while limiter.peek(&tenant("acme")).unwrap().remaining() == 0 || limiter.limiter.tenants() > 1 {
        clock.advance(Duration::from_secs(1));
        checks("globex");
    }
    clock.advance(2 * MINUTE);
    for _ in 0..60 {
        clock.advance(Duration::from_secs(1));
        checks("globex");
    }
    let latest = wall(&clock).as_secs();
    clock.set_wall(start + Duration::from_secs(5));
    assert!(checks("acme"), "the window that had begun last");
    for _ in 0..10 {
        clock.advance(Duration::from_secs(7));
        let decision = limiter.check(&tenant("acme"), 1);
        assert!(!decision.is_admitted());
        assert_eq!(decision.standing().unwrap().reset_unix().unwrap().as_secs(), (latest / 60 + 1) * 60);
    }
    clock.set_wall(UnixTime::from_secs((latest / 60 + 1) * 60));
    assert!(checks("acme"));
}
