//! The settings of the file of the bundled server, and the flags that help to write it.

use std::{fs, process::Stdio};

use tokio::io::AsyncWriteExt;

use crate::{
    SECRET, SHIPPED, config, is_possible, sample,
    support::{
        browser::{Browser, Registered},
        example::{Example, command, run},
    },
    temporary,
};

const APP: Registered<'_> = Registered { id: "app", redirect_uri: "http://127.0.0.1:51004/callback" };

/// Checks a file with this text. Returns the exit code, and what was printed.
async fn check(name: &str, text: &str) -> (Option<i32>, String) {
    let path = config(name, text);
    let output = run("server", &["--check-config", path.to_str().unwrap()]).await;
    fs::remove_file(path).unwrap();
    let printed = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.code(), String::from_utf8(printed).unwrap())
}

#[tokio::test]
async fn the_printed_example_is_accepted_as_it_is_and_with_all_settings() {
    let printed = run("server", &["--example-config"]).await;
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), SHIPPED);
    let (code, summary) = check("shipped", SHIPPED).await;
    assert_eq!(code, Some(0), "{summary}");
    assert!(
        summary.contains("no errors\nissuer: http://localhost and the port\nlistens on: localhost:8080\n"),
        "{summary}"
    );
    // the user of the example has no password
    let line = SHIPPED.lines().position(|line| line == "[[users]]").unwrap() + 1;
    let warning = format!("\nwarning: line {line}: users: \"u-1\" cannot sign in: set password_hash\n");
    assert!(summary.ends_with(&warning), "{summary}");
    let (_, summary) = check("password", &sample(|_| false)).await;
    assert!(summary.contains(": no problems\n") && summary.contains("\nusers sign in with: passwords\n"), "{summary}");
    let (_, summary) = check("printed", &SHIPPED.replace("# insecure_print_codes", "insecure_print_codes")).await;
    let ways = "passwords, codes by e-mail (printed), codes by text message (printed), codes by WhatsApp (printed)";
    assert!(summary.contains(": no problems\n") && summary.contains(&format!("sign in with: {ways}\n")), "{summary}");

    let (code, summary) = check("settings", &sample(|key| is_possible(key) || key == "data")).await;
    assert_eq!(code, Some(0), "{summary}");
    let state = std::env::temp_dir().join("state");
    for line in [
        "issuer: https://login.example.com/auth".to_owned(),
        "clients: 4".to_owned(),
        "users: 1".to_owned(),
        "account pages for: acme".to_owned(),
        format!("keeps its state in: {}", state.display()),
    ] {
        assert!(summary.lines().any(|own| own == line), "{line}: {summary}");
    }
    assert!(!state.exists(), "nothing was opened");
}

#[tokio::test]
async fn a_check_reports_all_bad_values_with_their_lines_and_unknown_keys() {
    let good = sample(|key| ["seal", "session", "account_pages"].contains(&key));
    let line = |text: &str, part: &str| text.lines().position(|line| line.contains(part)).unwrap() + 1;
    let bad = good.replace("AAECAwQF", "AAECAw").replace("\"com.example.app:", "\"http:");
    let (code, problems) = check("bad", &bad).await;
    assert_eq!(code, Some(2), "{problems}");
    let [tokens, app] = ["[tokens]", "id = \"app\""].map(|part| line(&bad, part));
    assert!(problems.contains(&format!("\nline {tokens}: tokens: seal: must be 32 bytes")), "{problems}");
    let app = app - 1;
    assert!(problems.contains(&format!("\nline {app}: clients: \"app\": redirect URI: http:/callback")), "{problems}");

    for (name, from, to, says) in [
        ("table", "[limits]", "[limit]", "unknown field `limit`"),
        ("nested", "[limits]", "[limits]\nper_hour = 1", "unknown field `per_hour`"),
        ("secret", "seal = \"", "seal = { path = \"x\" } # \"", "a secret is a text, { file = \"path\" } or { env"),
        ("time", "session = \"24h\"", "session = \"24 hours\"", "write it like \"90s\", \"10m\""),
        ("bound", "session = \"24h\"", "session = \"1s\"", "session"),
        ("pages", "account_pages = \"acme\"", "account_pages = \"globex\"", "no tenant has the name \"globex\""),
        ("method", "[\"password\"]", "[\"sms\"]", "can't satisfy the policies"),
        ("listen", "# listen = \"localhost:8080\"", "listen = \"here\"", "listen: here: must be an address"),
        ("open", "# listen = \"localhost:8080\"", "listen = \"0.0.0.0:80\"", "`issuer` must be the https URL"),
    ] {
        assert!(good.contains(from), "{from}");
        let text = good.replacen(from, to, 1);
        let (code, problems) = check(name, &text).await;
        assert_eq!(code, Some(2), "{name}: {problems}");
        assert!(problems.contains(says), "{name}: {problems}");
        if problems.contains("unknown field") {
            let key = to.lines().last().unwrap();
            assert!(problems.contains(&format!("\nline {}: unknown field", line(&text, key))), "{name}: {problems}");
        }
    }

    // all unknown settings, with the bad values
    let text = bad.replacen("[limits]", "[limits]\nper_hour = 1\nper_day = { at = 2 }", 1);
    let text = text.replace("id = \"app\"", "id = \"app\"\ndpop = [1,\n2]") + "\n[later]\nby = 1\n";
    let (code, problems) = check("unknown", &text).await;
    assert_eq!(code, Some(2), "{problems}");
    for (key, field) in [("per_hour", "per_hour"), ("per_day", "per_day"), ("dpop = [1", "dpop"), ("[later]", "later")]
    {
        let problem = format!("\nline {}: unknown field `{field}`, expected one of ", line(&text, key));
        assert!(problems.contains(&problem), "{field}: {problems}");
    }
    assert!(problems.contains(&format!("\nline {}: tokens: seal: ", line(&text, "[tokens]"))), "{problems}");
    let unread = text.replacen("[[tenants]]", "[[tenant]]", 1);
    let (_, problems) = check("missing", &unread).await;
    assert!(problems.contains("unknown field `per_day`"), "{problems}");
    assert!(problems.contains("unknown field `tenant`") && problems.contains("missing field `tenants`"), "{problems}");
    let (code, problems) = check("nowhere", "clients = []").await;
    assert!(code == Some(2) && problems.contains("missing field `tenants`"), "{problems}");
}

#[tokio::test]
async fn a_check_reports_many_mistakes_at_once_and_none_that_follows_from_another() {
    let text = r#"listen = "here"
account_pages = "nope"
operator_key = "short"
per_address = 0
issuer = "https://login.example.com"
[lifetimes]
session = "24 hours"
code = "0s"
[pages]
home_url = 5
colors = { accent = "greenish" }
[limits]
per_hour = 1
code_attempts = 300
[policies]
default = { steps = 9 }
[[tenants]]
name = "acme"
per_minute = 0
api_keys = ["abc"]
[[tenants]]
name = "globex"
per_minute = 10
api_keys = ["an-api-key-of-globex", 5]
[[clients]]
id = "web"
tenant = "gloex"
scopes = ["openid"]
[[clients]]
id = "app"
tenant = "globex"
scopes = "openid"
colour = 1
[[users]]
tenant = "acme"
id = "u-1"
email = "ada"
[[users]]
tenant = "acme"
id = "u-2"
identifiers = []
[[users]]
tenant = "acme"
id = 3
identifiers = 4
"#;
    let (code, problems) = check("many", text).await;
    assert_eq!(code, Some(2), "{problems}");
    let short = |problem: &str| problem.split(", expected").next().unwrap().to_owned();
    let found: Vec<String> = problems.lines().skip(1).map(short).collect();
    assert_eq!(
        found,
        [
            "line 1: listen: here: must be an address and a port, such as localhost:8080.",
            "line 2: account_pages: no tenant has the name \"nope\"",
            "line 3: operator_key: operator key: (not shown) is not usable: must have at least 16 bytes",
            "line 4: per_address: quota limit: 0 is not usable: must be at least 1",
            "line 5: proxies: an https issuer needs a proxy in front: add its address, such as \"127.0.0.1\"",
            "line 6: lifetimes: login code_lifetime: 0ns is not usable: must be 1 to 10 minutes",
            "line 7: lifetimes: session: \"24 hours\" is not a time: write it like \"90s\", \"10m\", \"24h\" or \"30d\"",
            "line 9: pages: color: greenish is not usable: must be like #1f5fbf or #15b",
            "line 10: pages: home_url: invalid type: integer `5`",
            "line 13: unknown field `per_hour`",
            "line 14: limits: code_attempts: invalid value: integer `300`",
            "line 15: policies: default: policy: 9 steps is not usable: must have 1 to 6 steps",
            "line 17: tenants: \"acme\": api_keys: each must have at least 16 bytes",
            "line 17: tenants: \"acme\": per_minute: quota limit: 0 is not usable: must be at least 1",
            "line 24: tenants: api_keys: a secret is a text, { file = \"path\" } or { env = \"NAME\" }",
            "line 25: clients: \"web\": clients: web is not usable: must have a redirect URI",
            "line 25: clients: \"web\": no tenant has the name \"gloex\"",
            "line 32: clients: scopes: invalid type: string \"openid\"",
            "line 33: unknown field `colour`",
            "line 34: users: missing field `identifiers`",
            "line 38: users: \"u-2\": has no identifier",
            "line 44: users: id: invalid type: integer `3`",
            "line 45: users: identifiers: invalid type: integer `4`",
        ],
        "{problems}"
    );
    // the tenants of these clients may be the one that could not be read
    let lost = "[[tenants]]\nname = \"acme\"\n[[clients]]\nid = \"web\"\ntenant = \"acme\"\nscopes = [\"openid\"]\n\
                redirect_uris = [\"https://acme.example/\"]\n";
    let (_, problems) = check("lost", lost).await;
    assert_eq!(problems.lines().skip(1).collect::<Vec<_>>(), ["line 1: tenants: missing field `per_minute`"]);
    // a value that could not be read is not missing
    let bad_slots = "tenants = []\n[policies]\ndefault = { slots = 5 }\n";
    let (_, problems) = check("slots", bad_slots).await;
    let found: Vec<String> = problems.lines().skip(1).map(short).collect();
    assert_eq!(found, ["line 3: policies: default: slots: invalid type: integer `5`"]);
}

#[tokio::test]
async fn a_server_for_accounts_needs_no_clients_and_leads_to_their_pages() {
    let text = sample(|key| ["account_pages", "seal"].contains(&key));
    let (clients, rest) = text.split_once("\n[[clients]]").unwrap();
    let text = clients.to_owned() + &rest[rest.find("\n[policies]").unwrap()..];
    for (name, issuer, path) in [("accounts", "", ""), ("accounts-below", "http://localhost:8080/auth", "/auth")] {
        let text = if issuer.is_empty() { text.clone() } else { format!("issuer = {issuer:?}\n{text}") };
        let file = config(name, &text);
        let mut server = Example::start("server", &["--config", file.to_str().unwrap(), "--listen=127.0.0.1:0"]).await;
        fs::remove_file(file).unwrap();
        let site = if issuer.is_empty() { server.origin.clone() } else { "http://localhost:8080".to_owned() };
        let pages = format!("{site}{path}");
        assert_eq!(
            [server.line().await, server.line().await],
            [
                format!("Users sign in at {pages}/sign-in, and manage their accounts at {pages}/account/security"),
                format!("The event log is at {site}/events/, with the operator's key, or with the API key of a tenant"),
            ]
        );
        let mut browser = server.browser();
        for start in ["/".to_owned(), format!("{path}/account"), format!("{path}/account/")] {
            assert_eq!(browser.open(&start).await.header("location"), format!("{path}/account/security"), "{start}");
        }
        assert_eq!(browser.open(&format!("{path}/account/security")).await.status, 303);
    }
}

#[tokio::test]
async fn settings_without_their_feature_are_refused_with_the_command_that_has_it() {
    for (table, feature) in [("smtp", "smtp"), ("sms", "webhook"), ("providers", "external-providers")] {
        let required = ["host", "from", "url", "key", "name", "client_id", "secret"];
        let text = sample(|key| key == table || required.contains(&key));
        let (code, printed) = check(table, &text).await;
        if is_possible(table) {
            assert_eq!(code, Some(0), "{table}: {printed}");
            continue;
        }
        let says = format!(
            "this server was built without the feature `{feature}`: cargo run --example server --features {feature}"
        );
        assert!(code == Some(2) && printed.contains(&says), "{table}: {printed}");
    }
}

#[tokio::test]
async fn a_hashed_password_signs_its_user_in_and_secrets_come_from_files_and_the_environment() {
    let mut hashing = command("server", &["--hash-password"]);
    let mut hashing = hashing.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    hashing.stdin.take().unwrap().write_all(b"a pass phrase of mine\n").await.unwrap();
    let hash = String::from_utf8(hashing.wait_with_output().await.unwrap().stdout).unwrap();
    assert!(hash.starts_with("$argon2id$") && hash.ends_with('\n'), "{hash}");
    for (password, warns) in [("abc\n", true), ("fourteen chars\n", true), ("fifteen letters\n", false)] {
        let mut hashing = command("server", &["--hash-password"]);
        let hashing = hashing.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut hashing = hashing.spawn().unwrap();
        hashing.stdin.take().unwrap().write_all(password.as_bytes()).await.unwrap();
        let output = hashing.wait_with_output().await.unwrap();
        assert!(output.stdout.starts_with(b"$argon2id$"));
        assert_eq!(String::from_utf8(output.stderr).unwrap().contains("This password is short"), warns, "{password}");
    }
    let empty = command("server", &["--hash-password"]).stdin(Stdio::null()).output().await.unwrap();
    assert_eq!((empty.status.code(), empty.stdout.len()), (Some(1), 0));

    let directory = temporary("secrets");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("hash"), &hash).unwrap();
    let text = sample(|key| ["seal", "data"].contains(&key));
    let at = text.find("password_hash = ").unwrap();
    let text = text[..at].to_owned() + "password_hash = { file = \"hash\" }";
    let text = text.replace(&format!("seal = \"{SECRET}\""), "seal = { env = \"SERVER_SEAL\" }");
    let path = directory.join("server.toml");
    fs::write(&path, text).unwrap();
    let arguments = ["--config", path.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let with_seal = || {
        let mut command = command("server", &arguments);
        command.env("SERVER_SEAL", SECRET);
        command
    };
    for _ in 0..2 {
        let mut server = Example::of(with_seal()).await;
        let mut browser = Browser::new(&server.origin, "");
        browser.log_in(&APP, "ada", "a pass phrase of mine").await;
        // next to the file
        assert!(directory.join("state/state.redb").exists());
        server.child.kill().await.unwrap();
    }
    let missing = run("server", &arguments).await;
    let error = String::from_utf8(missing.stderr).unwrap();
    assert!(error.contains("tokens: seal: the variable SERVER_SEAL: environment variable not found"), "{error}");
    fs::write(directory.join("hash"), "\n").unwrap();
    let empty = with_seal().output().await.unwrap();
    assert!(String::from_utf8(empty.stderr).unwrap().contains("hash is empty"));
    fs::remove_dir_all(directory).unwrap();
}

#[cfg(feature = "smtp")]
#[tokio::test]
async fn codes_are_sent_through_the_mail_server_of_the_file() {
    use crate::support::python::PythonServer;
    use serde_json::json;

    let Some(mut mail) = PythonServer::start("mail.py", "aiosmtpd", &[]).await else { return };
    let text = sample(|key| ["smtp", "host", "from", "security", "port"].contains(&key));
    let text = text.replace("smtp.example.com", "localhost").replace("\"starttls\"  ", "\"insecure_plaintext\"  ");
    let text =
        text.replace("port = 587", &format!("port = {}", mail.port)).replace("[[\"password\"]]", "[[\"email\"]]");
    let path = config("mail", &text);
    let server = Example::start("server", &["--config", path.to_str().unwrap(), "--listen=127.0.0.1:0"]).await;
    let mut browser = Browser::new(&server.origin, "");
    let id = browser.start(&APP, "ada").await;
    let ask = json!({ "session_id": id, "method": "email", "email": "ada@example.com" });
    assert_eq!(browser.call("authenticate", &APP, ask).await.json()["status"], "pending");
    let letter = mail.next().await;
    assert_eq!((&letter["sender"], &letter["to"]), (&json!("no-reply@example.com"), &json!(["ada@example.com"])));
    let text = letter["text"].as_str().unwrap();
    let code = text.split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() == 6).unwrap();
    let verify = json!({ "session_id": id, "otp": code });
    assert_eq!(browser.call("verify-otp", &APP, verify).await.status, 200);
    browser.finish(&APP, &id).await;
    fs::remove_file(path).unwrap();
}

#[cfg(feature = "metrics")]
#[tokio::test]
async fn counters_are_served_on_a_listener_of_their_own() {
    use crate::support::wire::{Wire, body, header};
    use tokio::net::TcpListener;

    let path = config("counters", &sample(|key| key == "metrics_listen"));
    let mut server = Example::start("server", &["--config", path.to_str().unwrap(), "--listen=127.0.0.1:0"]).await;
    let line = loop {
        let line = server.line().await;
        if line.starts_with("Metrics at ") {
            break line;
        }
    };
    let address = line.strip_prefix("Metrics at http://").unwrap().strip_suffix("/metrics").unwrap().parse().unwrap();
    let mut browser = server.browser();
    browser.log_in(&APP, "ada", "correct horse battery staple").await;
    let wrong = [("x-api-key", "no such key")];
    assert_eq!(browser.send("GET", "/api/hello", &wrong, "").await.status, 401);
    assert_eq!(browser.open("/metrics").await.status, 404);
    let mut wire = Wire::to(address).await;
    // the log passes events on within 250 ms
    let text = loop {
        let answer = wire.ask("GET /metrics HTTP/1.1").await;
        assert_eq!(header(&answer, "content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        if answer.contains("kind=\"credential_unknown\"") {
            break body(&answer).to_owned();
        }
    };
    for line in [
        "# TYPE tollgate_events_total counter",
        "tollgate_events_total{kind=\"authn_login_start\"} 1",
        "tollgate_events_total{kind=\"authn_login_step\"} 1",
        "tollgate_events_total{kind=\"authn_login_success\"} 1",
        "tollgate_events_total{kind=\"authn_code_created\"} 1",
        "tollgate_events_total{kind=\"credential_unknown\"} 1",
        "# TYPE tollgate_store_calls_total counter",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}: {text}");
    }
    for start in ["tollgate_store_calls_total{operation=\"run\"} ", "tollgate_units_admitted_total "] {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    assert!(!text.contains("tollgate_store_errors_total"), "{text}");

    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = sample(|key| key == "metrics_listen").replace("127.0.0.1:0", &taken.local_addr().unwrap().to_string());
    fs::write(&path, there).unwrap();
    let output = run("server", &["--config", path.to_str().unwrap(), "--listen=127.0.0.1:0"]).await;
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("metrics_listen: "));
    fs::remove_file(path).unwrap();
}
