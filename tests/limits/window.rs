//! The sliding window, on all kinds of schedules.

use proptest::prelude::*;

use crate::{
    engine::{Claims, InMemory},
    schedule::{Mix, cases, schedules},
    suite::run,
};

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn no_window_admits_more_than_the_limit_and_no_request_is_refused_without_need(
        schedule in schedules(Mix::CALM),
    ) {
        run(InMemory::new, Claims::ALL, &schedule);
    }

    #[test]
    fn a_refund_returns_exactly_what_was_spent(schedule in schedules(Mix::REFUNDS)) {
        run(InMemory::new, Claims::ALL, &schedule);
    }

    #[test]
    fn changed_quotas_refunds_resets_and_clock_steps_break_no_guarantee(
        schedule in schedules(Mix::ALL),
    ) {
        run(InMemory::new, Claims::ALL, &schedule);
    }

    #[test]
    fn without_memory_units_come_back_late_but_never_early(
        schedule in schedules(Mix { clock_back: 1, ..Mix::REFUNDS }),
    ) {
        run(InMemory::without_memory, Claims::BOUND_AND_RESET, &schedule);
    }

    /// All tenants but one share buckets until they are named.
    #[test]
    fn without_memory_or_room_changed_quotas_forgive_nothing(
        schedule in schedules(Mix { voids: 0, clock_back: 0, ..Mix::ALL }),
    ) {
        run(InMemory::without_memory, Claims::BOUND_AND_RESET, &schedule);
    }
}
