//! The login service from outside: whole answers to whole requests, as a browser or a program meets them.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod flow;
mod messages;
mod openapi;
mod page;
#[expect(dead_code, reason = "not every test uses all of it")]
mod world;
