//! oidc-provider from npm, which is certified by the OpenID Foundation, as the identity provider:
//! `interop/oidc-provider/main.mjs`.

use std::{path::Path, process::Stdio};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::programs::{missing, program};

/// The running program.
pub(crate) struct IdentityProvider {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    pub(crate) issuer: String,
    /// The private key of the client `EdDSA`, as PEM.
    pub(crate) key: Vec<u8>,
}

impl IdentityProvider {
    /// Starts it with this redirect URI. Returns `None` and prints a message if it is not installed.
    pub(crate) async fn start(redirect_uri: &str) -> Option<Self> {
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
        command.args(["main.mjs", redirect_uri]).current_dir(directory);
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

    pub(crate) async fn ask(&mut self, command: &str) -> String {
        self.input.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        self.output.next_line().await.unwrap().unwrap()
    }
}
