//! Section M of the checklist: throttling, and the format of errors.

use http::Request;

use crate::{
    failing_store::{FailingStore, SAID},
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, GRACE, GRACE_PASSWORD, NOBODY, World, parameters, query, with},
};

async fn wrong(world: &World, username: &str) -> Answer {
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    browser.password("web", &id, username, "wrong").await
}

#[tokio::test]
async fn c110_the_wait_grows_with_each_failure_for_known_and_unknown_users() {
    let mut told = Vec::new();
    for username in ["ada", NOBODY, "grace"] {
        let world = World::new().await;
        let mut answers = Vec::new();
        for _ in 0..5 {
            answers.push(wrong(&world, username).await.whole());
        }
        for wait in [30, 60, 120, 240, 480, 960, 1920, 3600, 3600] {
            let refused = wrong(&world, username).await;
            assert_eq!((refused.status.as_u16(), &*refused.error()), (429, "too_many_attempts"));
            assert_eq!(refused.header("retry-after"), wait.to_string());
            assert_eq!(refused.json()["retry_after"], wait);
            answers.push(refused.whole());
            // further attempts do not extend the wait
            world.advance(wait - 1);
            assert_eq!(wrong(&world, username).await.header("retry-after"), "1");
            world.advance(1);
            answers.push(wrong(&world, username).await.whole());
        }
        told.push(answers);
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0], told[2]);
}

#[tokio::test]
async fn c110_a_success_resets_all_failures() {
    let world = World::new().await;
    for _ in 0..2 {
        for _ in 0..4 {
            assert_eq!(wrong(&world, "ada").await.status, 401);
        }
        let mut browser = world.browser();
        let id = browser.start("web", ADA).await;
        assert_eq!(browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 200);
    }
}

#[tokio::test]
async fn c110_the_same_name_at_two_tenants_is_counted_separately() {
    let world = World::new().await;
    for _ in 0..6 {
        wrong(&world, "ada").await;
    }
    assert_eq!(wrong(&world, "ada").await.status, 429);
    let mut browser = world.browser();
    let id = browser.start("other", ADA).await;
    assert_eq!(browser.password("other", &id, "ada", "wrong").await.status, 401);
    // another spelling of the name does not help
    assert_eq!(wrong(&world, " ADA ").await.status, 429);
}

#[tokio::test]
async fn c111_a_user_locked_out_of_one_method_can_use_another() {
    let world = World::new().await;
    for _ in 0..6 {
        wrong(&world, "ada").await;
        wrong(&world, ADA).await;
    }
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    assert_eq!(browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 429);
    browser.ask("web", &id, "email", ADA).await;
    let code = world.code(ADA).await;
    assert_eq!(browser.verify("web", &id, &code).await.status, 200);
    // and other users are not locked out
    let id = browser.start("web", GRACE).await;
    assert_eq!(browser.password("web", &id, "grace", GRACE_PASSWORD).await.status, 200);
}

#[tokio::test]
async fn c110_an_address_with_too_many_failures_waits_a_minute() {
    let world = World::new().await;
    for round in 0..60 {
        assert_eq!(wrong(&world, &format!("user{round}")).await.status, 401, "{round}");
    }
    let mut browser = world.browser();
    let refused = browser.post("/authentication/start", &with(parameters("web"), &[("identifier", ADA)])).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, "60"));
    browser.address = [192, 0, 2, 2].into();
    let id = browser.start("web", ADA).await;
    assert_eq!(browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 200);
    // the address is counted, not the browser: logins begun elsewhere are refused too
    let id = browser.start("web", ADA).await;
    browser.address = [192, 0, 2, 1].into();
    assert_eq!(browser.password("web", &id, "ada", ADA_PASSWORD).await.error(), "too_many_attempts");
}

#[tokio::test]
async fn c113_every_error_is_json_and_shows_how_to_continue() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    let json = |path: &str| Request::post(path).header("content-type", "application/json");
    let mut answers = vec![
        browser.send(Request::get(format!("/authorize?{}", query("web"))).header("accept", "text/plain"), "").await,
        world
            .browser()
            .send(Request::get(format!("/authorize?{}", query("web"))).header("accept", "text/plain"), "")
            .await,
        browser.get("/authorize").await,
        browser.get("/authentication/start").await,
        world.browser().status(&id).await,
        browser.password("web", &id, "ada", "wrong").await,
        browser.verify("web", &id, "1").await,
        browser.complete("web", &id).await,
        browser.get("/nothing").await,
        browser.get("/").await,
        browser.get("/authentication/status/").await,
        browser.get("/authentication//status").await,
        browser.get("/AUTHORIZE").await,
        browser.send(json("/authorize"), "{}").await,
        browser.send(json("/authentication/start"), "[]").await,
        browser.send(json("/authentication/authenticate"), "{").await,
        browser.send(json("/authentication/verify-otp"), "").await,
        browser.send(Request::post("/authentication/complete"), "{}").await,
        browser.send(json("/authentication/complete").header("content-encoding", "gzip"), "{}").await,
        browser.send(json("/authentication/complete"), " ".repeat(70_000)).await,
    ];
    let allowed = [
        ("/authorize", "GET, HEAD, POST, OPTIONS"),
        ("/authentication/start", "GET, HEAD, POST, OPTIONS"),
        ("/authentication/status", "GET, HEAD, OPTIONS"),
        ("/authentication/authenticate", "POST, OPTIONS"),
        ("/authentication/verify-otp", "POST, OPTIONS"),
        ("/authentication/complete", "POST, OPTIONS"),
        ("/openapi.json", "GET, HEAD, OPTIONS"),
    ];
    for (path, allow) in allowed {
        for method in ["PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "BREW"] {
            let answer = browser.send(Request::builder().method(method).uri(path), "").await;
            assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, allow), "{method} {path}");
            answers.push(answer);
        }
        let options = browser.send(Request::options(path), "").await;
        assert_eq!(options.own(), format!("204\nallow: {allow}\n"));
    }
    for answer in answers {
        if answer.status == 302 {
            continue;
        }
        assert!(answer.status.is_client_error(), "{answer:?}");
        assert_eq!(answer.header("content-type"), "application/json");
        assert!(!answer.error().is_empty(), "{answer:?}");
        assert!(answer.json()["error_description"].is_string(), "{answer:?}");
        let challenge = if answer.status == 401 { "Session realm=\"login\"" } else { "" };
        assert_eq!(answer.header("www-authenticate"), challenge, "{answer:?}");
        assert_eq!(answer.header("allow").is_empty(), answer.status != 405);
        answer.own();
    }
}

/// The outcome of a login by password and text message whose store fails after a number of operations.
struct Failed {
    world: World,
    answers: Vec<Answer>,
    /// Whether the store was called often enough to fail.
    has_failed: bool,
    /// The status of the login before and after.
    stood: [String; 2],
}

async fn login(call: usize, things: i64, once: bool) -> Failed {
    let failing = FailingStore::new();
    let world = World::with(failing.clone(), |service| service).await;
    let mut browser = world.browser();
    let (mut answers, mut id, mut has_failed) = (Vec::new(), String::new(), false);
    let mut stood = [String::new(), String::new()];
    for at in 0..8 {
        if at == call {
            stood[0] = browser.status(&id).await.text;
            failing.fail_after(things, once);
        }
        let answer = match at {
            0 => browser.post("/authentication/start", &with(parameters("mfa"), &[("identifier", ADA)])).await,
            1 => browser.status(&id).await,
            2 => browser.password("mfa", &id, "ada", ADA_PASSWORD).await,
            3 => browser.ask("mfa", &id, "sms", ADA_PHONE).await,
            4 => {
                world.settle().await;
                let code =
                    world.outbox.messages().last().map_or_else(|| "000000".into(), |sent| sent.code().to_owned());
                browser.verify("mfa", &id, &code).await
            }
            5 => browser.complete("mfa", &id).await,
            // the sixth call, and a repetition
            _ => browser.authorize("mfa").await,
        };
        if at == call {
            has_failed = failing.has_failed();
            failing.repair();
            stood[1] = browser.status(&id).await.text;
        }
        if at == 0 && answer.status == 200 {
            id = answer.json()["session_id"].as_str().unwrap().to_owned();
        }
        answers.push(answer);
    }
    Failed { world, answers, has_failed, stood }
}

#[tokio::test]
async fn c114_a_failing_store_grants_nothing_and_reveals_nothing() {
    for call in 0..7 {
        for once in [true, false] {
            let mut things = 0;
            while fails(call, things, once).await {
                things += 1;
            }
            assert!(things > 0, "{call}");
        }
    }
}

/// Fails one operation of the login. Returns whether there is such an operation.
async fn fails(call: usize, things: i64, once: bool) -> bool {
    let Failed { world, answers, has_failed, stood } = login(call, things, once).await;
    if !has_failed {
        assert!(answers[6].redirected("code").is_some(), "{call} {answers:?}");
        return false;
    }
    let place = format!("call {call} after {things}, once: {once}: {answers:?}");
    let answer = &answers[call];
    let text = format!("{answer:?} {:?}", world.log.read_events(&tollgate::event::Query::new()));
    assert!(!text.contains("relation") && !text.contains("hunter2") && !text.contains(SAID), "{text}");
    if call == 6 {
        // a browser is redirected, as for any other error
        assert_eq!(answer.redirected("error").as_deref(), Some("temporarily_unavailable"), "{place}");
        assert_eq!((answer.redirected("code"), answer.header("set-cookie")), (None, ""));
    } else if answer.status != 200 {
        let expected = "503\ncontent-type: application/json\nretry-after: 1\n\n\
            {\"error\":\"temporarily_unavailable\",\"error_description\":\"temporarily unavailable, please try again\",\
            \"retry_after\":1}\n";
        assert_eq!(answer.own(), expected, "{place}");
        assert_eq!(answer.header("set-cookie"), "");
        assert_eq!(stood[0], stood[1], "{place}");
    }
    // afterwards there is at most one code, and only if all steps are done
    let codes = answers.iter().filter(|answer| answer.redirected("code").is_some()).count();
    assert!(codes <= 1, "{place}");
    if codes == 1 {
        assert!([2, 4, 5].iter().all(|step| answers[*step].status == 200), "{place}");
    }
    true
}
