//! `--hash-password`: reads a password, and prints its hash.

use std::{
    error::Error,
    io::{self, IsTerminal},
    process::Command,
};

use tollgate::{Password, Passwords};

/// New passwords that users choose on the pages have at least this many characters.
const SHORT: usize = 15;

pub(crate) async fn print() -> Result<(), Box<dyn Error>> {
    let password = read()?;
    if password.is_empty() {
        return Err("--hash-password: there is no password on the standard input".into());
    }
    if password.chars().count() < SHORT {
        eprintln!("This password is short: the pages of the server accept new ones from {SHORT} characters.");
    }
    println!("{}", Passwords::new().hash(Password::new(password)).await?.as_str());
    Ok(())
}

/// Reads a line, which a terminal does not show.
fn read() -> io::Result<String> {
    let mut line = String::new();
    if io::stdin().is_terminal() {
        let hides = shows_typing(false);
        eprint!("Password{}: ", if hides { "" } else { " (it will be visible)" });
        let read = io::stdin().read_line(&mut line);
        if hides {
            shows_typing(true);
            eprintln!();
        }
        read?;
    } else {
        io::stdin().read_line(&mut line)?;
    }
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok(line)
}

/// Returns whether the terminal did as it was told.
fn shows_typing(shows: bool) -> bool {
    Command::new("stty").arg(if shows { "echo" } else { "-echo" }).status().is_ok_and(|status| status.success())
}
