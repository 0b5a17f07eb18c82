//! Section C of the checklist: `GET /authentication/status`.

use http::Request;

use crate::world::{ADA, ADA_PASSWORD, ADA_PHONE, NOBODY, World, challenge};

#[tokio::test]
async fn c037_a_missing_cookie_a_wrong_one_and_an_unknown_login_get_the_same_response() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    let (name, secret) = browser.cookies.first_key_value().unwrap();
    let expected = "401\ncontent-type: application/json\nwww-authenticate: Session realm=\"login\"\n\n\
        {\"error\":\"invalid_session\",\"error_description\":\"this browser has no login with this session_id\"}\n";
    for (id, cookie) in [
        (&*id, String::new()),
        (&*id, format!("{name}={}", challenge())),
        (&*id, format!("{name}=")),
        (&*id, format!("{name}=\"{secret}\"")),
        (&*id, format!("{}={secret}", &name[7..])),
        (&*id, format!("__Host-auth_session_AAAAAAAA={secret}")),
        (&*id, format!("{}={secret}", name.to_lowercase())),
        (&*id, format!("{name}={secret}A")),
        ("AAAAAAAAAAAAAAAAAAAAAA", format!("{name}={secret}")),
        (&id[..21], format!("{name}={secret}")),
        (&id[..8], format!("{name}={secret}")),
        ("x", format!("{name}={secret}")),
        ("%00", format!("{name}={secret}")),
        ("..%2F..", format!("{name}={secret}")),
    ] {
        let request = Request::get(format!("/authentication/status?session_id={id}")).header("cookie", &cookie);
        assert_eq!(world.browser().send(request, "").await.own(), expected, "{id} {cookie}");
    }
    assert_eq!(browser.status(&id).await.status, 200);
}

#[tokio::test]
async fn c038_the_status_equals_that_of_the_last_response_and_changes_nothing() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    let shown = |answer: &crate::world::Answer| {
        let mut shown = answer.json();
        shown.as_object_mut().unwrap().remove("challenge");
        shown.to_string()
    };
    let began = browser.status(&id).await;
    let expected = format!(
        "{{\"session_id\":\"{id}\",\"status\":\"pending\",\"completed_steps\":0,\"remaining_steps\":2,\"next_step\":1}}"
    );
    assert_eq!(began.text, expected);
    let opened = browser.ask("mfa", &id, "email", ADA).await;
    assert_eq!(shown(&browser.status(&id).await), shown(&opened));
    let code = world.code(ADA).await;
    let proved = browser.verify("mfa", &id, &code).await;
    assert_eq!(browser.status(&id).await.text, proved.text);
    // an error leaves the status as it was
    browser.verify("mfa", &id, "000000").await;
    assert_eq!(browser.status(&id).await.text, proved.text);
    let last = browser.password("mfa", &id, "ada", ADA_PASSWORD).await;
    assert_eq!(browser.status(&id).await.text, last.text);
    assert_eq!(browser.complete("mfa", &id).await.json()["status"], browser.status(&id).await.json()["status"]);
}

#[tokio::test]
async fn c038_asking_for_the_status_keeps_no_login_alive() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    for minute in 1..=12 {
        world.advance(60);
        let status = browser.status(&id).await.json()["status"].clone();
        assert_eq!(status, if minute < 10 { "pending" } else { "expired" }, "{minute}");
    }
}

#[tokio::test]
async fn c039_the_status_reveals_nothing_about_the_user() {
    let world = World::new().await;
    let mut shown = Vec::new();
    for identifier in [ADA, NOBODY] {
        let mut browser = world.browser();
        let id = browser.start("mfa", identifier).await;
        let before = browser.status(&id).await;
        assert_eq!(before.header("cache-control"), "no-store");
        browser.ask("mfa", &id, "sms", ADA_PHONE).await;
        browser.password("mfa", &id, identifier, "wrong").await;
        let after = browser.status(&id).await;
        for text in [identifier, "ada", ADA_PHONE, "u-ada", "acme", "sms", "password"] {
            assert!(!after.text.contains(text), "{text} {after:?}");
        }
        shown.push((before.whole(), after.whole()));
    }
    assert_eq!(shown[0], shown[1]);
}

#[tokio::test]
async fn c040_an_ended_login_reports_its_end_to_its_browser_for_an_hour() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    world.advance(10 * 60 - 1);
    assert_eq!(browser.status(&id).await.json()["status"], "pending");
    world.advance(1);
    let expired = browser.status(&id).await;
    assert_eq!((expired.status.as_u16(), expired.json()["status"].as_str()), (200, Some("expired")));
    world.advance(3600 - 1);
    assert_eq!(browser.status(&id).await.text, expired.text);
    world.advance(1);
    assert_eq!(browser.status(&id).await.error(), "invalid_session");
}

#[tokio::test]
async fn a_malformed_query_is_reported() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    for query in [
        "".to_owned(),
        "session_id=".into(),
        format!("session_id={id}&session_id={id}"),
        "session_id=%".into(),
        format!("session_id={id}&x=%ff"),
        format!("session_id={id}&session_id="),
    ] {
        let answer = browser.get(&format!("/authentication/status?{query}")).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "invalid_request"), "{query}");
    }
    assert_eq!(browser.get(&format!("/authentication/status?x=1&x=2&session_id={id}")).await.status, 200);
}
