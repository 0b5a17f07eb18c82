//! The guarantees of the limits, tested against models.
//!
//! The suite uses an engine only through [`engine::Engine`]. It drives all engines with the same schedules and compares
//! their results with the same log. Guarantees that an engine does not make are skipped. The bound is tested for all of
//! them.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod change;
mod engine;
mod fixed;
mod holds;
mod holds_oracle;
mod idle;
mod names;
mod oracle;
mod plan_text;
mod plans;
mod promises;
mod reentrant;
mod reserve;
mod schedule;
mod smooth;
mod suite;
mod table;
mod there_and_back;
mod threads;
mod twin;
mod waiting;
mod window;
