//! The account page, its session list, and the sign-in that it needs.

use http::Request;
use serde_json::json;
use tollgate::{auth::AuthServiceBuilder, store::Memory, testing::ManualClock};

use crate::{
    own_account::{acme, ada, begin, call, credentials, described, prove, sessions, sign_in, sign_in_at, site},
    world::{ADA, GRACE, ISSUER, World, parameters, with},
};

const PAGE: &str = "/account/security";

#[tokio::test]
async fn the_page_is_for_signed_in_users_and_others_go_to_the_sign_in() {
    let world = site(|service| service).await;
    let mut browser = world.browser();
    let sent = browser.get(PAGE).await;
    assert_eq!((sent.status.as_u16(), sent.header("location")), (303, "/sign-in?return_to=%2Faccount%2Fsecurity"));
    let back = sign_in_at(&world, &mut browser, sent.header("location"), ADA, &["password"]).await;
    assert_eq!(back.header("location"), PAGE);
    let page = browser.get(PAGE).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").contains("script-src 'self'"));
    let script = browser.get("/account/security.js").await;
    assert_eq!((script.status.as_u16(), script.header("content-type")), (200, "text/javascript; charset=utf-8"));
}

#[tokio::test]
async fn the_page_works_below_the_path_of_the_issuer() {
    let parts = (Memory::new().into(), ManualClock::new());
    let first_party = |service: AuthServiceBuilder| service.first_party(acme());
    let (clients, tokens) = (crate::world::clients(), tollgate::Tokens::new());
    let world = World::under("https://site.example/auth", parts, clients, tokens, first_party).await;
    let sent = world.browser().get(PAGE).await;
    assert_eq!(sent.header("location"), "/auth/sign-in?return_to=%2Fauth%2Faccount%2Fsecurity");
}

#[tokio::test]
async fn the_endpoints_exist_only_on_a_site() {
    let world = World::new().await;
    let mut browser = world.browser();
    for path in [PAGE, "/account/security.js", "/account/credentials"] {
        assert_eq!(browser.get(path).await.status, 404, "{path}");
    }
    assert_eq!(call(&mut browser, "sessions/end-others", json!({})).await.status, 404);
}

#[tokio::test]
async fn c117_the_overview_shows_the_sessions_with_their_devices_and_what_a_change_needs() {
    let world = site(|service| service).await;
    let mut browser = sign_in(&world, ADA, &["password"]).await;
    world.advance(100);
    let _other = ada(&world).await;
    world.advance(70);
    let mut shown = credentials(&mut browser).await;
    let all = sessions(&world, "u-ada").await;
    let (first, second) = (all[0].created().as_secs(), all[1].created().as_secs());
    let session = |at: usize, created: u64, used: u64| {
        json!({ "sid": all[at].sid().to_string(), "current": at == 0, "device": "Firefox on Linux",
            "created_at": created, "last_used_at": used })
    };
    assert_eq!(
        shown["sessions"].take(),
        json!([session(0, first, world.time().as_secs()), session(1, second, second)])
    );
    assert_eq!(shown["contacts"].take().as_array().unwrap().len(), 2);
    assert_eq!(
        shown,
        json!({ "user": "u-ada", "display_name": "ada", "fresh_until": null, "required_proofs": 2, "can_use_codes": true,
            "has_two_factors": true, "asks_factor": true, "passkeys": [],
            "totp": null, "recovery_codes": null, "links": [], "sessions": null, "contacts": null, "consents": [],
            "fresh_login_url": "/sign-in?return_to=%2Faccount%2Fsecurity&max_age=299&steps=2",
            "changes": { "password": true, "name": true, "email": true, "phone": true, "delete": true },
            "has_password": true, "least_password": 15, "name": null,
            "available": { "passkey": false, "totp": true, "providers": [] } })
    );
}

#[tokio::test]
async fn users_end_their_own_sessions_and_no_others() {
    let world = site(|service| service).await;
    let (mut browser, mut other) = (ada(&world).await, ada(&world).await);
    let mut grace = sign_in(&world, GRACE, &["password"]).await;
    let sids: Vec<String> = sessions(&world, "u-ada").await.iter().map(|session| session.sid().to_string()).collect();
    let graces = sessions(&world, "u-grace").await[0].sid().to_string();
    for unknown in [graces.as_str(), &"A".repeat(22), "", "x"] {
        let answer = call(&mut browser, "sessions/end", json!({ "sid": unknown })).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (404, "not_found"), "{unknown}");
    }
    for malformed in [json!({}), json!({ "sid": 1 })] {
        assert_eq!(call(&mut browser, "sessions/end", malformed).await.error(), "invalid_request");
    }
    assert_eq!(call(&mut grace, "sessions/end", json!({ "sid": sids[0] })).await.status, 404);
    assert_eq!((sessions(&world, "u-ada").await.len(), sessions(&world, "u-grace").await.len()), (2, 1));

    let ended = call(&mut browser, "sessions/end", json!({ "sid": sids[1] })).await;
    assert_eq!((ended.status.as_u16(), &*ended.text), (204, ""));
    assert_eq!(other.get("/account/credentials").await.error(), "login_required");
    assert_eq!(call(&mut browser, "sessions/end", json!({ "sid": sids[1] })).await.status, 404);
    // the own session ends like at a sign-out, with a login in another tab
    let fields = begin(&mut browser, "/sign-in?max_age=0").await;
    let started = browser.post("/authentication/start", &with(fields.clone(), &[("identifier", ADA)])).await.json();
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    assert_eq!(prove((&world, &mut browser), &own, (ADA, "password"), "").await.status, 200);
    let mut tab = browser.clone();
    assert_eq!(call(&mut browser, "sessions/end", json!({ "sid": sids[0] })).await.status, 204);
    assert!(browser.cookies.keys().all(|name| !name.starts_with("__Host-session_")));
    assert!(sessions(&world, "u-ada").await.is_empty());
    tab.post("/authentication/complete", &own).await;
    tab.get("/sign-in/finish").await;
    assert!(sessions(&world, "u-ada").await.is_empty());
}

#[tokio::test]
async fn users_end_all_other_sessions_or_everything_that_they_have_begun() {
    let world = site(|service| service).await;
    let (mut browser, mut other, mut third) = (ada(&world).await, ada(&world).await, ada(&world).await);
    assert_eq!(call(&mut browser, "sessions/end-others", json!({})).await.status, 204);
    assert_eq!(sessions(&world, "u-ada").await.len(), 1);
    assert_eq!(other.get("/account/credentials").await.status, 401);
    // a login in another browser, of which a step is proved
    let fields = begin(&mut third, "/sign-in?max_age=0").await;
    let started = third.post("/authentication/start", &with(fields.clone(), &[("identifier", ADA)])).await.json();
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    assert_eq!(prove((&world, &mut third), &own, (ADA, "password"), "").await.status, 200);
    let out = call(&mut browser, "sign-out-everywhere", json!({})).await;
    assert_eq!(out.status, 204);
    assert!(browser.cookies.keys().all(|name| !name.starts_with("__Host-session_")));
    assert!(sessions(&world, "u-ada").await.is_empty());
    third.post("/authentication/complete", &own).await;
    third.get("/sign-in/finish").await;
    assert!(sessions(&world, "u-ada").await.is_empty());
    // the user can sign in again at once
    ada(&world).await;
}

/// All calls that change something.
const CHANGES: [&str; 10] = [
    "consents/revoke",
    "totp/begin",
    "totp",
    "totp/delete",
    "recovery-codes",
    "links/begin",
    "links/delete",
    "sessions/end",
    "sessions/end-others",
    "sign-out-everywhere",
];

#[tokio::test]
async fn c117_pages_of_other_origins_and_signed_out_browsers_are_refused() {
    let world = site(|service| service).await;
    let mut browser = ada(&world).await;
    let body = json!({ "sid": sessions(&world, "u-ada").await[0].sid().to_string(), "id": "x", "code": "1" });
    let mut stranger = world.browser();
    for path in CHANGES {
        let post = || Request::post(format!("/account/{path}")).header("content-type", "application/json");
        for foreign in [
            post(),
            post().header("sec-fetch-site", "cross-site"),
            post().header("sec-fetch-site", "same-site"),
            post().header("origin", "https://app.example"),
            post().header("origin", "null"),
        ] {
            let answer = browser.send(foreign, body.to_string()).await;
            assert_eq!((answer.status.as_u16(), &*answer.error()), (403, "origin_not_allowed"), "{path}");
            assert!(answer.header("access-control-allow-origin").is_empty());
        }
        let signed_out = call(&mut stranger, path, body.clone()).await;
        assert_eq!((signed_out.status.as_u16(), &*signed_out.error()), (401, "login_required"), "{path}");
        assert_eq!(browser.get(&format!("/account/{path}")).await.status, 405, "{path}");
    }
    let read = Request::get("/account/credentials").header("origin", "https://app.example");
    assert_eq!(browser.send(read, "").await.error(), "origin_not_allowed");
    // browsers that send only `Origin`
    let own = Request::post("/account/totp/begin").header("origin", ISSUER);
    assert_eq!(browser.send(own, "").await.status, 200);
    assert_eq!(sessions(&world, "u-ada").await.len(), 1);
    // bodies are bounded, and only JSON is read
    let long = json!({ "sid": "x".repeat(70_000) });
    assert_eq!(call(&mut browser, "sessions/end", long).await.error(), "content_too_large");
    let form = crate::world::posted("/account/sessions/end").header("sec-fetch-site", "same-origin");
    assert_eq!(browser.send(form, "sid=x").await.error(), "unsupported_media_type");
}

#[tokio::test]
async fn c117_a_session_of_another_tenant_is_none_here() {
    let store = Memory::new();
    let world = World::with(store, |service| service.first_party(acme())).await;
    let mut browser = world.browser();
    let globex: tollgate::Tenant = "globex".parse().unwrap();
    let new = tollgate::session::NewSession::new(globex, tollgate::UserId::parse("u-ada").unwrap());
    let (cookie, _) = world.sessions.create(new).await.unwrap();
    let text = cookie.header_value().to_str().unwrap().to_owned();
    let (name, value) = text.split(';').next().unwrap().split_once('=').unwrap();
    browser.cookies.insert(name.to_owned(), value.to_owned());
    assert_eq!(browser.get("/account/credentials").await.error(), "login_required");
}

/// The URL that `fresh_login_required` names.
const FRESH: &str = "/sign-in?return_to=%2Faccount%2Fsecurity&max_age=299&steps=2";

#[tokio::test]
async fn c117_a_sign_in_with_more_steps_makes_the_same_session_fresh() {
    let world = site(|service| service).await;
    let mut browser = sign_in(&world, ADA, &["password"]).await;
    let before = sessions(&world, "u-ada").await[0].clone();
    world.advance(400);
    let refused = call(&mut browser, "recovery-codes", json!({})).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "fresh_login_required"));
    assert_eq!(refused.json()["login_url"], FRESH);
    let stale = browser.clone();
    let back = sign_in_at(&world, &mut browser, FRESH, ADA, &["password", "email"]).await;
    assert_eq!(back.header("location"), PAGE);
    let all = sessions(&world, "u-ada").await;
    assert_eq!((all.len(), all[0].sid()), (1, before.sid()));
    assert!(all[0].amr().eq(["pwd", "otp", "mfa"]));
    assert_eq!(all[0].auth_time(), world.time());
    let shown = credentials(&mut browser).await;
    // the password was proved before the code was sent
    assert_eq!(shown["fresh_until"], world.time().as_secs() + 300 - 31);
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.status, 201);
    // the secret from before is worth nothing
    assert_eq!(call(&mut stale.clone(), "recovery-codes", json!({})).await.error(), "login_required");
}

#[tokio::test]
async fn c117_steps_only_ever_raise_the_number_of_steps_of_a_sign_in() {
    let world =
        site(|service| service.policies(tollgate::Policies::new(tollgate::policy::Policy::any(2).unwrap()))).await;
    let mut browser = world.browser();
    for (steps, required) in [("1", 2), ("2", 2), ("3", 3)] {
        let fields = begin(&mut browser, &format!("/sign-in?steps={steps}&max_age=0")).await;
        assert_eq!((&fields["steps"], &fields["max_age"]), (&json!(steps), &json!("0")));
        assert_eq!(described(&mut browser, &fields).await["required_steps"], required);
        let started = browser.post("/authentication/start", &with(fields, &[("identifier", ADA)])).await.json();
        assert_eq!(started["required_steps"], required, "{steps}");
    }
    for bad in ["0", "7", "-1", "x", "1.5", "99999999999999999999"] {
        assert_eq!(browser.get(&format!("/sign-in?steps={bad}")).await.error(), "invalid_request", "{bad:?}");
    }
    for bad in ["steps=2&steps=3", "max_age=0&max_age=1", "max_age=x"] {
        assert_eq!(browser.get(&format!("/sign-in?{bad}")).await.error(), "invalid_request", "{bad}");
    }
    // other clients may use a parameter of this name for something else
    let body = with(parameters("web"), &[("identifier", ADA), ("steps", "many")]);
    let started = browser.post("/authentication/start", &body).await.json();
    assert_eq!(started["required_steps"], 2);
}

#[tokio::test]
async fn a_sign_in_with_more_steps_continues_from_the_session_unless_it_must_be_fresh() {
    let world = site(|service| service).await;
    let mut browser = sign_in(&world, ADA, &["password"]).await;
    assert_eq!(browser.get("/sign-in?steps=1&return_to=/a").await.header("location"), "/a");
    assert_eq!(browser.get("/sign-in?max_age=60&return_to=/a").await.header("location"), "/a");
    let fields = begin(&mut browser, "/sign-in?steps=2").await;
    let started = browser.post("/authentication/start", &fields).await.json();
    assert_eq!((&started["required_steps"], &started["next_step"]), (&json!(2), &json!(2)));
    world.advance(61);
    let fields = begin(&mut browser, "/sign-in?max_age=60").await;
    let started = browser.post("/authentication/start", &with(fields, &[("identifier", ADA)])).await.json();
    assert_eq!(started["next_step"], 1);
}
