//! openid-client from npm, which is certified by the OpenID Foundation: `openid-client/main.mjs`.

#![expect(clippy::unwrap_used, reason = "tests may panic")]
#![expect(clippy::print_stderr, reason = "skipped tests print a message")]

mod server;
#[path = "../../tests/support/programs.rs"]
mod programs;

use std::path::Path;

use server::Server;
use tokio::process::Command;

#[tokio::test]
async fn openid_client_works_in_strict_mode() {
    let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/openid-client"));
    let Some(node) = programs::program(&["node"]) else { return programs::missing("node is not on PATH") };
    if !directory.join("node_modules").is_dir() {
        return programs::missing("openid-client is not installed: run `npm ci` in interop/openid-client");
    }
    let (server, shared) = (Server::start().await, Server::shared().await);
    let mut script = Command::new(node);
    script.args(["main.mjs", &server.issuer, &shared.issuer]).current_dir(directory).kill_on_drop(true);
    let output = script.output().await.unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("ok: ").count(), 19, "{said}");
}
