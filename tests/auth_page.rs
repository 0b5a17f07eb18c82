//! The login page in a real browser, operated only by keyboard.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;
#[path = "auth/openapi.rs"]
mod openapi;
#[expect(dead_code, reason = "not every test uses all of it")]
#[path = "auth/world.rs"]
mod world;

use std::time::Duration;

use axum::{Router, extract::RawQuery, routing::get};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tollgate::{
    AuthService, Client, ClientIp, ClientTable, Passwords, Tokens,
    policy::{Method, Policy},
};

use support::chromium::Chromium;
use world::{ADA, ADA_PASSWORD, ADA_PHONE, World, challenge, encode};

/// A page served under this path, and a browser that has not opened it yet.
struct Page {
    world: World,
    browser: Chromium,
    origin: String,
    base: &'static str,
    /// The queries that arrived at the redirect URI.
    back: mpsc::UnboundedReceiver<String>,
}

impl Page {
    async fn under(base: &'static str, name: &str) -> Option<Self> {
        let browser = Chromium::start(name).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let world = World::new().await;
        let client = |id: &str| {
            let client = Client::new(id, "acme".parse().unwrap()).unwrap().scopes("openid").unwrap();
            let client = client.name("Acme <b>Expenses</b>").unwrap().redirect_uri("https://app.example/callback");
            client.unwrap().redirect_uri(&format!("{origin}/callback")).unwrap()
        };
        let two = || Policy::any(2).unwrap();
        let sharing = [client("shop").single_sign_on(), client("bank").single_sign_on().policy(two())];
        let local = format!("{}/callback", origin.replace("127.0.0.1", "localhost"));
        let web = client("web").insecure_localhost_after_logout(&local).unwrap();
        let web = web.after_logout("com.example.expenses:/out").unwrap().after_logout("http://[::1]/out").unwrap();
        let by_mail = client("mail").policy(Policy::slots([Method::Email]).unwrap());
        let clients = [web, by_mail, client("mfa").policy(two())].into_iter().chain(sharing);
        let clients = ClientTable::new(clients).unwrap();
        let service = AuthService::builder(&format!("{origin}{base}"), world.store.clone())
            .clients(clients)
            .users(world.users.clone())
            .client_ip(ClientIp::peer())
            .insecure_loopback()
            .tokens(Tokens::new())
            .sms(world.outbox.clone())
            .email(world.outbox.clone())
            .passwords(Passwords::insecure_fast())
            .clock(world.clock.clone())
            .build()
            .unwrap();
        let (tell, back) = mpsc::unbounded_channel();
        let callback = async move |RawQuery(query): RawQuery| drop(tell.send(query.unwrap_or_default()));
        let app = Router::new().route("/callback", get(callback));
        let app = if base.is_empty() { app.fallback_service(service) } else { app.nest_service(base, service) };
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Some(Self { world, browser, origin, base, back })
    }

    /// Returns the URL that the application sends the browser to.
    fn link(&self, client: &str) -> String {
        let Self { origin, base, .. } = self;
        let challenge = challenge();
        format!(
            "{origin}{base}/authorize?client_id={client}&redirect_uri={origin}/callback&response_type=code&scope=openid\
             &code_challenge={challenge}&code_challenge_method=S256&state=a%20b%26c"
        )
    }

    /// Begins a login as Ada, up to the choice of the first step.
    async fn begin(&mut self, client: &str) {
        let link = self.link(client);
        self.browser.open(&link).await;
        self.focus("identifier").await;
        self.enter(ADA).await;
        self.focus("password").await;
    }

    /// Waits until an element with this id, or a button with this value, has the focus.
    async fn focus(&mut self, name: &str) {
        let script = format!("[document.activeElement.id, document.activeElement.value].includes('{name}') && idle()");
        self.until(&script).await;
    }

    async fn until(&mut self, script: &str) {
        let idle = "() => !document.body.hasAttribute('aria-busy')";
        self.browser
            .until(&format!("((idle, text) => {script})({idle}, (id) => document.getElementById(id).textContent)"))
            .await;
    }

    /// Waits until the page contains this text.
    async fn says(&mut self, words: &str) {
        self.until(&format!("text('message') === {} && idle()", json!(words))).await;
    }

    async fn ask(&mut self, script: &str) -> Value {
        self.browser.ask(script).await.unwrap()
    }

    async fn enter(&mut self, text: &str) {
        self.browser.insert(text).await;
        self.browser.press("Enter").await;
    }

    /// Advances the time of the server and of the page.
    async fn advance(&mut self, seconds: u64) {
        self.world.advance(seconds);
        self.ask(&format!("{{ const now = Date.now; Date.now = () => now() + {seconds} * 1000; }}")).await;
    }

    /// Returns the query that arrived at the application.
    async fn back(&mut self) -> String {
        let came = timeout(Duration::from_secs(60), self.back.recv()).await;
        came.unwrap_or_else(|_| panic!("the browser never went back")).unwrap()
    }

    /// Returns the browser's complaints. It reports every error response, so the parameter lists the expected ones.
    fn complaints(&mut self) -> Vec<String> {
        let refused = "Failed to load resource: the server responded with a status of ";
        let start = format!("{}{}/authentication/", self.origin, self.base);
        let plain = |text: String| text.replace('"', "").replace(refused, "").replace(&start, "");
        self.browser.complaints().into_iter().map(plain).collect()
    }
}

#[tokio::test]
async fn two_steps_by_keyboard_end_with_a_code() {
    let Some(mut page) = Page::under("", "two-steps").await else { return };
    page.begin("mfa").await;
    assert_eq!(page.ask("document.title").await, "Sign in to Acme <b>Expenses</b>");
    assert_eq!(page.ask("document.querySelector('h1').textContent").await, "Sign in to Acme <b>Expenses</b>");
    assert_eq!(page.ask("document.getElementById('step').textContent").await, "Step 1 of 2");
    page.browser.press("Enter").await;

    page.focus("secret").await;
    page.enter("not the password").await;
    page.says("The name or the password is wrong.").await;
    page.focus("secret").await;
    assert_eq!(page.ask("document.getElementById('secret').value").await, "");
    page.enter(ADA_PASSWORD).await;

    page.until("text('step') === 'Step 2 of 2' && idle()").await;
    let offered = "Array.from(document.querySelectorAll('#ways button'), (button) => button.value)";
    assert_eq!(page.ask(offered).await, json!(["sms", "email"]));
    // after the first step, the addresses of the account are offered
    let texts = "Array.from(document.querySelectorAll('#ways button'), (button) => button.textContent).join()";
    let texts = page.ask(texts).await.to_string();
    assert!(
        texts.contains("Code by text message to ") && !texts.contains(ADA) && !texts.contains(ADA_PHONE),
        "{texts}"
    );
    page.focus("sms").await;
    page.browser.press("Enter").await;
    page.focus("otp").await;
    let code = page.world.code(ADA_PHONE).await;

    // a reload loses nothing, and nothing that is stored for it is secret
    page.browser.reload().await;
    page.until("text('client') !== ''").await;
    page.focus("otp").await;
    let kept = page.ask("JSON.stringify(sessionStorage)").await.to_string();
    assert!(kept.contains(ADA) && !kept.contains(ADA_PASSWORD) && !kept.contains(&code), "{kept}");
    let wrong = if code == "000000" { "000001" } else { "000000" };
    page.enter(wrong).await;
    page.says("The code is wrong or has expired.").await;
    page.enter(&format!("{} {}", &code[..3], &code[3..])).await;

    let back = page.back().await;
    assert!(back.starts_with("code=") && back.contains("&state=a%20b%26c&iss=http"), "{back}");
    page.until("location.pathname === '/callback'").await;
    assert_eq!(page.ask("sessionStorage.length").await, 0);
    assert_eq!(page.complaints(), ["401 (Unauthorized) authenticate", "401 (Unauthorized) verify-otp"]);
}

#[tokio::test]
async fn a_signed_in_user_continues_with_one_button_and_does_the_missing_step() {
    let Some(mut page) = Page::under("", "signed-in").await else { return };
    page.begin("web").await;
    page.browser.press("Enter").await;
    page.focus("secret").await;
    page.enter(ADA_PASSWORD).await;
    page.back().await;
    page.until("location.pathname === '/callback'").await;

    // the callback is on this machine, so the user is asked
    let asks = "document.activeElement.textContent === 'Continue as ada to Acme <b>Expenses</b>' && idle()";
    let link = page.link("shop");
    page.browser.open(&link).await;
    page.until(asks).await;
    let whither = "Acme <b>Expenses</b> (a program on this device) asks for: your identity.";
    assert_eq!(page.ask("document.getElementById('whither').textContent").await, whither);
    page.browser.press("Enter").await;
    assert!(page.back().await.starts_with("code="));
    page.until("location.pathname === '/callback'").await;

    let link = page.link("bank");
    page.browser.open(&link).await;
    page.until(asks).await;
    page.browser.press("Enter").await;
    page.until("text('step') === 'Step 2 of 2' && idle()").await;
    let offered = "Array.from(document.querySelectorAll('#ways button'), (button) => button.value)";
    assert_eq!(page.ask(offered).await, json!(["sms", "email"]));

    // the session ends between opening the page and pressing the button
    let link = page.link("shop");
    page.browser.open(&link).await;
    page.until(asks).await;
    page.world.sessions.revoke_user(&"acme".parse().unwrap(), &"u-ada".parse().unwrap()).await.unwrap();
    page.browser.press("Enter").await;
    page.focus("identifier").await;
    page.says("Your session has ended. Please sign in again.").await;
}

#[tokio::test]
async fn a_signed_in_user_can_continue_with_another_account() {
    let Some(mut page) = Page::under("", "another").await else { return };
    page.begin("web").await;
    page.browser.press("Enter").await;
    page.focus("secret").await;
    page.enter(ADA_PASSWORD).await;
    page.back().await;
    page.until("location.pathname === '/callback'").await;
    let asks = "document.activeElement.textContent === 'Continue as ada to Acme <b>Expenses</b>' && idle()";
    let link = page.link("shop");
    page.browser.open(&format!("{link}&login_hint=grace")).await;
    page.until(asks).await;
    page.browser.click("#another").await;
    page.focus("identifier").await;
    assert_eq!(page.ask("document.getElementById('identifier').value").await, "grace");
    assert_eq!(page.complaints(), [""; 0]);
}

#[tokio::test]
async fn the_page_shows_what_the_user_agrees_to_before_they_enter_their_name() {
    let Some(mut page) = Page::under("", "consent").await else { return };
    let here = page.link("web");
    let site = here.replace(&format!("{}/callback", page.origin), "https://app.example/callback");
    let consent = |link: &str| format!("{link}&prompt=select_account%20consent");
    let (program, app) = ("Acme <b>Expenses</b> (a program on this device)", "Acme <b>Expenses</b> (app.example)");
    let claims = encode(r#"{"userinfo":{"roles":null,"email":null}}"#);
    let named = format!("{}&claims={claims}", consent(&site));
    for (link, asks, what) in [
        (&here, program, "your identity"),
        (&consent(&here), program, "your identity"),
        (&site, "", ""),
        (&consent(&site), app, "your identity"),
        (&named, app, "your identity, your e-mail address, roles"),
    ] {
        page.browser.open(link).await;
        page.focus("identifier").await;
        let asks = if asks.is_empty() { String::new() } else { format!("{asks} asks for: {what}.") };
        assert_eq!(page.ask("document.getElementById('asks').innerText").await, asks, "{link}");
    }
}

#[tokio::test]
async fn under_a_path_a_login_that_has_ended_can_be_restarted() {
    let Some(mut page) = Page::under("/id/v1", "path").await else { return };
    page.begin("web").await;
    assert_eq!(page.ask("document.getElementById('step').textContent").await, "");
    page.browser.press("Enter").await;
    page.focus("secret").await;
    page.world.advance(31 * 60);
    page.enter(ADA_PASSWORD).await;
    page.says("Your sign-in timed out. Please start again.").await;
    page.browser.press("Enter").await;
    page.focus("identifier").await;
    assert_eq!(page.ask("document.activeElement.value").await, ADA);
    page.browser.press("Enter").await;
    page.focus("password").await;

    // a reload detects it as well
    page.world.advance(31 * 60);
    page.browser.reload().await;
    page.says("Your sign-in timed out. Please start again.").await;
    page.browser.press("Enter").await;
    page.focus("identifier").await;
    page.browser.press("Enter").await;
    page.focus("password").await;
    page.browser.press("Enter").await;
    page.focus("secret").await;
    page.enter(ADA_PASSWORD).await;
    assert!(page.back().await.starts_with("code="));
    assert_eq!(page.complaints(), ["401 (Unauthorized) authenticate"]);
}

#[tokio::test]
async fn a_user_who_must_wait_sees_for_how_long_and_cannot_retry_earlier() {
    let Some(mut page) = Page::under("", "wait").await else { return };
    page.begin("web").await;
    page.browser.press("Enter").await;
    page.focus("secret").await;
    for _ in 0..5 {
        page.enter("wrong").await;
        page.says("The name or the password is wrong.").await;
    }
    page.enter("wrong").await;
    page.says("There were too many attempts. You can try again in 30 s.").await;
    let button = "document.querySelector('#password button')";
    let held = page.ask(&format!("{button}.textContent + {button}.disabled")).await;
    let held = held.as_str().unwrap();
    assert!(held.starts_with("Continue (in ") && held.ends_with(" s)true"), "{held}");
    assert_eq!(page.complaints().len(), 6);
    page.enter("nothing is sent now").await;
    page.ask("document.getElementById('secret').value = ''").await;
    assert_eq!(page.complaints(), [""; 0]);

    page.advance(30).await;
    page.until(&format!("{button}.textContent === 'Continue' && !{button}.disabled && text('message') === ''")).await;
    page.enter(ADA_PASSWORD).await;
    assert!(page.back().await.starts_with("code="));
}

#[tokio::test]
async fn another_code_can_be_requested_after_a_while() {
    let Some(mut page) = Page::under("", "resend").await else { return };
    page.begin("web").await;
    page.ask("document.querySelector('#ways button[value=email]').focus()").await;
    page.browser.press("Enter").await;
    // an address that was entered as the identifier is not asked for twice
    page.focus("otp").await;
    let first = page.world.code(ADA).await;
    assert_eq!(page.ask("document.getElementById('resend').disabled").await, true);
    page.advance(30).await;
    page.until("!document.getElementById('resend').disabled").await;
    // from the field past "Continue"
    page.browser.press("Tab").await;
    page.browser.press("Tab").await;
    page.focus("resend").await;
    page.browser.press("Enter").await;
    page.until("document.getElementById('resend').disabled && document.activeElement.id === 'otp' && idle()").await;
    let sent = page.world.outbox.messages().len();
    assert_eq!(sent, 2);
    let second = page.world.code(ADA).await;
    if first != second {
        for tried in 1..=5 {
            page.enter(&first).await;
            match tried {
                5 => page.says("This code can no longer be used. Request a new one.").await,
                1 => page.says("The code is wrong or has expired.").await,
                _ => {
                    let told = format!("You have tried {tried} times. After five tries you need a new code.");
                    page.says(&format!("The code is wrong or has expired. {told}")).await;
                }
            }
        }
        // a sixth one could only fail, also after a reload
        let closed = "document.getElementById('otp').disabled && document.querySelector('#code button').hidden";
        assert_eq!(page.ask(closed).await, true);
        page.browser.reload().await;
        page.says("This code can no longer be used. Request a new one.").await;
        assert_eq!(page.ask(closed).await, true);
        page.advance(30).await;
        page.until("!document.getElementById('resend').disabled").await;
        page.ask("document.getElementById('resend').focus()").await;
        page.browser.press("Enter").await;
        page.focus("otp").await;
        assert_eq!(page.ask("document.querySelector('#code button').hidden").await, false);
    }
    let last = page.world.code(ADA).await;
    page.enter(&last).await;
    assert!(page.back().await.starts_with("code="));
}

/// Calls with a body fail until the tab forgets it.
const OFFLINE: &str = "
const online = fetch;
window.fetch = (url, options) => options.body && sessionStorage.offline ? Promise.reject(new TypeError()) : online(url, options);";

#[tokio::test]
async fn a_name_that_only_looks_like_an_address_leads_to_the_form_for_one() {
    let Some(mut page) = Page::under("", "looks-like").await else { return };
    let link = page.link("mail");
    page.browser.open(&link).await;
    page.focus("identifier").await;
    page.enter("ada@intranet").await;
    page.focus("to").await;
    assert_eq!(page.ask("document.getElementById('to').value").await, "ada@intranet");
}

#[tokio::test]
async fn a_lost_connection_keeps_what_was_typed() {
    let Some(mut page) = Page::under("", "offline").await else { return };
    page.browser.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": OFFLINE })).await;
    page.begin("mfa").await;
    assert_eq!(page.ask("document.getElementById('user').textContent").await, format!("Account: {ADA}"));
    page.browser.press("Enter").await;
    for (field, form) in [("secret", "password"), ("otp", "code")] {
        page.focus(field).await;
        let typed = match field {
            "secret" => ADA_PASSWORD.to_owned(),
            _ => page.world.code(ADA_PHONE).await,
        };
        page.ask("sessionStorage.offline = 'yes'").await;
        page.enter(&typed).await;
        page.says("The server cannot be reached. Check your connection and try again.").await;
        page.focus(field).await;
        assert_eq!(page.ask("document.activeElement.value").await, typed, "{form}");
        page.ask("sessionStorage.removeItem('offline')").await;
        page.browser.press("Enter").await;
        if form == "password" {
            page.focus("sms").await;
            assert_eq!(page.ask("document.getElementById('secret').value").await, "");
            page.browser.press("Enter").await;
        }
    }
    assert!(page.back().await.starts_with("code="));
}

#[tokio::test]
async fn an_error_page_has_the_same_design_and_contains_nothing_of_the_request() {
    let Some(mut page) = Page::under("/id", "error").await else { return };
    for path in ["authorize", "authentication/start"] {
        let link = format!(
            "{}/id/{path}?client_id=%3Cscript%3Ealert(1)%3C/script%3E&redirect_uri=https://reflected.example",
            page.origin
        );
        page.browser.open(&link).await;
        page.until("document.readyState === 'complete' && location.search.startsWith('?client_id=%3Cscript')").await;
        let shown = page.ask("document.documentElement.outerHTML").await.to_string();
        assert!(shown.contains("Sign-in cannot continue") && shown.contains("invalid_client"), "{shown}");
        assert!(!shown.contains("alert") && !shown.contains("reflected"), "{shown}");
        assert_eq!(page.ask("getComputedStyle(document.querySelector('main')).borderTopWidth").await, "4px", "{path}");
        page.browser.open("about:blank").await;
    }
}

#[tokio::test]
async fn b23_after_a_confirmed_logout_the_browser_goes_back_to_the_application() {
    let Some(mut page) = Page::under("/auth", "log-out").await else { return };
    // another origin than that of the page
    let other = page.origin.replace("127.0.0.1", "localhost");
    let v6 = "http://[::1]:9/out";
    for target in [format!("{other}/callback"), v6.to_owned()] {
        page.begin("web").await;
        page.browser.press("Enter").await;
        page.focus("secret").await;
        page.enter(ADA_PASSWORD).await;
        page.back().await;
        page.until("location.pathname === '/callback'").await;
        let Page { origin, base, .. } = &page;
        let after = encode(&target);
        let link = format!("{origin}{base}/logout?client_id=web&post_logout_redirect_uri={after}&state=a%20b%26c");
        page.browser.open(&link).await;
        page.browser.until("document.querySelector('h1').textContent === 'Log out?'").await;
        page.browser.complaints();
        page.browser.click("button").await;
        if target == v6 {
            // no policy can list this address, so the user follows a link
            page.browser.until("document.querySelector('h1').textContent === 'You are logged out'").await;
            let shown = page.ask("document.querySelector('a').href").await;
            assert_eq!(shown, format!("{v6}?state=a%20b%26c"));
        } else {
            assert_eq!(page.back().await, "state=a%20b%26c");
            page.until(&format!("location.href.startsWith('{target}')")).await;
        }
        assert_eq!(page.complaints(), [""; 0], "{target}");
    }
}

/// All error codes of the endpoints, an unknown one, and a missing response.
const CODES: &str = "invalid_request unsupported_response_type invalid_scope unauthorized_client invalid_client \
    unsupported_method invalid_grant unsupported_grant_type invalid_session session_expired invalid_credentials \
    invalid_otp invalid_assertion login_required access_denied origin_not_allowed not_found no_pending_challenge \
    method_not_allowed no_step_remaining steps_remaining session_failed content_too_large unsupported_media_type \
    slow_down too_many_attempts rate_limit_exceeded temporarily_unavailable something_new unreachable";

/// Replaces the server. Every call succeeds except the one that the storage of the tab names.
const SERVER: &str = r#"
window.calls = [];
window.fetch = async (url, { method, body }) => {
  const path = new URL(url).pathname.split("/").pop();
  calls.push(path);
  const [place, error] = (sessionStorage.failing ?? "").split(" ");
  const fails = path === place || (path === "complete" && error === "no_step_remaining");
  if (fails && (method === "POST" || path === "status")) {
    if (error === "unreachable") throw new TypeError();
    const retry_after = /slow|many|rate|unavailable/.test(error) ? 7 : undefined;
    return new Response(JSON.stringify({ error, retry_after }), { status: 400 });
  }
  const counters = { session_id: "s", status: "pending", completed_steps: 0, remaining_steps: 1, next_step: 1 };
  const isOpened = path === "authenticate" && JSON.parse(body).method !== "password";
  return new Response(JSON.stringify({
    ...counters,
    ...(path === "verify-otp" && { completed_steps: 1, remaining_steps: 0, next_step: null }),
    ...(isOpened && { challenge: { digits: 6, resend_in: 30 } }),
    ...(path === "start" && {
      client_name: "Acme", redirect: { kind: "site", host: "app.example" }, scopes: ["openid"],
      available_methods: ["password", "sms", "passkey", "hologram"],
    }),
  }));
};
window.settled = () => new Promise((done) => {
  const look = () => document.body.hasAttribute("aria-busy") ? setTimeout(look) : done();
  setTimeout(look);
});
window.go = async (place) => {
  const send = async (form, field, text) => {
    document.getElementById(field).value = text;
    document.getElementById(form).requestSubmit();
    await settled();
  };
  await settled();
  await send("who", "identifier", "ada");
  if (place === "start" || place === "status") return;
  document.querySelector(`#ways [value=${place === "authenticate" ? "password" : "sms"}]`).click();
  if (place === "authenticate") return send("password", "secret", "x");
  await send("address", "to", "+15555550100");
  await send("code", "otp", "000000");
};
window.seen = async () => {
  await settled();
  const buttons = Array.from(document.querySelectorAll("button")).filter((button) => button.offsetParent);
  return {
    words: document.getElementById("message").textContent,
    open: buttons.filter((button) => !button.disabled).map((button) => button.textContent),
    held: buttons.filter((button) => button.disabled).map((button) => button.textContent),
    calls: calls.length,
  };
};
"#;

#[tokio::test]
async fn every_error_shows_a_message_and_a_way_to_continue() {
    let Some(mut page) = Page::under("", "errors").await else { return };
    page.browser.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": SERVER })).await;
    for place in ["start", "authenticate", "verify-otp", "complete", "status"] {
        for code in CODES.split_whitespace() {
            // a login is bound to its query
            let link = page.link("web").replace("/authorize?", "/authentication/start?");
            page.browser.open(&format!("{link}-{place}-{code}")).await;
            page.until("text('client') !== '' && idle()").await;
            page.ask(&format!("sessionStorage.failing = '{place} {code}'; go('{place}')")).await;
            if place == "status" {
                page.browser.reload().await;
                page.until("text('client') !== '' && calls.includes('status') && idle()").await;
            }
            let seen = page.ask("seen()").await;
            let words = seen["words"].as_str().unwrap();
            let said = format!("{place} {code}: {seen}");
            // if the server and the page disagree about the steps, the page asks the server and continues
            let goes_on = code == "steps_remaining" && ["authenticate", "verify-otp", "complete"].contains(&place);
            assert!(goes_on || words.len() > 10 && !words.contains("undefined"), "{said}");
            let retry = words.contains("in 7 s");
            assert_eq!(
                retry,
                ["slow_down", "too_many_attempts", "rate_limit_exceeded", "temporarily_unavailable"].contains(&code),
                "{said}"
            );
            let waits = seen["held"].as_array().unwrap().iter().any(|text| text.as_str().unwrap().contains("(in "));
            assert!(if retry { waits } else { !seen["open"].as_array().unwrap().is_empty() }, "{said}");
            let ended = ["session_expired", "session_failed", "invalid_session", "login_required"].contains(&code);
            assert!(!ended || seen["open"] == json!(["Start again"]), "{said}");
            assert!(seen["calls"].as_u64().unwrap() <= 9, "{said}");
            assert!(page.browser.complaints().is_empty(), "{said}");
        }
    }
}
