//! oidc-provider from npm, which is certified by the OpenID Foundation, as the identity provider:
//! `interop/oidc-provider/main.mjs`.

use std::{path::Path, process::Stdio};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};
use tollgate::{
    Clock, SystemClock,
    sso::{ClientSecret, OidcProvider, SsoConnection},
    store::Memory,
    testing::ManualClock,
};

use crate::{
    programs::{missing, program},
    sso_provider::{Accounts, begun, outcome},
    world::{ISSUER, World},
};

const SECRET: &str = "a secret: of + signs";

/// The running program.
struct Foreign {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    issuer: String,
    /// The private key of the client `EdDSA`, as PEM.
    key: Vec<u8>,
}

impl Foreign {
    async fn start() -> Option<Self> {
        let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/interop/oidc-provider"));
        let Some(node) = program(&["node"]) else {
            missing("node is not on PATH");
            return None;
        };
        if !directory.join("node_modules").is_dir() {
            missing("oidc-provider is not installed: run `npm ci` in interop/oidc-provider");
            return None;
        }
        let mut command = Command::new(node);
        command.args(["main.mjs", &format!("{ISSUER}/authentication/sso/foreign/callback")]).current_dir(directory);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        // it warns about its runtime first
        let issuer = loop {
            let line = output.next_line().await.unwrap().unwrap();
            if line.starts_with("http://") {
                break line;
            }
        };
        let key = BASE64.decode(output.next_line().await.unwrap().unwrap()).unwrap();
        Some(Self { input: child.stdin.take().unwrap(), _child: child, output, issuer, key })
    }

    async fn ask(&mut self, command: &str) -> String {
        self.input.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        self.output.next_line().await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn users_of_a_foreign_provider_sign_in_while_its_keys_are_rotated() {
    let Some(mut foreign) = Foreign::start().await else { return };
    for client in ["RS256", "PS256", "ES256", "ES384", "EdDSA"] {
        let (clock, system) = (ManualClock::new(), SystemClock::new());
        clock.set_wall(system.unix(system.now()));
        let provider = OidcProvider::new(&foreign.issuer, client).unwrap().clock(clock.clone());
        let provider = match client {
            "RS256" | "ES384" => provider.secret(ClientSecret::new(SECRET)),
            "PS256" => provider.secret_in_body(ClientSecret::new(SECRET)),
            "EdDSA" => provider.private_key(&foreign.key, Some("ours")).unwrap(),
            _ => provider,
        };
        let provider = if client == "ES384" { provider.userinfo() } else { provider };
        let connection = SsoConnection::new(provider).create_account(Accounts(&[("ada-there", "u-ada")]));
        let world = World::on(Memory::new().into(), clock, |service| service.sso("foreign", connection)).await;
        for round in 0..2 {
            let mut browser = world.browser();
            let id = begun(&mut browser, "web").await;
            let fields = [("method", "sso"), ("provider", "foreign")];
            let sent = browser.call("authenticate", "web", &id, &fields).await;
            let url = sent.json()["redirect_url"].as_str().unwrap_or_else(|| panic!("{sent:?}")).to_owned();
            let back = foreign.ask(&format!("visit {url}")).await;
            let target = back.strip_prefix(ISSUER).unwrap_or_else(|| panic!("{back}"));
            let answer = browser.get(target).await;
            assert_eq!(outcome(&answer), "ok", "{client}, round {round}");
            assert_eq!(browser.status(&id).await.json()["completed_steps"], json!(1));
            assert_eq!(browser.get(target).await.status, 401, "a callback works once");
            assert_eq!(foreign.ask("rotate").await, "rotated");
            world.advance(31);
        }
    }
}
