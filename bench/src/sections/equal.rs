//! Whether the time of an answer tells who has an account.

use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate::{AuthService, Passwords, delivery::Outbox, store::Memory, testing::ManualClock};

use crate::{
    apart::{ranks, welch},
    login::{self, Local, Setup, address, foreign, identifier, phone, stranger},
    random::Random,
    stats::{Table, median, quantile},
};

const SAMPLES: u64 = 4_000;
/// Of those that take an argon2.
const SLOW_SAMPLES: u64 = 400;
/// The first ones warm up, and are not counted.
const WARM: u64 = 200;
/// As in dudect: beyond this many standard deviations two are told apart for sure.
const APART: f64 = 4.5;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// A user, with their own address.
    Known,
    /// A user, with an address that is nobody's.
    Foreign,
    /// Nobody of that name, with an address that is nobody's.
    Unknown,
}

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Start,
    Code,
    CodeAgain,
    WrongCode,
    WrongPassword,
}

pub fn run() {
    println!("### Whether the time of an answer tells who has an account\n");
    println!(
        "One call in process, by a browser, an address and an identifier that were never \
         seen before; the two sorts in random order. In nanoseconds. `greater` is how often a call of the second sort is \
         slower than one of the first (0.50: as often as not), `z` how many standard deviations that is away from \
         chance (Mann and Whitney), `t` is Welch's of the fastest half, three quarters and 95 of a hundred. Beyond {APART} two sorts \
         are told apart by so many calls, where nothing but the machine adds noise. Lines of `known` and `known` are a \
         control: both sorts are the same.\n"
    );
    let mut table = Table::new([
        "call",
        "first",
        "second",
        "samples",
        "median",
        "quartiles",
        "median, second",
        "quartiles",
        "difference",
        "greater",
        "z",
        "t 50 %",
        "t 75 %",
        "t 95 %",
        "told apart",
    ]);
    let fast = || Passwords::insecure_fast();
    for (what, left, right, passwords, name) in [
        (What::Start, Who::Known, Who::Known, fast(), "start"),
        (What::Start, Who::Known, Who::Unknown, fast(), "start"),
        (What::Code, Who::Known, Who::Known, fast(), "a code is asked for"),
        (What::Code, Who::Known, Who::Foreign, fast(), "a code is asked for"),
        (What::Code, Who::Foreign, Who::Unknown, fast(), "a code is asked for"),
        (What::Code, Who::Known, Who::Unknown, fast(), "a code is asked for"),
        (What::CodeAgain, Who::Known, Who::Unknown, fast(), "a second code is asked for"),
        (What::WrongCode, Who::Known, Who::Unknown, fast(), "a wrong code"),
        (What::WrongPassword, Who::Known, Who::Known, fast(), "a wrong password, least argon2"),
        (What::WrongPassword, Who::Known, Who::Unknown, fast(), "a wrong password, least argon2"),
        (What::WrongPassword, Who::Known, Who::Unknown, Passwords::new(), "a wrong password"),
    ] {
        let samples = if name == "a wrong password" { SLOW_SAMPLES } else { SAMPLES };
        let (first, second) = compare(what, left, right, passwords, samples);
        table.row(row(name, left, right, &first, &second));
    }
    table.print();
}

fn row(name: &str, left: Who, right: Who, first: &[f64], second: &[f64]) -> Vec<String> {
    let both: Vec<f64> = first.iter().chain(second).copied().collect();
    let (greater, z) = ranks(first, second);
    let t = [0.5, 0.75, 0.95].map(|share| welch(first, second, quantile(&both, share)));
    let apart = z.abs() > APART || t.iter().any(|t| t.abs() > APART);
    let quartiles = |values: &[f64]| format!("{:.0}–{:.0}", quantile(values, 0.25), quantile(values, 0.75));
    vec![
        name.to_owned(),
        format!("{left:?}").to_lowercase(),
        format!("{right:?}").to_lowercase(),
        first.len().to_string(),
        format!("{:.0}", median(first)),
        quartiles(first),
        format!("{:.0}", median(second)),
        quartiles(second),
        format!("{:+.0}", median(second) - median(first)),
        format!("{greater:.3}"),
        format!("{z:+.1}"),
        format!("{:+.1}", t[0]),
        format!("{:+.1}", t[1]),
        format!("{:+.1}", t[2]),
        if apart { "**yes**" } else { "no" }.to_owned(),
    ]
}

/// So many times of each sort, in nanoseconds.
fn compare(what: What, left: Who, right: Who, passwords: Passwords, samples: u64) -> (Vec<f64>, Vec<f64>) {
    let runtime = login::runtime();
    let warm = WARM.min(samples / 10);
    let setup = Setup { store: Memory::new().into(), users: 2 * (samples + warm), passwords };
    let clock = ManualClock::new();
    let service = runtime.block_on(setup.service_on(clock.clone(), Outbox::new()));
    let (mut order, mut first, mut second) = (Random(7), Vec::new(), Vec::new());
    for round in 0..samples + warm {
        let sorts = [(left, 2 * round), (right, 2 * round + 1)];
        let swapped = order.below(2) == 1;
        // both are made ready before either is timed
        let mut ready = sorts.map(|(who, number)| Ready::new(&runtime, &service, what, who, number));
        // the next code may be asked for
        clock.advance(Duration::from_secs(31));
        for turn in [usize::from(swapped), usize::from(!swapped)] {
            let took = ready[turn].time(&runtime, &service, what);
            let times = if turn == 0 { &mut first } else { &mut second };
            if round >= warm {
                times.push(took);
            }
        }
    }
    (first, second)
}

/// A browser that is about to make the call that is timed.
struct Ready {
    local: Local,
    identifier: String,
    phone: String,
}

impl Ready {
    fn new(runtime: &Runtime, service: &AuthService, what: What, who: Who, number: u64) -> Self {
        let identifier = if who == Who::Unknown { stranger(number) } else { identifier(number) };
        let phone = if who == Who::Known { phone(number) } else { foreign(number) };
        let mut local = Local::new(address(number));
        if what != What::Start {
            local.start(runtime, service, &identifier);
        }
        if matches!(what, What::WrongCode | What::CodeAgain) {
            let asked = local.send(runtime, service, local.browser.code(&phone));
            assert_eq!(asked.status, 200, "{}", asked.text);
            // the queue does its work
            runtime.block_on(async {
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
            });
        }
        Self { local, identifier, phone }
    }

    fn time(&mut self, runtime: &Runtime, service: &AuthService, what: What) -> f64 {
        let browser = &self.local.browser;
        let (ask, status) = match what {
            What::Start => (browser.start(&self.identifier), 200),
            What::Code | What::CodeAgain => (browser.code(&self.phone), 200),
            What::WrongCode => (browser.verify("000000"), 401),
            What::WrongPassword => (browser.password(&self.identifier, "wrong horse battery staple"), 401),
        };
        let answer = self.local.send(runtime, service, ask);
        // one code of a million is right
        assert!(answer.status == status || what == What::WrongCode, "{what:?}: {}", answer.text);
        answer.took.as_nanos() as f64
    }
}
