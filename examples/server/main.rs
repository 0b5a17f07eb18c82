//! A whole service behind tollgate, ready to try:
//!
//!     cargo run --example server
//!
//! It prints links to open and curl commands to try; `--help` lists its flags. Copy the parts that you need:
//!
//! - `config.rs`, `help.rs` and `listen.rs` read the flags, and `state.rs` opens the store.
//! - `demo.rs` has the tenants, keys and users, `file.rs` and `budgets.rs` read your own from a file. `people.rs` and
//!   `accounts.rs` keep the accounts as the file says, `applied.rs` what it said.
//! - `api.rs` has the routes, `auth.rs` the login service, `tokens.rs` its tokens, `outbox.rs` its one-time codes.
//! - `pages.rs`, `callback.rs` and `page.js` form an application that sends users to the login and gets tokens.
//! - `account.rs` has the pages of signed-in users, `sso_demo.rs` another identity provider for `--sso-demo`.
//! - `notices.rs` prints what an operator must know.
//! - `serve.rs` starts and stops the server, `ready.rs` answers probes, `connections.rs` and `idle.rs` bound its connections, `limits.rs` has the
//!   budgets of addresses, and `localhost.rs` sends pages to its own name.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "prints messages for the person who runs it")]

mod listen;
mod help;
mod config;
mod state;
mod tokens;
mod person;
mod facts;
mod budgets;
mod demo;
mod welcome;
mod file;
mod home;
mod html;
mod outbox;
#[cfg(feature = "sso")]
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
mod ready;
mod notices;
mod api;
mod connections;
mod idle;
mod serve;

use std::{error::Error, process::ExitCode};

use config::{Command, Config};
use state::State;
use tollgate::{EventLog, event::JsonLines};

#[tokio::main]
async fn main() -> ExitCode {
    let config = match config::parse(std::env::args_os().skip(1)) {
        Ok(Command::Serve(config)) => config,
        Ok(Command::Help) => {
            print!("{}", help::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}\nTry --help.");
            return ExitCode::from(2);
        }
    };
    match run(config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: Config) -> Result<(), Box<dyn Error>> {
    let mut log = EventLog::builder().sink(notices::sink());
    if let Some(path) = &config.event_log {
        log = log.sink(JsonLines::open(path)?);
    }
    let log = log.build();
    let state = State::open(&config.store, config.end_sessions).await?;
    let listeners = listen::bind(config.listen).await?;
    let bound = listeners.first().ok_or("there is nothing to listen on")?.local_addr()?;
    let origin = config.listen.origin(bound);
    #[cfg_attr(not(feature = "sso"), expect(unused_mut, reason = "only --sso-demo changes it"))]
    let mut facts = match &config.file {
        Some(path) => file::read(path).map_err(|error| format!("--config {}: {error}", path.display()))?,
        None => demo::facts(&origin)?,
    };
    let welcome =
        if facts.is_demo { welcome::welcome(&origin) } else { format!("Listening on {origin}. Ctrl-C ends it.\n") };
    #[cfg(feature = "sso")]
    if config.sso_demo {
        facts.provider = Some(sso_demo::start(&origin, bound.port().wrapping_add(1)).await?);
    }
    let is_behind_tls = facts.issuer.as_ref().is_some_and(|issuer| issuer.starts_with("https://"));
    if !is_behind_tls && !config.listen.is_loopback() {
        return Err("--config: others than this machine reach it only by TLS: `issuer` must be the https URL of the \
                    proxy before it."
            .into());
    }
    let is_behind_proxies = facts.is_behind_proxies;
    let app = api::app(&origin, facts, &state, &log).await.map_err(|error| match &config.file {
        Some(path) => format!("--config {}: {error}", path.display()).into(),
        None => error,
    })?;
    print!("{welcome}");
    #[cfg(feature = "sso")]
    print!("{}", if config.sso_demo { sso_demo::WELCOME } else { "" });
    serve::until_stopped(listeners, app, is_behind_proxies, &log).await;
    state.close().await;
    if config.event_log.is_some() && !log.flush() {
        eprintln!("some events could not be written to the log");
    }
    Ok(())
}
