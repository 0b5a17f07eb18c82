//! The promise of the limits, proved against models.
//!
//! The suite knows an engine only as an [`engine::Engine`], so each engine is driven by the same schedules and held
//! against the same log. What an engine does not claim is not asked of it; the bound is asked of all.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod board;
mod change;
mod engine;
mod fixed;
mod idle;
mod oracle;
mod promises;
mod schedule;
mod smooth;
mod suite;
mod table;
mod threads;
mod twin;
mod window;
