//! Memory per tenant.

use std::{path::Path, process::Command};

use crate::{
    heap, machine,
    random::tenant_id,
    service::{Inner, Limited, call},
    stats::Table,
    subject::{BudgetState, LimiterKind, ServiceTask, with_limiter, with_service},
};
use std::time::Duration;
use tollgate::{Limiter, Quota, Quotas, testing::ManualClock};

const QUIET: u64 = 1_000_000;
const BUSY: u64 = 1_000;
const KINDS: [LimiterKind; 4] =
    [LimiterKind::Tollgate, LimiterKind::TowerGovernor, LimiterKind::AxumGcra, LimiterKind::Governor];

pub fn run(one: &Path) {
    println!("### Memory of a tenant\n");
    println!(
        "{QUIET} tenants call once each. Each subject runs in a fresh process. `heap` is the memory that is \
         still allocated, rounded as glibc rounds it. `resident` is the growth of the process as the system \
         reports it.\n"
    );
    let mut table = Table::new(["subject", "heap, bytes a tenant", "resident, bytes a tenant"]);
    for kind in KINDS {
        let [heap, resident] = child(one, &["quiet", &kind.tag()]);
        table.row([kind.name(), &figure(heap), &figure(resident)]);
    }
    table.print();
    println!(
        "Busy tenants of tollgate: {BUSY} tenants spend 600 units a minute evenly, so that every slice of the \
         window has an entry.\n"
    );
    let [heap, own] = child(one, &["busy"]);
    let mut table = Table::new(["", "bytes a tenant"]);
    table.row(["heap", &figure(heap)]);
    table.row(["by the limiter's own count", &figure(own)]);
    table.print();
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "failed".to_owned(), |value| format!("{value:.0}"))
}

fn child(one: &Path, arguments: &[&str]) -> [Option<f64>; 2] {
    let output = Command::new(one).arg("memory").args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let mut figures = text.split_whitespace().map(|figure| figure.parse().ok());
    [figures.next().flatten(), figures.next().flatten()]
}

/// Runs in the child: prints both figures.
pub fn quiet(kind: LimiterKind) {
    struct Fill;
    impl ServiceTask for Fill {
        type Output = ();

        fn run<S: Limited>(self, mut service: S, _: Option<Limiter>) {
            // leaves out the memory that the first call sets up
            call(&mut service, &tenant_id(QUIET));
            let before = machine::resident();
            let ((), counts) = heap::count(|| {
                for tenant in 0..QUIET {
                    call(&mut service, &tenant_id(tenant));
                }
            });
            let resident = machine::resident() - before;
            println!("{} {}", per_tenant(counts.live, QUIET), per_tenant(resident, QUIET));
        }
    }
    with_service(kind, BudgetState::Ample, Inner::default(), Fill);
}

fn per_tenant(bytes: i64, tenants: u64) -> f64 {
    bytes as f64 / tenants as f64
}

/// Runs in the child: prints both figures.
pub fn busy() {
    struct Fill(ManualClock);
    impl ServiceTask for Fill {
        type Output = ();

        fn run<S: Limited>(self, mut service: S, limiter: Option<Limiter>) {
            let limiter = limiter.expect("a limiter of tollgate");
            let ((), counts) = heap::count(|| {
                for _ in 0..600 {
                    self.0.advance(Duration::from_millis(100));
                    for tenant in 0..BUSY {
                        call(&mut service, &tenant_id(tenant));
                    }
                }
            });
            let own = limiter.bytes() as i64;
            println!("{} {}", per_tenant(counts.live, BUSY), per_tenant(own, BUSY));
        }
    }
    let clock = ManualClock::new();
    let quota = Quota::per_minute(600).expect("the limit is not zero");
    let limiter = Limiter::builder(Quotas::new(quota)).clock(clock.clone()).build().expect("the settings are valid");
    with_limiter(LimiterKind::Tollgate, BudgetState::Ample, Inner::default(), limiter, Fill(clock));
}
