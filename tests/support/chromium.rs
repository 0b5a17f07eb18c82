//! A real browser, controlled through the DevTools protocol.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::programs::{missing, program};

/// A browser with one tab, which exits when this is dropped.
pub(crate) struct Chromium {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The protocol's id of the tab.
    tab: Option<String>,
    calls: u64,
    complaints: Vec<String>,
}

impl Chromium {
    /// Starts a browser with a profile of this name. Returns `None` and prints a message if there
    /// is no browser.
    pub(crate) async fn start(name: &str) -> Option<Self> {
        let Some(program) = program(&["chromium", "chromium-browser", "google-chrome"]) else {
            missing("chromium is not on PATH");
            return None;
        };
        let profile = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("browser-{name}-{}", std::process::id()));
        // the protocol uses file descriptors 3 and 4, which only a shell can set up. The browser
        // exits when the pipe is closed, and only then the profile can be deleted
        let mut child = Command::new("sh")
            .args(["-c", r#""$@" 3<&0 4>&1 </dev/null >/dev/null; rm -rf "$0""#])
            .args([&profile, &program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(["--remote-debugging-pipe", "about:blank"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let complaints = Vec::new();
        let mut browser = Self { input, output, tab: None, calls: 0, complaints };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let tab = browser.call("Target.attachToTarget", target).await;
        browser.use_tab(Some(tab["sessionId"].as_str().unwrap().to_owned())).await;
        Some(browser)
    }

    /// Opens another tab in front of this one, and returns this one.
    pub(crate) async fn open_tab(&mut self) -> Option<String> {
        let first = self.tab.take();
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let tab = self.call("Target.attachToTarget", target).await;
        self.use_tab(Some(tab["sessionId"].as_str().unwrap().to_owned())).await;
        first
    }

    /// Goes to a tab, and returns the one before.
    pub(crate) async fn use_tab(&mut self, tab: Option<String>) -> Option<String> {
        let before = std::mem::replace(&mut self.tab, tab);
        for domain in ["Runtime", "Log", "Page"] {
            self.call(&format!("{domain}.enable"), json!({})).await;
        }
        self.call("Page.bringToFront", json!({})).await;
        before
    }

    /// Sets the color scheme and the width of the screen.
    pub(crate) async fn look(&mut self, scheme: &str, width: u32) {
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", scheme).await;
        let screen = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", screen).await;
    }

    /// Stores a picture of the whole page as this PNG file.
    pub(crate) async fn take_picture(&mut self, path: &Path) {
        let picture = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true })).await;
        std::fs::write(path, STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()).unwrap();
    }

    pub(crate) async fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({ "url": url })).await;
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
    }

    /// Reloads the page and waits until the old one is gone.
    pub(crate) async fn reload(&mut self) {
        self.ask("window.isOld = true").await.unwrap();
        self.call("Page.reload", json!({})).await;
        self.until("!window.isOld").await;
    }

    /// Evaluates a script. Returns an error if the page is navigated away meanwhile.
    pub(crate) async fn ask(&mut self, script: &str) -> Result<Value, Value> {
        let asked = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let answer = self.try_call("Runtime.evaluate", asked).await?;
        match answer.get("exceptionDetails") {
            Some(thrown) => Err(thrown.clone()),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Waits until this script evaluates to true, on this page or a following one.
    pub(crate) async fn until(&mut self, script: &str) {
        let script = format!(
            "new Promise((done) => {{
                const look = () => {{ try {{ if ({script}) done(true); }} catch {{}} }};
                const all = {{ subtree: true, childList: true, attributes: true, characterData: true }};
                new MutationObserver(look).observe(document, all);
                addEventListener('load', look);
                look();
            }})"
        );
        let seen =
            timeout(Duration::from_secs(60), async { while self.ask(&script).await != Ok(json!(true)) {} }).await;
        if seen.is_err() {
            panic!("timed out waiting for: {script}");
        }
    }

    /// Clicks on the element with this selector, as soon as the page is loaded and has it.
    pub(crate) async fn click(&mut self, selector: &str) {
        self.until(&format!("document.readyState === 'complete' && document.querySelector('{selector}')")).await;
        self.ask(&format!("document.querySelector('{selector}').click()")).await.unwrap();
    }

    /// Types into the focused element.
    pub(crate) async fn insert(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    /// Presses a named key, such as Enter or Tab.
    pub(crate) async fn press(&mut self, key: &str) {
        let (number, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            _ => panic!("{key} is not supported"),
        };
        for kind in ["keyDown", "keyUp"] {
            let typed = if kind == "keyDown" { text } else { "" };
            let event =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": number, "text": typed });
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Adds a virtual authenticator that verifies its user, and returns its id. It answers only while its user is
    /// [present](Self::set_present).
    pub(crate) async fn add_authenticator(&mut self, transport: &str) -> String {
        self.call("WebAuthn.enable", json!({})).await;
        let options = json!({
            "protocol": "ctap2", "transport": transport, "hasResidentKey": true, "hasUserVerification": true,
            "isUserVerified": true, "automaticPresenceSimulation": false,
        });
        let added = self.call("WebAuthn.addVirtualAuthenticator", json!({ "options": options })).await;
        added["authenticatorId"].as_str().unwrap().to_owned()
    }

    /// Lets the user of an authenticator confirm each request from now on, or none.
    pub(crate) async fn set_present(&mut self, authenticator: &str, is_present: bool) {
        let options = json!({ "authenticatorId": authenticator, "enabled": is_present });
        self.call("WebAuthn.setAutomaticPresenceSimulation", options).await;
    }

    /// Lets the checks of fingerprint, face or PIN succeed or fail from now on.
    pub(crate) async fn set_user_verified(&mut self, authenticator: &str, is_verified: bool) {
        let options = json!({ "authenticatorId": authenticator, "isUserVerified": is_verified });
        self.call("WebAuthn.setUserVerified", options).await;
    }

    /// Returns the passkeys of an authenticator, with their private keys and sign counts.
    pub(crate) async fn passkeys(&mut self, authenticator: &str) -> Vec<Value> {
        let found = self.call("WebAuthn.getCredentials", json!({ "authenticatorId": authenticator })).await;
        found["credentials"].as_array().unwrap().clone()
    }

    /// Replaces all passkeys of an authenticator with one.
    pub(crate) async fn set_passkey(&mut self, authenticator: &str, passkey: &Value) {
        self.call("WebAuthn.clearCredentials", json!({ "authenticatorId": authenticator })).await;
        let added = json!({ "authenticatorId": authenticator, "credential": passkey });
        self.call("WebAuthn.addCredential", added).await;
    }

    /// Returns the console messages since the last call: logs, exceptions, policy violations and
    /// missing files.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    pub(crate) async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.try_call(method, parameters).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    async fn try_call(&mut self, method: &str, parameters: Value) -> Result<Value, Value> {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(tab) = &self.tab {
            call["sessionId"] = json!(tab);
        }
        self.input.write_all(format!("{call}\0").as_bytes()).await.unwrap();
        loop {
            let message = self.message().await;
            if message["id"] == self.calls {
                return message.get("error").map_or_else(|| Ok(message["result"].clone()), |error| Err(error.clone()));
            }
            let told = &message["params"];
            match message["method"].as_str() {
                // the applications of tests have no icon, and a browser may ask for one at any time
                Some("Log.entryAdded") if !told["entry"]["url"].to_string().ends_with("/favicon.ico\"") => {
                    self.complaints.push(format!("{} {}", told["entry"]["text"], told["entry"]["url"]));
                }
                Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown") => self.complaints.push(told.to_string()),
                _ => {}
            }
        }
    }

    async fn message(&mut self) -> Value {
        let mut message = Vec::new();
        let read = timeout(Duration::from_secs(90), self.output.read_until(0, &mut message)).await;
        assert!(matches!(read, Ok(Ok(1..))), "the browser stopped responding: {read:?}");
        serde_json::from_slice(message.trim_ascii_end().strip_suffix(b"\0").unwrap()).unwrap()
    }
}

/// Computes the code that an authenticator app shows for the key in the element with this id.
pub(crate) const TOTP: &str = "(async (id, seconds) => {
    const key = document.getElementById(id).textContent.replaceAll(' ', '');
    const bits = Array.from(key, (one) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(one).toString(2).padStart(5, '0'));
    const bytes = Uint8Array.from(bits.join('').match(/.{8}/g), (byte) => parseInt(byte, 2));
    const imported = await crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-1' }, false, ['sign']);
    const step = new DataView(new ArrayBuffer(8));
    step.setBigUint64(0, BigInt(Math.floor(seconds / 30)));
    const mac = new DataView(await crypto.subtle.sign('HMAC', imported, step.buffer));
    return String((mac.getUint32(mac.getUint8(19) & 15) & 0x7fffffff) % 1e6).padStart(6, '0');
})";
