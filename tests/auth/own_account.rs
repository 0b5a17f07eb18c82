//! A site whose users sign in and manage their own account, and an authenticator app.

use aws_lc_rs::hmac;
use http::Request;
use serde_json::{Value, json};
use tollgate::{
    Identifier, NewUser, Password, Passwords, Session, Tenant, UserId,
    auth::{AuthServiceBuilder, Totp},
    clock::UnixTime,
    delivery::NoticeKind,
    event::{EventKind, Query},
    store::Memory,
};

use crate::world::{
    ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, GRACE, GRACE_PASSWORD, GRACE_PHONE, World, query_of, with,
};

/// A user with a password and nothing else.
pub(crate) const LONE: &str = "lone";
/// A `User-Agent` that names Firefox on Linux.
pub(crate) const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0";

pub(crate) fn acme() -> Tenant {
    "acme".parse().unwrap()
}

/// Creates the site of acme, with authenticator apps.
pub(crate) async fn site(more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder) -> World {
    let world =
        World::with(Memory::new(), |service| more(service.first_party(acme()).totp(Totp::new().name("Acme")))).await;
    let hash = Passwords::insecure_fast().hash(Password::new(ADA_PASSWORD)).await.unwrap();
    let lone = NewUser::new(UserId::parse("u-lone").unwrap(), Identifier::parse(LONE).unwrap()).password(hash);
    world.users.create(&acme(), lone).await.unwrap();
    world
}

/// Opens a sign-in of the site, and returns the parameters that the login page posts.
pub(crate) async fn begin(browser: &mut Browser, target: &str) -> Value {
    let answer = browser.get(target).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    let (page, query) = answer.header("location").split_once('?').unwrap();
    assert_eq!(page, "/authentication/start", "{answer:?}");
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
    Value::Object(pairs.map(|(name, value)| (decoded(name), json!(decoded(value)))).collect())
}

/// Proves one step of a login.
pub(crate) async fn prove(
    (world, browser): (&World, &mut Browser),
    own: &Value,
    (who, method): (&str, &str),
    code: &str,
) -> Answer {
    let password = if who == GRACE { GRACE_PASSWORD } else { ADA_PASSWORD };
    let own = with(own.clone(), &[("method", method)]);
    let path = "/authentication/authenticate";
    match method {
        "password" => browser.post(path, &with(own, &[("username", who), ("password", password)])).await,
        "email" => {
            // codes to one address are sent 30 seconds apart
            world.advance(31);
            let sent = browser.post(path, &with(own.clone(), &[("email", who)])).await;
            assert_eq!(sent.status, 200, "{sent:?}");
            let code = world.code(who).await;
            browser.post("/authentication/verify-otp", &with(own, &[("otp", &code)])).await
        }
        "sms" => {
            world.advance(31);
            let number = if who == GRACE { GRACE_PHONE } else { ADA_PHONE };
            let sent = browser.post(path, &with(own.clone(), &[("phone_number", number)])).await;
            assert_eq!(sent.status, 200, "{sent:?}");
            let code = world.code(number).await;
            browser.post("/authentication/verify-otp", &with(own, &[("otp", &code)])).await
        }
        _ => browser.post(path, &with(own, &[("code", code)])).await,
    }
}

/// Signs in to the site at this URL by these methods. A method can have a code, as in `totp:123456`.
pub(crate) async fn sign_in_at(
    world: &World,
    browser: &mut Browser,
    target: &str,
    who: &str,
    methods: &[&str],
) -> Answer {
    let fields = begin(browser, target).await;
    let started = browser.post("/authentication/start", &with(fields.clone(), &[("identifier", who)])).await;
    assert_eq!(started.status, 200, "{started:?}");
    let own = with(fields, &[("session_id", started.json()["session_id"].as_str().unwrap())]);
    for method in methods {
        let (method, code) = method.split_once(':').unwrap_or((method, ""));
        let proved = prove((world, browser), &own, (who, method), code).await;
        assert_eq!(proved.status, 200, "{method}: {proved:?}");
    }
    let completed = browser.post("/authentication/complete", &own).await;
    assert_eq!(completed.status, 200, "{completed:?}");
    let finish = Request::get("/sign-in/finish").header("user-agent", FIREFOX);
    browser.send(finish, "").await
}

/// Signs in with as many steps as there are methods.
pub(crate) async fn sign_in(world: &World, who: &str, methods: &[&str]) -> Browser {
    let mut browser = world.browser();
    let finished = sign_in_at(world, &mut browser, &format!("/sign-in?steps={}", methods.len()), who, methods).await;
    assert_eq!((finished.status.as_u16(), finished.header("location")), (303, "/"), "{finished:?}");
    browser
}

/// Sends a call as the page does.
pub(crate) async fn call(browser: &mut Browser, path: &str, body: Value) -> Answer {
    let request = Request::post(format!("/account/{path}")).header("sec-fetch-site", "same-origin");
    browser.send(request.header("content-type", "application/json"), body.to_string()).await
}

pub(crate) async fn credentials(browser: &mut Browser) -> Value {
    let request = Request::get("/account/credentials").header("sec-fetch-site", "same-origin");
    let answer = browser.send(request, "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

pub(crate) async fn sessions(world: &World, user: &str) -> Vec<Session> {
    world.sessions.list(&acme(), &UserId::parse(user).unwrap()).await.unwrap()
}

/// Returns how many events of this kind there were, by method.
pub(crate) fn events(world: &World, kind: EventKind) -> Vec<&'static str> {
    let page = world.log.read_events(&Query::new().kind(kind));
    page.events.iter().map(|event| event.method.unwrap_or_default()).collect()
}

/// Returns who was told about changes, since the world began.
pub(crate) async fn told(world: &World) -> Vec<(String, NoticeKind)> {
    world.settle().await;
    let messages = world.outbox.messages();
    let notices = messages.iter().filter_map(|message| Some((message.to().to_owned(), message.notice()?.kind())));
    notices.collect()
}

/// Sets up an authenticator app, and returns its secret.
pub(crate) async fn enrol_totp(world: &World, browser: &mut Browser) -> String {
    let begun = call(browser, "totp/begin", json!({})).await;
    assert_eq!(begun.status, 200, "{begun:?}");
    let secret = begun.json()["secret"].as_str().unwrap().to_owned();
    let confirmed = call(browser, "totp", json!({ "code": totp(&secret, world.time()) })).await;
    assert_eq!(confirmed.status, 201, "{confirmed:?}");
    secret
}

/// Returns the code that an app with this secret shows (RFC 6238).
pub(crate) fn totp(secret: &str, now: UnixTime) -> String {
    let bits: String = secret
        .bytes()
        .map(|letter| {
            format!("{:05b}", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".iter().position(|it| *it == letter).unwrap())
        })
        .collect();
    let key: Vec<u8> =
        (0..bits.len() / 8).map(|at| u8::from_str_radix(&bits[8 * at..8 * at + 8], 2).unwrap()).collect();
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &key);
    let tag = hmac::sign(&key, &(now.as_secs() / 30).to_be_bytes());
    let offset = usize::from(tag.as_ref()[19] & 15);
    let number = u32::from_be_bytes(tag.as_ref()[offset..offset + 4].try_into().unwrap()) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}

/// Returns the JSON description of a login page with these parameters.
pub(crate) async fn described(browser: &mut Browser, fields: &Value) -> Value {
    let page = Request::get(format!("/authentication/start?{}", query_of(fields))).header("accept", "application/json");
    browser.send(page, "").await.json()
}

/// Ada proves two different things.
pub(crate) async fn ada(world: &World) -> Browser {
    sign_in(world, ADA, &["password", "email"]).await
}
