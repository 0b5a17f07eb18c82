//! Memory per tenant.

use std::{path::Path, process::Command};

use crate::{
    heap, machine,
    random::tenant_id,
    report::{figure, unless_quick},
    service::{Inner, Limited, call},
    stats::Table,
    subject::{BudgetState, LimiterKind, ServiceTask, with_limiter, with_service},
};
use std::time::Duration;
use tollgate::{Limiter, Plans, Quota, testing::ManualClock};

/// The number of sizes of a limiter that are measured.
const SIZES: u64 = 100;
const BUSY: u64 = 1_000;
const KINDS: [LimiterKind; 4] =
    [LimiterKind::Tollgate, LimiterKind::TowerGovernor, LimiterKind::AxumGcra, LimiterKind::Governor];

/// The number of quiet tenants at the end.
fn quiet_tenants() -> u64 {
    unless_quick(1_000_000, 100_000)
}

pub fn run(one: &Path) {
    let tenants = quiet_tenants();
    println!("### Memory of a tenant\n");
    println!(
        "{tenants} tenants call once each. `mean` and `worst` are the heap divided by the number of tenants, at {SIZES} sizes \
         evenly spread from {} to {tenants}: tables double when they are full, so this range contains one step of growth. The \
         heap is everything that the service has allocated since it was created, rounded as glibc rounds it, with all \
         shards and counters on this machine. `fixed` is the service before the first call. `resident` is the growth \
         of the process at the end, as the system reports it. Each subject runs in a fresh process.\n",
        tenants / 2
    );
    let mut table = Table::new(["subject", "mean, bytes a tenant", "worst", "resident", "fixed, kB"]);
    for kind in KINDS {
        let [mean, worst, resident, fixed] = child(one, &["quiet", &kind.tag()]);
        for (name, value) in [("mean", mean), ("worst", worst)] {
            figure(format!("memory/{}/{name}", kind.tag()), value.unwrap_or(f64::NAN));
        }
        // each process creates our limiter, also for the others
        let fixed = if kind == LimiterKind::Tollgate { shown(fixed) } else { "–".to_owned() };
        table.row([kind.name(), &shown(mean), &shown(worst), &shown(resident), &fixed]);
    }
    table.print();
    println!(
        "Busy tenants of tollgate: {BUSY} tenants spend 600 units a minute evenly, so that every slice of the \
         window has an entry.\n"
    );
    let [heap, own] = child(one, &["busy"]);
    let mut table = Table::new(["", "bytes a tenant"]);
    table.row(["heap", &shown(heap)]);
    table.row(["by the limiter's own count", &shown(own)]);
    table.print();
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "failed".to_owned(), |value| format!("{value:.0}"))
}

fn child<const N: usize>(one: &Path, arguments: &[&str]) -> [Option<f64>; N] {
    let output = Command::new(one).arg("memory").args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let mut figures = text.split_whitespace().map(|figure| figure.parse().ok());
    std::array::from_fn(|_| figures.next().flatten())
}

/// Runs in the child: prints four figures.
pub fn quiet(kind: LimiterKind) {
    struct Fill {
        resident: i64,
    }
    impl ServiceTask for Fill {
        type Output = ();

        fn run<S: Limited>(self, mut service: S, _: Option<Limiter>) {
            let (fixed, tenants) = (heap::live(), quiet_tenants());
            let (mut sum, mut worst) = (0.0, 0.0_f64);
            for tenant in 0..tenants {
                call(&mut service, &tenant_id(tenant));
                let size = tenant + 1;
                if size > tenants / 2 && size.is_multiple_of(tenants / 2 / SIZES) {
                    let own = per_tenant(heap::live(), size);
                    sum += own;
                    worst = worst.max(own);
                }
            }
            let resident = per_tenant(machine::resident() - self.resident, tenants);
            println!("{} {worst} {resident} {}", sum / SIZES as f64, per_tenant(fixed, 1_000));
        }
    }
    heap::watch();
    with_service(kind, BudgetState::Ample, Inner::default(), Fill { resident: machine::resident() });
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
    let limiter = Limiter::builder(Plans::new(quota)).clock(clock.clone()).build().expect("the settings are valid");
    with_limiter(LimiterKind::Tollgate, BudgetState::Ample, Inner::default(), limiter, Fill(clock));
}
