//! The pages for people as the server sends them: the login page, its assets, its JSON description, and errors.

use http::Request;
use tollgate::{AuthService, Client, ClientIp, ClientTable, Tenant, policy::Policy, store::Memory};

use crate::world::{Answer, Browser, CALLBACK, ISSUER, World, challenge, query};

const HTML: &str = "text/html; charset=utf-8";
/// The `Accept` header of browsers that open a page.
const PERSON: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

async fn ask(browser: &mut Browser, method: &str, target: &str, accept: &str) -> Answer {
    browser.send(Request::builder().method(method).uri(target).header("accept", accept), "").await
}

fn start(client: &str) -> String {
    format!("/authentication/start?{}&state=xyz", query(client))
}

/// Asserts that the headers forbid scripts, framing, caching and sniffing.
fn assert_locked(answer: &Answer) {
    let policy: Vec<_> = answer.header("content-security-policy").split("; ").collect();
    for part in ["default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"] {
        assert!(policy.contains(&part), "{answer:?}");
    }
    assert!(!answer.header("content-security-policy").contains("unsafe"), "{answer:?}");
    for (name, value) in [
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        assert_eq!(answer.header(name), value, "{name}: {answer:?}");
    }
    assert!(!answer.header("x-ratelimit-remaining").is_empty(), "{answer:?}");
}

#[tokio::test]
async fn the_page_and_its_assets_have_the_right_types() {
    let world = World::new().await;
    let mut browser = world.browser();
    for (target, content_type) in [
        (start("web").as_str(), HTML),
        ("/authentication/page.js", "text/javascript; charset=utf-8"),
        ("/authentication/page.css", "text/css; charset=utf-8"),
    ] {
        let page = ask(&mut browser, "GET", target, PERSON).await;
        assert_eq!((page.status.as_u16(), page.header("content-type")), (200, content_type), "{target}");
        assert!(!page.text.is_empty());
        assert_locked(&page);
        let mut head = ask(&mut browser, "HEAD", target, PERSON).await;
        let mut headers = page.headers.clone();
        assert_eq!((head.status.as_u16(), head.text.as_str()), (200, ""), "{target}");
        // each request is charged, and a response without a body still has the content length
        for name in ["x-ratelimit-remaining", "x-ratelimit-reset", "content-length"] {
            head.headers.remove(name);
            headers.remove(name);
        }
        assert_eq!(head.headers, headers, "{target}");
    }
    assert!(browser.cookies.is_empty());
    let post = ask(&mut browser, "POST", "/authentication/page.js", PERSON).await;
    assert_eq!((post.status.as_u16(), post.header("allow")), (405, "GET, HEAD, OPTIONS"));
}

#[tokio::test]
async fn the_page_obeys_its_own_policy_and_contains_nothing_of_the_request() {
    let world = World::new().await;
    let mut browser = world.browser();
    let page = ask(&mut browser, "GET", &start("web"), PERSON).await;
    let policy = page.header("content-security-policy");
    for part in ["script-src 'self'", "style-src 'self'", "connect-src 'self'"] {
        assert!(policy.contains(part), "{policy}");
    }
    for forbidden in ["<style", " style=", " onclick", " onload", " onsubmit", "javascript:", "://", "<script>"] {
        assert!(!page.text.contains(forbidden), "{forbidden}");
    }
    // the page is always the same, because it reads its own URL
    assert_eq!(page.text, ask(&mut browser, "GET", &start("mfa"), PERSON).await.text);
    let script = ask(&mut browser, "GET", "/authentication/page.js", "*/*").await.text;
    for forbidden in
        ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function", "://", "localStorage"]
    {
        assert!(!script.contains(forbidden), "{forbidden}");
    }
    let parts = [&page.text, &script, &ask(&mut browser, "GET", "/authentication/page.css", "*/*").await.text];
    assert!(parts.map(String::len).iter().sum::<usize>() < 64 * 1024);
}

#[tokio::test]
async fn the_account_page_obeys_the_policy_too() {
    let world = World::with(Memory::new(), |service| service.first_party("acme".parse::<Tenant>().unwrap())).await;
    let script = ask(&mut world.browser(), "GET", "/account/security.js", "*/*").await;
    assert_eq!(script.header("content-type"), "text/javascript; charset=utf-8");
    assert_locked(&script);
    let page = include_str!("../../src/auth/pages/account.html");
    for text in [page, &script.text] {
        for forbidden in
            ["<style", " style=", " onclick", "javascript:", "://", "<script>", "innerHTML", "outerHTML", "eval("]
        {
            assert!(!text.contains(forbidden), "{forbidden}");
        }
    }
    assert!(page.len() + script.text.len() < 31 * 1024);
}

#[tokio::test]
async fn a_custom_page_gets_the_same_information_as_json() {
    let world = World::new().await;
    let mut browser = world.browser();
    for (client, steps) in [("web", 1), ("mfa", 2)] {
        let told = ask(&mut browser, "GET", &start(client), "application/json").await;
        assert_eq!((told.status.as_u16(), told.header("content-type")), (200, "application/json"));
        assert_eq!(told.header("vary"), "accept");
        assert_locked(&told);
        assert_eq!(
            told.text,
            format!(
                r#"{{"client_id":"{client}","client_name":"{client}","available_methods":["password","sms","email","whatsapp"],"required_steps":{steps},"scopes":["openid"],"redirect":{{"kind":"site","host":"app.example"}},"reset_password":"/reset-password","least_password":15}}"#
            )
        );
    }
    for accept in [PERSON, "*/*", "image/png", "application/json;q=0.5, text/html"] {
        let page = ask(&mut browser, "GET", &start("web"), accept).await;
        assert_eq!((page.header("content-type"), page.header("vary")), (HTML, "accept, accept-language"), "{accept}");
    }
}

#[tokio::test]
async fn the_described_methods_are_those_that_a_login_offers() {
    let clients = |service: tollgate::auth::AuthServiceBuilder| service.without_passwords();
    let world = World::with(Memory::new(), clients).await;
    let mut browser = world.browser();
    let told = ask(&mut browser, "GET", &start("mfa"), "application/json").await.json();
    let mut body = crate::world::parameters("mfa");
    body["identifier"] = "nobody".into();
    let started = browser.post("/authentication/start", &body).await.json();
    assert_eq!(told["available_methods"], started["available_methods"]);
    assert_eq!(told["required_steps"], started["required_steps"]);
    assert_eq!(told["available_methods"], serde_json::json!(["sms", "email", "whatsapp"]));
}

#[tokio::test]
async fn a_client_is_shown_with_its_name() {
    let world = World::new().await;
    let client = Client::new("web", "acme".parse().unwrap()).unwrap().scopes("openid").unwrap();
    let client = client.redirect_uri(CALLBACK).unwrap().name("</script>\"Ada\u{2019}s\"").unwrap();
    let clients = ClientTable::new([client.policy(Policy::any(1).unwrap())]).unwrap();
    let service = AuthService::builder(ISSUER, world.store.clone())
        .clients(clients)
        .users(world.users.clone())
        .client_ip(ClientIp::peer())
        .build()
        .unwrap();
    let mut browser = World { service, ..world }.browser();
    let told = ask(&mut browser, "GET", &start("web"), "application/json").await;
    assert_eq!(told.json()["client_name"], "</script>\"Ada\u{2019}s\"");
    assert!(!ask(&mut browser, "GET", &start("web"), PERSON).await.text.contains("Ada"));
}

#[tokio::test]
async fn a_wrong_link_is_shown_as_a_page_to_people_and_as_json_to_programs() {
    let world = World::new().await;
    let mut browser = world.browser();
    let challenge = challenge();
    let rest = format!("response_type=code&scope=openid&code_challenge={challenge}&code_challenge_method=S256");
    for (path, style) in [("/authorize", "authentication/page.css"), ("/authentication/start", "page.css")] {
        for (wrong, code) in [
            ("client_id=nobody-known&redirect_uri=https%3A%2F%2Fapp.example%2Fcallback", "invalid_client"),
            ("client_id=web&redirect_uri=https%3A%2F%2Fevil.example%2F%3Cb%3E", "invalid_request"),
            ("client_id=web", "invalid_request"),
            ("client_id=%FF", "invalid_request"),
        ] {
            let target = format!("{path}?{wrong}&{rest}&state=reflected");
            let shown = ask(&mut browser, "GET", &target, PERSON).await;
            assert_eq!((shown.status.as_u16(), shown.header("content-type")), (400, HTML), "{target}");
            assert_locked(&shown);
            assert!(shown.headers.get("location").is_none());
            assert!(shown.text.contains(&format!("<code>{code}</code>")), "{shown:?}");
            assert!(shown.text.contains(&format!(r#"href="{style}""#)), "{shown:?}");
            for reflected in ["reflected", "evil", "nobody-known", "{", "}"] {
                assert!(!shown.text.contains(reflected), "{reflected}: {shown:?}");
            }
            let head = ask(&mut browser, "HEAD", &target, PERSON).await;
            assert_eq!((head.status.as_u16(), head.text.as_str()), (400, ""));

            let told = ask(&mut browser, "GET", &target, "application/json").await;
            assert_eq!((told.status.as_u16(), told.error().as_str()), (400, code), "{target}");
            assert_locked(&told);
        }
        // errors that can be sent to the redirect URI are sent there
        let target = format!("{path}?{}&code_challenge=again", query("web"));
        let sent = ask(&mut browser, "GET", &target, PERSON).await;
        assert_eq!((sent.status.as_u16(), sent.redirected("error").as_deref()), (302, Some("invalid_request")));
        assert!(sent.header("location").starts_with(CALLBACK));
    }
}

#[tokio::test]
async fn an_unknown_path_is_a_page_to_people_and_json_to_programs() {
    let world = World::with(Memory::new(), |service| service.first_party("acme".parse::<Tenant>().unwrap())).await;
    let mut browser = world.browser();
    for path in ["/nothing", "/authentication/nothing", "/a/b/c?reflected", "/authentication/"] {
        let shown = ask(&mut browser, "GET", path, PERSON).await;
        assert_eq!((shown.status.as_u16(), shown.header("content-type")), (404, HTML), "{path}");
        assert_locked(&shown);
        for part in ["<h1>Page not found</h1>", "<code>not_found</code>", r#"href="/authentication/page.css""#] {
            assert!(shown.text.contains(part), "{part}: {shown:?}");
        }
        assert!(!shown.text.contains("reflected") && !shown.text.contains('{'), "{shown:?}");
        for program in ["*/*", "application/json", "application/problem+json"] {
            let told = ask(&mut browser, "GET", path, program).await;
            assert_eq!((told.status.as_u16(), told.error().as_str()), (404, "not_found"), "{path}");
        }
    }
    // so is a path with another method
    for (method, path, allowed) in [
        ("GET", "/consent", "POST, OPTIONS"),
        ("POST", "/sign-in", "GET, HEAD, OPTIONS"),
        ("GET", "/token", "POST, OPTIONS"),
    ] {
        let shown = ask(&mut browser, method, path, PERSON).await;
        assert_eq!((shown.status.as_u16(), shown.header("content-type")), (405, HTML), "{path}");
        assert_eq!(shown.header("allow"), allowed, "{path}");
        assert_locked(&shown);
        for part in ["<h1>Page not found</h1>", "<code>method_not_allowed</code>", r#"href="/authentication/page.css""#]
        {
            assert!(shown.text.contains(part), "{part}: {shown:?}");
        }
        let told = ask(&mut browser, method, path, "application/json").await;
        assert_eq!((told.status.as_u16(), told.error().as_str()), (405, "method_not_allowed"), "{path}");
    }
}
