//! The bundled server with its state in PostgreSQL or SQLite:
//!
//!     cargo run -p tollgate-sqlx --example server -- --database sqlite://tollgate.db
//!
//! It is the server of `examples/server` in the main crate: all of its files but `users.rs` and `storage.rs` are there.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "prints messages for the person who runs it")]

#[path = "../../../../examples/server/listen.rs"]
mod listen;
#[path = "../../../../examples/server/explain.rs"]
mod explain;
#[path = "../../../../examples/server/secret_text.rs"]
mod secret_text;
mod users;
#[path = "../../../../examples/server/theme.rs"]
mod theme;
#[path = "../../../../examples/server/tokens.rs"]
mod tokens;
#[path = "../../../../examples/server/person.rs"]
mod person;
#[path = "../../../../examples/server/html.rs"]
mod html;
#[path = "../../../../examples/server/sent.rs"]
mod sent;
#[path = "../../../../examples/server/outbox.rs"]
mod outbox;
#[path = "../../../../examples/server/senders.rs"]
mod senders;
#[cfg(feature = "external-providers")]
#[path = "../../../../examples/server/providers.rs"]
mod providers;
#[path = "../../../../examples/server/login_limits.rs"]
mod login_limits;
#[path = "../../../../examples/server/login_settings.rs"]
mod login_settings;
#[path = "../../../../examples/server/facts.rs"]
mod facts;
#[path = "../../../../examples/server/state.rs"]
mod state;
mod storage;
#[path = "../../../../examples/server/help.rs"]
mod help;
#[path = "../../../../examples/server/toml_parts.rs"]
mod toml_parts;
#[path = "../../../../examples/server/problems.rs"]
mod problems;
#[path = "../../../../examples/server/budgets.rs"]
mod budgets;
#[path = "../../../../examples/server/demo.rs"]
mod demo;
#[path = "../../../../examples/server/welcome.rs"]
mod welcome;
#[path = "../../../../examples/server/policies.rs"]
mod policies;
#[path = "../../../../examples/server/client_secrets.rs"]
mod client_secrets;
#[path = "../../../../examples/server/clients.rs"]
mod clients;
#[path = "../../../../examples/server/written.rs"]
mod written;
#[path = "../../../../examples/server/server_settings.rs"]
mod server_settings;
#[path = "../../../../examples/server/login_file.rs"]
mod login_file;
#[path = "../../../../examples/server/file.rs"]
mod file;
#[path = "../../../../examples/server/config.rs"]
mod config;
#[path = "../../../../examples/server/home.rs"]
mod home;
#[cfg(feature = "external-providers")]
#[path = "../../../../examples/server/sso_demo.rs"]
mod sso_demo;
#[path = "../../../../examples/server/applied.rs"]
mod applied;
#[path = "../../../../examples/server/accounts.rs"]
mod accounts;
#[path = "../../../../examples/server/people.rs"]
mod people;
#[path = "../../../../examples/server/auth.rs"]
mod auth;
#[path = "../../../../examples/server/account.rs"]
mod account;
#[path = "../../../../examples/server/pages.rs"]
mod pages;
#[path = "../../../../examples/server/callback.rs"]
mod callback;
#[path = "../../../../examples/server/localhost.rs"]
mod localhost;
#[path = "../../../../examples/server/limits.rs"]
mod limits;
#[path = "../../../../examples/server/readers.rs"]
mod readers;
#[path = "../../../../examples/server/ready.rs"]
mod ready;
#[path = "../../../../examples/server/notices.rs"]
mod notices;
#[path = "../../../../examples/server/api.rs"]
mod api;
#[path = "../../../../examples/server/connections.rs"]
mod connections;
#[path = "../../../../examples/server/idle.rs"]
mod idle;
#[path = "../../../../examples/server/watched.rs"]
mod watched;
#[path = "../../../../examples/server/serve.rs"]
mod serve;
#[cfg(feature = "metrics")]
#[path = "../../../../examples/server/prometheus.rs"]
mod prometheus;
#[path = "../../../../examples/server/hash_password.rs"]
mod hash_password;
#[path = "../../../../examples/server/check.rs"]
mod check;
#[path = "../../../../examples/server/whole_lines.rs"]
mod whole_lines;
#[path = "../../../../examples/server/json_lines.rs"]
mod json_lines;
#[path = "../../../../examples/server/run.rs"]
mod run;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    run::run().await
}
