//! Helpers that several integration tests share.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "tests may panic and print, and each uses only some of the helpers"
)]

pub(crate) mod browser;
pub(crate) mod certificate;
pub(crate) mod chromium;
pub(crate) mod example;
pub(crate) mod identity_provider;
pub(crate) mod inspector;
pub(crate) mod late_bodies;
pub(crate) mod login_server;
pub(crate) mod machine;
pub(crate) mod process;
pub(crate) mod programs;
pub(crate) mod proxy;
pub(crate) mod python;
pub(crate) mod redis_server;
pub(crate) mod wire;
