//! Edits to the users in the file of `--config`, between two starts on the same directory.

use std::{fs, process::Stdio};

use serde_json::json;
use tokio::io::AsyncReadExt;
use tollgate::pkce::{CodeChallenge, CodeVerifier};

use super::{FORM, VERIFIER, config, run, sample, temporary};
use crate::support::{
    browser::{Answer, Browser, Registered},
    example::{Example, command},
};

const CLIENT: Registered<'static> = Registered { id: "web", redirect_uri: "http://127.0.0.1:3000/callback" };
const PASSWORD: &str = "correct horse battery staple";
const OTHER_PASSWORD: &str = "notes on the engine";

/// A server on one directory and one file, which changes between its starts.
struct Restarted {
    directory: std::path::PathBuf,
    file: std::path::PathBuf,
}

impl Restarted {
    fn new(name: &str) -> Self {
        let directory = temporary(name);
        let _ = fs::remove_dir_all(&directory);
        Self { directory, file: config(name, "") }
    }

    fn arguments(&self, text: &str) -> [String; 5] {
        fs::write(&self.file, text).unwrap();
        let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        [
            "--listen=127.0.0.1:0".to_owned(),
            "--config".to_owned(),
            path(&self.file),
            "--data".to_owned(),
            path(&self.directory),
        ]
    }

    /// Starts the server with this file.
    async fn start(&self, text: &str) -> Running {
        let arguments = self.arguments(text);
        let mut command = command("server", &arguments.each_ref().map(String::as_str));
        command.stderr(Stdio::piped());
        Running(Example::of(command).await)
    }

    /// Returns what the server says when it refuses this file.
    async fn refused(&self, text: &str) -> String {
        let arguments = self.arguments(text);
        let output = run("server", &arguments.each_ref().map(String::as_str)).await;
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Restarted {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
        let _ = fs::remove_file(&self.file);
    }
}

struct Running(Example);

impl Running {
    async fn signs_in(&self, name: &str, password: &str) -> bool {
        let mut browser = Browser::new(&self.0.origin, "");
        // a redeemed challenge can't begin another login
        let challenge = CodeChallenge::from_verifier(&CodeVerifier::generate()).to_string();
        let begin = json!({ "identifier": name, "code_challenge": challenge });
        let id = browser.call("start", &CLIENT, begin).await.json()["session_id"].clone();
        let proof = json!({
            "session_id": id, "method": "password", "username": name, "password": password, "code_challenge": challenge,
        });
        browser.call("authenticate", &CLIENT, proof).await.status == 200
    }

    async fn token(&self, form: &str) -> Answer {
        Browser::new(&self.0.origin, "").send("POST", "/token", &[FORM], form).await
    }

    /// Ends the server, and returns what it printed for the operator.
    async fn stop(mut self) -> String {
        self.0.child.kill().await.unwrap();
        let mut text = String::new();
        self.0.child.stderr.take().unwrap().read_to_string(&mut text).await.unwrap();
        text
    }
}

fn refresh_token(answer: &Answer) -> Option<String> {
    answer.json()["refresh_token"].as_str().map(str::to_owned)
}

/// Returns the hash of another password, made by the library.
async fn other_hash() -> String {
    let hash = tollgate::Passwords::new().hash(tollgate::Password::new(OTHER_PASSWORD)).await.unwrap();
    hash.as_str().to_owned()
}

#[tokio::test]
async fn b32_edits_to_the_users_of_the_file_are_applied() {
    let server = Restarted::new("file-users");
    let first = sample(|_| false);
    let running = server.start(&first).await;
    assert!(running.signs_in("ada", PASSWORD).await);
    let code = Browser::new(&running.0.origin, "").log_in(&CLIENT, "ada", PASSWORD).await;
    let redeem = format!(
        "grant_type=authorization_code&client_id=web&code={code}&code_verifier={VERIFIER}&redirect_uri={}",
        CLIENT.redirect_uri
    );
    let refresh = refresh_token(&running.token(&redeem).await).expect("the client gets a refresh token");
    assert_eq!(running.stop().await, "", "nothing has changed");

    // the same file changes nothing
    let running = server.start(&first).await;
    assert!(running.signs_in("ada", PASSWORD).await);
    let refreshes = |token: &str| format!("grant_type=refresh_token&client_id=web&refresh_token={token}");
    let refresh = refresh_token(&running.token(&refreshes(&refresh)).await).expect("its session goes on");
    assert_eq!(running.stop().await, "");

    // a rotated password
    let hash = first.lines().find_map(|line| line.strip_prefix("password_hash = ")).unwrap();
    let rotated = first.replace(hash, &format!("{:?}", other_hash().await));
    let line = rotated.lines().position(|line| line == "[[users]]").unwrap() + 1;
    let running = server.start(&rotated).await;
    assert!(!running.signs_in("ada", PASSWORD).await);
    assert!(running.signs_in("ada", OTHER_PASSWORD).await);
    let refused = running.token(&refreshes(&refresh)).await;
    assert_eq!(refused.error(), "invalid_grant", "it rests on the old password: {refused:?}");
    assert_eq!(running.stop().await, format!("line {line}: users: \"u-1\" has changed: password\n"));

    // other names and contacts
    let renamed = rotated
        .replace(r#"["ada", "ada@example.com"]"#, r#"["countess", "ada@example.com"]"#)
        .replace("Ada Lovelace", "Augusta Ada King")
        .replace(r#"email = "ada@example.com""#, r#"email = "ada@example.org""#);
    let running = server.start(&renamed).await;
    assert!(!running.signs_in("ada", OTHER_PASSWORD).await);
    assert!(running.signs_in("countess", OTHER_PASSWORD).await);
    let printed = running.stop().await;
    assert_eq!(printed, format!("line {line}: users: \"u-1\" has changed: identifiers, name, contacts\n"));

    // another user gets the name that has become free
    let second = format!(
        "{renamed}\n\n[[users]]\ntenant = \"acme\"\nid = \"u-2\"\nidentifiers = [\"ada\"]\npassword_hash = {hash}\n"
    );
    let running = server.start(&second).await;
    assert!(running.signs_in("ada", PASSWORD).await);
    assert!(running.signs_in("countess", OTHER_PASSWORD).await);
    assert_eq!(running.stop().await, "");

    // a removed user can't sign in, and comes back with the entry
    let running = server.start(&renamed).await;
    assert!(!running.signs_in("ada", PASSWORD).await);
    assert!(running.signs_in("countess", OTHER_PASSWORD).await);
    let printed = running.stop().await;
    assert_eq!(printed, "users: \"u-2\" is not in the file any more: the account is disabled\n");
    let running = server.start(&renamed).await;
    assert_eq!(running.stop().await, "", "once");
    let running = server.start(&second).await;
    assert!(running.signs_in("ada", PASSWORD).await);
    let printed = running.stop().await;
    assert!(printed.contains("users: \"u-2\" has changed: ") && printed.contains("enabled again"), "{printed}");
}

#[tokio::test]
async fn b32_an_edit_that_cannot_be_applied_is_refused_with_its_line() {
    let server = Restarted::new("file-refused");
    let first = sample(|_| false);
    server.start(&first).await.stop().await;
    let with = |more: &str| format!("{first}\n\n[[users]]\ntenant = \"acme\"\n{more}\n");
    let line = with("").lines().count() - 2;
    for (more, why) in [
        ("id = \"u-1\"\nidentifiers = [\"x\"]", "appears more than once"),
        ("id = \"u-2\"\nidentifiers = [\"ada\"]", "another account has this identifier"),
        ("id = \"u-2\"\nidentifiers = []", "has no identifier"),
        ("id = \"u-2\"\nidentifiers = [\"x\"]\nemail = \"x\"", "an e-mail address must be"),
        ("id = \"\"\nidentifiers = [\"x\"]", ""),
    ] {
        let error = server.refused(&with(more)).await;
        assert!(error.contains(&format!(": line {line}: users: \"")) && error.contains(why), "{more}: {error}");
    }
    // what was refused has changed nothing
    let running = server.start(&first).await;
    assert!(running.signs_in("ada", PASSWORD).await);
    assert_eq!(running.stop().await, "");
}

#[tokio::test]
async fn b32_an_edit_before_a_refused_one_is_taken_back_with_the_file() {
    let server = Restarted::new("file-taken-back");
    let plain = sample(|_| false);
    let hash = plain.lines().find_map(|line| line.strip_prefix("password_hash = ")).unwrap().to_owned();
    let user = |id: &str, name: &str| {
        format!("\n\n[[users]]\ntenant = \"acme\"\nid = \"{id}\"\nidentifiers = [\"{name}\"]\npassword_hash = {hash}\n")
    };
    let first = format!("{plain}{}{}", user("u-2", "grace"), user("u-3", "alan"));
    server.start(&first).await.stop().await;
    // a new password for ada, grace wants the name of alan, and alan is removed
    let rotated = plain.replace(&hash, &format!("{:?}", other_hash().await));
    let error = server.refused(&format!("{rotated}{}{}", user("u-2", "ada"), user("u-4", "x"))).await;
    assert!(error.contains("another account has this identifier"), "{error}");
    let running = server.start(&first).await;
    for name in ["ada", "grace", "alan"] {
        assert!(running.signs_in(name, PASSWORD).await, "{name}");
    }
    assert!(!running.signs_in("ada", OTHER_PASSWORD).await);
    let printed = running.stop().await;
    assert!(printed.contains("\"u-1\" has changed: password\n") && printed.contains("enabled again"), "{printed}");
}
