//! Section A of the checklist: `GET /authorize`, at the beginning of a login and at its end.

use http::Request;
use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate::client::RedirectUri;

use crate::{
    failing_store::FailingStore,
    world::{
        ADA, ADA_PASSWORD, Answer, Browser, CALLBACK, WITH_QUERY, World, challenge, encode, join, parameters, query,
        query_of, with,
    },
};

/// Returns the query of a client with one parameter changed or removed.
fn with_parameter(client: &str, name: &str, value: Option<&str>) -> String {
    let mut pairs = with(parameters(client), &[("state", "xyz")]);
    match value {
        Some(value) => pairs[name] = json!(value),
        None => drop(pairs.as_object_mut().unwrap().remove(name)),
    }
    query_of(&pairs)
}

/// Returns the response to a browser without cookies.
async fn response_to(world: &World, query: &str) -> Answer {
    world.browser().get(&format!("/authorize?{query}")).await
}

/// Returns the error that is error_shown to the user and not sent to the client.
async fn error_shown(world: &World, query: &str) -> String {
    let answer = response_to(world, query).await;
    assert!(answer.status.is_client_error() && answer.header("location").is_empty(), "{query} {answer:?}");
    let page = Request::get(format!("/authorize?{query}")).header("accept", "text/html,*/*;q=0.8");
    let page = world.browser().send(page, "").await;
    assert_eq!((page.status, page.header("location")), (answer.status, ""));
    assert!(page.header("content-type").starts_with("text/html"), "{page:?}");
    assert!(page.text.contains(&answer.error()), "{page:?}");
    answer.error()
}

/// Returns the error that is sent to the client.
async fn error_sent_to_client(world: &World, query: &str) -> String {
    let answer = response_to(world, query).await;
    assert_eq!(answer.status, 302, "{query} {answer:?}");
    assert!(answer.header("location").starts_with(&format!("{CALLBACK}?error=")), "{query} {answer:?}");
    assert_eq!(answer.redirected("iss").as_deref(), Some(crate::world::ISSUER));
    assert_eq!(answer.redirected("code"), None);
    answer.redirected("error").unwrap()
}

/// Returns a browser with a completed login.
async fn completed(world: &World, client: &str) -> (Browser, String) {
    let mut browser = world.browser();
    let id = browser.log_in(client, ADA).await;
    (browser, id)
}

#[tokio::test]
async fn c001_an_unknown_client_gets_an_error_page_and_no_redirect() {
    let world = World::new().await;
    for (value, error) in [
        (None, "invalid_request"),
        (Some(""), "invalid_request"),
        (Some("nobody"), "invalid_client"),
        (Some("WEB"), "invalid_client"),
        (Some("web "), "invalid_client"),
        (Some("../web"), "invalid_client"),
    ] {
        assert_eq!(error_shown(&world, &with_parameter("web", "client_id", value)).await, error, "{value:?}");
    }
    assert_eq!(error_shown(&world, &format!("{}&client_id=web", query("web"))).await, "invalid_request");
    assert_eq!(error_shown(&world, "").await, "invalid_request");
    let answer = response_to(&world, &with_parameter("web", "client_id", Some("nobody"))).await;
    let expected = "400\ncontent-type: application/json\n\n\
        {\"error\":\"invalid_client\",\"error_description\":\"client_id is unknown\"}\n";
    assert_eq!(answer.own(), expected);
}

#[tokio::test]
async fn c002_errors_are_never_sent_to_an_unregistered_redirect_uri() {
    let world = World::new().await;
    for value in [None, Some(""), Some("https://evil.example/callback"), Some("/callback"), Some("javascript:alert(1)")]
    {
        assert_eq!(
            error_shown(&world, &with_parameter("web", "redirect_uri", value)).await,
            "invalid_request",
            "{value:?}"
        );
    }
    assert_eq!(error_shown(&world, &format!("{}&redirect_uri=x", query("web"))).await, "invalid_request");
    // not even to one of another client of the same tenant
    let other = with_parameter("web", "redirect_uri", Some("http://127.0.0.1/callback"));
    assert_eq!(error_shown(&world, &other).await, "invalid_request");
}

#[tokio::test]
async fn c003_redirect_uris_are_compared_byte_by_byte() {
    let world = World::new().await;
    for other in [
        "https://app.example/callback/",
        "https://app.example/Callback",
        "https://APP.example/callback",
        "HTTPS://app.example/callback",
        "https://app.example/callback?",
        "https://app.example/callback?x=1",
        "https://app.example/callback#",
        "https://app.example/callback#f",
        "https://app.example%2Fcallback",
        "https://app.example/%63allback",
        "https://app.example/a/../callback",
        "https://app.example/./callback",
        "https://app.example//callback",
        "https://app.example:443/callback",
        "https://app.example.evil.example/callback",
        "https://app.example@evil.example/callback",
        "https://user@app.example/callback",
        "https://app.example/callback\u{0}",
        "https://app.example/callback ",
        " https://app.example/callback",
        "https://app.example/callback\n",
        "https://app.example\\callback",
        "http://app.example/callback",
        "//app.example/callback",
        "app.example/callback",
        "https://app.example/callback?a=1&b=/x+y",
        "https://app.example/callback?b=%2Fx+y&a=1",
        "https://app.example/callback?a=1&b=%2fx+y",
    ] {
        assert_eq!(
            error_shown(&world, &with_parameter("web", "redirect_uri", Some(other))).await,
            "invalid_request",
            "{other}"
        );
    }
}

#[tokio::test]
async fn c004_only_the_port_may_differ_on_loopback() {
    let world = World::new().await;
    for port in ["", ":1", ":51004", ":65535"] {
        let uri = format!("http://127.0.0.1{port}/callback");
        let answer = response_to(&world, &with_parameter("native", "redirect_uri", Some(&uri))).await;
        assert!(answer.header("location").starts_with("/authentication/start?"), "{port} {answer:?}");
    }
    for other in [
        "http://127.0.0.1:0/callback",
        "http://127.0.0.1:65536/callback",
        "http://127.0.0.1:080/callback",
        "http://127.0.0.1:+80/callback",
        "http://127.0.0.1:/callback",
        "http://127.0.0.1:80:80/callback",
        "http://127.0.0.1:51004/callback/",
        "http://127.0.0.1:51004/callback?x=1",
        "http://127.0.0.1:51004/callback#x",
        "http://user@127.0.0.1:51004/callback",
        "http://127.0.0.1:80@evil.example/callback",
        "http://127.0.0.2:51004/callback",
        "http://127.1:51004/callback",
        "http://2130706433/callback",
        "http://[::1]:51004/callback",
        "http://localhost:51004/callback",
        "https://127.0.0.1:51004/callback",
    ] {
        assert_eq!(
            error_shown(&world, &with_parameter("native", "redirect_uri", Some(other))).await,
            "invalid_request",
            "{other}"
        );
    }
    // the port is fixed if the host is not loopback
    let port = with_parameter("web", "redirect_uri", Some("https://app.example:8443/callback"));
    assert_eq!(error_shown(&world, &port).await, "invalid_request");
}

#[test]
fn c005_redirect_uris_that_others_could_read_or_take_over_are_refused() {
    for good in ["https://a.example/cb", "http://127.0.0.1/cb", "http://[::1]:1234/cb", "com.example.app:/cb"] {
        assert!(RedirectUri::parse(good).is_ok(), "{good}");
    }
    for bad in [
        "http://a.example/cb",
        "http://localhost/cb",
        "http://127.0.0.1.evil.example/cb",
        "http://127.0.0.2/cb",
        "app:/cb",
        "javascript:/alert",
        "data:/x",
        "https://a.example/cb#",
        "https://a.example/cb#f",
        "com.example.app:/cb#f",
        "https://u@a.example/cb",
        "https://a.example/../cb",
        "https://a.example/%2e%2e/cb",
        "https://*.example/cb",
    ] {
        assert!(RedirectUri::parse(bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn c006_the_redirect_goes_to_the_requested_port() {
    let world = World::new().await;
    let (mut browser, _) = completed(&world, "native").await;
    let answer = browser.authorize("native").await;
    assert!(answer.header("location").starts_with("http://127.0.0.1:51004/callback?code="), "{answer:?}");
    let error = response_to(&world, &with_parameter("native", "scope", Some("nothing"))).await;
    assert!(error.header("location").starts_with("http://127.0.0.1:51004/callback?error="), "{error:?}");
    // a login for one port yields no code for another
    let (mut browser, _) = completed(&world, "native").await;
    let other = with_parameter("native", "redirect_uri", Some("http://127.0.0.1:51005/callback"));
    let answer = browser.get(&format!("/authorize?{other}")).await;
    assert!(answer.header("location").starts_with("/authentication/start?"), "{answer:?}");
}

#[tokio::test]
async fn c007_the_query_of_a_redirect_uri_is_kept() {
    let world = World::new().await;
    let mut browser = world.browser();
    let mut body = with(parameters("web"), &[("redirect_uri", WITH_QUERY), ("identifier", ADA)]);
    let started = browser.post("/authentication/start", &body).await.json();
    for more in [json!({"method": "password", "username": "ada", "password": ADA_PASSWORD}), Value::Null] {
        let endpoint = if more.is_null() { "complete" } else { "authenticate" };
        body["session_id"] = started["session_id"].clone();
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        assert_eq!(browser.post(&format!("/authentication/{endpoint}"), &body).await.status, 200);
    }
    let answer = browser.get(&format!("/authorize?{}", with_parameter("web", "redirect_uri", Some(WITH_QUERY)))).await;
    assert!(answer.header("location").starts_with(&format!("{WITH_QUERY}&code=")), "{answer:?}");
    assert_eq!(answer.header("location").matches('?').count(), 1);
    for taken in ["code", "state", "error", "error_description", "iss"] {
        assert!(RedirectUri::parse(&format!("https://a.example/cb?x=1&{taken}=1")).is_err(), "{taken}");
        assert!(RedirectUri::parse(&format!("https://a.example/cb?{taken}")).is_err(), "{taken}");
    }
}

#[tokio::test]
async fn c008_to_c014_other_errors_are_sent_to_the_client() {
    // c008 c009 c012 c013 c014
    let world = World::new().await;
    let (long, padded) = ("A".repeat(44), format!("{}=", challenge()));
    for (name, value, error) in [
        ("response_type", None, "invalid_request"),
        ("response_type", Some(""), "invalid_request"),
        ("response_type", Some("token"), "unsupported_response_type"),
        ("response_type", Some("Code"), "unsupported_response_type"),
        ("response_type", Some("code token"), "unsupported_response_type"),
        ("scope", None, "invalid_scope"),
        ("scope", Some(""), "invalid_scope"),
        ("scope", Some("admin"), "invalid_scope"),
        ("scope", Some("openid admin"), "invalid_scope"),
        ("scope", Some("openid  profile"), "invalid_scope"),
        ("scope", Some(" openid"), "invalid_scope"),
        ("scope", Some("openid\tprofile"), "invalid_scope"),
        ("scope", Some("open\"id"), "invalid_scope"),
        ("scope", Some("open\\id"), "invalid_scope"),
        ("scope", Some("öpenid"), "invalid_scope"),
        ("scope", Some("OPENID"), "invalid_scope"),
        ("code_challenge", None, "invalid_request"),
        ("code_challenge", Some(""), "invalid_request"),
        ("code_challenge", Some("short"), "invalid_request"),
        ("code_challenge", Some(&long), "invalid_request"),
        ("code_challenge", Some(&padded), "invalid_request"),
        ("code_challenge", Some("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw+cM"), "invalid_request"),
        ("code_challenge_method", None, "invalid_request"),
        ("code_challenge_method", Some(""), "invalid_request"),
        ("code_challenge_method", Some("plain"), "invalid_request"),
        ("code_challenge_method", Some("s256"), "invalid_request"),
        ("code_challenge_method", Some("S256 "), "invalid_request"),
    ] {
        assert_eq!(error_sent_to_client(&world, &with_parameter("web", name, value)).await, error, "{name} {value:?}");
    }
    let answer = response_to(&world, &with_parameter("web", "code_challenge", None)).await;
    let expected = format!(
        "302\nlocation: {CALLBACK}?error=invalid_request&error_description=code%20challenge%20required\
         &state=xyz&iss=https%3A%2F%2Fauth.example\n"
    );
    assert_eq!(answer.own(), expected);
    let order = response_to(&world, &with_parameter("web", "scope", Some("email openid profile openid"))).await;
    assert!(order.header("location").starts_with("/authentication/start?"), "{order:?}");
}

#[tokio::test]
async fn c009_scopes_are_compared_as_a_set_from_start_to_code() {
    let world = World::new().await;
    let mut browser = world.browser();
    let sent = |scope: &str| with(parameters("web"), &[("scope", scope)]);
    let started = browser.post("/authentication/start", &with(sent("openid email"), &[("identifier", ADA)])).await;
    let id = started.json()["session_id"].as_str().unwrap().to_owned();
    let step = [("session_id", &*id), ("method", "password"), ("username", "ada"), ("password", ADA_PASSWORD)];
    assert_eq!(browser.post("/authentication/authenticate", &with(sent("email openid"), &step)).await.status, 200);
    let complete = with(sent("openid openid email"), &[("session_id", &id)]);
    assert_eq!(browser.post("/authentication/complete", &complete).await.status, 200);
    let answer = browser.get(&format!("/authorize?{}", with_parameter("web", "scope", Some("email openid")))).await;
    assert!(answer.redirected("code").is_some(), "{answer:?}");
}

#[tokio::test]
async fn c010_no_parameter_may_appear_twice() {
    let world = World::new().await;
    for name in ["response_type", "scope", "code_challenge", "code_challenge_method", "state", "nonce", "x"] {
        let value = parameters("web")[name].as_str().unwrap_or("same").to_owned();
        let twice = format!("{}&{name}={}", with_parameter("web", name, Some(&value)), encode(&value));
        assert_eq!(error_sent_to_client(&world, &twice).await, "invalid_request", "{name}");
        // a second one that is empty, or whose name is percent-encoded
        assert_eq!(
            error_sent_to_client(&world, &format!("{}&{name}", with_parameter("web", name, Some(&value)))).await,
            "invalid_request"
        );
        let escaped: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        assert_eq!(
            error_sent_to_client(&world, &format!("{}&{escaped}=1", with_parameter("web", name, Some(&value)))).await,
            "invalid_request"
        );
    }
    // a repeated state is not sent back
    let answer = response_to(&world, &format!("{}&state=abc", with_parameter("web", "state", Some("xyz")))).await;
    assert_eq!(answer.redirected("state"), None);
}

#[tokio::test]
async fn c011_empty_parameters_count_as_absent_and_unknown_ones_are_ignored() {
    let world = World::new().await;
    for name in parameters("web").as_object().unwrap().keys() {
        let (empty, without) = (with_parameter("web", name, Some("")), with_parameter("web", name, None));
        assert_eq!(response_to(&world, &empty).await.own(), response_to(&world, &without).await.own(), "{name}");
    }
    let unknown = response_to(&world, &format!("{}&color=red&&", query("web"))).await;
    assert_eq!(unknown.header("location"), format!("/authentication/start?{}&color=red&&", query("web")));
    let (mut browser, _) = completed(&world, "web").await;
    let answer = browser.get(&format!("/authorize?{}&color=red&state=", query("web"))).await;
    assert!(answer.redirected("code").is_some() && !answer.header("location").contains("state="), "{answer:?}");
}

#[tokio::test]
async fn c015_the_state_comes_back_unchanged_with_codes_and_errors() {
    let world = World::new().await;
    let long = "x".repeat(2048);
    for state in [&*long, "a+b c%20d", "ünïcödé 🦀", "&code=evil&iss=x#", "\"<script>\\\u{7f}", "\r\nlocation: x", " "]
    {
        let (mut browser, _) = completed(&world, "web").await;
        let answer = browser.get(&format!("/authorize?{}", with_parameter("web", "state", Some(state)))).await;
        assert_eq!(answer.redirected("state").as_deref(), Some(state));
        assert_eq!(answer.redirected("iss").as_deref(), Some(crate::world::ISSUER));
        assert_eq!(answer.redirected("code").unwrap().len(), 43);
        assert_eq!(answer.header("location").matches("code=").count(), 1);
        let both =
            format!("{}&scope=nothing", with_parameter("web", "state", Some(state)).replace("scope=openid&", ""));
        let error = response_to(&world, &both).await;
        assert_eq!(error.redirected("error").as_deref(), Some("invalid_scope"));
        assert_eq!(error.redirected("state").as_deref(), Some(state));
        assert_eq!(error.redirected("iss").as_deref(), Some(crate::world::ISSUER));
    }
    let longest = "s".repeat(4096);
    let answer = response_to(&world, &with_parameter("web", "state", Some(&longest))).await;
    assert!(answer.header("location").starts_with("/authentication/start?"));
    assert_eq!(
        error_sent_to_client(&world, &with_parameter("web", "state", Some(&(longest + "s")))).await,
        "invalid_request"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn c015_any_state_comes_back_unchanged(state in "\\PC{1,200}|[\\x00-\\xff]{1,100}") {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
            let world = World::new().await;
            let answer = response_to(&world, &with_parameter("web", "state", Some(&state)).replace("scope=openid", "scope=x")).await;
            assert_eq!(answer.redirected("state"), Some(state));
        });
    }
}

#[tokio::test]
async fn c016_errors_sent_to_the_client_contain_only_allowed_characters() {
    let world = World::new().await;
    let plain = |text: &str| text.bytes().all(|byte| matches!(byte, 0x20..=0x21 | 0x23..=0x5b | 0x5d..=0x7e));
    for (name, value) in [
        ("response_type", "héllo\"\\"),
        ("scope", "\"<script>\\\n"),
        ("code_challenge", "\u{1}\u{2}\"\\"),
        ("code_challenge_method", "p\u{202e}lain\"\\"),
    ] {
        let answer = response_to(&world, &with_parameter("web", name, Some(value))).await;
        for part in ["error", "error_description"] {
            let text = answer.redirected(part).unwrap();
            assert!(plain(&text) && !text.contains(value) && !text.is_empty(), "{text}");
        }
    }
}

#[tokio::test]
async fn c017_redirects_use_302_and_never_repeat_the_body() {
    let world = World::new().await;
    let (mut browser, _) = completed(&world, "web").await;
    let statuses = [
        browser.authorize("web").await.status,
        browser.authorize("web").await.status,
        response_to(&world, &with_parameter("web", "scope", Some("x"))).await.status,
        world
            .browser()
            .get(&format!("/authentication/start?{}", with_parameter("web", "scope", Some("x"))))
            .await
            .status,
    ];
    assert!(statuses.iter().all(|status| *status == 302), "{statuses:?}");
    let put = world.browser().send(Request::put(format!("/authorize?{}", query("web"))), "").await;
    assert_eq!((put.status.as_u16(), put.header("allow")), (405, "GET, HEAD, POST, OPTIONS"));
}

/// A form that another site posts in a browser. The browser withholds its cookies.
fn post(body: &str) -> (http::request::Builder, String) {
    let request = Request::post("/authorize").header("content-type", "application/x-www-form-urlencoded");
    (request.header("origin", "https://app.example").header("sec-fetch-site", "cross-site"), body.to_owned())
}

#[tokio::test]
async fn c017_a_posted_form_is_redirected_by_303_to_the_equivalent_url() {
    let world = World::new().await;
    let (mut browser, _) = completed(&world, "web").await;
    let state = "a b&=%+é\"<\u{0}#x";
    let wanted = query_of(&with(parameters("web"), &[("state", state)]));
    let (request, body) = post(&wanted);
    let answer = world.browser().send(request, body).await;
    assert_eq!((answer.status.as_u16(), &*answer.text), (303, ""), "{answer:?}");
    assert!(!answer.headers.contains_key("set-cookie"));
    let location = answer.header("location").to_owned();
    assert!(location.starts_with("/authorize?client_id=web&"), "{location}");
    assert!(answer.own().starts_with("303\nlocation: "), "{}", answer.own());
    let code = browser.get(&location).await;
    assert!(code.redirected("code").is_some(), "{code:?}");
    assert_eq!(code.redirected("state").as_deref(), Some(state));
    // errors are reported where the request is checked: at that URL
    for (wrong, error) in [
        (format!("{wanted}&scope=openid"), "invalid_request"),
        (format!("{wanted}&max_age=x"), "invalid_request"),
        (wanted.replace("=openid", "="), "invalid_scope"),
    ] {
        let (request, body) = post(&wrong);
        let location = world.browser().send(request, body).await.header("location").to_owned();
        assert_eq!(browser.get(&location).await.redirected("error").as_deref(), Some(error), "{wrong}");
    }
    let (request, body) = post("client_id=nobody&x");
    let location = world.browser().send(request, body).await.header("location").to_owned();
    assert_eq!(location, "/authorize?client_id=nobody&x=");
    assert_eq!(browser.get(&location).await.error(), "invalid_client");
}

#[tokio::test]
async fn a_malformed_form_is_not_redirected() {
    let world = World::new().await;
    let form = "application/x-www-form-urlencoded";
    let at_most = format!("x={}", "x".repeat(16 * 1024 - 2));
    let (request, body) = post(&at_most);
    assert_eq!(world.browser().send(request, body).await.status, 303);
    for (target, content_type, body, error) in [
        ("/authorize", "application/json", "{}".to_owned(), (415, "unsupported_media_type")),
        ("/authorize", "multipart/form-data", String::new(), (415, "unsupported_media_type")),
        ("/authorize", form, "x=%".to_owned(), (400, "invalid_request")),
        ("/authorize", form, "x=%ff".to_owned(), (400, "invalid_request")),
        ("/authorize", form, "x=&".repeat(257), (400, "invalid_request")),
        ("/authorize", form, format!("{at_most}x"), (413, "content_too_large")),
        ("/authorize", form, "x".repeat(64 * 1024 + 1), (413, "content_too_large")),
        ("/authorize?client_id=web", form, "x=1".to_owned(), (400, "invalid_request")),
    ] {
        for accept in ["application/json", "text/html"] {
            let request = Request::post(target).header("content-type", content_type).header("accept", accept);
            let answer = world.browser().send(request, body.clone()).await;
            assert_eq!((answer.status.as_u16(), answer.header("location")), (error.0, ""), "{answer:?}");
            assert!(answer.header("content-type").starts_with(accept) && answer.text.contains(error.1), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn c018_scripts_of_other_origins_cannot_read_authorize() {
    let world = World::new().await;
    let (browser, _) = completed(&world, "web").await;
    for origin in ["https://app.example", "https://evil.example", "null", crate::world::ISSUER] {
        for query in
            [query("web"), with_parameter("web", "scope", Some("x")), with_parameter("web", "client_id", Some("x"))]
        {
            let mut browser = browser.clone();
            let request = Request::get(format!("/authorize?{query}")).header("origin", origin);
            let answer = browser.send(request, "").await;
            let cors = answer.headers.keys().find(|name| name.as_str().starts_with("access-control-"));
            assert_eq!(cors, None, "{origin} {answer:?}");
        }
        let preflight = Request::options("/authorize").header("origin", origin);
        let answer = world.browser().send(preflight.header("access-control-request-method", "GET"), "").await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (403, "origin_not_allowed"), "{origin}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"));
    }
}

#[tokio::test]
async fn c019_responses_forbid_caching_framing_sniffing_and_referrers() {
    let world = World::new().await;
    let (mut browser, _) = completed(&world, "web").await;
    let page = Request::get("/authorize").header("accept", "text/html");
    for answer in [
        response_to(&world, &query("web")).await,
        response_to(&world, "").await,
        response_to(&world, &with_parameter("web", "scope", Some("x"))).await,
        world.browser().send(page, "").await,
    ] {
        // `own` asserts that the headers are present
        answer.own();
        assert!(answer.header("content-security-policy").contains("frame-ancestors 'none'"));
    }
    let expected = "302\ncache-control: no-store\ncontent-security-policy: default-src 'none'; base-uri 'none'; \
        form-action 'none'; frame-ancestors 'none'\ncross-origin-opener-policy: same-origin\n\
        location: https://app.example/callback?code=<code>&state=xyz&iss=https%3A%2F%2Fauth.example\n\
        referrer-policy: no-referrer\n\
        set-cookie: __Host-session_giszrYfB=<secret>; Path=/; Secure; HttpOnly; SameSite=Lax\n\
        set-cookie: __Host-auth_session_<id>=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax\n\
        x-content-type-options: nosniff\nx-frame-options: DENY\nx-ratelimit: 1000000\nx-ratelimit-limit: 1000000\n\
        x-ratelimit-remaining: <remaining>\nx-ratelimit-reset: <reset>\n\n";
    assert_eq!(browser.authorize("web").await.whole(), expected);
}

#[tokio::test]
async fn c020_head_and_prefetch_requests_get_no_code() {
    let world = World::new().await;
    let (mut browser, id) = completed(&world, "web").await;
    let target = format!("/authorize?{}", query("web"));
    for purpose in ["prefetch", "prefetch;prerender", "anything"] {
        let answer = browser.send(Request::get(&target).header("sec-purpose", purpose), "").await;
        assert_eq!((answer.status.as_u16(), answer.header("location")), (503, ""), "{purpose}");
        assert!(!answer.headers.contains_key("set-cookie"));
    }
    let answer = browser.send(Request::head(&target).header("accept", "*/*"), "").await;
    assert!(answer.header("location").starts_with("/authentication/start?"), "{answer:?}");
    assert!(!answer.headers.contains_key("set-cookie"));
    assert_eq!(browser.status(&id).await.json()["status"], "completed");
    assert!(browser.authorize("web").await.redirected("code").is_some());
}

#[tokio::test]
async fn c021_a_code_requires_the_same_browser_and_the_same_request_as_the_login() {
    let world = World::new().await;
    let (browser, _) = completed(&world, "web").await;
    let other = tollgate::pkce::CodeChallenge::from_verifier(&tollgate::pkce::CodeVerifier::generate()).to_string();
    let for_other = [
        query("mfa"),
        with_parameter("web", "scope", Some("openid email")),
        with_parameter("web", "scope", Some("email")),
        with_parameter("web", "redirect_uri", Some(WITH_QUERY)),
        with_parameter("web", "code_challenge", Some(&other)),
    ];
    for query in for_other {
        let answer = browser.clone().get(&format!("/authorize?{query}")).await;
        assert!(answer.header("location").starts_with("/authentication/start?"), "{query} {answer:?}");
    }
    let answer = response_to(&world, &query("web")).await;
    assert!(answer.header("location").starts_with("/authentication/start?"), "{answer:?}");
    // the right secret under another name, and another secret under the right name
    let (name, secret) = browser.cookies.first_key_value().unwrap();
    for (name, value) in [("__Host-auth_session_AAAAAAAA", &**secret), (&name[7..], secret), (name, &*challenge())] {
        let mut thief = world.browser();
        thief.cookies.insert(name.to_owned(), value.to_owned());
        let answer = thief.authorize("web").await;
        assert!(answer.header("location").starts_with("/authentication/start?"), "{name} {answer:?}");
    }
    assert!(browser.clone().authorize("web").await.redirected("code").is_some());
}

#[tokio::test]
async fn c021_the_newest_completed_login_is_used_first() {
    let world = World::new().await;
    let mut browser = world.browser();
    for identifier in [ADA, crate::world::GRACE] {
        world.advance(1);
        let id = browser.start("web", identifier).await;
        let password = if identifier == ADA { ADA_PASSWORD } else { crate::world::GRACE_PASSWORD };
        assert_eq!(browser.password("web", &id, identifier, password).await.status, 200);
        browser.complete("web", &id).await;
    }
    let unfinished = browser.start("web", ADA).await;
    let before = browser.cookies.len();
    assert!(browser.authorize("web").await.redirected("code").is_some());
    // the session cookie replaces the cookie of the login that was used
    assert_eq!((before, browser.cookies.len()), (4, 4));
    assert!(browser.authorize("web").await.redirected("code").is_some());
    assert_eq!(browser.authorize("web").await.redirected("code"), None);
    assert_eq!(browser.status(&unfinished).await.json()["status"], "pending");
}

#[tokio::test]
async fn c021_an_account_disabled_during_the_login_gets_no_code() {
    let world = World::new().await;
    let (mut browser, id) = completed(&world, "web").await;
    let acme = "acme".parse().unwrap();
    let ada = tollgate::UserId::parse("u-ada").unwrap();
    world.users.disable(&acme, &ada).await.unwrap();
    let answer = browser.authorize("web").await;
    assert_eq!(answer.redirected("error").as_deref(), Some("access_denied"), "{answer:?}");
    assert_eq!(browser.status(&id).await.json()["status"], "expired");
    assert!(world.sessions.list(&acme, &ada).await.unwrap().is_empty());
}

#[tokio::test]
async fn c023_a_login_yields_one_code() {
    let world = World::new().await;
    let (mut browser, _) = completed(&world, "web").await;
    let copy = browser.clone();
    assert!(browser.authorize("web").await.redirected("code").is_some());
    for mut again in [browser, copy] {
        let answer = again.authorize("web").await;
        assert!(answer.header("location").starts_with("/authentication/start?"), "{answer:?}");
    }
    // even if calls race
    let world = World::with(FailingStore::new(), |service| service).await;
    let (browser, _) = completed(&world, "web").await;
    let mut browsers: Vec<_> = (0..8).map(|_| browser.clone()).collect();
    let answers = browsers.iter_mut().map(|browser| browser.authorize("web"));
    let codes = join(answers).await.into_iter().filter(|answer| answer.redirected("code").is_some());
    assert_eq!(codes.count(), 1);
}
