//! Routes of the site that ask more of a session than that it is live.

use std::{collections::BTreeSet, time::Duration};

use axum::{Router, routing::get};
use http::{Request, header};
use tollgate::{
    Session, SessionLayer, Sessions, UserId,
    auth::AuthServiceBuilder,
    clock::UnixTime,
    event::{EventKind, Query},
    policy::{Policies, Policy},
    reject::ProblemJson,
    session::NewSession,
    store::{AnyStore, Memory},
    testing::ManualClock,
    user::StoredUsers,
};

use crate::{
    first_party::{WithRoles, ask},
    first_second_factor::world_on,
    own_account::{acme, sessions, sign_in, sign_in_at, site},
    weak_second_factor::{signed_in, with_weak_passkey},
    world::{ADA, Answer, Browser, World},
};

const AGE: Duration = Duration::from_secs(300);

async fn user(session: Session) -> String {
    session.user().to_string()
}

/// Mounts one page behind a layer. Programs get problem documents.
fn app(world: &World, layer: SessionLayer) -> Router {
    let page = Router::new().route("/pay", get(user).post(user)).layer(layer.respond_with(ProblemJson));
    page.fallback_service(world.service.clone())
}

async fn open(app: &Router, browser: &mut Browser) -> Answer {
    ask(app, browser, "", Request::get("/pay?to=1").header("sec-fetch-mode", "navigate"), "").await
}

async fn fetch(app: &Router, browser: &mut Browser) -> Answer {
    ask(app, browser, "", Request::get("/pay"), "").await
}

#[tokio::test]
async fn a_route_of_two_steps_sends_a_person_to_the_second_step_and_back() {
    let world = site(|service| service).await;
    let app = app(&world, world.service.session_layer().steps(2).unwrap());
    let mut browser = world.browser();
    // without a session, one sign-in is enough for the route
    let to = "/sign-in?return_to=%2Fpay%3Fto%3D1&steps=2";
    let sent = open(&app, &mut browser).await;
    assert_eq!((sent.status.as_u16(), sent.header("location")), (303, to));
    let refused = fetch(&app, &mut browser).await;
    assert_eq!((refused.status.as_u16(), refused.header("www-authenticate")), (401, r#"Session realm="app""#));

    let mut browser = sign_in(&world, ADA, &["password"]).await;
    let sid = sessions(&world, "u-ada").await[0].sid();
    let sent = open(&app, &mut browser).await;
    assert_eq!((sent.status.as_u16(), sent.header("location")), (303, to));
    assert_eq!(sent.header("cache-control"), "no-store");
    let refused = fetch(&app, &mut browser).await;
    assert_eq!(refused.status, 401);
    assert_eq!(
        refused.header("www-authenticate"),
        r#"Session realm="app", error="insufficient_user_authentication", steps="2""#
    );
    assert_eq!(refused.json()["detail"], "please sign in again: this needs a sign-in of 2 steps");
    // a form is not sent again, so the user returns to the start
    let form = Request::post("/pay").header("sec-fetch-mode", "navigate").header("sec-fetch-site", "same-origin");
    assert_eq!(ask(&app, &mut browser, "", form, "").await.header("location"), "/sign-in?steps=2");

    let finished = sign_in_at(&world, &mut browser, to, ADA, &["email"]).await;
    assert_eq!((finished.status.as_u16(), finished.header("location")), (303, "/pay?to=1"));
    let shown = open(&app, &mut browser).await;
    assert_eq!((shown.status.as_u16(), &*shown.text), (200, "u-ada"));
    assert_eq!(fetch(&app, &mut browser).await.status, 200);
    assert_eq!(sessions(&world, "u-ada").await[0].sid(), sid, "the session goes on");
}

#[tokio::test]
async fn proofs_that_are_too_old_are_renewed_to_the_second() {
    let world = site(|service| service).await;
    let layer = world.service.session_layer().max_age(AGE).unwrap().steps(2).unwrap();
    let app = app(&world, layer);
    let mut browser = sign_in(&world, ADA, &["password", "email"]).await;
    // the password is 31 seconds older than the code
    world.advance(269);
    assert_eq!(fetch(&app, &mut browser).await.status, 200);
    world.advance(1);
    let refused = fetch(&app, &mut browser).await;
    let challenge = r#"Session realm="app", error="insufficient_user_authentication", max_age="300", steps="2""#;
    assert_eq!((refused.status.as_u16(), refused.header("www-authenticate")), (401, challenge));
    let sent = open(&app, &mut browser).await;
    let to = "/sign-in?return_to=%2Fpay%3Fto%3D1&max_age=300&steps=2";
    assert_eq!(sent.header("location"), to);
    // only the password is missing
    let finished = sign_in_at(&world, &mut browser, to, ADA, &["password"]).await;
    assert_eq!(finished.header("location"), "/pay?to=1");
    assert_eq!(open(&app, &mut browser).await.status, 200);
}

#[tokio::test]
async fn the_layer_and_the_sign_in_agree_about_every_session() {
    // a passkey that one proof has enrolled is no second step here, although the session has proved it
    let strict = Policy::any(1).unwrap().without_self_enrolment();
    let world = world_on(Memory::new().into(), |service| service.policies(Policies::new(strict))).await;
    let passkey = with_weak_passkey(&world).await;
    let mut browser = signed_in(&world, true, &passkey).await;
    assert!(sessions(&world, "u-lone").await[0].amr().eq(["pwd", "pop", "mfa"]));
    let two = app(&world, world.service.session_layer().steps(2).unwrap());
    assert_eq!(fetch(&two, &mut browser).await.status, 401);
    for (steps, age) in [(1, None), (2, None), (1, Some(AGE)), (2, Some(AGE))] {
        let mut layer = world.service.session_layer().steps(steps).unwrap();
        let mut target = format!("/sign-in?steps={steps}");
        if let Some(age) = age {
            layer = layer.max_age(age).unwrap();
            target.push_str("&max_age=300");
        }
        let app = app(&world, layer);
        for _ in 0..3 {
            let is_enough = browser.get(&target).await.header("location") == "/";
            assert_eq!(fetch(&app, &mut browser).await.status == 200, is_enough, "{target}");
            world.advance(150);
        }
    }
}

#[tokio::test]
async fn an_account_that_is_gone_or_a_proof_that_stopped_counting_is_not_enough() {
    let world = site(|service| service).await;
    let app = app(&world, world.service.session_layer().steps(2).unwrap());
    let mut browser = sign_in(&world, ADA, &["password", "email"]).await;
    assert_eq!(fetch(&app, &mut browser).await.status, 200);
    let hash = tollgate::Passwords::insecure_fast().hash(tollgate::Password::new("another password")).await.unwrap();
    world.users.set_password(&acme(), &"u-ada".parse().unwrap(), Some(hash)).await.unwrap();
    assert_eq!(fetch(&app, &mut browser).await.status, 401, "the password changed");
    let mut browser = sign_in(&world, crate::world::GRACE, &["password", "email"]).await;
    world.users.disable(&acme(), &"u-grace".parse().unwrap()).await.unwrap();
    assert_eq!(fetch(&app, &mut browser).await.status, 401);
}

#[tokio::test]
async fn a_user_without_the_claim_gets_a_403_and_no_sign_in() {
    let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
    let users = WithRoles(StoredUsers::with_clock(store.clone(), clock.clone()));
    let roles = |service: AuthServiceBuilder| service.users(users).first_party(acme());
    let world = World::on(store, clock, roles).await;
    let layer = || world.service.session_layer();
    let mut browser = sign_in(&world, ADA, &["password"]).await;
    for (layer, status) in [
        (layer().claim("roles", "editor").unwrap(), 200),
        (layer().claim("roles", ["u-ada", "editor"]).unwrap(), 200),
        (layer().claim("roles", "edit").unwrap(), 403),
        (layer().claim("roles", "editor").unwrap().claim("admin", true).unwrap(), 403),
        // what a sign-in can't give comes first
        (layer().claim("admin", true).unwrap().steps(2).unwrap(), 403),
        (layer().claim("roles", "editor").unwrap().steps(2).unwrap(), 401),
    ] {
        let app = app(&world, layer);
        assert_eq!(fetch(&app, &mut browser).await.status, status);
        let person = if status == 401 { 303 } else { status };
        assert_eq!(open(&app, &mut browser).await.status, person);
        assert_eq!(fetch(&app, &mut world.browser()).await.status, 401);
    }
    let refused = fetch(&app(&world, layer().claim("admin", true).unwrap()), &mut browser).await;
    assert_eq!(refused.header("www-authenticate"), r#"Session realm="app", error="access_denied""#);
    assert_eq!(refused.json()["detail"], "the account lacks the required claim admin");
    let events = world.log.read_events(&Query::new().kind(EventKind::SessionRefused)).events;
    let reasons: BTreeSet<_> = events.iter().filter_map(|event| event.reason).collect();
    assert_eq!(reasons, BTreeSet::from(["no_session", "proofs", "claims"]));
}

#[tokio::test]
async fn a_session_of_the_application_is_judged_by_what_its_sign_in_declared() {
    let clock = ManualClock::new();
    let sessions = Sessions::builder(Memory::new()).clock(clock.clone()).build().unwrap();
    let layer = SessionLayer::new(sessions.clone()).login_url("/login?a").unwrap();
    let strict = layer.clone().steps(2).unwrap().max_age(AGE).unwrap();
    let app = Router::new().route("/", get(user)).layer(strict);
    let open = async |new: NewSession, mode: &str| {
        let (cookie, _) = sessions.create(new).await.unwrap();
        let cookie = cookie.header_value().to_str().unwrap().split(';').next().unwrap().to_owned();
        let request = Request::get("/").header(header::COOKIE, cookie).header("sec-fetch-mode", mode);
        let response = tower::ServiceExt::oneshot(app.clone(), request.body(axum::body::Body::empty()).unwrap());
        let response = response.await.unwrap();
        let location = response.headers().get("location").map(|to| to.to_str().unwrap().to_owned());
        (response.status().as_u16(), location)
    };
    let new = || NewSession::new(acme(), UserId::parse("u-1").unwrap());
    assert_eq!(open(new().amr(["pwd", "otp", "mfa"]).unwrap(), "cors").await, (200, None));
    let weak = || new().amr(["pwd", "mfa"]).unwrap();
    assert_eq!(open(weak(), "cors").await, (401, None));
    // one message, and one key
    for same in [["otp", "sms"], ["pop", "hwk"]] {
        assert_eq!(open(new().amr(same).unwrap(), "cors").await, (401, None), "{same:?}");
    }
    let login = Some("/login?a&max_age=300&steps=2".to_owned());
    assert_eq!(open(weak(), "navigate").await, (303, login));
    let at = |ago: u64| {
        let now: UnixTime = tollgate::clock::Clock::read(&clock).1;
        let then = UnixTime::from_secs(now.as_secs() - ago);
        new().amr(["pwd", "otp"]).unwrap().auth_time(then)
    };
    assert_eq!(open(at(299), "cors").await, (200, None));
    assert_eq!(open(at(302), "cors").await, (401, None));

    for (steps, is_valid) in [(0, false), (1, true), (6, true), (7, false)] {
        assert_eq!(layer.clone().steps(steps).is_ok(), is_valid, "{steps}");
    }
    for age in [Duration::ZERO, Duration::from_secs(59), Duration::from_millis(60_500)] {
        assert!(layer.clone().max_age(age).is_err());
    }
    let error = layer.claim("admin", true).unwrap_err().to_string();
    assert_eq!(
        error,
        "session claim: admin is not usable: can't be required, because this layer has no source of claims"
    );
}
