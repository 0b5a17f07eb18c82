//! The login service from outside: whole answers to whole requests, as a browser or a program meets them.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod authenticate;
mod authorize;
mod budget;
mod changed;
mod complete;
mod cookie;
mod cors;
mod equal;
mod errors;
mod faults;
mod flow;
mod frail;
mod given;
mod matrix;
mod messages;
mod openapi;
mod otp;
mod page;
mod parameters;
mod password;
mod pushed;
mod races;
mod restart;
mod sequences;
mod sharing;
mod sso;
mod start;
mod status;
mod steered;
mod tabs;
mod throttle;
mod token;
mod token_faults;
mod token_races;
mod token_restart;
mod token_sequences;
mod unchecked;
mod unlock;
mod whole;
mod wishes;
mod world;
