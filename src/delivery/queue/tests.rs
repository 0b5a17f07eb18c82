//! Tests with tokio's paused time, and a clock that follows it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use proptest::prelude::*;
use tokio::{
    runtime::{Builder, Runtime},
    time::{Instant, sleep},
};

use super::*;
use crate::{
    delivery::{
        error::{SendError, SendErrorKind},
        outbox::Outbox,
        sender::OtpSender,
    },
    util::clock::{Moment, UnixTime, saturating_nanos},
};

/// Shows the runtime's time, starting at 1000 s.
#[derive(Debug)]
struct Follows(Instant);

impl Follows {
    fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for Follows {
    fn now(&self) -> Moment {
        Moment::from_nanos(saturating_nanos(self.0.elapsed()))
    }

    fn unix(&self, moment: Moment) -> UnixTime {
        UnixTime::from_nanos(moment.as_nanos() + 1_000_000_000_000)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Sent,
    Busy,
    Later(u64),
    Never,
    Panic,
    Hang,
    /// Takes this many milliseconds, then fails as busy.
    Slow(u64),
    /// Takes this many milliseconds, each time.
    Takes(u64),
}

type Attempt = (Duration, bool);

/// A sender that follows a script and records its attempts. After the end of the script it
/// succeeds.
#[derive(Clone)]
struct Script {
    steps: Arc<Vec<Step>>,
    began: Instant,
    /// For each code: when each attempt started, and whether it succeeded.
    attempts: Arc<Mutex<HashMap<String, Vec<Attempt>>>>,
    at_once: Arc<AtomicUsize>,
    most_at_once: Arc<AtomicUsize>,
}

impl Script {
    fn new(steps: impl Into<Vec<Step>>) -> Self {
        Self {
            steps: Arc::new(steps.into()),
            began: Instant::now(),
            attempts: Arc::default(),
            at_once: Arc::default(),
            most_at_once: Arc::default(),
        }
    }

    fn attempts(&self, code: &str) -> Vec<Duration> {
        self.attempts.lock().unwrap().get(code).into_iter().flatten().map(|(at, _)| *at).collect()
    }

    fn sent(&self, code: &str) -> usize {
        self.attempts.lock().unwrap().get(code).into_iter().flatten().filter(|(_, sent)| *sent).count()
    }
}

struct Inside(Arc<AtomicUsize>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl OtpSender for Script {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        self.most_at_once.fetch_max(self.at_once.fetch_add(1, SeqCst) + 1, SeqCst);
        let _inside = Inside(Arc::clone(&self.at_once));
        let step = {
            let mut attempts = self.attempts.lock().unwrap();
            let mine = attempts.entry(message.code().to_owned()).or_default();
            let step = self.steps.get(mine.len()).copied().unwrap_or(Step::Sent);
            mine.push((self.began.elapsed(), matches!(step, Step::Sent | Step::Takes(_))));
            step
        };
        match step {
            Step::Sent => Ok(()),
            Step::Busy => Err(SendError::transient("busy")),
            Step::Later(seconds) => Err(SendError::transient("busy").not_before(Duration::from_secs(seconds))),
            Step::Never => Err(SendError::permanent("no such phone")),
            Step::Panic => panic!("the sender is broken"),
            Step::Hang => std::future::pending().await,
            Step::Slow(ms) => {
                sleep(Duration::from_millis(ms)).await;
                Err(SendErrorKind::Transient.into())
            }
            Step::Takes(ms) => {
                sleep(Duration::from_millis(ms)).await;
                Ok(())
            }
        }
    }
}

type Reports = Arc<Mutex<Vec<(String, Undelivered)>>>;

/// A queue with this scripted sender, and its undelivered messages.
fn queue(script: &Script) -> (Queue, Reports) {
    let reports = Reports::default();
    let queue = Queue::new().with_channel(Channel::Sms, script.clone().into()).with_clock(Arc::new(Follows::new()));
    let told = Arc::clone(&reports);
    let report = move |message: &Message, why| told.lock().unwrap().push((message.code().to_owned(), why));
    (queue.on_undelivered(report), reports)
}

/// A message that is valid for this long after the start of the runtime.
fn valid_for(seconds: u64, code: &str) -> Message {
    message_for_tenant("acme", seconds, code)
}

fn message_for_tenant(tenant: &str, seconds: u64, code: &str) -> Message {
    let until = UnixTime::from_secs(1_000 + seconds);
    Message::new(Channel::Sms, tenant.parse().unwrap(), "+15550100", code, until)
}

fn message(code: &str) -> Message {
    valid_for(1_000_000, code)
}

/// Lets all tasks run to their end, advancing time as needed.
async fn settle() {
    sleep(Duration::from_secs(10_000)).await;
}

fn given_up(reports: &Reports) -> Vec<(String, Undelivered)> {
    reports.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn messages_are_sent_once_in_the_background() {
    let script = Script::new([]);
    let (queue, reports) = queue(&script);
    assert!(queue.push(Channel::Sms, message("1")));
    assert_eq!(script.attempts("1"), [], "sent in the foreground");
    settle().await;
    assert_eq!(script.attempts("1"), [Duration::ZERO]);
    assert_eq!(given_up(&reports), []);
    assert_eq!((script.sent("1"), queue.waiting(Channel::Sms)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn temporary_failures_are_retried_with_doubling_waits_and_jitter() {
    let script = Script::new([Step::Busy, Step::Busy, Step::Busy]);
    let (queue, reports) = queue(&script);
    for code in 0..20 {
        assert!(queue.push(Channel::Sms, message(&code.to_string())));
    }
    settle().await;
    let mut first_waits = Vec::new();
    for code in 0..20 {
        let at = script.attempts(&code.to_string());
        let waits: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for (wait, least) in waits.iter().zip([500, 1_000, 2_000].map(Duration::from_millis)) {
            // timers have a resolution of one millisecond
            assert!((least..=least * 3 / 2 + Duration::from_millis(2)).contains(wait), "{waits:?}");
        }
        assert_eq!((waits.len(), script.sent(&code.to_string())), (3, 1));
        first_waits.push(waits[0]);
    }
    first_waits.dedup();
    assert!(first_waits.len() > 5, "no jitter: {first_waits:?}");
    assert_eq!(given_up(&reports), []);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_limited_to_four() {
    let script = Script::new([Step::Busy; 9]);
    let (queue, reports) = queue(&script);
    assert!(queue.push(Channel::Sms, message("1")));
    settle().await;
    assert_eq!(script.attempts("1").len(), 4);
    assert_eq!(given_up(&reports), [("1".to_owned(), Undelivered::Exhausted)]);
}

#[tokio::test(start_paused = true)]
async fn permanent_failures_are_not_retried() {
    let script = Script::new([Step::Never]);
    let (queue, reports) = queue(&script);
    assert!(queue.push(Channel::Sms, message("1")));
    settle().await;
    assert_eq!(script.attempts("1").len(), 1);
    assert_eq!(given_up(&reports), [("1".to_owned(), Undelivered::Refused)]);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_respected_up_to_a_minute() {
    let script = Script::new([Step::Later(7), Step::Later(100_000)]);
    let (queue, _) = queue(&script);
    assert!(queue.push(Channel::Sms, message("1")));
    settle().await;
    let at = script.attempts("1");
    assert_eq!(at.iter().map(Duration::as_secs).collect::<Vec<_>>(), [0, 7, 67]);
}

#[tokio::test(start_paused = true)]
async fn expired_codes_are_not_sent() {
    let script = Script::new([Step::Busy; 9]);
    let (queue, reports) = queue(&script);
    // the first is expired before it is pushed, the second before the second retry
    assert!(queue.push(Channel::Sms, valid_for(0, "0")));
    assert!(queue.push(Channel::Sms, valid_for(1, "1")));
    sleep(Duration::from_millis(760)).await;
    assert_eq!(given_up(&reports).len(), 2, "it waits in vain");
    settle().await;
    assert_eq!(script.attempts("0").len(), 0);
    assert_eq!(script.attempts("1").len(), 2);
    assert_eq!(given_up(&reports), [("0".to_owned(), Undelivered::Expired), ("1".to_owned(), Undelivered::Expired)]);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_limited_by_the_timeout_and_by_the_expiry() {
    let script = Script::new([Step::Hang, Step::Sent]);
    let (queue, reports) = queue(&script);
    assert!(queue.push(Channel::Sms, message("long")));
    assert!(queue.push(Channel::Sms, valid_for(5, "short")));
    sleep(Duration::from_millis(5_100)).await;
    assert_eq!(given_up(&reports), [("short".to_owned(), Undelivered::Expired)]);
    settle().await;
    assert_eq!(script.attempts("long").iter().map(Duration::as_secs).collect::<Vec<_>>(), [0, 30]);
    assert_eq!((script.sent("long"), script.attempts("short").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_channel_does_not_delay_others() {
    let hanging = Script::new([Step::Hang; 9]);
    let outbox = Outbox::new();
    let queue = queue(&hanging).0.with_channel(Channel::Email, outbox.clone().into());
    for code in 0..100 {
        assert!(queue.push(Channel::Sms, message(&code.to_string())));
    }
    assert!(queue.push(Channel::Email, message("mail")));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(outbox.messages().len(), 1);
    assert_eq!(queue.waiting(Channel::Sms), 96);
}

#[tokio::test(start_paused = true)]
async fn concurrency_is_limited() {
    let script = Script::new([Step::Slow(100)]);
    let (queue, _) = queue(&script);
    for code in 0..20 {
        assert!(queue.push(Channel::Sms, message(&code.to_string())));
    }
    settle().await;
    assert_eq!(script.most_at_once.load(SeqCst), 4);
    let wider = queue.with_workers(7);
    for code in 20..40 {
        assert!(wider.push(Channel::Sms, message(&code.to_string())));
    }
    settle().await;
    assert_eq!(script.most_at_once.load(SeqCst), 7);
    assert_eq!((0..40).map(|code| script.sent(&code.to_string())).sum::<usize>(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_panics_loses_one_message() {
    let script = Script::new([Step::Panic]);
    let (queue, reports) = queue(&script);
    let queue = queue.with_workers(1);
    assert!(queue.push(Channel::Sms, message("1")));
    assert!(queue.push(Channel::Sms, message("2")));
    settle().await;
    assert_eq!(given_up(&reports).len(), 2);
    let fine = Script::new([]);
    let queue = queue.with_channel(Channel::Sms, fine.clone().into());
    assert!(queue.push(Channel::Sms, message("3")));
    settle().await;
    assert_eq!(fine.sent("3"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_channel_rejects_immediately() {
    let script = Script::new([Step::Hang; 9]);
    let (queue, reports) = queue(&script);
    let queue = queue.with(|settings| settings.capacity = 3);
    // no worker runs in between, so no job has left the queue yet
    let taken = |code: usize| queue.push(Channel::Sms, message(&code.to_string()));
    assert_eq!((0..5).map(taken).collect::<Vec<_>>(), [true, true, true, false, false]);
    assert_eq!(given_up(&reports), [("3".to_owned(), Undelivered::Full), ("4".to_owned(), Undelivered::Full)]);
    assert_eq!(queue.waiting(Channel::Sms), 3);
}

#[tokio::test(start_paused = true)]
async fn decoys_take_the_room_of_messages() {
    let script = Script::new([Step::Hang; 9]);
    let (queue, reports) = queue(&script);
    let queue = queue.with(|settings| settings.capacity = 4);
    let taken = |_| queue.push_decoy(Channel::Sms, message("decoy"));
    assert_eq!((0..3).map(taken).collect::<Vec<_>>(), [true; 3]);
    assert!(queue.push(Channel::Sms, message("1")));
    assert!(!queue.push(Channel::Sms, message("2")) && !taken(4));
    // nobody waits for a decoy
    assert_eq!(given_up(&reports), [("2".to_owned(), Undelivered::Full)]);
}

#[tokio::test(start_paused = true)]
async fn decoys_take_the_usual_time_of_a_message_and_are_not_counted() {
    let script = Script::new([]);
    let (queue, reports) = queue(&script);
    let queue = queue.with_workers(1);
    for _ in 0..50 {
        assert!(queue.push_decoy(Channel::Sms, message("decoy")));
    }
    assert!(queue.push(Channel::Sms, message("1")));
    settle().await;
    assert_eq!(script.attempts("decoy"), []);
    // 200 ms as long as no message was sent, and then as long as that one: no time at all
    assert_eq!(script.attempts("1"), [Duration::from_secs(10)]);
    assert!(queue.push_decoy(Channel::Sms, message("decoy")) && queue.push(Channel::Sms, message("2")));
    settle().await;
    assert_eq!(script.attempts("2"), [Duration::from_secs(10_000)]);
    assert_eq!(queue.waiting(Channel::Sms), 0);
    assert_eq!(given_up(&reports), []);
}

/// What the owner of a mailbox sees: when each of their messages is sent.
async fn arrivals(jobs: &[(usize, bool)], delay: u64, workers: usize, decoys: bool) -> Vec<Duration> {
    let script = Script::new([Step::Takes(delay)]);
    let (queue, _) = queue(&script);
    let queue = queue.with_workers(workers);
    // the time of a message is known
    assert!(queue.push(Channel::Sms, message("first")));
    settle().await;
    for (number, (tenant, is_own)) in jobs.iter().enumerate() {
        let message = message_for_tenant(["acme", "globex", "umbrella"][tenant % 3], 100_000, &number.to_string());
        let pushed = match *is_own || !decoys {
            true => queue.push(Channel::Sms, message),
            false => queue.push_decoy(Channel::Sms, message),
        };
        assert!(pushed);
        // a request comes every now and then
        sleep(Duration::from_millis(7 * (number as u64 % 5))).await;
    }
    settle().await;
    let own = jobs.iter().enumerate().filter(|(_, (_, is_own))| *is_own);
    own.map(|(number, _)| *script.attempts(&number.to_string()).first().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn b02_c133_forty_unknown_names_delay_a_message_like_forty_known_ones() {
    let jobs: Vec<_> = (0..40).map(|_| (0, false)).chain([(0, true)]).collect();
    for workers in [1, 4] {
        let known = arrivals(&jobs, 250, workers, false).await;
        assert!(known[0] >= Duration::from_secs(10_000) + Duration::from_millis(250) * 40 / workers as u32);
        assert_eq!(arrivals(&jobs, 250, workers, true).await, known);
    }
}

#[tokio::test(start_paused = true)]
async fn b02_c133_tenants_take_turns() {
    let script = Script::new([Step::Takes(100)]);
    let (queue, _) = queue(&script);
    let queue = queue.with_workers(1);
    for number in 0..100 {
        let message = message_for_tenant("acme", 100_000, &format!("acme {number}"));
        // decoys of one tenant do not delay another one either
        assert!(if number % 2 == 0 {
            queue.push(Channel::Sms, message)
        } else {
            queue.push_decoy(Channel::Sms, message)
        });
    }
    for number in 0..3 {
        assert!(queue.push(Channel::Sms, message_for_tenant("globex", 100_000, &format!("globex {number}"))));
    }
    assert!(queue.push(Channel::Sms, message_for_tenant("umbrella", 100_000, "umbrella")));
    settle().await;
    let at = |code: &str| script.attempts(code)[0].as_millis();
    assert!(at("globex 0") <= 200 && at("umbrella") <= 300, "{} {}", at("globex 0"), at("umbrella"));
    assert!(at("globex 2") <= 800 && at("acme 98") >= 9_000);
}

/// Neither the end of a code nor the end of the queue tells them apart.
#[tokio::test(start_paused = true)]
async fn b02_decoys_expire_and_stop_like_messages() {
    let script = Script::new([Step::Takes(29_000)]);
    let (queue, _) = queue(&script);
    let queue = queue.with_workers(1);
    assert!(queue.push(Channel::Sms, message("first")));
    settle().await;
    // the second has expired when its turn comes, and takes no time
    for code in ["decoy", "decoy"] {
        assert!(queue.push_decoy(Channel::Sms, message_for_tenant("acme", 10_020, code)));
    }
    assert!(queue.push(Channel::Sms, message("1")));
    settle().await;
    assert_eq!(script.attempts("1"), [Duration::from_secs(10_020)]);
    let waiting = queue.waiting(Channel::Sms);
    (0..5).for_each(|_| assert!(queue.push_decoy(Channel::Sms, message("decoy"))));
    sleep(Duration::from_secs(1)).await;
    let alive = Handle::current().metrics().num_alive_tasks();
    drop(queue);
    sleep(Duration::from_millis(1)).await;
    let left = Handle::current().metrics().num_alive_tasks();
    assert_eq!((waiting, alive, left), (0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn without_a_sender_nothing_is_queued() {
    let (queue, reports) = queue(&Script::new([]));
    assert!(queue.has(Channel::Sms) && !queue.has(Channel::Email));
    assert!(!queue.push(Channel::Email, message("1")));
    assert!(!queue.push_decoy(Channel::Email, message("decoy")));
    assert_eq!(given_up(&reports), [("1".to_owned(), Undelivered::NoSender)]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_clone_finishes_only_running_attempts() {
    let script = Script::new([Step::Slow(100), Step::Sent]);
    let (queue, reports) = queue(&script);
    let queue = queue.with_workers(1);
    let other = queue.clone();
    assert!(queue.push(Channel::Sms, message("being sent")));
    assert!(queue.push(Channel::Sms, message("waits")));
    sleep(Duration::from_millis(50)).await;
    drop(queue);
    assert_eq!(given_up(&reports), []);
    drop(other);
    settle().await;
    assert_eq!((script.attempts("being sent").len(), script.attempts("waits").len()), (1, 0));
    let stopped = |code: &str| (code.to_owned(), Undelivered::Stopped);
    assert_eq!(given_up(&reports), [stopped("being sent"), stopped("waits")]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_clone_ends_a_wait() {
    let script = Script::new([Step::Later(60)]);
    let (queue, reports) = queue(&script);
    assert!(queue.push(Channel::Sms, message("1")));
    sleep(Duration::from_secs(1)).await;
    drop(queue);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(given_up(&reports), [("1".to_owned(), Undelivered::Stopped)]);
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

#[test]
fn a_queue_survives_the_runtime_of_its_workers() {
    let first = runtime();
    let script = first.block_on(async { Script::new([Step::Hang]) });
    let (queue, reports) = first.block_on(async { queue(&script) });
    let queue = queue.with_workers(1);
    first.block_on(async {
        assert!(queue.push(Channel::Sms, message("cut off")));
        assert!(queue.push(Channel::Sms, message("waits")));
        sleep(Duration::from_secs(1)).await;
    });
    drop(first);
    assert_eq!(given_up(&reports), [("cut off".to_owned(), Undelivered::Stopped)]);
    runtime().block_on(async {
        // each runtime has its own time
        let queue = queue.with_clock(Arc::new(Follows::new()));
        assert!(queue.push(Channel::Sms, message("later")));
        settle().await;
    });
    assert_eq!(script.attempts("waits").len() + script.attempts("later").len(), 2 + 2);
    assert_eq!((script.sent("waits"), script.sent("later")), (1, 1));
}

#[test]
fn a_push_outside_a_runtime_is_reported() {
    let (queue, reports) = runtime().block_on(async { queue(&Script::new([])) });
    assert!(!queue.push(Channel::Sms, message("1")));
    assert!(!queue.push_decoy(Channel::Sms, message("decoy")));
    assert_eq!(given_up(&reports), [("1".to_owned(), Undelivered::Stopped)]);
}

#[test]
fn messages_of_many_threads_are_accounted_for_once() {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    let outbox = Outbox::with_capacity(100_000).unwrap();
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let queue = Queue::new().with_channel(Channel::Email, outbox.clone().into());
    let queue = queue.with(|settings| settings.capacity = 50).on_undelivered(move |_, _| {
        counted.fetch_add(1, SeqCst);
    });
    let until = UnixTime::from_nanos(u64::MAX);
    runtime.block_on(async {
        let tasks: Vec<_> = (0..8)
            .map(|thread| {
                let queue = queue.clone();
                tokio::spawn(async move {
                    for number in 0..2_000 {
                        let code = format!("{thread}-{number}");
                        let message =
                            |code: &str| Message::new(Channel::Email, "acme".parse().unwrap(), "a@b.c", code, until);
                        queue.push(Channel::Email, message(&code));
                        queue.push_decoy(Channel::Email, message("decoy"));
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        while queue.waiting(Channel::Email) > 0 || outbox.messages().len() + refused.load(SeqCst) < 16_000 {
            tokio::task::yield_now().await;
        }
    });
    let mut codes: Vec<_> = outbox.messages().iter().map(|message| message.code().to_owned()).collect();
    codes.sort();
    codes.dedup();
    assert_eq!(codes.len() + refused.load(SeqCst), 16_000, "lost, or sent twice");
    assert_eq!(outbox.messages().len(), codes.len());
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Busy),
        2 => Just(Step::Sent),
        1 => Just(Step::Never),
        1 => Just(Step::Panic),
        1 => Just(Step::Hang),
        1 => (0_u64..90).prop_map(Step::Later),
        2 => (0_u64..40_000).prop_map(Step::Slow),
    ];
    proptest::collection::vec(step, 0..8)
}

proptest! {
    /// Whichever of the codes before them are decoys, the messages of one's own are sent at the same times.
    #[test]
    fn b02_c133_decoys_change_no_time_of_another_message(
        jobs in proptest::collection::vec((0_usize..3, any::<bool>()), 1..40),
        delay in 0_u64..500,
        workers in 1_usize..5,
    ) {
        let known = runtime().block_on(arrivals(&jobs, delay, workers, false));
        let unknown = runtime().block_on(arrivals(&jobs, delay, workers, true));
        prop_assert_eq!(known, unknown);
    }

    #[test]
    fn attempts_are_limited_timely_and_end_with_success(
        steps in steps(),
        codes in proptest::collection::vec((0_u64..200, any::<bool>()), 1..12),
        workers in 1_usize..4,
    ) {
        runtime().block_on(async {
            let script = Script::new(steps.clone());
            let (queue, reports) = queue(&script);
            let queue = queue.with_workers(workers);
            for (number, (seconds, decoy)) in codes.iter().enumerate() {
                let message = valid_for(*seconds, &number.to_string());
                match decoy {
                    true => queue.push_decoy(Channel::Sms, message),
                    false => queue.push(Channel::Sms, message),
                };
            }
            settle().await;
            let reports = given_up(&reports);
            for (number, (seconds, decoy)) in codes.iter().enumerate() {
                let code = number.to_string();
                let (at, sent) = (script.attempts(&code), script.sent(&code));
                let reported = reports.iter().filter(|(of, _)| *of == code).count();
                assert!(at.len() <= 4, "{} attempts", at.len());
                assert!(at.iter().all(|at| *at < Duration::from_secs(*seconds)), "{at:?} of {seconds} s");
                // sent at most once, by the last attempt; otherwise reported once
                assert_eq!(sent + reported, usize::from(!decoy), "sent {sent}, reported {reported}");
                let first = steps.iter().position(|step| matches!(step, Step::Sent)).unwrap_or(steps.len());
                assert!(sent == 0 || at.len() == first + 1);
            }
            assert_eq!(queue.waiting(Channel::Sms), 0);
        });
    }
}
