//! Tests whether response times reveal that an account exists.

use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate::{AuthService, Passwords, delivery::Outbox, store::Memory, testing::ManualClock};

use crate::{
    login::{self, Local, Setup, address, foreign, identifier, phone, stranger},
    random::Random,
    report::unless_quick,
    significance::{ranks, welch},
    stats::{Table, median, quantile},
};

const SAMPLES: u64 = 4_000;
/// The number of samples of calls with an argon2 hash.
const SLOW_SAMPLES: u64 = 400;
/// The number of calls before the measurement starts.
const WARM: u64 = 200;
/// Beyond this many standard deviations, two samples certainly differ. dudect uses the same value.
const CERTAIN: f64 = 4.5;

/// The caller of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    /// A user with their own address.
    Known,
    /// A user with an unknown address.
    Foreign,
    /// An unknown user with an unknown address.
    Unknown,
}

/// The measured call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimedCall {
    Start,
    Code,
    CodeAgain,
    WrongCode,
    WrongPassword,
}

pub fn run() {
    println!("### Do response times reveal accounts?\n");
    println!(
        "One call in process, with a browser, an address and an identifier that were never used before. Calls \
         of two kinds of callers alternate at random. Times are in nanoseconds. `greater` is the share of \
         pairs in which the second kind is slower (0.50 means no difference), and `z` is its distance from \
         chance in standard deviations (Mann-Whitney). `t` is Welch's t of the fastest half, three quarters \
         and 95 percent. Beyond {CERTAIN}, this many calls can distinguish the two kinds, if only the machine \
         adds noise. Rows that compare `known` with `known` are a control, because both kinds are the same.\n"
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
        (TimedCall::Start, Caller::Known, Caller::Known, fast(), "start"),
        (TimedCall::Start, Caller::Known, Caller::Unknown, fast(), "start"),
        (TimedCall::Code, Caller::Known, Caller::Known, fast(), "a code is asked for"),
        (TimedCall::Code, Caller::Known, Caller::Foreign, fast(), "a code is asked for"),
        (TimedCall::Code, Caller::Foreign, Caller::Unknown, fast(), "a code is asked for"),
        (TimedCall::Code, Caller::Known, Caller::Unknown, fast(), "a code is asked for"),
        (TimedCall::CodeAgain, Caller::Known, Caller::Unknown, fast(), "a second code is asked for"),
        (TimedCall::WrongCode, Caller::Known, Caller::Unknown, fast(), "a wrong code"),
        (TimedCall::WrongPassword, Caller::Known, Caller::Known, fast(), "a wrong password, least argon2"),
        (TimedCall::WrongPassword, Caller::Known, Caller::Unknown, fast(), "a wrong password, least argon2"),
        (TimedCall::WrongPassword, Caller::Known, Caller::Unknown, Passwords::new(), "a wrong password"),
    ] {
        let samples = unless_quick(if name == "a wrong password" { SLOW_SAMPLES } else { SAMPLES }, 100);
        let (first, second) = compare(what, left, right, passwords, samples);
        table.row(row(name, left, right, &first, &second));
    }
    table.print();
}

fn row(name: &str, left: Caller, right: Caller, first: &[f64], second: &[f64]) -> Vec<String> {
    let both: Vec<f64> = first.iter().chain(second).copied().collect();
    let (greater, z) = ranks(first, second);
    let t = [0.5, 0.75, 0.95].map(|share| welch(first, second, quantile(&both, share)));
    let apart = z.abs() > CERTAIN || t.iter().any(|t| t.abs() > CERTAIN);
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

/// Measures both callers this many times, in nanoseconds.
fn compare(what: TimedCall, left: Caller, right: Caller, passwords: Passwords, samples: u64) -> (Vec<f64>, Vec<f64>) {
    let runtime = login::runtime();
    let warm = WARM.min(samples / 10);
    let setup = Setup { store: Memory::new().into(), users: 2 * (samples + warm), passwords };
    let clock = ManualClock::new();
    let service = runtime.block_on(setup.service_on(clock.clone(), Outbox::new()));
    let (mut order, mut first, mut second) = (Random(7), Vec::new(), Vec::new());
    for round in 0..samples + warm {
        let sorts = [(left, 2 * round), (right, 2 * round + 1)];
        let swapped = order.below(2) == 1;
        // both are prepared before either is measured
        let mut ready = sorts.map(|(who, number)| Ready::new(&runtime, &service, what, who, number));
        // now the next code can be requested
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

/// A browser that is ready to make the measured call.
struct Ready {
    local: Local,
    identifier: String,
    phone: String,
}

impl Ready {
    fn new(runtime: &Runtime, service: &AuthService, what: TimedCall, who: Caller, number: u64) -> Self {
        let identifier = if who == Caller::Unknown { stranger(number) } else { identifier(number) };
        let phone = if who == Caller::Known { phone(number) } else { foreign(number) };
        let mut local = Local::new(address(number));
        if what != TimedCall::Start {
            local.start(runtime, service, &identifier);
        }
        if matches!(what, TimedCall::WrongCode | TimedCall::CodeAgain) {
            let asked = local.send(runtime, service, local.browser.code(&phone));
            assert_eq!(asked.status, 200, "{}", asked.text);
            // lets the queue deliver
            runtime.block_on(async {
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
            });
        }
        Self { local, identifier, phone }
    }

    fn time(&mut self, runtime: &Runtime, service: &AuthService, what: TimedCall) -> f64 {
        let browser = &self.local.browser;
        let (ask, status) = match what {
            TimedCall::Start => (browser.start(&self.identifier), 200),
            TimedCall::Code | TimedCall::CodeAgain => (browser.code(&self.phone), 200),
            TimedCall::WrongCode => (browser.verify("000000"), 401),
            TimedCall::WrongPassword => (browser.password(&self.identifier, "wrong horse battery staple"), 401),
        };
        let answer = self.local.send(runtime, service, ask);
        // one code in a million is right by chance
        assert!(answer.status == status || what == TimedCall::WrongCode, "{what:?}: {}", answer.text);
        answer.took.as_nanos() as f64
    }
}
