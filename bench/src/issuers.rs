//! Who issues tokens: a login service in a process of its own, and how a browser gets a code there.

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
};

use tollgate::{Algorithm, Passwords, store::Memory};

use crate::{
    login::{self, Ask, Browser, CALLBACK, PASSWORD, Setup, identifier, username},
    tab::Tab,
    wire::Server,
};

/// Each with sessions of its own.
const USERS: u64 = 4_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issuer {
    Ours,
    /// oidc-provider, with access tokens that are signed as ours are.
    PeerSigned,
    /// The same with access tokens that it looks up, as it has them by default.
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

    /// Starts it on the first core.
    pub fn start(self, one: &Path) -> io::Result<Server> {
        let format = match self {
            Self::Ours => return Server::start(one, &["tokens", &USERS.to_string()]),
            Self::PeerSigned => "jwt",
            Self::PeerOpaque => "opaque",
        };
        let server = peer().join("server.mjs");
        Server::start(Path::new("taskset"), &["-c", "0", "node", &server.display().to_string(), format])
    }

    /// The exchange of a code for this user, which was got by the issuer's own way to it.
    pub fn code(self, tab: &mut Tab, user: u64) -> io::Result<Ask> {
        let code = match self {
            Self::Ours => log_in(tab, user % USERS),
            // who has logged in there once gets further codes without a login
            Self::PeerSigned | Self::PeerOpaque => {
                let target = format!("/auth?{}&login_hint={}", tab.browser.query(), username(user));
                follow(tab, target)
            }
        };
        Ok(tab.browser.by_code(&code?))
    }
}

/// By a password that costs next to nothing.
fn log_in(tab: &mut Tab, user: u64) -> io::Result<String> {
    tab.browser = Browser::default();
    let started = tab.ask(&tab.browser.start(&identifier(user)))?;
    tab.browser.began(&started.body);
    let step = tab.ask(&tab.browser.password(&username(user), PASSWORD))?;
    if step.status != 200 {
        return Err(step.wrong("no step"));
    }
    tab.ask(&tab.browser.complete())?;
    let authorize = tab.browser.authorize().target;
    follow(tab, authorize)
}

/// Goes where redirects lead, up to the one that has the code.
fn follow(tab: &mut Tab, target: String) -> io::Result<String> {
    let mut ask = Ask::get(target);
    for _ in 0..8 {
        let answer = tab.ask(&ask)?;
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

/// What runs the peer and which version it is, or what is missing.
pub fn peer_version() -> Result<String, &'static str> {
    let node = Command::new("node").arg("--version").output().map_err(|_| "there is no node")?;
    let manifest = std::fs::read_to_string(peer().join("node_modules/oidc-provider/package.json"));
    let manifest = manifest.map_err(|_| "oidc-provider is not installed: run `npm ci` in bench/peer")?;
    let (_, version) = manifest.split_once(r#""version": ""#).ok_or("oidc-provider has no version")?;
    let version = version.split('"').next().unwrap_or_default();
    Ok(format!("oidc-provider {version} on node {}", String::from_utf8_lossy(&node.stdout).trim()))
}

/// In the child: ours, on a free port of the loopback, which it prints, until it is ended.
pub fn serve(users: u64) {
    login::serve(async move {
        let setup = Setup { store: Memory::new().into(), users, passwords: Passwords::insecure_fast() };
        setup.with_tokens(Algorithm::Es256).await
    });
}
