//! Section L of the checklist: login cookies, and how logins end.

use http::{HeaderValue, Request};
use tollgate::{
    AuthService, ClientIp,
    event::{EventKind, Query},
    store::Memory,
};

use crate::world::{ADA, ADA_PASSWORD, World, clients, query};

#[tokio::test]
async fn c103_the_login_cookie_is_bound_to_the_host_and_requires_tls_and_is_hidden_from_scripts() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    let (name, secret) = browser.cookies.first_key_value().unwrap();
    assert_eq!(*name, format!("__Host-auth_session_{}", &id[..8]));
    assert!(name.len() + secret.len() <= 4096);
    let answer = browser
        .post("/authentication/start", &crate::world::with(crate::world::parameters("web"), &[("identifier", ADA)]))
        .await;
    let set = answer.header("set-cookie");
    let (_, attributes) = set.split_once("; ").unwrap();
    assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Lax");
}

#[tokio::test]
async fn c103_cookies_without_tls_are_allowed_only_on_loopback() {
    let world = World::new().await;
    let on = |issuer: &str| {
        AuthService::builder(issuer, world.store.clone())
            .clients(clients())
            .users(world.users.clone())
            .client_ip(ClientIp::peer())
            .passwords(tollgate::Passwords::insecure_fast())
            .email(world.outbox.clone())
            .insecure_loopback()
            .build()
    };
    assert!(on("https://auth.example").is_err());
    let mut browser = world.browser();
    browser.service = on("http://127.0.0.1:8080").unwrap();
    let body = crate::world::with(crate::world::parameters("web"), &[("identifier", ADA)]);
    let started = browser.post("/authentication/start", &body).await;
    assert!(!started.header("set-cookie").contains("Secure"), "{started:?}");
    let id = started.json()["session_id"].as_str().unwrap().to_owned();
    assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), [&format!("auth_session_{}", &id[..8])]);
    assert_eq!(browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 200);
    assert_eq!(browser.complete("web", &id).await.status, 200);
    assert!(browser.authorize("web").await.redirected("code").is_some());
}

#[tokio::test]
async fn c104_the_store_does_not_contain_the_secret_of_the_cookie() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    let secret = browser.cookies.values().next().unwrap().clone();
    assert_eq!(secret.len(), 43, "256 bits");
    assert_ne!(secret[..22], id, "the id does not reveal the secret");
    let other = browser.start("web", ADA).await;
    assert_ne!(id, other);
    assert!(!format!("{:?}", world.store).contains(&secret));
}

#[tokio::test]
async fn c105_a_login_ends_when_it_is_idle_and_after_half_an_hour_at_the_latest() {
    for (work, pause, rounds, lives) in [(true, 9 * 60, 3, true), (true, 10 * 60, 1, false), (false, 599, 1, true)] {
        let world = World::new().await;
        let mut browser = world.browser();
        let id = browser.start("web", ADA).await;
        for _ in 0..rounds {
            world.advance(pause);
            if work {
                browser.ask("web", &id, "email", ADA).await;
            }
        }
        let answer = browser.password("web", &id, "ada", ADA_PASSWORD).await;
        assert_eq!(answer.status, if lives { 200 } else { 401 }, "{pause} {answer:?}");
    }
    // after half an hour it ends regardless of activity
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    for _ in 0..3 {
        world.advance(9 * 60);
        assert_eq!(browser.ask("mfa", &id, "email", ADA).await.status, 200);
    }
    world.advance(3 * 60);
    let answer = browser.password("mfa", &id, "ada", ADA_PASSWORD).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "session_expired"));
}

#[tokio::test]
async fn c106_an_ended_login_stays_ended_and_its_use_is_logged() {
    let world = World::new().await;
    let mut browser = world.browser();
    let consumed = browser.start("web", ADA).await;
    browser.password("web", &consumed, "ada", ADA_PASSWORD).await;
    browser.complete("web", &consumed).await;
    let mut copy = browser.clone();
    browser.authorize("web").await;
    let expired = copy.start("web", ADA).await;
    world.advance(600);
    for id in [consumed, expired] {
        for answer in [
            copy.password("web", &id, "ada", ADA_PASSWORD).await,
            copy.ask("web", &id, "email", ADA).await,
            copy.verify("web", &id, "000000").await,
            copy.complete("web", &id).await,
        ] {
            assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "session_expired"));
        }
        assert_eq!(copy.authorize("web").await.redirected("code"), None);
        assert_eq!(copy.status(&id).await.json()["status"], "expired");
    }
    world.log.flush();
    assert!(!world.log.read_events(&Query::new().kind(EventKind::SessionUseAfterExpire)).events.is_empty());
}

#[tokio::test]
async fn c107_malformed_cookie_headers_do_no_harm() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    let (name, secret) = browser.cookies.first_key_value().map(|(name, value)| (name.clone(), value.clone())).unwrap();
    let own = format!("{name}={secret}");
    let many = |n: usize| (0..n).map(|at| format!("__Host-auth_session_{at:08}={secret}; ")).collect::<String>();
    // (header, whether it identifies the login)
    let cases: Vec<(Vec<u8>, bool)> = vec![
        (own.clone().into(), true),
        (format!("a=b; {own}; c=d").into(), true),
        (format!("{name}=x; {own}").into(), true),
        (format!("{own}; {name}=x; {own}").into(), true),
        (format!(";;; =; ={secret};{own};").into(), true),
        ([b"\xff\xfe=\xfd; ", own.as_bytes()].concat(), true),
        (many(3).into_bytes(), false),
        (many(1000).into_bytes(), false),
        (format!("{name}={}", "A".repeat(100_000)).into(), false),
        (name.clone().into(), false),
        (format!("{name}=").into(), false),
        (format!("{name}=\"{secret}\"").into(), false),
        (format!("__Secure-auth_session_{}={secret}", &id[..8]).into(), false),
        (format!("auth_session_{}={secret}", &id[..8]).into(), false),
        (format!("__host-auth_session_{}={secret}", &id[..8]).into(), false),
        (Vec::new(), false),
    ];
    for (cookie, is_found) in cases {
        let value = HeaderValue::from_bytes(&cookie).unwrap();
        let shown = String::from_utf8_lossy(&cookie[..cookie.len().min(200)]).into_owned();
        let request = Request::get(format!("/authentication/status?session_id={id}")).header("cookie", value.clone());
        let answer = world.browser().send(request, "").await;
        assert_eq!(answer.status, if is_found { 200 } else { 401 }, "{shown}");
        let request = Request::get(format!("/authorize?{}", query("web"))).header("cookie", value.clone());
        assert_eq!(world.browser().send(request, "").await.status, 302, "{shown}");
        let body = crate::world::with(crate::world::parameters("web"), &[("identifier", ADA)]).to_string();
        let request = Request::post("/authentication/start").header("content-type", "application/json");
        assert_eq!(world.browser().send(request.header("cookie", value), body).await.status, 200, "{shown}");
    }
}

#[tokio::test]
async fn c108_the_log_identifies_logins_by_public_ids() {
    let world = World::with(Memory::new(), |service| service).await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    let secret = browser.cookies.values().next().unwrap().clone();
    browser.password("web", &id, "ada", "wrong").await;
    browser.password("web", &id, "ada", ADA_PASSWORD).await;
    browser.complete("web", &id).await;
    let code = browser.authorize("web").await.redirected("code").unwrap();
    let session = browser.cookies.values().next().unwrap().clone();
    world.log.flush();
    let page = world.log.read_events(&Query::new());
    let kinds: Vec<_> = page.events.iter().map(|event| event.kind).collect();
    for kind in [EventKind::LoginStarted, EventKind::LoginFailed, EventKind::LoginStepProved, EventKind::CodeIssued] {
        assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
    }
    let text = format!("{page:?}");
    for said in [&*id, &id[..8], &secret, &code, &session, ADA, "u-ada"] {
        assert!(!text.contains(said), "{said} in {text}");
    }
}

#[test]
fn a_session_cookie_cannot_be_named_like_the_cookies_of_logins() {
    use tollgate::{AuthService, ClientIp, StoredUsers, store::Memory};
    let build = |name| {
        let builder =
            AuthService::builder("https://auth.example", Memory::new()).users(StoredUsers::new(Memory::new()));
        builder.client_ip(ClientIp::peer()).session_cookie(name).build().map(drop)
    };
    assert!(build("sid").is_ok());
    for name in ["auth_session", "auth_session_x"] {
        assert!(build(name).unwrap_err().to_string().contains("session cookie name"), "{name}");
    }
}
