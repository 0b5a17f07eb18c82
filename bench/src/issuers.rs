//! Token issuers: login services in their own processes, and how a browser gets a code from each.

use std::{
    collections::HashMap,
    env, fs, io,
    path::{Path, PathBuf},
    process::{self, Command},
};

use tollgate::{Password, Passwords};

use crate::{
    login::{Ask, Browser, CALLBACK, PASSWORD, identifier, runtime, username},
    remote::RemoteBrowser,
    sections::Programs,
    wire::Server,
};

/// Each user logs in once, and gets further codes by single sign-on. A session may have 20 families of a client.
pub const USERS: u64 = 1_000;
/// The client that gets no id_token on refresh.
pub const LEAN: &str = "lean";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issuer {
    /// The bundled server.
    Ours,
    /// A bare server that makes the same signatures and answers as many bytes.
    Signatures,
    /// oidc-provider with signed access tokens, like ours.
    PeerSigned,
    /// oidc-provider with opaque access tokens, its default.
    PeerOpaque,
}

/// The browsers of the users that are logged in.
pub type LoggedIn = HashMap<u64, Browser>;

impl Issuer {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "tollgate",
            Self::Signatures => "signatures and a bare server",
            Self::PeerSigned => "oidc-provider, access tokens signed",
            Self::PeerOpaque => "oidc-provider, access tokens opaque",
        }
    }

    /// Starts the issuer on the first core.
    pub fn start(self, programs: &Programs<'_>) -> io::Result<Server> {
        let peer = peer().join("server.mjs").display().to_string();
        match self {
            Self::Ours => bundled(&programs.server.display().to_string()),
            Self::Signatures => on_first_core(&[&programs.one.display().to_string(), "signatures"]),
            Self::PeerSigned => on_first_core(&["node", &peer, "jwt"]),
            Self::PeerOpaque => on_first_core(&["node", &peer, "opaque"]),
        }
    }

    /// Gets a code for this user at this client, and returns the request that exchanges it.
    pub fn code(
        self,
        remote: &mut RemoteBrowser,
        known: &mut LoggedIn,
        (user, client): (u64, &'static str),
    ) -> io::Result<Ask> {
        if self == Self::Signatures {
            return Ok(remote.browser.again(client).by_code("any"));
        }
        if self != Self::Ours {
            // the browser of a connection stays logged in as its first user
            let target = format!("/auth?{}&login_hint={}", remote.browser.query(), username(user));
            let code = follow(remote, target)?;
            return Ok(remote.browser.by_code(&code));
        }
        let user = user % USERS;
        if !known.contains_key(&user) {
            log_in(remote, user)?;
        }
        remote.browser = known.get(&user).unwrap_or(&remote.browser).again(client);
        let authorize = remote.browser.authorize().target;
        let code = follow(remote, authorize)?;
        known.insert(user, remote.browser.clone());
        Ok(remote.browser.by_code(&code))
    }
}

/// Logs in by password.
fn log_in(remote: &mut RemoteBrowser, user: u64) -> io::Result<()> {
    remote.browser = Browser::default();
    let started = remote.ask(&remote.browser.start(&identifier(user)))?;
    remote.browser.began(&started.body);
    let step = remote.ask(&remote.browser.password(&username(user), PASSWORD))?;
    if step.status != 200 {
        return Err(step.wrong("no step"));
    }
    remote.ask(&remote.browser.complete())?;
    let authorize = remote.browser.authorize().target;
    follow(remote, authorize).map(|_| ())
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
    let manifest = fs::read_to_string(peer().join("node_modules/oidc-provider/package.json"));
    let manifest = manifest.map_err(|_| "oidc-provider is not installed: run `npm ci` in bench/peer")?;
    let (_, version) = manifest.split_once(r#""version": ""#).ok_or("oidc-provider has no version")?;
    let version = version.split('"').next().unwrap_or_default();
    Ok(format!("oidc-provider {version} on node {}", String::from_utf8_lossy(&node.stdout).trim()))
}

fn on_first_core(program: &[&str]) -> io::Result<Server> {
    Server::start(Path::new("taskset"), &[&["-c", "0"], program].concat())
}

/// Starts the bundled server with a file of clients and users, and without limits that the benchmark would reach.
fn bundled(server: &str) -> io::Result<Server> {
    let file = env::temp_dir().join(format!("tollgate-bench-{}.toml", process::id()));
    fs::write(&file, configuration())?;
    let config = file.display().to_string();
    let started = on_first_core(&[server, "--config", &config, "--listen", "localhost:0"]);
    fs::remove_file(&file)?;
    let mut started = started?;
    // the first line that it prints is `Listening on http://localhost:8080`
    let address = started.address.strip_prefix("Listening on http://");
    let address = address.ok_or_else(|| io::Error::other("the server does not start"))?;
    started.address = address.to_owned();
    Ok(started)
}

fn configuration() -> String {
    let hash = runtime().block_on(Passwords::new().hash(Password::new(PASSWORD.to_owned())));
    let hash = hash.expect("the password can be hashed");
    let client = |id: &str, more: &str| {
        format!(
            "[[clients]]\nid = {id:?}\ntenant = \"acme\"\nredirect_uris = [{CALLBACK:?}]\nscopes = [\"openid\"]\n\
             single_sign_on = true\n{more}\n"
        )
    };
    let user = |user: u64| {
        format!(
            "[[users]]\ntenant = \"acme\"\nid = \"{user:08}\"\nidentifiers = [{:?}, {:?}]\npassword_hash = {:?}\n",
            identifier(user),
            username(user),
            hash.as_str()
        )
    };
    let users: String = (0..USERS).map(user).collect();
    let (web, lean) = (client("web", ""), client(LEAN, "id_token_on_refresh = false"));
    format!("per_address = 100000000\n[[tenants]]\nname = \"acme\"\nper_minute = 100000000\n{web}{lean}{users}")
}
