//! Backup and restore of `--data`, word for word as `docs/operate.md` says.

use std::{fs, path::Path};

use serde_json::json;
use tokio::process::Command;
use tollgate::pkce::{CodeChallenge, CodeVerifier};

use super::{FORM, VERIFIER, temporary};
use crate::support::{
    browser::{Answer, Browser, Registered},
    example::{Example, command},
};

const OPERATE: &str = include_str!("../../docs/operate.md");
const CLIENT: Registered<'static> = Registered { id: "demo-native", redirect_uri: "http://127.0.0.1/callback" };
const PASSWORD: &str = "correct horse battery staple";

/// Returns the commands of a section.
fn commands(section: &str) -> &'static str {
    let (_, rest) = OPERATE.split_once(&format!("\n## {section}\n")).unwrap();
    let (_, rest) = rest.split_once("\n```sh\n").unwrap();
    rest.split_once("\n```\n").unwrap().0
}

/// A server that a shell has started. It ends when this value is dropped.
struct Started {
    /// The shell, which waits for the server and prints what it prints.
    shell: Example,
    id: String,
}

impl Started {
    fn kill(&mut self) {
        // the number of a process that has ended may be that of another one by now
        if !self.id.is_empty() {
            let _ = std::process::Command::new("kill").args(["-9", &self.id]).status();
        }
        self.id.clear();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Follows the commands, the last of which starts a server.
async fn follow(commands: &str, running: &str, data: &Path, backup: &Path) -> Started {
    let server = command("server", &[]).as_std().get_program().to_owned();
    let programs = Path::new(&server).parent().unwrap().to_owned();
    let others = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&others))).unwrap();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("set -e\n{commands}\necho $! > \"$BACKUP/id\"\nwait")])
        .envs([("SERVER", running), ("FLAGS", "--listen 127.0.0.1:0")])
        .envs([("DATA", data.as_os_str()), ("BACKUP", backup.as_os_str()), ("PATH", &path)])
        .kill_on_drop(true);
    let shell = Example::of(shell).await;
    let id = fs::read_to_string(backup.join("id")).unwrap().trim().to_owned();
    Started { shell, id }
}

async fn token(origin: &str, form: &str) -> Answer {
    let form = format!("client_id={}&{form}", CLIENT.id);
    Browser::new(origin, "").send("POST", "/token", &[FORM], &form).await
}

/// Signs in and returns a refresh token.
async fn signs_in(origin: &str) -> String {
    let code = Browser::new(origin, "").log_in(&CLIENT, "ada", PASSWORD).await;
    let redeem = format!("grant_type=authorization_code&code={code}&code_verifier={VERIFIER}");
    let issued = token(origin, &redeem).await.json();
    issued["refresh_token"].as_str().unwrap().to_owned()
}

async fn refreshes(origin: &str, refresh: &str) -> Answer {
    token(origin, &format!("grant_type=refresh_token&refresh_token={refresh}")).await
}

#[cfg(unix)]
#[tokio::test]
async fn b33_a_backup_is_made_and_restored_word_for_word_as_the_document_says() {
    let directory = temporary("backup");
    let (data, backup) = (directory.join("data"), directory.join("backup"));
    fs::create_dir_all(&data).unwrap();
    fs::create_dir_all(&backup).unwrap();
    // as it is started without a backup
    let mut server = follow("server $FLAGS --data \"$DATA\" &", "", &data, &backup).await;
    let keys = async |server: &Started| Browser::new(&server.shell.origin, "").open("/jwks").await.text;
    let (before, kept) = (signs_in(&server.shell.origin).await, keys(&server).await);
    let mut saved = follow(commands("Back up `--data`"), &server.id, &data, &backup).await;
    server.id.clear();
    // nothing is lost by it
    let answer = refreshes(&saved.shell.origin, &before).await;
    let latest = answer.json()["refresh_token"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned();
    assert_eq!(keys(&saved).await, kept);
    // the disk is lost
    let id = saved.id.clone();
    saved.kill();
    fs::remove_dir_all(&data).unwrap();
    let restored = follow(commands("Restore `--data`"), &id, &data, &backup).await;
    assert_eq!(keys(&restored).await, kept, "the signing keys are back");
    for old in [&before, &latest] {
        assert_eq!(refreshes(&restored.shell.origin, old).await.error(), "invalid_grant", "all sessions have ended");
    }
    let mut browser = Browser::new(&restored.shell.origin, "");
    // a redeemed challenge can't begin another login
    let challenge = CodeChallenge::from_verifier(&CodeVerifier::generate()).to_string();
    let begin = json!({ "identifier": "ada", "code_challenge": challenge });
    let id = browser.call("start", &CLIENT, begin).await.json()["session_id"].clone();
    let proof = json!({
        "session_id": id, "method": "password", "username": "ada", "password": PASSWORD, "code_challenge": challenge,
    });
    assert_eq!(browser.call("authenticate", &CLIENT, proof).await.status, 200, "the account is back");
    drop((restored, saved, server));
    fs::remove_dir_all(directory).unwrap();
}
