//! Compares tollgate with other rate limiters.
//!
//! `cargo bench -p tollgate-bench` prints the tables of `BENCHMARKS.md`.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the machine's clock")]

pub mod significance;
pub mod heap;
pub mod issuers;
pub mod login;
pub mod machine;
pub mod random;
pub mod report;
pub mod rivals;
pub mod sections;
pub mod service;
pub mod simulation;
pub mod stats;
pub mod subject;
pub mod redis_server;
pub mod remote;
pub mod wire;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;
