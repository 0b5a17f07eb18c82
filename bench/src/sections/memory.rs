//! Bytes that tenants take.

use std::{path::Path, process::Command};

use crate::{
    heap, machine,
    random::tenant_id,
    service::{Inner, Limited, call},
    stats::Table,
    subject::{Budget, Kind, Visit, with_limiter, with_service},
};
use std::time::Duration;
use tollgate::{Limiter, Quota, Quotas, testing::ManualClock};

const QUIET: u64 = 1_000_000;
const BUSY: u64 = 1_000;
const KINDS: [Kind; 4] = [Kind::Tollgate, Kind::TowerGovernor, Kind::AxumGcra, Kind::Governor];

pub fn run(one: &Path) {
    println!("### Memory of a tenant\n");
    println!(
        "{QUIET} tenants that call once; each subject in a fresh process. `heap` counts what the allocator hands out, \
         rounded as glibc rounds it, less what came back; `resident` is what the system says that the process grew \
         by.\n"
    );
    let mut table = Table::new(["subject", "heap, bytes a tenant", "resident, bytes a tenant"]);
    for kind in KINDS {
        let [heap, resident] = child(one, &["quiet", &kind.tag()]);
        table.row([kind.name(), &figure(heap), &figure(resident)]);
    }
    table.print();
    println!(
        "Busy tenants of tollgate ({BUSY}, 600 a minute, which they spend evenly, so that every grain of the window \
         has an entry):\n"
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

/// In the child: prints both figures.
pub fn quiet(kind: Kind) {
    struct Fill;
    impl Visit for Fill {
        type Output = ();

        fn visit<S: Limited>(self, mut service: S, _: Option<Limiter>) {
            // what a first call sets up is no tenant's
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
    with_service(kind, Budget::Never, Inner::default(), Fill);
}

fn per_tenant(bytes: i64, tenants: u64) -> f64 {
    bytes as f64 / tenants as f64
}

/// In the child: prints both figures.
pub fn busy() {
    struct Fill(ManualClock);
    impl Visit for Fill {
        type Output = ();

        fn visit<S: Limited>(self, mut service: S, limiter: Option<Limiter>) {
            let limiter = limiter.expect("it is tollgate");
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
    let limiter = Limiter::builder(Quotas::new(quota)).clock(clock.clone()).build().expect("the settings are good");
    with_limiter(Kind::Tollgate, Budget::Never, Inner::default(), limiter, Fill(clock));
}
