//! Models of the refusal board and its seqlock.
//!
//! Bounds: 2 slots that form one group, 2 or 3 threads, and 1 to 4 calls of each. All interleavings are tried, and all
//! values that a load may return, except in `no_refusal_outlives_a_reset`: there, threads are interrupted at most 5 times.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use tollgate_models::{limit, tenant, util};

/// Defines the models for a copy of the board.
macro_rules! models {
    ($copy:ident) => {
        #[allow(dead_code, clippy::all, reason = "copies, some of them with a fault")]
        mod $copy {
            use loom::{sync::Arc, sync::Mutex, thread};

            include!(concat!(env!("OUT_DIR"), "/", stringify!($copy), ".rs"));

            /// Two tenants with the same home.
            const ACME: (u64, u64) = (1, 11);
            const GLOBEX: (u64, u64) = (2, 22);

            fn at(nanos: u64) -> (Moment, UnixTime) {
                (Moment::from_nanos(nanos), UnixTime::from_nanos(nanos))
            }

            fn terms(units: u32) -> BoardTerms {
                BoardTerms { units, epoch: 7, plan: None, is_anonymous: None }
            }

            /// Posts a refusal whose figures are all the same, at this time for ten nanoseconds.
            fn post(board: &Board, (first, second): (u64, u64), units: u32, figure: u32, now: u64) -> bool {
                let standing = Standing::new("default", figure, figure, Moment::from_nanos(figure.into()), at(now));
                let period = (Moment::from_nanos(now), Moment::from_nanos(now + 10));
                board.post(TenantHash { first, second }, terms(units), &standing, &Quota, period)
            }

            /// Returns the figure of a refusal.
            fn find(board: &Board, (first, second): (u64, u64), units: u32, now: u64) -> Option<u32> {
                let found = board.find(&TenantHash { first, second: || second }, terms(units), at(now))?;
                let figure = found.limit();
                assert_eq!((found.remaining(), found.reset().as_nanos()), (figure, figure.into()), "a mixture");
                Some(figure)
            }

            /// A tenant posts another refusal while two threads read.
            pub(super) fn no_reader_sees_half_of_two_refusals() {
                tollgate_models::explore(None, || {
                    let board = Arc::new(Board::new());
                    assert!(post(&board, ACME, 1, 1, 0));
                    let writer = {
                        let board = Arc::clone(&board);
                        thread::spawn(move || assert!(post(&board, ACME, 1, 2, 1)))
                    };
                    let seen = find(&board, ACME, 1, 5);
                    assert!([None, Some(1), Some(2)].contains(&seen), "{seen:?}");
                    writer.join().unwrap();
                    assert_eq!(find(&board, ACME, 1, 5), Some(2));
                });
            }

            /// Two tenants post in one free slot at once, while a third thread reads. Each has its own lock, so the slot
            /// alone keeps them apart.
            pub(super) fn tenants_that_post_at_once_never_mix() {
                tollgate_models::explore(None, || {
                    let board = Arc::new(Board::new());
                    let writer = {
                        let board = Arc::clone(&board);
                        thread::spawn(move || post(&board, ACME, 1, 1, 0))
                    };
                    let other = {
                        let board = Arc::clone(&board);
                        thread::spawn(move || post(&board, GLOBEX, 1, 2, 0))
                    };
                    assert!([None, Some(1)].contains(&find(&board, ACME, 1, 5)));
                    let posted = [writer.join().unwrap(), other.join().unwrap()];
                    assert!(posted.contains(&true), "one of them has the slot");
                    assert!([None, Some(1)].contains(&find(&board, ACME, 1, 5)));
                    assert!([None, Some(2)].contains(&find(&board, GLOBEX, 1, 5)));
                });
            }

            /// A reset clears the refusals of a tenant before it releases the lock of the row. From then on, no thread that
            /// has seen the reset sees a refusal.
            pub(super) fn no_refusal_outlives_a_reset() {
                tollgate_models::explore(Some(5), || {
                    let board = Arc::new(Board::new());
                    assert!(post(&board, ACME, 1, 1, 0) && post(&board, ACME, 2, 2, 0));
                    let is_reset = Arc::new(Mutex::new(false));
                    let operator = {
                        let (board, is_reset) = (Arc::clone(&board), Arc::clone(&is_reset));
                        thread::spawn(move || {
                            let mut row = is_reset.lock().unwrap();
                            *row = true;
                            board.clear(ACME.0);
                        })
                    };
                    let was_reset = *is_reset.lock().unwrap();
                    let seen = [1, 2].map(|units| find(&board, ACME, units, 5));
                    assert!(!was_reset || seen == [None, None], "{seen:?}");
                    operator.join().unwrap();
                    assert_eq!([1, 2].map(|units| find(&board, ACME, units, 5)), [None, None]);
                    assert!(post(&board, ACME, 1, 3, 5));
                    assert_eq!([1, 2].map(|units| find(&board, ACME, units, 6)), [Some(3), None], "an old refusal");
                });
            }

            /// A tenant's refusal is cleared, at a time at which it holds, while another tenant takes its slot, at a later
            /// one.
            pub(super) fn a_refusal_is_cleared_although_another_tenant_takes_its_slot() {
                tollgate_models::explore(None, || {
                    let board = Arc::new(Board::new());
                    assert!(post(&board, ACME, 1, 1, 0));
                    let other = {
                        let board = Arc::clone(&board);
                        thread::spawn(move || post(&board, GLOBEX, 1, 2, 10))
                    };
                    board.clear(ACME.0);
                    assert_eq!(find(&board, ACME, 1, 5), None);
                    other.join().unwrap();
                    assert_eq!(find(&board, ACME, 1, 5), None);
                    assert!([None, Some(2)].contains(&find(&board, GLOBEX, 1, 15)));
                    // a bit that was cleared with the refusal of the other tenant is back with the next refusal
                    assert!(post(&board, GLOBEX, 1, 3, 16));
                    assert_eq!(find(&board, GLOBEX, 1, 17), Some(3));
                });
            }
        }
    };
}

models!(board);

#[test]
fn no_reader_sees_half_of_two_refusals() {
    board::no_reader_sees_half_of_two_refusals();
}

#[test]
fn tenants_that_post_at_once_never_mix() {
    board::tenants_that_post_at_once_never_mix();
}

#[test]
fn no_refusal_outlives_a_reset() {
    board::no_refusal_outlives_a_reset();
}

#[test]
fn a_refusal_is_cleared_although_another_tenant_takes_its_slot() {
    board::a_refusal_is_cleared_although_another_tenant_takes_its_slot();
}

// copies that are weakened in one place, and what the model that notices it says
tollgate_models::faults! {
    board_without_the_fence_of_readers: no_reader_sees_half_of_two_refusals, "a mixture";
    board_without_the_fence_of_writers: no_reader_sees_half_of_two_refusals, "a mixture";
    board_with_a_relaxed_end_of_writing: no_reader_sees_half_of_two_refusals, "a mixture";
    board_with_a_relaxed_begin_of_reading: no_reader_sees_half_of_two_refusals, "a mixture";
    board_without_a_second_look_at_the_version: no_reader_sees_half_of_two_refusals, "a mixture";
    board_that_reads_while_it_is_written: no_reader_sees_half_of_two_refusals, "a mixture";
    board_that_two_can_write: tenants_that_post_at_once_never_mix, "a mixture";
    board_that_clears_the_home_alone: no_refusal_outlives_a_reset, "an old refusal";
}
