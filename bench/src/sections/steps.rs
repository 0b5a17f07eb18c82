//! The time that each step of a login takes.

use std::{path::Path, time::Instant};

use tokio::{runtime::Runtime, task::yield_now};
use tollgate::{AuthService, Password, Passwords, delivery::Outbox, store::Memory};

use super::instructions::collected;
use crate::{
    heap,
    login::{
        self, Ask, CountingStore, Local, PASSWORD, Setup, address, counted, identifier, phone, runtime, served,
        username,
    },
    report::figure,
    stats::{Table, median},
};

const LOGINS: u64 = 4_000;
const LOGINS_BY_PASSWORD: u64 = 200;
/// The number of logins under callgrind.
const FEW: u64 = 100;
const MANY: u64 = 300;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Start,
    Code,
    Verify,
    Password,
    Complete,
    Authorize,
}

const BY_CODE: [Call; 5] = [Call::Start, Call::Code, Call::Verify, Call::Complete, Call::Authorize];
const BY_PASSWORD: [Call; 4] = [Call::Start, Call::Password, Call::Complete, Call::Authorize];

impl Call {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Code => "authenticate, sms",
            Self::Verify => "verify-otp",
            Self::Password => "authenticate, password",
            Self::Complete => "complete",
            Self::Authorize => "authorize",
        }
    }
}

pub fn run(one: &Path) {
    println!("### Where the time of a login goes\n");
    println!(
        "Calls in process, without HTTP, one after another, each login for another user: {LOGINS} logins by \
         code, and {LOGINS_BY_PASSWORD} by password at the default cost. Medians. `store` is the time spent \
         in `Memory`, and the number of its calls. Allocations are those of the calling thread. Instructions \
         are counted by callgrind, including those of the runtime. The queue sends the code after the \
         response, so its work is not included.\n"
    );
    let counts = by_instructions(one);
    let runtime = runtime();
    let mut table = Table::new(["call", "µs", "store, µs", "store calls", "allocations", "instructions"]);
    let by_code = measure(&runtime, &BY_CODE, LOGINS, Passwords::insecure_fast());
    let by_password = measure(&runtime, &BY_PASSWORD, LOGINS_BY_PASSWORD, Passwords::new());
    for (place, (call, figures)) in BY_CODE.iter().zip(&by_code).enumerate() {
        let instructions = counts
            .as_ref()
            .and_then(|counts| counts.get(place))
            .map_or_else(|| "–".to_owned(), |count| format!("{count:.0}"));
        table.row(figures.cells(call.name(), instructions));
    }
    figure("steps/calls", sum(&by_code).calls);
    figure("steps/instructions", counts.as_ref().map_or(f64::NAN, |counts| counts.iter().sum()));
    table.row(sum(&by_code).cells(
        "**a login by sms**",
        counts.map_or_else(|| "–".to_owned(), |counts| format!("{:.0}", counts.iter().sum::<f64>())),
    ));
    for (call, figures) in BY_PASSWORD.iter().zip(&by_password).filter(|(call, _)| **call == Call::Password) {
        table.row(figures.cells(call.name(), "–".to_owned()));
    }
    let argon2 = argon2(&runtime);
    table.row(["of which argon2 and the change of threads".to_owned(), format!("{argon2:.1}")]);
    table.print();
}

#[derive(Default)]
struct Figures {
    micros: f64,
    store: f64,
    calls: f64,
    allocations: f64,
}

impl Figures {
    fn cells(&self, name: &str, instructions: String) -> Vec<String> {
        let Self { micros, store, calls, allocations } = self;
        vec![
            name.to_owned(),
            format!("{micros:.1}"),
            format!("{store:.1}"),
            format!("{calls:.0}"),
            format!("{allocations:.0}"),
            instructions,
        ]
    }
}

fn sum(all: &[Figures]) -> Figures {
    all.iter().fold(Figures::default(), |sum, one| Figures {
        micros: sum.micros + one.micros,
        store: sum.store + one.store,
        calls: sum.calls + one.calls,
        allocations: sum.allocations + one.allocations,
    })
}

fn measure(runtime: &Runtime, calls: &[Call], logins: u64, passwords: Passwords) -> Vec<Figures> {
    let outbox = Outbox::with_capacity(1).expect("a valid capacity");
    let warm = logins / 10;
    // calls of the store are counted in a separate run, because counting takes time
    let plain = Setup { store: Memory::new().into(), users: logins + warm, passwords: passwords.clone() };
    let plain = runtime.block_on(plain.service(outbox.clone()));
    let watched = Setup { store: CountingStore(Memory::new()).into(), users: logins + warm, passwords };
    let watched = runtime.block_on(watched.service(outbox.clone()));
    let mut figures: Vec<[Vec<f64>; 4]> = calls.iter().map(|_| Default::default()).collect();
    for user in 0..logins + warm {
        for (service, is_watched) in [(&plain, false), (&watched, true)] {
            log_in(runtime, service, &outbox, calls, user, |place, call| {
                let before = counted();
                let began = Instant::now();
                let took = if is_watched {
                    let ((), counts) = heap::count(call);
                    if user >= warm {
                        figures[place][3].push(counts.allocations as f64);
                    }
                    began.elapsed()
                } else {
                    call();
                    began.elapsed()
                };
                let after = counted();
                if user < warm {
                } else if is_watched {
                    figures[place][1].push((after.1 - before.1).as_nanos() as f64 / 1e3);
                    figures[place][2].push((after.0 - before.0) as f64);
                } else {
                    figures[place][0].push(took.as_nanos() as f64 / 1e3);
                }
            });
        }
    }
    let figure = |values: &[Vec<f64>; 4]| {
        let [micros, store, calls, allocations] = values.each_ref().map(|values| median(values));
        Figures { micros, store, calls, allocations }
    };
    figures.iter().map(figure).collect()
}

/// Makes the calls of a login. `around` gets each of them and has to make it.
fn log_in(
    runtime: &Runtime,
    service: &AuthService,
    outbox: &Outbox,
    calls: &[Call],
    user: u64,
    mut around: impl FnMut(usize, &mut dyn FnMut()),
) {
    let mut local = Local::new(address(user));
    for (place, call) in calls.iter().enumerate() {
        let mut request = Some(local.request(ask(&local, outbox, *call, user)));
        let mut response = None;
        around(place, &mut || response = request.take().map(|request| served(runtime, service, request)));
        let answer = local.keep(runtime, response.expect("it was called"), std::time::Duration::ZERO);
        match call {
            Call::Start => local.browser.began(&answer.text),
            // lets the queue deliver
            Call::Code => runtime.block_on(async {
                for _ in 0..4 {
                    yield_now().await;
                }
            }),
            Call::Authorize => assert!(answer.location.contains("callback?code="), "{}", answer.location),
            _ => assert_eq!(answer.status, 200, "{}", answer.text),
        }
    }
}

fn ask(local: &Local, outbox: &Outbox, call: Call, user: u64) -> Ask {
    let browser = &local.browser;
    match call {
        Call::Start => browser.start(&identifier(user)),
        Call::Code => browser.code(&phone(user)),
        Call::Verify => browser.verify(outbox.messages().last().expect("a code was sent").code()),
        Call::Password => browser.password(&username(user), PASSWORD),
        Call::Complete => browser.complete(),
        Call::Authorize => browser.authorize(),
    }
}

/// Returns the time to check a password alone, in microseconds.
fn argon2(runtime: &Runtime) -> f64 {
    let passwords = Passwords::new();
    let password = || Password::new(PASSWORD.to_owned());
    let hash = runtime.block_on(passwords.hash(password())).expect("the password can be hashed");
    let times: Vec<f64> = (0..LOGINS_BY_PASSWORD)
        .map(|_| {
            let (password, hash) = (password(), Some(hash.clone()));
            let began = Instant::now();
            let verdict = runtime.block_on(passwords.verify(password, hash));
            assert!(verdict.is_ok(), "the password can be checked");
            began.elapsed().as_nanos() as f64 / 1e3
        })
        .collect();
    median(&times)
}

/// Makes only the first calls of each login by code, for a profiler.
pub fn logins(calls: usize, logins: u64) {
    let (runtime, outbox) = (login::runtime(), Outbox::with_capacity(1).expect("a valid capacity"));
    let setup = Setup { store: Memory::new().into(), users: logins, passwords: Passwords::insecure_fast() };
    let service = runtime.block_on(setup.service(outbox.clone()));
    let calls = BY_CODE.get(..calls).unwrap_or(&BY_CODE);
    for user in 0..logins {
        log_in(&runtime, &service, &outbox, calls, user, |_, call| call());
    }
}

/// Returns the instructions of each call of a login by code, or `None` without valgrind.
fn by_instructions(one: &Path) -> Option<Vec<f64>> {
    let count = |calls: usize, logins: u64| {
        let arguments = ["steps".to_owned(), calls.to_string(), logins.to_string()];
        collected(one, &["--toggle-collect=*login*local*served*"], &arguments)
    };
    let up_to = |calls| Some((count(calls, MANY)? - count(calls, FEW)?) / (MANY - FEW) as f64);
    let all = (1..=BY_CODE.len()).map(up_to).collect::<Option<Vec<f64>>>()?;
    let before = std::iter::once(0.0).chain(all.iter().copied());
    Some(all.iter().zip(before).map(|(own, before)| own - before).collect())
}
