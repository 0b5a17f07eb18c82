//! Holds: units that count while a call is open, and are charged when it ends.

use std::time::Duration;

use tollgate::{
    EventLog, Limiter, Plan, Plans, Quota,
    clock::{Clock, Moment},
    event::{EventKind, Query},
    limit::{Decision, Hold, RefusalReason, Standing},
    testing::ManualClock,
};

use crate::engine::{Engine, InMemory, tenant};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn engine(plan: impl Into<Plan>) -> InMemory {
    InMemory::new(ManualClock::new(), plan)
}

fn try_hold(engine: &InMemory, estimate: u32, at_most: u32, lifetime: Duration) -> Result<Hold, Decision> {
    engine.limiter.hold(&tenant("acme"), estimate, at_most, lifetime)
}

fn hold(engine: &InMemory, estimate: u32, at_most: u32) -> Hold {
    try_hold(engine, estimate, at_most, 10 * MINUTE).unwrap()
}

fn standing(engine: &InMemory) -> Standing {
    engine.peek(&tenant("acme")).unwrap()
}

fn remaining(engine: &InMemory) -> u32 {
    standing(engine).remaining()
}

fn spends(engine: &InMemory, units: u32) -> bool {
    engine.check(&tenant("acme"), units).is_admitted()
}

fn at(engine: &InMemory, seconds: u64) {
    engine.clock().set(Moment::default() + Duration::from_secs(seconds));
}

fn refusal(decision: &Decision) -> (RefusalReason, Duration, bool) {
    let standing = decision.standing().unwrap();
    (decision.refusal_reason().unwrap(), standing.time_until_reset(), standing.is_exact())
}

fn per_minute(limit: u32) -> Quota {
    Quota::per_minute(limit).unwrap()
}

fn concurrent(limit: u32) -> Quota {
    Quota::concurrent(limit).unwrap()
}

#[test]
fn c137_a_hold_counts_while_it_is_open_and_is_charged_at_its_end() {
    let engine = engine(per_minute(10));
    let open = hold(&engine, 6, 9);
    assert_eq!((open.estimate(), open.standing().unwrap().remaining()), (6, 4));
    at(&engine, 300);
    assert_eq!((remaining(&engine), spends(&engine, 5)), (4, false));
    open.commit(5);
    assert_eq!(remaining(&engine), 5);
    at(&engine, 359);
    assert_eq!(remaining(&engine), 5, "one window after the end, not after the beginning");
    at(&engine, 360);
    assert_eq!(remaining(&engine), 10);
}

#[test]
fn a_dropped_hold_charges_its_estimate() {
    let engine = engine(per_minute(10));
    drop(hold(&engine, 6, 9));
    assert_eq!(remaining(&engine), 4);
    at(&engine, 60);
    assert_eq!(remaining(&engine), 10);
}

#[test]
fn c137_an_expired_hold_is_charged_at_its_expiry_whenever_the_row_is_used() {
    let engine = engine(per_minute(10));
    let open = try_hold(&engine, 6, 6, 20 * SECOND).unwrap();
    for (seconds, left) in [(19, 4), (20, 4), (79, 4), (80, 10)] {
        at(&engine, seconds);
        assert_eq!(remaining(&engine), left, "after {seconds} s");
    }
    // nothing has used this row between its expiry and the end of the window
    let late = try_hold(&engine, 3, 3, 10 * SECOND).unwrap();
    at(&engine, 149);
    assert_eq!(remaining(&engine), 7);
    at(&engine, 150);
    assert_eq!(remaining(&engine), 10);
    open.commit(6);
    late.commit(1);
    assert_eq!(remaining(&engine), 10, "estimates are charged once");
}

#[test]
fn a_commit_after_the_expiry_charges_what_is_beyond_the_estimate() {
    let engine = engine(per_minute(10));
    let open = try_hold(&engine, 2, 9, SECOND).unwrap();
    at(&engine, 100);
    open.commit(5);
    assert_eq!(remaining(&engine), 7);
}

#[test]
fn c137_a_commit_charges_no_more_than_the_hold_allows() {
    let engine = engine(per_minute(10));
    hold(&engine, 2, 4).commit(9);
    assert_eq!(remaining(&engine), 6);
    hold(&engine, 2, 1).commit(9);
    assert_eq!(remaining(&engine), 4, "at most the estimate, which is more");
    let free = hold(&engine, 0, 0);
    assert_eq!((free.estimate(), remaining(&engine)), (1, 3));
    free.commit(0);
    assert_eq!(remaining(&engine), 4);
}

#[test]
fn c137_a_debt_is_at_most_one_limit_and_paid_before_anything_else() {
    let engine = engine(per_minute(10));
    let (first, second) = (hold(&engine, 4, 1_000), hold(&engine, 5, 5));
    first.commit(1_000);
    // 15 of the first and 5 that are held count: two limits
    assert!(!spends(&engine, 1));
    at(&engine, 30);
    second.commit(5);
    at(&engine, 60);
    assert_eq!(remaining(&engine), 5, "the debt of 15 is paid");
    for (name, window) in [("of the past", per_minute(10)), ("of one hold", Quota::fixed(10, MINUTE).unwrap())] {
        let engine = self::engine(window);
        let before = engine.clock().now();
        hold(&engine, 1, u32::MAX).commit(u32::MAX);
        hold_is_refused_until_a_window_has_passed(&engine, before, name);
    }
}

fn hold_is_refused_until_a_window_has_passed(engine: &InMemory, before: Moment, name: &str) {
    let refused = try_hold(engine, 1, 1, SECOND).unwrap_err();
    let (reason, wait, is_exact) = refusal(&refused);
    assert_eq!((reason, is_exact), (RefusalReason::Spent, true), "{name}");
    engine.clock().set(before + wait);
    assert_eq!(remaining(engine), 10, "{name}");
}

#[cfg(feature = "smooth")]
#[test]
fn a_smooth_quota_holds_and_pays_debts() {
    // one unit a second
    let engine = engine(Quota::smooth(60, MINUTE, 10).unwrap());
    let open = hold(&engine, 4, 100);
    at(&engine, 100);
    assert_eq!((remaining(&engine), spends(&engine, 7), spends(&engine, 6)), (6, false, true));
    // 6 count, and 14 more of 100
    open.commit(100);
    assert!(!spends(&engine, 1));
    at(&engine, 110);
    assert!(!spends(&engine, 1));
    at(&engine, 111);
    assert!(spends(&engine, 1));
    // charged at its expiry, not when the row is used
    at(&engine, 200);
    let expired = try_hold(&engine, 10, 10, 5 * SECOND).unwrap();
    at(&engine, 210);
    assert_eq!(remaining(&engine), 5);
    drop(expired);
    assert_eq!(remaining(&engine), 5);
}

#[test]
fn an_expired_hold_counts_in_the_calendar_window_of_its_expiry() {
    let engine = engine(Quota::fixed(10, MINUTE).unwrap());
    let wall =
        |engine: &InMemory| engine.clock().unix(engine.clock().now()).as_nanos() % 60_000_000_000 / 1_000_000_000;
    // to the begin of a window
    at(&engine, 60 - wall(&engine));
    let begin = engine.clock().now();
    let seconds = |engine: &InMemory, seconds: u64| engine.clock().set(begin + Duration::from_secs(seconds));
    let early = try_hold(&engine, 3, 3, 50 * SECOND).unwrap();
    let late = try_hold(&engine, 4, 4, 70 * SECOND).unwrap();
    seconds(&engine, 65);
    // it notes the time, so that no window begins twice
    _ = engine.check(&tenant("other"), 1);
    assert_eq!(remaining(&engine), 6, "the first has expired in the window before");
    seconds(&engine, 119);
    assert_eq!(remaining(&engine), 6);
    seconds(&engine, 120);
    assert_eq!(remaining(&engine), 10);
    drop((early, late));
    assert_eq!(remaining(&engine), 10);
}

#[test]
fn while_a_hold_blocks_the_reset_is_its_latest_end_and_not_exact() {
    let engine = engine(per_minute(10));
    let first = try_hold(&engine, 4, 4, 100 * SECOND).unwrap();
    let second = try_hold(&engine, 4, 4, 200 * SECOND).unwrap();
    let refused = || engine.check(&tenant("acme"), 3);
    assert_eq!(refusal(&refused()), (RefusalReason::Spent, 200 * SECOND, false));
    assert_eq!((standing(&engine).is_exact(), standing(&engine).time_until_reset()), (false, 200 * SECOND));
    assert_eq!(refusal(&engine.check(&tenant("acme"), 11)).0, RefusalReason::Impossible);
    second.commit(4);
    assert_eq!(refusal(&refused()), (RefusalReason::Spent, 100 * SECOND, false));
    first.commit(4);
    assert_eq!(refusal(&refused()), (RefusalReason::Spent, MINUTE, true));
    // if the hold leaves enough room, the reset is that of the window
    at(&engine, 60);
    let open = hold(&engine, 1, 1);
    assert!(spends(&engine, 9));
    assert_eq!(refusal(&engine.check(&tenant("acme"), 9)), (RefusalReason::Spent, MINUTE, false));
    assert_eq!(refusal(&engine.check(&tenant("acme"), 10)), (RefusalReason::Spent, 10 * MINUTE, false));
    at(&engine, 120);
    assert!(spends(&engine, 9));
    drop(open);
}

#[test]
fn a_standing_takes_no_more_room_for_knowing_whether_it_is_exact() {
    assert_eq!(size_of::<Standing>(), 48);
}

#[test]
fn a_refusal_that_a_hold_caused_is_not_repeated_after_its_end() {
    let engine = engine(per_minute(10));
    let open = hold(&engine, 9, 9);
    for _ in 0..3 {
        assert!(!spends(&engine, 2));
    }
    open.commit(0);
    assert!(spends(&engine, 2));
    // one that the window caused is, until a hold is opened or ended
    assert!(spends(&engine, 8));
    for _ in 0..3 {
        assert!(!spends(&engine, 2));
    }
    at(&engine, 60);
    assert!(spends(&engine, 2));
}

#[test]
fn calls_and_units_are_charged_all_or_nothing() {
    let engine = engine(Plan::new([per_minute(10), concurrent(2)]).unwrap());
    let (first, second) = (hold(&engine, 3, 3), hold(&engine, 3, 3));
    let refused = try_hold(&engine, 3, 3, SECOND).unwrap_err();
    assert_eq!(refused.standing().unwrap().policy(), "concurrent");
    assert_eq!(refusal(&refused), (RefusalReason::Spent, SECOND, false));
    assert_eq!((remaining(&engine), standing(&engine).policy()), (4, "default"), "slots don't hide units");
    first.commit(3);
    let too_much = try_hold(&engine, 5, 5, SECOND).unwrap_err();
    assert_eq!(too_much.standing().unwrap().policy(), "default");
    let third = hold(&engine, 4, 4);
    assert!(try_hold(&engine, 1, 1, SECOND).is_err(), "both slots are taken, and no other");
    drop((second, third));
    assert_eq!(remaining(&engine), 0);
}

#[test]
fn a_reset_is_an_estimate_if_a_slot_is_missing_too() {
    let engine = engine(Plan::new([per_minute(10), concurrent(2)]).unwrap());
    let open = [1, 9].map(|units| try_hold(&engine, units, units, SECOND).unwrap());
    at(&engine, 5);
    let refused = || refusal(&try_hold(&engine, 1, 1, SECOND).unwrap_err());
    assert_eq!(refused(), (RefusalReason::Spent, 56 * SECOND, false));
    drop(open);
    assert_eq!(refused(), (RefusalReason::Spent, 56 * SECOND, true));
}

#[test]
fn a_slot_is_taken_until_the_hold_is_dropped() {
    let engine = engine(concurrent(1));
    let open = try_hold(&engine, 1, 1, SECOND).unwrap();
    at(&engine, 1_000);
    assert!(try_hold(&engine, 1, 1, SECOND).is_err(), "an expired hold keeps its slot");
    assert_eq!((remaining(&engine), standing(&engine).is_exact()), (0, false));
    drop(open);
    assert_eq!((remaining(&engine), standing(&engine).is_exact()), (1, true));
    hold(&engine, 1, 1).commit(1);
}

#[test]
fn a_check_that_nothing_tracks_is_refused_where_calls_are_counted() {
    let log = EventLog::new();
    let plan = Plan::new([per_minute(10), concurrent(1)]).unwrap();
    let engine = InMemory::of(Limiter::builder(Plans::new(plan)).events(log.clone()), ManualClock::new());
    let decision = engine.check(&tenant("acme"), 1);
    assert_eq!((decision.refusal_reason(), decision.standing()), (Some(RefusalReason::Untracked), None));
    assert!(engine.check(&tenant("acme"), 0).is_admitted());
    let events = log.read_events(&Query::new().kind(EventKind::CallUntracked)).events;
    assert_eq!(events.iter().map(|event| event.tenant.clone()).collect::<Vec<_>>(), [Some(tenant("acme").into())]);
    // a shadow refuses nothing
    engine.set_plan(&tenant("acme"), Plan::new([per_minute(10), concurrent(1).shadow()]).unwrap());
    assert!(spends(&engine, 1));
    assert_eq!(remaining(&engine), 9);
}

#[test]
fn a_shadow_of_concurrent_calls_logs_what_it_would_refuse() {
    let log = EventLog::new();
    let plan = Plan::new([per_minute(10), concurrent(1).shadow()]).unwrap();
    let engine = InMemory::of(Limiter::builder(Plans::new(plan)).events(log.clone()), ManualClock::new());
    let logged = || log.read_events(&Query::new().kind(EventKind::RateLimited)).events.len();
    let first = hold(&engine, 1, 1);
    assert_eq!(logged(), 0);
    let second = hold(&engine, 1, 1);
    assert_eq!(logged(), 1);
    drop(first);
    // the second was not counted there
    let third = hold(&engine, 1, 1);
    assert_eq!(logged(), 1);
    drop((second, third));
    assert_eq!(remaining(&engine), 7);
}

#[test]
fn a_call_that_a_shadow_did_not_count_counts_after_a_change_of_plan() {
    let engine = engine(Plan::new([per_minute(10), concurrent(1).shadow()]).unwrap());
    let open = [hold(&engine, 1, 1), hold(&engine, 1, 1)];
    engine.set_plan(&tenant("acme"), Plan::new([per_minute(10), concurrent(2)]).unwrap());
    assert!(try_hold(&engine, 1, 1, SECOND).is_err());
    drop(open);
    hold(&engine, 1, 1).commit(1);
}

#[test]
fn open_calls_survive_a_change_of_plan() {
    let engine = engine(per_minute(10));
    let (first, second) = (hold(&engine, 3, 3), hold(&engine, 3, 3));
    engine.set_plan(&tenant("acme"), Plan::new([Quota::per_hour(8).unwrap(), concurrent(2)]).unwrap());
    let refused = try_hold(&engine, 1, 1, SECOND).unwrap_err();
    assert_eq!(refused.standing().unwrap().policy(), "concurrent", "both take a slot of the new quota");
    drop(first);
    assert_eq!(remaining(&engine), 2);
    let third = try_hold(&engine, 2, 2, SECOND).unwrap();
    assert_eq!(remaining(&engine), 0);
    engine.set_plan(&tenant("acme"), per_minute(20).into());
    assert_eq!(remaining(&engine), 12);
    drop((second, third));
    assert_eq!(remaining(&engine), 12);
    assert!(spends(&engine, 12));
}

#[test]
fn a_hold_without_a_limit_is_free_and_one_of_a_denied_tenant_is_refused() {
    let engine = engine(Plan::unlimited());
    let open = hold(&engine, 5, 5);
    assert!(open.standing().is_none());
    open.commit(5);
    engine.set_default_plan(Plan::denied());
    assert_eq!(try_hold(&engine, 1, 1, SECOND).unwrap_err().refusal_reason(), Some(RefusalReason::Denied));
    engine.set_default_plan(per_minute(10).into());
    assert_eq!(remaining(&engine), 10);
    assert_eq!(try_hold(&engine, 11, 11, SECOND).unwrap_err().refusal_reason(), Some(RefusalReason::Impossible));
}

#[test]
fn a_reset_forgets_units_and_estimates_but_no_slots() {
    let engine = engine(Plan::new([per_minute(10), concurrent(2)]).unwrap());
    let (first, second) = (hold(&engine, 5, 9), hold(&engine, 5, 9));
    engine.reset(&tenant("acme"));
    assert!(try_hold(&engine, 1, 1, SECOND).is_err());
    second.commit(5);
    assert_eq!(remaining(&engine), 10);
    first.commit(7);
    assert_eq!(remaining(&engine), 8, "2 beyond the estimate are charged");
    hold(&engine, 8, 8).commit(8);
}

#[test]
fn a_row_with_open_calls_is_not_idle() {
    let engine = engine(Plan::new([per_minute(10), concurrent(1)]).unwrap());
    engine.set_plan(&tenant("monitor"), Plan::unlimited());
    let sweep = |engine: &InMemory| {
        for _ in 0..512 {
            engine.clock().advance(200 * SECOND / 1_000);
            assert!(engine.check(&tenant("monitor"), 1).is_admitted());
        }
        engine.limiter.tenants()
    };
    let open = try_hold(&engine, 5, 5, SECOND).unwrap();
    at(&engine, 3_600);
    assert_eq!(sweep(&engine), 1);
    assert!(try_hold(&engine, 1, 1, SECOND).is_err());
    drop(open);
    assert_eq!((sweep(&engine), engine.limiter.bytes()), (0, 0));
}

#[test]
fn open_calls_take_memory_of_the_budget_and_release_it() {
    let log = |most| Limiter::builder(Plans::new(Quota::per_hour(1_000).unwrap())).max_bytes(most);
    let engine = InMemory::of(log(20_000), ManualClock::new());
    let mut open: Vec<Hold> = (0..1_000).map(|_| try_hold(&engine, 1, 1, SECOND).unwrap()).collect();
    assert!(engine.limiter.bytes() > 40_000, "{}", engine.limiter.bytes());
    assert_eq!(remaining(&engine), 0);
    // other keys share a bucket meanwhile
    let other = engine.limiter.hold(&tenant("other"), 1, 1, SECOND).unwrap();
    assert_eq!(engine.limiter.tenants(), 2);
    open.clear();
    drop(other);
    assert!(engine.limiter.bytes() < 3_000, "{}", engine.limiter.bytes());
}

/// Returns an engine in which acme has no room for a row of its own, and a sweep until it has.
fn crowded(plan: impl Into<Plan>) -> (InMemory, impl Fn(&InMemory)) {
    let engine = InMemory::of(Limiter::builder(Plans::new(plan)).max_tenants(2), ManualClock::new());
    engine.set_plan(&tenant("monitor"), Plan::unlimited());
    engine.limiter.hold(&tenant("early"), 1, 1, SECOND).unwrap().commit(1);
    let sweep = |engine: &InMemory| {
        engine.clock().advance(60 * MINUTE);
        for _ in 0..512 {
            engine.clock().advance(200 * SECOND / 1_000);
            assert!(engine.check(&tenant("monitor"), 1).is_admitted());
        }
    };
    (engine, sweep)
}

#[test]
fn a_call_that_was_opened_in_a_bucket_moves_along() {
    let plan = Plan::new([Quota::per_day(10).unwrap(), concurrent(3)]).unwrap();
    let (engine, sweep) = crowded(plan.clone());
    let (first, second) = (hold(&engine, 2, 2), try_hold(&engine, 3, 3, 24 * 60 * MINUTE).unwrap());
    assert_eq!(engine.limiter.tenants(), 2, "a row and a bucket");
    assert_eq!(remaining(&engine), 5);
    // the tenant gets a name, and with it a row
    engine.set_plan(&tenant("acme"), plan);
    assert_eq!((remaining(&engine), engine.limiter.tenants()), (5, 2), "a look moves nothing");
    let third = hold(&engine, 1, 1);
    assert_eq!((engine.limiter.tenants(), remaining(&engine)), (3, 4));
    assert!(try_hold(&engine, 1, 1, SECOND).is_err(), "there are three calls");
    first.commit(1);
    assert_eq!(remaining(&engine), 5);
    drop(third);
    second.commit(3);
    let open = [hold(&engine, 1, 1), hold(&engine, 1, 1), hold(&engine, 1, 1)];
    assert_eq!(remaining(&engine), 2, "5 units are charged, and no slot is taken");
    drop(open);
    sweep(&engine);
    assert_eq!(engine.limiter.tenants(), 2, "the bucket is gone");
}

#[test]
fn a_bucket_with_open_calls_is_kept() {
    let (engine, sweep) = crowded(concurrent(1));
    let open = try_hold(&engine, 1, 1, SECOND).unwrap();
    sweep(&engine);
    assert!(try_hold(&engine, 1, 1, SECOND).is_err(), "there is room for a row, with this call");
    drop(open);
    hold(&engine, 1, 1).commit(1);
    sweep(&engine);
    assert_eq!((engine.limiter.tenants(), engine.limiter.bytes()), (0, 0));
}
