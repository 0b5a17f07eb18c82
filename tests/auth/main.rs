//! The login service from outside: whole answers to whole requests, as a browser or a program meets them.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod authenticate;
mod authorize;
mod budget;
mod complete;
mod cookie;
mod cors;
mod errors;
mod flow;
mod frail;
mod matrix;
mod otp;
mod parameters;
mod password;
mod start;
mod status;
mod throttle;
mod whole;
#[expect(dead_code, reason = "not every test uses all of it")]
mod world;
