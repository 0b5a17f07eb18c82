//! Information about the machine, and control over its cores.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// Pins this thread to one core. Returns whether that worked.
pub fn pin(core: usize) -> bool {
    let Ok(me) = fs::read_link("/proc/thread-self") else { return false };
    let Some(id) = me.file_name().and_then(|name| name.to_str()) else { return false };
    taskset(&core.to_string(), id)
}

/// Lets this thread run on any core again.
pub fn unpin() {
    let Ok(me) = fs::read_link("/proc/thread-self") else { return };
    if let Some(id) = me.file_name().and_then(|name| name.to_str()) {
        taskset(&format!("0-{}", cores() - 1), id);
    }
}

fn taskset(cores: &str, id: &str) -> bool {
    let call = Command::new("taskset").args(["-pc", cores, id]).stdout(Stdio::null()).status();
    call.is_ok_and(|status| status.success())
}

pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Returns how many nanoseconds this thread has run, and how many it has waited for a core.
pub fn scheduled() -> (u64, u64) {
    // the kernel updates the figures when the thread is scheduled
    thread::yield_now();
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let mut fields = text.split_whitespace().filter_map(|field| field.parse().ok());
    (fields.next().unwrap_or(0), fields.next().unwrap_or(0))
}

/// Returns how many nanoseconds the first thread of another process has run.
pub fn ran(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
    text.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}

/// Returns how long all threads of another process have run. The system counts this in hundredths of a second.
pub fn ran_together(process: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // the name is in brackets and may contain anything
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Returns the memory that this process uses, in bytes.
pub fn resident() -> i64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<i64>().ok()).unwrap_or(0) * 4096
}

/// Describes the machine in one line.
pub fn describe() -> String {
    let rustc = Command::new("rustc").arg("--version").output();
    let rustc = rustc.map_or_else(
        |_| "unknown rustc".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    );
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?").to_owned();
    let pinned = if Path::new("/usr/bin/taskset").exists() { "taskset" } else { "no taskset" };
    format!("{} cores, {rustc}, {pinned}, load at the start {load}", cores())
}
