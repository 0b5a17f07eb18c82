//! A whole service behind tollgate, ready to try:
//!
//!     cargo run --example server
//!
//! It prints where to click and what to try with curl; `--help` lists its flags. Copy what you need: `config.rs` reads
//! the flags, `demo.rs` has the tenants and keys, `api.rs` the routes, `serve.rs` starts and ends the server.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it talks to who runs it")]

mod config;
mod demo;
mod api;
mod serve;

use std::{error::Error, process::ExitCode};

use config::{Command, Config};
use tollgate::{EventLog, event::JsonLines};

#[tokio::main]
async fn main() -> ExitCode {
    let config = match config::parse(std::env::args_os().skip(1)) {
        Ok(Command::Serve(config)) => config,
        Ok(Command::Help) => {
            print!("{}", config::HELP);
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
    let mut log = EventLog::new();
    if let Some(path) = &config.event_log {
        log = log.sink(JsonLines::create(path)?);
    }
    let app = api::router(&log)?;
    let listener = serve::bind(config.listen).await?;
    print!("{}", demo::welcome(listener.local_addr()?));
    serve::until_stopped(listener, app).await?;
    if config.event_log.is_some() && !log.flush() {
        eprintln!("the event log could not be written to its end");
    }
    Ok(())
}
