//! One table each.

pub mod alloc;
pub mod bearer;
pub mod equal;
pub mod instructions;
pub mod layer;
pub mod logins;
pub mod maps;
pub mod memory;
pub mod server;
pub mod sessions;
pub mod stalls;
pub mod steps;
pub mod threads;
pub mod tokens;

use std::time::Duration;

/// How many calls take about so long.
fn calls_in(mut run: impl FnMut(u64) -> Duration, time: Duration) -> u64 {
    let mut calls = 32;
    loop {
        let took = run(calls);
        if took * 8 >= time || calls >= 1 << 24 {
            let wanted = calls as f64 * time.as_secs_f64() / took.as_secs_f64().max(1e-9);
            return (wanted as u64).max(16);
        }
        calls *= 4;
    }
}
