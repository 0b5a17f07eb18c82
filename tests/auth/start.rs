//! Section B of the checklist: `POST /authentication/start`.

use http::Request;
use serde_json::{Value, json};
use tollgate::{
    Policies, Quota,
    auth::AbuseLimits,
    policy::{Method, Policy},
};

use crate::world::{ADA, ADA_PASSWORD, Answer, Browser, GRACE, NOBODY, World, challenge, parameters, query_of, with};

fn body(client: &str, identifier: &str) -> Value {
    with(parameters(client), &[("identifier", identifier)])
}

async fn start(browser: &mut Browser, body: &Value) -> Answer {
    browser.post("/authentication/start", body).await
}

#[tokio::test]
async fn c027_parameters_are_checked_like_those_of_authorize() {
    let world = World::new().await;
    let mut wrong = Vec::new();
    for name in parameters("web").as_object().unwrap().keys() {
        wrong.extend([(name.clone(), None), (name.clone(), Some("")), (name.clone(), Some("x"))]);
        wrong.push((name.clone(), Some("\u{0}")));
    }
    wrong.push(("scope".into(), Some("openid  email")));
    wrong.push(("scope".into(), Some("openid admin")));
    wrong.push(("redirect_uri".into(), Some("https://app.example/callback/")));
    wrong.push(("code_challenge".into(), Some("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw+cM")));
    wrong.push(("code_challenge_method".into(), Some("plain")));
    wrong.push(("code_challenge_method".into(), Some("s256")));
    for (name, value) in wrong {
        let mut sent = parameters("web");
        match value {
            Some(value) => sent[&name] = json!(value),
            None => drop(sent.as_object_mut().unwrap().remove(&name)),
        }
        let there = world.browser().get(&format!("/authorize?{}", query_of(&sent))).await;
        let expected = there.redirected("error").unwrap_or_else(|| there.error());
        sent["identifier"] = json!(ADA);
        let mut browser = world.browser();
        let answer = start(&mut browser, &sent).await;
        assert_eq!((answer.status.as_u16(), answer.error()), (400, expected), "{name} {value:?}");
        assert_eq!(answer.header("location"), "");
        assert!(browser.cookies.is_empty(), "{answer:?}");
    }
}

#[tokio::test]
async fn c028_the_body_must_be_a_bounded_json_object_without_duplicates() {
    let world = World::new().await;
    let text = body("web", ADA).to_string();
    let with_type = |content_type: &str| Request::post("/authentication/start").header("content-type", content_type);
    for content_type in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonp"]
    {
        let answer = world.browser().send(with_type(content_type), text.clone()).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (415, "unsupported_media_type"), "{content_type}");
    }
    let none = world.browser().send(Request::post("/authentication/start"), text.clone()).await;
    assert_eq!(none.status, 415);
    let long = format!("{text}{}", " ".repeat(64 * 1024));
    let answer = world.browser().send(with_type("application/json"), long).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (413, "content_too_large"));
    let twice = text.replacen('{', "{\"identifier\":\"grace\",", 1);
    let answer = world.browser().send(with_type("application/json"), twice).await;
    assert_eq!(
        answer.own(),
        "400\ncontent-type: application/json\n\n\
         {\"error\":\"invalid_request\",\"error_description\":\"an object contains the same name twice\"}\n"
    );
    assert_eq!(world.browser().send(with_type("Application/JSON; charset=utf-8"), text).await.status, 200);
}

#[tokio::test]
async fn c029_a_page_of_another_site_cannot_begin_a_login() {
    let world = World::new().await;
    let sent = |headers: &[(&str, &str)]| {
        let request = Request::post("/authentication/start").header("content-type", "application/json");
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
    };
    let ours = crate::world::ISSUER;
    for (headers, status) in [
        (&[][..], 200),
        (&[("origin", ours)], 200),
        (&[("origin", "https://app.example")], 200),
        (&[("sec-fetch-site", "same-origin")], 200),
        (&[("sec-fetch-site", "none")], 200),
        (&[("origin", "https://app.example"), ("sec-fetch-site", "cross-site")], 200),
        (&[("origin", "https://evil.example")], 403),
        (&[("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")], 403),
        (&[("origin", "https://evil.example"), ("sec-fetch-site", "none")], 403),
        (&[("origin", "null")], 403),
        (&[("origin", "")], 403),
        (&[("origin", "https://app.example:8443")], 403),
        (&[("origin", "https://app.example.evil.example")], 403),
        (&[("origin", "http://app.example")], 403),
        (&[("origin", ours), ("origin", "https://evil.example")], 403),
        (&[("sec-fetch-site", "cross-site")], 403),
        (&[("sec-fetch-site", "same-site")], 403),
        (&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], 403),
        (&[("sec-fetch-site", "")], 403),
    ] {
        let mut browser = world.browser();
        let answer = browser.send(sent(headers), body("web", ADA).to_string()).await;
        assert_eq!(answer.status, status, "{headers:?} {answer:?}");
        assert_eq!(browser.cookies.len(), usize::from(status == 200));
        if status == 403 {
            assert_eq!(answer.error(), "origin_not_allowed");
            assert!(!answer.headers.contains_key("access-control-allow-origin"));
        }
    }
    // the origin of one client is not allowed for another
    let answer =
        world.browser().send(sent(&[("origin", "https://app.example")]), body("native", ADA).to_string()).await;
    assert_eq!(answer.status, 403);
    // refused requests are not examined any further
    let wrong = with(body("web", ADA), &[("scope", "nothing")]);
    let answer = world.browser().send(sent(&[("origin", "https://evil.example")]), wrong.to_string()).await;
    assert_eq!(answer.status, 403);
}

#[tokio::test]
async fn c030_the_response_has_the_id_the_methods_and_the_steps_of_the_login() {
    let world = World::new().await;
    let one = start(&mut world.browser(), &body("web", ADA)).await;
    let expected = "200\ncontent-type: application/json\n\
        set-cookie: __Host-auth_session_<id>=<secret>; Path=/; Secure; HttpOnly; SameSite=Lax\n\n\
        {\"session_id\":\"<id>\",\"available_methods\":[\"password\",\"sms\",\"email\",\"whatsapp\"],\
        \"required_steps\":1,\"next_step\":1}\n";
    assert_eq!(one.own(), expected);
    let two = start(&mut world.browser(), &body("mfa", ADA)).await;
    assert_eq!(two.own(), expected.replace("\"required_steps\":1", "\"required_steps\":2"));
    assert_eq!(two.json()["session_id"].as_str().unwrap().len(), 22, "128 bits");
}

#[tokio::test]
async fn c031_known_and_unknown_users_get_the_same_start() {
    let world = World::new().await;
    let known = start(&mut world.browser(), &body("mfa", ADA)).await;
    for identifier in [NOBODY, "grace", "+15555550100", "+15555559999", "x", "ünbekannt"] {
        let other = start(&mut world.browser(), &body("mfa", identifier)).await;
        assert_eq!(other.whole(), known.whole(), "{identifier}");
        let (known, other) = (&known.headers["set-cookie"], &other.headers["set-cookie"]);
        assert_eq!(known.len(), other.len());
    }
}

#[tokio::test]
async fn c032_the_methods_depend_on_the_policy_and_not_on_the_user() {
    let world = World::with(tollgate::store::Memory::new(), |service| {
        let two = Policy::slots([Method::Password, Method::Sms]).unwrap();
        service.policies(Policies::new(two))
    })
    .await;
    for identifier in [ADA, GRACE, NOBODY] {
        let answer = start(&mut world.browser(), &body("web", identifier)).await.json();
        assert_eq!(answer["available_methods"], json!(["password", "sms"]), "{identifier}");
        assert_eq!(answer["required_steps"], 2);
    }
    // and only enabled methods are listed
    let world =
        World::with(tollgate::store::Memory::new(), tollgate::auth::AuthServiceBuilder::without_passwords).await;
    let answer = start(&mut world.browser(), &body("web", ADA)).await.json();
    assert_eq!(answer["available_methods"], json!(["sms", "email", "whatsapp"]));
}

#[tokio::test]
async fn c033_each_login_has_a_new_secret_and_ignores_those_sent_by_the_caller() {
    let world = World::new().await;
    let mut browser = world.browser();
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..4 {
        let answer = start(&mut browser, &body("web", ADA)).await;
        let cookies: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
        assert_eq!(cookies.len(), 1, "{round}");
        assert!(seen.insert(cookies[0].to_str().unwrap().to_owned()));
    }
    let name = browser.cookies.keys().next().unwrap().clone();
    let chosen = challenge();
    for cookie in [format!("{name}={chosen}"), format!("__Host-auth_session_AAAAAAAA={chosen}")] {
        let request = Request::post("/authentication/start").header("content-type", "application/json");
        let answer = world.browser().send(request.header("cookie", cookie), body("web", ADA).to_string()).await;
        assert!(!answer.header("set-cookie").contains(&chosen), "{answer:?}");
        assert_eq!(answer.headers.get_all("set-cookie").iter().count(), 1);
    }
    // a session_id in the body is ignored
    let answer = start(&mut browser, &with(body("web", ADA), &[("session_id", "AAAAAAAAAAAAAAAAAAAAAA")])).await;
    assert_ne!(answer.json()["session_id"], "AAAAAAAAAAAAAAAAAAAAAA");
}

#[tokio::test]
async fn c033_the_fifth_login_of_a_browser_replaces_the_oldest() {
    let world = World::new().await;
    let mut browser = world.browser();
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(browser.start("web", ADA).await);
        world.advance(1);
    }
    let answer = start(&mut browser, &body("web", ADA)).await;
    let set: Vec<_> = answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(set.len(), 2, "{set:?}");
    assert!(set[1].starts_with(&format!("__Host-auth_session_{}=; ", &ids[0][..8])) && set[1].contains("Max-Age=0"));
    assert_eq!(browser.cookies.len(), 4);
    for (place, id) in ids.iter().enumerate() {
        assert_eq!(browser.status(id).await.status, if place == 0 { 401 } else { 200 });
    }
}

#[tokio::test]
async fn c034_the_id_of_a_login_is_useless_without_its_cookie() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    let mut other = world.browser();
    // not even in a browser that has another login
    other.start("web", ADA).await;
    for mut other in [world.browser(), other] {
        for answer in [
            other.status(&id).await,
            other.password("web", &id, "ada", ADA_PASSWORD).await,
            other.ask("web", &id, "email", ADA).await,
            other.verify("web", &id, "000000").await,
            other.complete("web", &id).await,
        ] {
            assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_session"));
        }
    }
    assert_eq!(browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 200);
}

#[tokio::test]
async fn c035_the_number_of_starts_is_limited() {
    // by address, if a quota is set
    let share = |service: tollgate::auth::AuthServiceBuilder| {
        service.abuse_limits(AbuseLimits::new().requests_per_address(Quota::per_minute(10).unwrap()))
    };
    let world = World::with(tollgate::store::Memory::new(), share).await;
    for round in 0..12 {
        let answer = start(&mut world.browser(), &body("web", &format!("user{round}"))).await;
        assert_eq!(answer.status, if round < 10 { 200 } else { 429 }, "{round}");
    }
    // from an address with too many failures
    let world = World::new().await;
    for round in 0..60 {
        let mut browser = world.browser();
        let id = browser.start("web", ADA).await;
        assert_eq!(browser.password("web", &id, &format!("user{round}"), "wrong").await.status, 401, "{round}");
    }
    let refused = start(&mut world.browser(), &body("web", ADA)).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (429, "too_many_attempts"));
    world.advance(61);
    assert_eq!(start(&mut world.browser(), &body("web", ADA)).await.status, 200);
}

#[tokio::test]
async fn c036_two_logins_in_one_browser_are_independent() {
    let world = World::new().await;
    let mut browser = world.browser();
    let first = browser.start("web", ADA).await;
    assert_eq!(browser.password("web", &first, "ada", ADA_PASSWORD).await.status, 200);
    let second = browser.start("mfa", GRACE).await;
    assert_eq!(browser.status(&first).await.json()["status"], "success");
    assert_eq!(browser.status(&second).await.json()["status"], "pending");
    assert_eq!(browser.complete("web", &first).await.status, 200);
    assert!(browser.authorize("web").await.redirected("code").is_some());
    assert_eq!(browser.status(&second).await.json()["status"], "pending");
}
