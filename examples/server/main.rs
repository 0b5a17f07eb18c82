//! A whole service behind tollgate, ready to try:
//!
//!     cargo run --example server
//!
//! It prints links to open and curl commands to try; `--help` lists its flags. Copy the parts that you need:
//!
//! - `config.rs`, `help.rs` and `listen.rs` read the flags, `storage.rs` opens the store, and `state.rs` has the budgets.
//!   `crates/tollgate-sqlx/examples/server`, which uses databases, replaces only `users.rs` and `storage.rs`.
//! - `demo.rs` has the tenants, keys and users, `written.rs` and `file.rs` read your own from a file, with `budgets.rs`,
//!   `clients.rs`, `policies.rs`, `senders.rs`, `providers.rs`, `login_*.rs`, `server_settings.rs` and `secret_text.rs`. `problems.rs`
//!   collects what is wrong with `toml_parts.rs`, `check.rs` prints it, `hash_password.rs` hashes a password, and `client_secrets.rs` makes
//!   secrets. `people.rs` and `accounts.rs` keep the accounts in line with the file, and `applied.rs` remembers what
//!   was applied.
//! - `api.rs` has the routes, `auth.rs` the login service, `tokens.rs` its tokens, `outbox.rs` and `sent.rs` its one-time codes.
//! - `pages.rs`, `callback.rs` and `page.js` form an application that sends users to the login and gets tokens.
//! - `account.rs` has the pages of signed-in users, `sso_demo.rs` another identity provider for `--sso-demo`.
//! - `notices.rs` prints what an operator must know, `json_lines.rs` and `whole_lines.rs` write events to a file, and
//!   `prometheus.rs` serves counters.
//! - `run.rs` assembles everything, `serve.rs` starts and stops the server, `ready.rs` answers probes, `connections.rs`
//!   and `idle.rs` bound its connections, `limits.rs` has the per-address budgets, `readers.rs` decides who reads the
//!   event log, and `localhost.rs` sends pages to its own name.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "prints messages for the person who runs it")]

mod listen;
mod explain;
mod secret_text;
mod users;
mod theme;
mod tokens;
mod person;
mod html;
mod sent;
mod outbox;
mod senders;
#[cfg(feature = "external-providers")]
mod providers;
mod login_limits;
mod login_settings;
mod facts;
mod state;
mod storage;
mod help;
mod toml_parts;
mod problems;
mod budgets;
mod demo;
mod welcome;
mod policies;
mod client_secrets;
mod clients;
mod written;
mod server_settings;
mod login_file;
mod file;
mod config;
mod home;
#[cfg(feature = "external-providers")]
mod sso_demo;
mod applied;
mod accounts;
mod people;
mod auth;
mod account;
mod pages;
mod callback;
mod localhost;
mod limits;
mod readers;
mod ready;
mod notices;
mod api;
mod connections;
mod idle;
mod watched;
mod serve;
#[cfg(feature = "metrics")]
mod prometheus;
mod hash_password;
mod check;
mod whole_lines;
mod json_lines;
mod run;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    run::run().await
}
