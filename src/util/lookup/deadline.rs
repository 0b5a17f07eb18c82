use std::{
    future::{Future, pending},
    sync::OnceLock,
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    time::timeout,
};

/// Waits for an answer until the deadline. Returns `None` after it.
pub(crate) async fn in_time<T>(deadline: Duration, answer: impl Future<Output = T>) -> Option<T> {
    let Some(timers) = timers() else { return Some(answer.await) };
    let answer = {
        let _inside = timers.enter();
        timeout(deadline, answer)
    };
    answer.await.ok()
}

/// Returns the runtime that has the timers of all lookups. A lookup may run in a runtime without timers, and tokio can't be
/// asked about it, or in no runtime at all.
fn timers() -> Option<&'static Handle> {
    static TIMERS: OnceLock<Option<Handle>> = OnceLock::new();
    let start = || {
        let runtime = Builder::new_current_thread().enable_time().build().ok()?;
        let handle = runtime.handle().clone();
        let thread = thread::Builder::new().name("tollgate-deadlines".into());
        thread.spawn(move || runtime.block_on(pending::<()>())).ok().map(|_| handle)
    };
    TIMERS.get_or_init(start).as_ref()
}
