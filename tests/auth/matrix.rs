//! Calls every endpoint in every state of a login and compares the responses with a table.
//!
//! `matrix.txt` contains the expected text. `TOLLGATE_WRITE_MATRIX=1` writes it; review the difference line by line.

use std::{collections::BTreeMap, fmt::Write};

use http::{Method, Request, StatusCode};
use serde_json::json;

use crate::{
    enrolled,
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, GRACE, GRACE_PHONE, World, challenge, query},
};

pub(crate) const CLIENT: &str = "mfa";

pub(crate) const STATES: &[&str] = &[
    "no login",
    "wrong cookie",
    "started",
    "code open",
    "one step done",
    "one step done (factor enrolled)",
    "code open at step two",
    "all steps done",
    "completed",
    "consumed",
    "failed",
    "idle for 10 min",
    "30 min old",
    "completed 5 min ago",
    "forgotten",
];

/// In the other states, users can leave out what they have enrolled.
pub(crate) const FACTOR: &str = "one step done (factor enrolled)";

const CALLS: &[&str] = &[
    "GET /authorize",
    "GET /authorize by a program",
    "HEAD /authorize",
    "POST /authorize",
    "GET /authentication/start as HTML",
    "GET /authentication/start as JSON",
    "POST /authentication/start",
    "GET /authentication/status",
    "HEAD /authentication/status",
    "POST /authentication/authenticate password, right",
    "POST /authentication/authenticate password, wrong",
    "POST /authentication/authenticate password, of another account",
    "POST /authentication/authenticate sms, right",
    "POST /authentication/authenticate sms, of another account",
    "POST /authentication/authenticate email, right",
    "POST /authentication/authenticate email, of another account",
    "POST /authentication/authenticate whatsapp, right",
    "POST /authentication/authenticate whatsapp, of another account",
    "POST /authentication/authenticate sso",
    "POST /authentication/authenticate passkey",
    "POST /authentication/authenticate carrier pigeon",
    "POST /authentication/verify-otp right",
    "POST /authentication/verify-otp wrong",
    "POST /authentication/complete",
    "POST /authentication/complete for another client",
    "OPTIONS /authentication/status",
    "preflight of /authentication/status",
    "preflight of /authorize",
    "PUT /authentication/status",
    "GET /authentication/nothing",
    "GET /authentication/choices",
    "HEAD /authentication/choices",
    "POST /authentication/authenticate totp, right",
    "POST /authentication/authenticate totp, wrong",
    "POST /authentication/authenticate recovery_code, wrong",
    "POST /authentication/authenticate email, with the contact_id of another login",
    "PUT /authentication/choices",
    "POST /authentication/enrol totp",
    "POST /authentication/enrol passkey",
];

/// A login in one state, with the browser that started it.
pub(crate) struct LoginInState {
    pub(crate) world: World,
    pub(crate) browser: Browser,
    pub(crate) id: String,
    code: Option<String>,
    /// The cookies before the call.
    cookies: BTreeMap<String, String>,
}

async fn login_in(state: &str) -> LoginInState {
    let more = if state == FACTOR { |service| service } else { enrolled::optional };
    let world = enrolled::world(more).await;
    enrolled::enrol(&world, "u-ada", json!({ "totp": enrolled::app(2) })).await;
    let mut browser = world.browser();
    let id = browser.start(CLIENT, ADA).await;
    brought_to(state, world, browser, id).await
}

/// Brings a login of ada that has just begun to this state.
pub(crate) async fn brought_to(state: &str, world: World, browser: Browser, id: String) -> LoginInState {
    let mut login = LoginInState { browser, id, code: None, world, cookies: BTreeMap::new() };
    match state {
        "no login" => login.browser.cookies.clear(),
        "wrong cookie" => login.browser.cookies.values_mut().for_each(|secret| *secret = challenge()),
        "started" => {}
        "code open" => login.open("sms").await,
        "one step done" | FACTOR => login.password().await,
        "code open at step two" => {
            login.password().await;
            login.open("sms").await;
        }
        "all steps done" => login.all_steps().await,
        "completed" | "consumed" | "completed 5 min ago" => {
            login.all_steps().await;
            assert_eq!(login.browser.complete(CLIENT, &login.id).await.status, 200);
            if state == "consumed" {
                let cookies = login.browser.cookies.clone();
                assert!(login.browser.authorize(CLIENT).await.redirected("code").is_some());
                // plays a caller who kept a copy of the removed cookies
                login.browser.cookies = cookies;
            } else if state != "completed" {
                login.world.advance(5 * 60);
            }
        }
        "failed" => {
            for failure in 0..15 {
                let address = format!("nobody{}@example.com", failure / 5);
                if failure % 5 == 0 {
                    assert_eq!(login.browser.ask(CLIENT, &login.id, "email", &address).await.status, 200);
                }
                let answer = login.browser.verify(CLIENT, &login.id, "000000").await;
                assert_eq!(answer.error() == "session_failed", failure == 14, "{failure} {answer:?}");
            }
        }
        "idle for 10 min" => login.world.advance(10 * 60),
        "30 min old" => {
            for _ in 0..3 {
                login.world.advance(9 * 60);
                login.open("email").await;
            }
            login.world.advance(3 * 60);
        }
        "forgotten" => login.world.advance(10 * 60 + 3600),
        _ => panic!("{state}"),
    }
    login.cookies = login.browser.cookies.clone();
    login
}

impl LoginInState {
    async fn open(&mut self, method: &str) {
        let address = if method == "email" { ADA } else { ADA_PHONE };
        let answer = self.browser.ask(CLIENT, &self.id, method, address).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        self.code = Some(self.world.code(address).await);
    }

    async fn password(&mut self) {
        let answer = self.browser.password(CLIENT, &self.id, "ada", ADA_PASSWORD).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    async fn all_steps(&mut self) {
        self.password().await;
        self.open("sms").await;
        let code = self.code.clone().unwrap();
        assert_eq!(self.browser.verify(CLIENT, &self.id, &code).await.status, 200);
    }
}

impl Case for LoginInState {
    async fn call(&mut self, call: &str) -> Answer {
        let code = self.code.clone().unwrap_or_else(|| "123456".to_owned());
        let (browser, id) = (&mut self.browser, self.id.as_str());
        let get = |target: String, accept: &str| Request::get(target).header("accept", accept);
        let preflight = |path| {
            let request = Request::options(path).header("origin", "https://app.example");
            request.header("access-control-request-method", "GET")
        };
        let authorize = format!("/authorize?{}&state=xyz", query(CLIENT));
        let page = format!("/authentication/start?{}", query(CLIENT));
        let status = format!("/authentication/status?session_id={id}");
        let choices = format!("/authentication/choices?session_id={id}");
        if let Some(rest) = call.strip_prefix("POST /authentication/authenticate ") {
            let (method, whose) = rest.split_once(", ").unwrap_or((rest, ""));
            return match (method, whose) {
                ("password", "right") => browser.password(CLIENT, id, "ada", ADA_PASSWORD).await,
                ("password", "wrong") => browser.password(CLIENT, id, "ada", "wrong").await,
                ("password", _) => browser.password(CLIENT, id, "grace", crate::world::GRACE_PASSWORD).await,
                ("totp", whose) => {
                    let step = self.world.time().as_secs() / 30;
                    let shown = enrolled::CODES.get(usize::try_from(step).unwrap()).unwrap_or(&"123456");
                    let code = if whose == "right" { shown } else { "000000" };
                    browser.call("authenticate", CLIENT, id, &[("method", method), ("code", code)]).await
                }
                ("recovery_code", _) => {
                    let more = [("method", method), ("code", "abcd-efgh-jkmn")];
                    browser.call("authenticate", CLIENT, id, &more).await
                }
                ("email", "with the contact_id of another login") => {
                    let more = [("method", method), ("contact_id", "AAAAAAAAAAAAAAAAAAAAAA")];
                    browser.call("authenticate", CLIENT, id, &more).await
                }
                ("email", "right") => browser.ask(CLIENT, id, method, ADA).await,
                ("email", _) => browser.ask(CLIENT, id, method, GRACE).await,
                ("sms" | "whatsapp", "right") => browser.ask(CLIENT, id, method, ADA_PHONE).await,
                ("sms" | "whatsapp", _) => browser.ask(CLIENT, id, method, GRACE_PHONE).await,
                _ => browser.call("authenticate", CLIENT, id, &[("method", method)]).await,
            };
        }
        match call {
            "GET /authorize" => browser.send(get(authorize, "*/*"), "").await,
            "GET /authorize by a program" => browser.send(get(authorize, "application/json"), "").await,
            "HEAD /authorize" => browser.send(Request::head(authorize).header("accept", "*/*"), "").await,
            "POST /authorize" => {
                let request = Request::post("/authorize").header("content-type", "application/x-www-form-urlencoded");
                browser.send(request, format!("{}&state=xyz", query(CLIENT))).await
            }
            "GET /authentication/start as HTML" => browser.send(get(page, "text/html"), "").await,
            "GET /authentication/start as JSON" => browser.send(get(page, "application/json"), "").await,
            "POST /authentication/start" => {
                let mut body = crate::world::parameters(CLIENT);
                body["identifier"] = json!(ADA);
                browser.post("/authentication/start", &body).await
            }
            "GET /authentication/status" => browser.send(get(status, "*/*"), "").await,
            "HEAD /authentication/status" => browser.send(Request::head(status), "").await,
            "GET /authentication/choices" => browser.send(get(choices, "*/*"), "").await,
            "HEAD /authentication/choices" => browser.send(Request::head(choices), "").await,
            "PUT /authentication/choices" => {
                browser.send(Request::builder().method(Method::PUT).uri(choices), "").await
            }
            "POST /authentication/verify-otp right" => browser.verify(CLIENT, id, &code).await,
            "POST /authentication/verify-otp wrong" => {
                let wrong = if code.starts_with('0') { "1" } else { "0" }.to_owned() + &code[1..];
                browser.verify(CLIENT, id, &wrong).await
            }
            "POST /authentication/enrol totp" => browser.call("enrol", CLIENT, id, &[("method", "totp")]).await,
            "POST /authentication/enrol passkey" => browser.call("enrol", CLIENT, id, &[("method", "passkey")]).await,
            "POST /authentication/complete" => browser.complete(CLIENT, id).await,
            "POST /authentication/complete for another client" => browser.complete("web", id).await,
            "OPTIONS /authentication/status" => browser.send(Request::options("/authentication/status"), "").await,
            "preflight of /authentication/status" => browser.send(preflight("/authentication/status"), "").await,
            "preflight of /authorize" => browser.send(preflight("/authorize"), "").await,
            "PUT /authentication/status" => browser.send(Request::builder().method(Method::PUT).uri(status), "").await,
            "GET /authentication/nothing" => browser.get("/authentication/nothing").await,
            _ => panic!("{call}"),
        }
    }

    /// Returns the state of the login as its own browser sees it: status, completed steps and remaining steps.
    async fn state(&self) -> String {
        let mut browser = Browser { cookies: self.cookies.clone(), ..self.browser.clone() };
        let answer = browser.status(&self.id).await;
        if answer.status != StatusCode::OK {
            return "-".to_owned();
        }
        let shown = answer.json();
        let [done, left] = ["completed_steps", "remaining_steps"].map(|name| shown[name].as_u64().unwrap());
        assert_eq!(shown["next_step"].as_u64(), (left > 0).then_some(done + 1), "{shown}");
        format!("{} {done}+{left}", shown["status"].as_str().unwrap())
    }
}

/// A state to call endpoints in. Each call gets a new one.
pub(crate) trait Case {
    async fn call(&mut self, call: &str) -> Answer;
    /// Describes the state, before and after a call.
    async fn state(&self) -> String;
}

/// Writes the table, followed by each response that occurs in it, as `own` writes it.
pub(crate) async fn table<S: Case>(
    states: &[&str],
    calls: &[&str],
    begin: impl AsyncFn(&str) -> S,
    own: impl Fn(&Answer) -> String,
) -> String {
    let (mut text, mut answers) = (String::new(), Vec::<String>::new());
    for call in calls {
        let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
        for state in states {
            let mut case = begin(state).await;
            let before = case.state().await;
            let answer = case.call(call).await;
            let own = own(&answer);
            let number = answers.iter().position(|known| *known == own).unwrap_or_else(|| {
                answers.push(own);
                answers.len() - 1
            });
            let name = if answer.text.starts_with('{') { answer.error() } else { String::new() };
            let name = if name.is_empty() { String::new() } else { format!(" {name}") };
            let after = case.state().await;
            let to = if after == before { "same" } else { &after };
            let outcome = format!("{}{name} [{}] to {to}", answer.status.as_u16(), number + 1);
            match rows.iter_mut().find(|(known, _)| *known == outcome) {
                Some((_, states)) => states.push(state),
                None => rows.push((outcome, vec![state])),
            }
        }
        writeln!(text, "{call}").unwrap();
        for (outcome, among) in rows {
            let when =
                if among.len() == states.len() { "always".to_owned() } else { format!("when {}", among.join(", ")) };
            writeln!(text, "    {outcome:<45} {when}").unwrap();
        }
        text.push('\n');
    }
    text.push_str("The answers, without the headers that all have:\n");
    for (number, answer) in answers.iter().enumerate() {
        write!(text, "\n[{}] {answer}", number + 1).unwrap();
    }
    text
}

/// Compares a table with its file, or writes the file if that was requested.
pub(crate) fn compare(table: &str, name: &str) {
    // the SQL stores use these tables from a package further down
    let folders = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let path = folders.map(|folder| folder.join("tests/auth").join(name)).find(|path| path.exists()).unwrap();
    if std::env::var_os("TOLLGATE_WRITE_MATRIX").is_some() {
        return std::fs::write(path, table).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    for (line, (is, expected)) in table.lines().zip(expected.lines()).enumerate() {
        assert_eq!(is, expected, "line {} of {name}", line + 1);
    }
    assert_eq!(table.lines().count(), expected.lines().count());
}

/// Leaves out the contents of pages, which other tests check.
pub(crate) fn own(answer: &Answer) -> String {
    if answer.text.starts_with("<!doctype html>") {
        return Answer { text: "(the page)".to_owned(), ..answer.clone() }.own();
    }
    answer.own()
}

#[tokio::test]
async fn every_call_in_every_state_responds_as_the_table_says() {
    compare(&table(STATES, CALLS, login_in, own).await, "matrix.txt");
}
