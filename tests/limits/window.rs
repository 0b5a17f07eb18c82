//! The sliding window, on every kind of schedule.

use proptest::prelude::*;

use crate::{
    engine::{Claims, InMemory},
    schedule::{Mix, cases, schedules},
    suite::run,
};

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn no_window_sees_more_than_the_limit_and_no_request_is_refused_without_need(
        schedule in schedules(Mix::CALM),
    ) {
        run(InMemory::new, Claims::ALL, &schedule);
    }

    #[test]
    fn a_refund_gives_back_what_was_spent_and_no_more(schedule in schedules(Mix::REFUNDS)) {
        run(InMemory::new, Claims::ALL, &schedule);
    }

    #[test]
    fn changed_quotas_refunds_resets_and_a_clock_that_steps_back_break_no_promise(
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

    /// All but one tenant share buckets, until they are named.
    #[test]
    fn without_memory_or_room_changed_quotas_forgive_nothing(
        schedule in schedules(Mix { voids: 0, clock_back: 0, ..Mix::ALL }),
    ) {
        run(InMemory::without_memory, Claims::BOUND_AND_RESET, &schedule);
    }
}
