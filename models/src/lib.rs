//! The parts of the crate that the modelled sources use, as small as possible, and helpers of the models.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "only tests use it")]

use std::future::Future;

use loom::sync::{Condvar, Mutex};

pub mod util {
    pub mod clock {
        use std::time::Duration;

        macro_rules! time {
            ($name:ident) => {
                #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
                pub struct $name(u64);

                impl $name {
                    pub const fn from_nanos(nanos: u64) -> Self {
                        Self(nanos)
                    }

                    pub fn as_nanos(self) -> u64 {
                        self.0
                    }

                    pub fn since(self, earlier: Self) -> Duration {
                        Duration::from_nanos(self.0.saturating_sub(earlier.0))
                    }
                }
            };
        }

        time!(Moment);
        time!(UnixTime);
    }
}

/// A semaphore with the functions of tokio's that leases use. Its futures block the thread.
#[derive(Debug)]
pub struct Semaphore {
    /// The permits, or `None` after `close`.
    permits: Mutex<Option<usize>>,
    changed: Condvar,
}

/// A permit, which its drop gives back.
#[derive(Debug)]
pub struct Permit<'a>(&'a Semaphore);

/// The semaphore is closed.
#[derive(Debug)]
pub struct Closed;

impl Semaphore {
    pub fn new(permits: usize) -> Self {
        Self { permits: Mutex::new(Some(permits)), changed: Condvar::new() }
    }

    pub async fn acquire(&self) -> Result<Permit<'_>, Closed> {
        let mut permits = self.permits.lock().unwrap();
        loop {
            match *permits {
                None => return Err(Closed),
                Some(0) => permits = self.changed.wait(permits).unwrap(),
                Some(more) => {
                    *permits = Some(more - 1);
                    return Ok(Permit(self));
                }
            }
        }
    }

    pub fn add_permits(&self, more: usize) {
        self.change(|permits| permits.map(|permits| permits + more));
    }

    pub fn close(&self) {
        self.change(|_| None);
    }

    fn change(&self, change: impl FnOnce(Option<usize>) -> Option<usize>) {
        let mut permits = self.permits.lock().unwrap();
        *permits = change(*permits);
        self.changed.notify_all();
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

/// Runs a future that blocks its thread instead of waiting.
pub fn finish<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => unreachable!("it blocks"),
    }
}

/// Tries all interleavings of the threads of a model, or only those in which threads are interrupted at most this often.
pub fn explore(interruptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = interruptions;
    builder.check(model);
}

/// Defines a test for each copy with a fault, which a model must notice with these words.
#[macro_export]
macro_rules! faults {
    ($($copy:ident: $model:ident, $words:literal;)*) => {
        $(models!($copy);)*

        mod faults {
            $(#[test]
            #[ignore = "it fails"]
            fn $copy() {
                super::$copy::$model();
            })*
        }

        #[test]
        fn every_fault_is_noticed() {
            $(let output = $crate::output_of(concat!("faults::", stringify!($copy)));
            assert!(output.contains($words), "{}: {output}", stringify!($copy));)*
        }
    };
}

/// Runs an ignored test in a process of its own, because loom can abort after a failure. Returns its output.
pub fn output_of(test: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let output =
        std::process::Command::new(program).args([test, "--exact", "--ignored", "--nocapture"]).output().unwrap();
    assert!(!output.status.success(), "{test} is not noticed");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}
