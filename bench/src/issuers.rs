//! Token issuers: login services in their own processes, and how a browser gets a code from each.

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
};

use tollgate::{Algorithm, Passwords, store::Memory};

use crate::{
    login::{self, Ask, Browser, CALLBACK, PASSWORD, Setup, identifier, username},
    remote::RemoteBrowser,
    wire::Server,
};

/// Each user has one session.
const USERS: u64 = 4_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issuer {
    Ours,
    /// oidc-provider with signed access tokens, like ours.
    PeerSigned,
    /// oidc-provider with opaque access tokens, its default.
    PeerOpaque,
}

impl Issuer {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "tollgate",
            Self::PeerSigned => "oidc-provider, access tokens signed",
            Self::PeerOpaque => "oidc-provider, access tokens opaque",
        }
    }

    /// Starts the issuer on the first core.
    pub fn start(self, one: &Path) -> io::Result<Server> {
        let format = match self {
            Self::Ours => return Server::start(one, &["tokens", &USERS.to_string()]),
            Self::PeerSigned => "jwt",
            Self::PeerOpaque => "opaque",
        };
        let server = peer().join("server.mjs");
        Server::start(Path::new("taskset"), &["-c", "0", "node", &server.display().to_string(), format])
    }

    /// Gets a code for this user, and returns the request that exchanges it.
    pub fn code(self, remote: &mut RemoteBrowser, user: u64) -> io::Result<Ask> {
        let code = match self {
            Self::Ours => log_in(remote, user % USERS),
            // a user who has logged in once gets further codes without a login
            Self::PeerSigned | Self::PeerOpaque => {
                let target = format!("/auth?{}&login_hint={}", remote.browser.query(), username(user));
                follow(remote, target)
            }
        };
        Ok(remote.browser.by_code(&code?))
    }
}

/// Logs in by password, with a hash that is fast to check.
fn log_in(remote: &mut RemoteBrowser, user: u64) -> io::Result<String> {
    remote.browser = Browser::default();
    let started = remote.ask(&remote.browser.start(&identifier(user)))?;
    remote.browser.began(&started.body);
    let step = remote.ask(&remote.browser.password(&username(user), PASSWORD))?;
    if step.status != 200 {
        return Err(step.wrong("no step"));
    }
    remote.ask(&remote.browser.complete())?;
    let authorize = remote.browser.authorize().target;
    follow(remote, authorize)
}

/// Follows redirects up to the one with the code.
fn follow(remote: &mut RemoteBrowser, target: String) -> io::Result<String> {
    let mut ask = Ask::get(target);
    for _ in 0..8 {
        let answer = remote.ask(&ask)?;
        if let Some(code) = answer.location.strip_prefix(CALLBACK).and_then(|query| query.split_once("code=")) {
            return Ok(code.1.split('&').next().unwrap_or_default().to_owned());
        }
        let path = answer.location.trim_start_matches("http://auth.example");
        if path.is_empty() {
            return Err(answer.wrong(&ask.target));
        }
        ask.target = path.to_owned();
    }
    Err(io::Error::other("redirects without end"))
}

fn peer() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peer")
}

/// Returns the version of the peer and of its runtime, or what is missing.
pub fn peer_version() -> Result<String, &'static str> {
    let node = Command::new("node").arg("--version").output().map_err(|_| "node is not installed")?;
    let manifest = std::fs::read_to_string(peer().join("node_modules/oidc-provider/package.json"));
    let manifest = manifest.map_err(|_| "oidc-provider is not installed: run `npm ci` in bench/peer")?;
    let (_, version) = manifest.split_once(r#""version": ""#).ok_or("oidc-provider has no version")?;
    let version = version.split('"').next().unwrap_or_default();
    Ok(format!("oidc-provider {version} on node {}", String::from_utf8_lossy(&node.stdout).trim()))
}

/// Runs in the child: serves our issuer on a free loopback port, and prints its address.
pub fn serve(users: u64) {
    login::serve(async move {
        let setup = Setup { store: Memory::new().into(), users, passwords: Passwords::insecure_fast() };
        setup.with_tokens(Algorithm::Es256).await
    });
}
