//! What `--help` prints.

use crate::storage::{COMMAND, HELP, WITH_SSO};

pub(crate) fn text() -> String {
    format!(
        "\
A service behind tollgate, with demo tenants and users.

Usage: {COMMAND} -- [FLAGS]

  --listen ADDR      where to listen. Defaults to localhost:8080, which is
                     127.0.0.1 and, where there is IPv6, [::1]. The keys and
                     passwords of the demo are public, so it accepts only these
                     addresses. With --config and an https issuer, any address.
  --config FILE      reads tenants, keys, clients and users from this TOML
                     file instead of the demo's; its other settings are
                     defaults of these flags
  --example-config   prints such a file, with every setting explained
  --check-config FILE
                     prints what is wrong with the file and in which line, and
                     exits with 2; otherwise a summary. Connects to nothing
  --hash-password    reads a password, and prints its hash for the file
  --client-secret    prints a new secret for a client, and its digest for the file
{HELP}  --sso-demo         starts an identity provider on the next port, so that single
                     sign-on can be tried; needs the feature `external-providers`:
                     {WITH_SSO} -- --sso-demo
  --end-sessions     ends all sessions, logins and tokens at the start, and keeps
                     the accounts: after a backup was restored, or a failover of
                     Redis. It concerns all servers that share the Redis
  --event-log FILE   also writes the event log to this file, as JSON lines
  --help             shows this text

Servers with --redis share budgets, also those of addresses at the login. Each
counts bad keys at the API, and what reads the event log, on its own.

A connection without a complete request within 10 seconds is closed. At most
1,000 connections are open at the same time, and without proxies at most 100 of
one address.
"
    )
}

/// Returns the message of a server that was built without this feature.
pub(crate) fn without_feature(feature: &str) -> String {
    format!("this server was built without the feature `{feature}`: {COMMAND} --features {feature}")
}

pub(crate) fn without_sso() -> String {
    format!("--sso-demo: this server was built without single sign-on. Run it by\n{WITH_SSO} -- --sso-demo\n")
}
