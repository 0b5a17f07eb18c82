//! The event log through its public API: in process, through sinks, and over HTTP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

/// The sink of the example server.
#[path = "../examples/server/json_lines.rs"]
mod json_lines;
#[path = "../examples/server/whole_lines.rs"]
mod whole_lines;

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use json_lines::JsonLines;
use tollgate::{
    EventLog, Tenant,
    clock::UnixTime,
    event::{Event, EventKind, Mode, Query, Sink},
};

fn refusal(tenant: &str, second: u64) -> Event {
    let mut event = Event::new(EventKind::RateLimited, UnixTime::from_secs(second)).tenant(tenant.parse().unwrap());
    (event.policy, event.limit) = (Some("per-minute"), 600);
    event.reset = Some(UnixTime::from_secs(second + 60));
    event
}

/// A sink that sends each event to a channel.
fn to_channel(sender: mpsc::SyncSender<Event>) -> impl Sink {
    move |events: &[Event]| events.iter().for_each(|event| drop(sender.try_send(event.clone())))
}

fn sum(events: &[Event]) -> u64 {
    events.iter().map(|event| event.count).sum()
}

/// Reads the whole log, page by page.
fn walk(log: &EventLog, query: &Query) -> Vec<Event> {
    let (mut events, mut next) = (Vec::new(), 0);
    loop {
        let page = log.read_events(&query.clone().since(next));
        assert_eq!(page.lost, 0);
        if page.events.is_empty() {
            return events;
        }
        next = page.next;
        events.extend(page.events);
    }
}

struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("tollgate-events-{}-{}", std::process::id(), NUMBER.fetch_add(1, SeqCst));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The event ids in these files. Each line must be complete.
    fn ids(&self, names: &[&str]) -> Vec<u64> {
        let text: String = names.iter().map(|name| fs::read_to_string(self.path(name)).unwrap()).collect();
        assert!(text.is_empty() || text.ends_with('\n'));
        let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_u64().unwrap();
        text.lines().map(id).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_first_rejection_is_readable_immediately_with_limit_and_reset() {
    let log = EventLog::new();
    log.tally(&refusal("acme", 5));
    let page = log.read_events(&Query::new());
    let mut expected = refusal("acme", 5);
    expected.id = 1;
    assert_eq!((page.events, page.next, page.lost), (vec![expected], 1, 0));
}

#[test]
fn counts_add_up_across_eight_threads_with_concurrent_readers() {
    const CALLS: u64 = 40_000;
    let seen = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&seen);
    let log = EventLog::builder().capacity(1_000_000).unwrap().max_per_second(300).unwrap();
    let log = log
        .sink(move |events: &[Event]| {
            counted.fetch_add(sum(events), SeqCst);
        })
        .build();
    thread::scope(|scope| {
        for worker in 0..8 {
            let log = log.clone();
            scope.spawn(move || {
                for call in 0..CALLS {
                    log.tally(&refusal(&format!("t{}", (call * 7 + worker) % 97), 100 + call / 5_000));
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| (0..200).for_each(|since| drop(log.read_events(&Query::new().since(since)))));
        }
    });
    assert!(log.flush());
    assert_eq!(seen.load(SeqCst), 8 * CALLS, "what the sink saw");
    assert_eq!(sum(&walk(&log, &Query::new())), 8 * CALLS, "what the log shows");
    assert_eq!(log.stats().lost, 0);
}

#[test]
fn a_million_rejections_of_a_tenant_become_a_few_events() {
    let log = EventLog::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            let (log, event) = (log.clone(), refusal("acme", 5));
            scope.spawn(move || (0..250_000).for_each(|_| log.tally(&event)));
        }
    });
    let events = walk(&log, &Query::new());
    assert_eq!(sum(&events), 1_000_000);
    assert!(events.len() <= 5, "the first of each thread, and one count: {}", events.len());
    assert!(events.iter().all(|event| event.tenant.is_some() && event.limit == 600));
}

#[test]
fn a_flood_of_tenants_is_limited_and_fully_counted() {
    let log = EventLog::builder().capacity(100_000).unwrap().build();
    for n in 0..50_000 {
        log.tally(&refusal(&format!("t{n}"), 5));
    }
    let mut shadow = refusal("acme", 5);
    shadow.mode = Mode::Shadow;
    log.tally(&shadow);
    let events = walk(&log, &Query::new());
    assert_eq!(sum(&events), 50_001);
    assert_eq!(events.len(), 1_002, "1,000 by themselves, the rest by mode");
    let merged: Vec<_> = events.iter().filter(|event| event.tenant.is_none()).collect();
    assert_eq!(merged.len(), 2);
    assert!(merged.iter().all(|event| event.kind == EventKind::RateLimited && event.policy.is_none()));
    assert!(merged.iter().any(|event| event.mode == Mode::Shadow && event.count == 1));
    // the next second has a new cap
    log.tally(&refusal("globex", 6));
    let page = log.read_events(&Query::new().tenant("globex".parse().unwrap()));
    assert_eq!(page.events.len(), 1);
}

#[test]
fn a_reader_that_falls_behind_learns_how_much_it_missed() {
    let log = EventLog::builder().capacity(10).unwrap().build();
    for second in 1..=25 {
        assert_eq!(log.record(refusal("acme", second)), second);
    }
    let page = log.read_events(&Query::new().since(3));
    assert_eq!(page.lost, 12, "4 to 15");
    assert_eq!(page.events.iter().map(|event| event.id).collect::<Vec<_>>(), (16..=25).collect::<Vec<_>>());
    let page = log.read_events(&Query::new().since(15));
    assert_eq!((page.lost, page.events.len(), page.next), (0, 10, 25));
    let page = log.read_events(&Query::new().since(25));
    assert_eq!((page.lost, page.events.len(), page.next), (0, 0, 25));
}

#[test]
fn an_id_from_before_a_restart_reads_from_the_oldest_event() {
    let log = EventLog::new();
    log.record(refusal("acme", 1));
    assert_eq!(log.read_events(&Query::new().since(77)).events.len(), 1);
}

#[test]
fn paging_returns_every_event_once_even_with_a_filter() {
    let log = EventLog::new();
    for n in 0..3_000_u64 {
        log.record(refusal(["acme", "globex", "initech"][n as usize % 3], n));
    }
    for limit in [1, 7, 100, 1_000] {
        let all: Vec<u64> = walk(&log, &Query::new().limit(limit).unwrap()).iter().map(|event| event.id).collect();
        assert_eq!(all, (1..=3_000).collect::<Vec<_>>());
        let acme = Query::new().limit(limit).unwrap().tenant("globex".parse().unwrap());
        let ids: Vec<u64> = walk(&log, &acme).iter().map(|event| event.id).collect();
        assert_eq!(ids, (0..1_000).map(|n| 3 * n + 2).collect::<Vec<_>>());
    }
    assert_eq!(
        log.read_events(&Query::new().kind(EventKind::TenantReset)).next,
        3_000,
        "events that did not match are skipped"
    );
}

#[test]
fn invalid_settings_are_rejected() {
    assert!(EventLog::builder().capacity(0).is_err());
    assert!(EventLog::builder().max_per_second(0).is_err());
    assert!(Query::new().limit(0).is_err() && Query::new().limit(1_001).is_err());
}

#[test]
fn rotation_splits_between_lines_and_loses_none() {
    let directory = Directory::new();
    let file = JsonLines::open(directory.path("log"), 2_000, 100).unwrap();
    let log = EventLog::builder().sink(file).build();
    for n in 1..=500 {
        log.record(refusal("acme", n));
    }
    assert!(log.flush());
    let files = fs::read_dir(&directory.0).unwrap().count();
    assert!(files > 10, "{files} files");
    let names: Vec<String> = (1..files).rev().map(|n| format!("log.{n}")).chain([String::from("log")]).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(directory.ids(&names), (1..=500).collect::<Vec<_>>());
    assert!(names.iter().all(|name| fs::metadata(directory.path(name)).unwrap().len() <= 2_000));
}

#[test]
fn only_the_newest_old_files_are_kept() {
    let directory = Directory::new();
    let mut file = JsonLines::open(directory.path("log"), 1, 2).unwrap();
    let events: Vec<Event> = (1..=9)
        .map(|id| {
            let mut event = refusal("acme", id);
            event.id = id;
            event
        })
        .collect();
    assert_eq!(file.write(&events), 9);
    assert_eq!(directory.ids(&["log.2", "log.1", "log"]), [7, 8, 9]);
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 3);
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_new_files() {
    use std::os::unix::fs::PermissionsExt;

    let directory = Directory::new();
    let mut file = JsonLines::open(directory.path("log"), 1, 2).unwrap();
    let event = || refusal("acme", 1);
    assert_eq!(file.write(&[event(), event(), event()]), 3);
    for name in ["log", "log.1", "log.2"] {
        let mode = fs::metadata(directory.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn after_a_restart_a_file_is_continued_and_a_torn_line_cut_off() {
    let open = |path: PathBuf| JsonLines::open(path, 64 << 20, 5);
    let directory = Directory::new();
    let mut first = refusal("acme", 1);
    first.id = 1;
    let mut second = refusal("acme", 2);
    second.id = 2;
    assert_eq!(open(directory.path("log")).unwrap().write(&[first.clone()]), 1);
    let torn = format!("{}\n{}", first.to_json(), &second.to_json()[..20]);
    fs::write(directory.path("log"), torn).unwrap();
    assert_eq!(open(directory.path("log")).unwrap().write(&[second]), 1);
    assert_eq!(directory.ids(&["log"]), [1, 2]);
    // foreign text is terminated, not cut off
    fs::write(directory.path("other"), "text without an end").unwrap();
    assert_eq!(open(directory.path("other")).unwrap().write(&[first.clone()]), 1);
    let text = fs::read_to_string(directory.path("other")).unwrap();
    assert_eq!(text, format!("text without an end\n{}\n", first.to_json()));
}

#[test]
fn events_wait_until_a_file_can_be_rotated() {
    let directory = Directory::new();
    let file = JsonLines::open(directory.path("log"), 100, 5).unwrap();
    // a non-empty directory blocks the name for the full file
    fs::create_dir_all(directory.path("log.1/full")).unwrap();
    for n in 2..=5 {
        fs::create_dir_all(directory.path(&format!("log.{n}/full"))).unwrap();
    }
    let log = EventLog::builder().sink(file).build();
    log.record(refusal("acme", 1));
    log.record(refusal("acme", 2));
    assert!(!log.flush(), "the second does not fit");
    assert!(log.stats().sink_failures > 0);
    for n in 1..=5 {
        fs::remove_dir_all(directory.path(&format!("log.{n}"))).unwrap();
    }
    assert!(log.flush());
    assert_eq!(directory.ids(&["log.1", "log"]), [1, 2]);
}

#[test]
fn partially_accepted_events_are_offered_again() {
    struct OneByOne(mpsc::Sender<u64>);
    impl Sink for OneByOne {
        fn write(&mut self, events: &[Event]) -> usize {
            let taken = self.0.send(events[0].id);
            usize::from(taken.is_ok())
        }
    }
    let (sender, receiver) = mpsc::channel();
    let log = EventLog::builder().sink(OneByOne(sender)).build();
    for n in 1..=5 {
        log.record(refusal("acme", n));
    }
    while !log.flush() {}
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

#[test]
fn a_slow_sink_loses_the_oldest_events_and_they_are_counted() {
    let (entered, is_in) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let seen = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&seen);
    let log = EventLog::builder().capacity(10).unwrap().sink(move |events: &[Event]| {
        let _ = entered.send(());
        let _ = gate.recv();
        counter.fetch_add(events.len() as u64, SeqCst);
    });
    let log = log.build();
    log.record(refusal("acme", 0));
    is_in.recv().unwrap();
    // the sink hangs, but recording does not
    for n in 1..=100 {
        log.record(refusal("acme", n));
    }
    drop(go);
    assert!(log.flush());
    assert_eq!((seen.load(SeqCst), log.stats().lost), (11, 90));
}

#[test]
fn a_panicking_sink_is_removed_and_the_others_continue() {
    let (sender, receiver) = mpsc::sync_channel(10);
    let log = EventLog::builder().sink(|_: &[Event]| panic!("a bug in a sink")).sink(to_channel(sender)).build();
    log.record(refusal("acme", 1));
    log.flush();
    log.record(refusal("acme", 2));
    assert!(log.flush());
    assert_eq!(receiver.try_iter().count(), 2);
    assert_eq!(log.stats().sink_failures, 1);
}

#[test]
fn any_thread_can_flush_and_a_sink_that_flushes_gets_false() {
    let (handle, seen) = (Arc::new(OnceLock::<EventLog>::new()), Arc::new(Mutex::new(Vec::new())));
    let (own, found) = (Arc::clone(&handle), Arc::clone(&seen));
    let log = EventLog::builder().sink(move |events: &[Event]| {
        assert!(!own.wait().flush());
        found.lock().unwrap().extend(events.iter().map(|event| event.id));
    });
    let log = log.build();
    assert!(handle.set(log.clone()).is_ok());
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for n in 1..=50 {
                    log.record(refusal("acme", n));
                    assert!(log.flush());
                }
            });
        }
    });
    assert_eq!(*seen.lock().unwrap(), (1..=200).collect::<Vec<_>>());
}

#[test]
fn dropping_the_log_flushes_and_drops_its_sinks() {
    let (sender, receiver) = mpsc::sync_channel(100);
    let log = EventLog::builder().sink(to_channel(sender)).build();
    let clone = log.clone();
    drop(log);
    (0..10).for_each(|_| clone.tally(&refusal("acme", 5)));
    drop(clone);
    let next = || receiver.recv_timeout(Duration::from_secs(30));
    let mut seen = 0;
    let end = loop {
        match next() {
            Ok(event) => seen += event.count,
            Err(end) => break end,
        }
    };
    assert_eq!((seen, end), (10, mpsc::RecvTimeoutError::Disconnected), "the sink is gone too");
}

#[test]
fn counts_reach_a_sink_without_reads_or_flushes() {
    let (sender, receiver) = mpsc::sync_channel(100);
    let log = EventLog::builder().sink(to_channel(sender)).build();
    (0..10).for_each(|_| log.tally(&refusal("acme", 5)));
    let mut seen = 0;
    while seen < 10 {
        seen += receiver.recv_timeout(Duration::from_secs(30)).unwrap().count;
    }
    assert_eq!(seen, 10);
    assert_eq!(log.stats().coalesced, 9);
}

#[test]
fn long_names_are_handled() {
    let name = "x".repeat(Tenant::MAX_LEN);
    let log = EventLog::new();
    (0..10).for_each(|_| log.tally(&refusal(&name, 5)));
    assert_eq!(sum(&log.read_events(&Query::new().tenant(name.parse().unwrap())).events), 10);
}

#[test]
fn reading_stats_during_a_flood_never_deadlocks() {
    let log = EventLog::new();
    let (done, ended) = mpsc::channel();
    // on detached threads, so that a deadlock fails the test
    for name in ["acme", "globex", "initech"] {
        let (log, done) = (log.clone(), done.clone());
        thread::spawn(move || {
            for second in 0..2_000 {
                log.tally(&refusal(name, second));
                log.tally(&refusal(name, second));
            }
            let _ = done.send(());
        });
    }
    let seen = log.clone();
    thread::spawn(move || {
        for _ in 0..2_000 {
            assert!(!format!("{seen:?}").is_empty());
        }
        let _ = done.send(());
    });
    for _ in 0..4 {
        ended.recv_timeout(Duration::from_secs(30)).expect("deadlock");
    }
    log.read_events(&Query::new());
    assert_eq!(log.stats().lost, 0);
}
