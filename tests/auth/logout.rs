//! `/logout` (OpenID Connect RP-Initiated Logout).

use std::task::{Context, Waker};

use http::Request;
use tollgate::{
    Client, Session, UserId,
    event::{EventKind, Query},
};

use crate::{
    controlled_store::{FAULTS, Fault},
    issued_tokens::{IssuedTokens, claims},
    special_worlds::{controlled_store_with_keys, world_with},
    world::{Answer, Browser, GRACE, ISSUER, World, form_of, posted},
};

const SESSION: &str = "__Host-session_giszrYfB";
const AFTER: &str = "https://app.example/goodbye";

/// The client `special` has its own page after a logout, and may ask for `offline_access`.
async fn world() -> World {
    world_with(|client: Client| {
        let client = client.after_logout(AFTER).unwrap().after_logout("https://app.example/other?a=1").unwrap();
        client.scopes("openid offline_access").unwrap()
    })
    .await
}

/// Returns a browser where ada is signed in, and the tokens of her client.
async fn signed_in(world: &World) -> (Browser, IssuedTokens) {
    let mut browser = world.browser();
    let issued = browser.tokens("special", "openid").await;
    assert!(browser.cookies.contains_key(SESSION));
    (browser, issued)
}

async fn get(browser: &mut Browser, fields: &[(&str, &str)]) -> Answer {
    browser.send(Request::get(format!("/logout?{}", form_of(fields))).header("accept", "text/html"), "").await
}

/// Posts a form like a page of this site.
async fn post(browser: &mut Browser, site: Option<&str>, origin: Option<&str>, fields: &[(&str, &str)]) -> Answer {
    let request = posted("/logout");
    let request = request.header("accept", "text/html");
    let request = match site {
        Some(site) => request.header("sec-fetch-site", site),
        None => request,
    };
    let request = match origin {
        Some(origin) => request.header("origin", origin),
        None => request,
    };
    browser.send(request, form_of(fields)).await
}

fn asks(answer: &Answer) -> bool {
    answer.status == 200 && answer.text.contains("<h1>Log out?</h1>") && !answer.headers.contains_key("set-cookie")
}

fn is_done(answer: &Answer) -> bool {
    answer.status == 200 && answer.text.contains("<h1>You are logged out</h1>")
}

/// Returns the action and the fields of the form on our own page.
fn form(answer: &Answer) -> (String, Vec<(String, String)>) {
    let attribute = |tag: &str, name: &str| {
        let value = tag.split_once(&format!("{name}=\"")).unwrap().1;
        value[..value.find('"').unwrap()].to_owned()
    };
    let tags = || answer.text.split('<').map(|tag| tag.split('>').next().unwrap());
    let action = tags().find(|tag| tag.starts_with("form ")).map(|tag| attribute(tag, "action")).unwrap();
    let fields = tags().filter(|tag| tag.starts_with("input ") || tag.starts_with("button "));
    (action, fields.map(|tag| (attribute(tag, "name"), attribute(tag, "value").replace("&amp;", "&"))).collect())
}

#[tokio::test]
async fn with_an_id_token_hint_the_session_ends_at_once() {
    let world = world().await;
    let (mut browser, issued) = signed_in(&world).await;
    let session = browser.cookies[SESSION].clone();
    world.advance(3600 / 2);
    let answer =
        get(&mut browser, &[("id_token_hint", issued.id()), ("post_logout_redirect_uri", AFTER), ("state", "a b&c=+")])
            .await;
    let expected = format!("302\nlocation: {AFTER}?state=a+b%26c%3D%2B\nset-cookie: {SESSION}=<secret>; ");
    assert!(answer.own().replace("a%20b", "a+b").starts_with(&expected), "{}", answer.own());
    assert!(answer.header("set-cookie").contains("Max-Age=0"), "{answer:?}");
    assert!(!browser.cookies.contains_key(SESSION));
    // the session itself has ended, not only its cookie, and so have its tokens
    browser.cookies.insert(SESSION.to_owned(), session);
    assert!(is_done(&get(&mut browser, &[]).await), "without a session, there is no question");
    assert_eq!(browser.opens(&world, "special", &issued.access).await, [false; 3]);
    assert_eq!(browser.refresh("special", issued.refresh()).await.error(), "invalid_grant");
    world.log.flush();
    assert_eq!(world.log.read_events(&Query::new().kind(EventKind::TokenRevoked)).events.len(), 1);
}

#[tokio::test]
async fn tokens_with_offline_access_outlive_the_session() {
    let world = world().await;
    let mut browser = world.browser();
    let offline = browser.tokens("special", "openid offline_access").await;
    let narrow = [("client_id", "special"), ("grant_type", "refresh_token"), ("scope", "openid")];
    let narrow = [&narrow[..], &[("refresh_token", offline.refresh())]].concat();
    let narrow = IssuedTokens::of(&browser.form("/token", &narrow).await);
    // the `sid` appears in tokens that are used for logout, but not in access tokens that outlive the session
    for issued in [&offline, &narrow] {
        assert!(claims(&issued.access)["sid"].is_null() && claims(issued.id())["sid"].is_string());
    }
    world.advance(1);
    assert!(is_done(&get(&mut browser, &[("id_token_hint", offline.id())]).await));
    assert_eq!(browser.opens(&world, "special", &offline.access).await, [true; 3]);
    assert_eq!(browser.opens(&world, "special", &narrow.access).await, [true; 3]);
    assert_eq!(browser.refresh("special", narrow.refresh()).await.status, 200);
    // the session of another browser is not affected
    let (_, issued) = signed_in(&world).await;
    let (mut second, _) = signed_in(&world).await;
    let code = second.sign_in("special").await;
    let own = IssuedTokens::of(&second.redeem("special", &code).await);
    assert!(is_done(&get(&mut second, &[("id_token_hint", own.id())]).await));
    assert_eq!(second.opens(&world, "special", &own.access).await, [false; 3]);
    assert_eq!(second.opens(&world, "special", &issued.access).await, [true; 3]);
}

#[tokio::test]
async fn without_a_hint_the_user_is_asked_and_confirms_with_a_button() {
    let world = world().await;
    let (mut browser, issued) = signed_in(&world).await;
    let page =
        get(&mut browser, &[("client_id", "special"), ("post_logout_redirect_uri", AFTER), ("state", "\"><script>&")])
            .await;
    assert!(asks(&page), "{page:?}");
    assert!(!page.text.contains("<script>"));
    let target = AFTER.split('/').take(3).collect::<Vec<_>>().join("/");
    let policy = format!(
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self' {target}; frame-ancestors 'none'"
    );
    let policy = &*policy;
    assert_eq!((page.header("content-security-policy"), page.header("cache-control")), (policy, "no-store"));
    // otherwise the browser would send `Origin: null` with the form
    assert_eq!(page.header("referrer-policy"), "same-origin");
    // the form must not repeat the query of the page
    let (action, fields) = form(&page);
    assert_eq!(action, "logout", "the form posts to the same path without its query");
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (&**name, value.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">")))
        .collect();
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, &**value)).collect();
    assert_eq!(
        fields,
        [
            ("client_id", "special"),
            ("post_logout_redirect_uri", AFTER),
            ("state", "\"><script>&"),
            ("confirmed", "yes")
        ]
    );
    assert_eq!(browser.opens(&world, "special", &issued.access).await, [true; 3]);
    let answer = post(&mut browser, Some("same-origin"), Some(ISSUER), &fields).await;
    // the policy of the page permits this target
    let location = format!("{AFTER}?state=%22%3E%3Cscript%3E%26");
    assert_eq!((answer.status.as_u16(), answer.header("location")), (302, &*location), "{answer:?}");
    assert!(!browser.cookies.contains_key(SESSION));
    assert_eq!(browser.opens(&world, "special", &issued.access).await, [false; 3]);
}

#[tokio::test]
async fn b23_the_policy_of_the_question_lists_the_registered_target_and_no_other() {
    let targets = [
        ("https://app.example:8443/out;a,b?c='d'", Some("https://app.example:8443")),
        ("http://127.0.0.1/out", Some("http://127.0.0.1:51004")),
        ("http://[::1]/out", None),
        ("com.example.app:/out", Some("com.example.app:")),
    ];
    let world = world_with(|client| {
        targets.iter().fold(client.single_sign_on(), |client, (uri, _)| client.after_logout(uri).unwrap())
    })
    .await;
    for (registered, source) in targets {
        let uri = match registered {
            "http://127.0.0.1/out" => "http://127.0.0.1:51004/out",
            other => other,
        };
        let (mut browser, _) = signed_in(&world).await;
        let fields = [("client_id", "special"), ("post_logout_redirect_uri", uri)];
        let page = get(&mut browser, &fields).await;
        let source = source.map(|source| format!(" {source}"));
        let policy = format!(
            "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'{}; frame-ancestors 'none'",
            source.as_deref().unwrap_or_default()
        );
        assert_eq!((asks(&page), page.header("content-security-policy")), (true, &*policy), "{uri}");
        let confirmed = [&fields[..], &[("confirmed", "yes")]].concat();
        let answer = post(&mut browser, Some("same-origin"), Some(ISSUER), &confirmed).await;
        match source {
            Some(_) => assert_eq!((answer.status.as_u16(), answer.header("location")), (302, uri)),
            None => assert!(is_done(&answer) && answer.text.contains(&format!(r#"<a href="{uri}">"#)), "{answer:?}"),
        }
    }
    // a target that is not registered gets no page at all
    for uri in ["https://evil.example", "https://app.example:8443/out", "com.example.app:/other"] {
        let answer = get(&mut world.browser(), &[("client_id", "special"), ("post_logout_redirect_uri", uri)]).await;
        assert_eq!(answer.status, 400, "{uri}");
        assert!(answer.header("content-security-policy").contains("form-action 'none'"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_page_of_another_site_cannot_log_users_out() {
    let world = world().await;
    let (mut browser, issued) = signed_in(&world).await;
    let fields = [("confirmed", "yes"), ("client_id", "special")];
    for (site, origin) in [
        (Some("cross-site"), Some("https://evil.example")),
        (Some("same-site"), Some("https://other.example")),
        (Some("none"), None),
        (None, Some("https://evil.example")),
        (None, Some("null")),
        (None, Some("https://app.example")),
        (Some("cross-site"), Some(ISSUER)),
        (None, None),
    ] {
        let answer = post(&mut browser, site, origin, &fields).await;
        assert!(asks(&answer), "{site:?} {origin:?} {answer:?}");
    }
    for more in [&[("confirmed", "yes")][..], &[], &fields] {
        assert!(asks(&get(&mut browser, more).await));
    }
    assert!(browser.cookies.contains_key(SESSION));
    assert_eq!(browser.opens(&world, "special", &issued.access).await, [true; 3]);
}

#[tokio::test]
async fn a_hint_of_another_issuer_or_client_is_ignored() {
    let world = world().await;
    let (mut browser, issued) = signed_in(&world).await;
    let mut grace = world.browser();
    grace.log_in("web", GRACE).await;
    let code = grace.authorize("web").await.redirected("code").unwrap();
    let of_grace = IssuedTokens::of(&grace.redeem("web", &code.into()).await);
    let (_, elsewhere) = signed_in(&world).await;
    let unsigned = format!("{}.AAAA", issued.id().rsplit_once('.').unwrap().0);
    for hint in [of_grace.id(), elsewhere.id(), &issued.access, &unsigned, "x"] {
        let answer = get(&mut browser, &[("id_token_hint", hint)]).await;
        assert!(asks(&answer), "{answer:?}");
    }
    // the browser is not redirected
    for after in [None, Some(("post_logout_redirect_uri", AFTER))] {
        let fields = [("id_token_hint", of_grace.id()), ("client_id", "special")];
        let answer = get(&mut browser, &fields.into_iter().chain(after).collect::<Vec<_>>()).await;
        assert!(answer.status == 400 && answer.text.contains("belongs to another client than client_id"), "{answer:?}");
    }
    assert!(asks(&get(&mut browser, &[("client_id", "special")]).await));
    // expired id_tokens are accepted
    world.advance(3000);
    assert!(is_done(&get(&mut browser, &[("id_token_hint", issued.id()), ("client_id", "special")]).await));
}

#[tokio::test]
async fn a_request_without_a_session_cookie_removes_no_cookie() {
    let world = world().await;
    let (mut browser, issued) = signed_in(&world).await;
    // browsers withhold cookies from a form of another site, but send them with the redirect that follows
    let session = browser.cookies.remove(SESSION).unwrap();
    let fields = [("confirmed", "yes"), ("client_id", "special")];
    for (site, origin) in [
        (Some("cross-site"), Some("https://evil.example")),
        (Some("cross-site"), None),
        (Some("same-site"), Some("https://other.example")),
        (None, Some("null")),
        (None, None),
    ] {
        let answer = post(&mut browser, site, origin, &fields).await;
        assert_eq!((answer.status.as_u16(), answer.header("location")), (303, "/logout?client_id=special"));
        assert!(!answer.headers.contains_key("set-cookie"), "{site:?} {origin:?} {answer:?}");
    }
    let answer = get(&mut browser, &[]).await;
    assert!(is_done(&answer) && !answer.headers.contains_key("set-cookie"), "{answer:?}");
    let answer = post(&mut browser, Some("same-origin"), Some(ISSUER), &fields).await;
    assert!(is_done(&answer) && !answer.headers.contains_key("set-cookie"), "{answer:?}");
    // a cookie that belongs to no session is removed
    browser.cookies.insert(SESSION.to_owned(), "x".to_owned());
    assert!(get(&mut browser, &[]).await.headers.contains_key("set-cookie"));
    browser.cookies.insert(SESSION.to_owned(), session);
    assert!(asks(&get(&mut browser, &[]).await));
    assert_eq!(browser.opens(&world, "special", &issued.access).await, [true; 3]);
}

#[tokio::test]
async fn a_hint_ends_its_session_even_if_it_is_idle_or_its_cookie_is_missing() {
    for (idle, cookie) in [(false, false), (true, false), (true, true)] {
        let world = world().await;
        let (mut browser, issued) = signed_in(&world).await;
        if idle {
            world.advance(3601);
        }
        let session = browser.cookies.remove(SESSION).unwrap();
        let target = format!("/logout?id_token_hint={}", issued.id());
        assert_eq!(browser.send(Request::head(target), "").await.status, 200);
        let fresh = browser.refresh("special", issued.refresh()).await;
        let (access, refresh) = (IssuedTokens::of(&fresh).access, IssuedTokens::of(&fresh).refresh.unwrap());
        if cookie {
            browser.cookies.insert(SESSION.to_owned(), session.clone());
        }
        let answer =
            post(&mut browser, Some("cross-site"), Some("https://app.example"), &[("id_token_hint", issued.id())])
                .await;
        if cookie {
            assert!(is_done(&answer), "{answer:?}");
        } else {
            assert_eq!((answer.status.as_u16(), answer.header("location")), (303, "/logout?client_id=special"));
        }
        assert_eq!(answer.headers.contains_key("set-cookie"), cookie);
        assert_eq!(browser.opens(&world, "special", &access).await, [false; 3], "{idle}");
        assert_eq!(browser.refresh("special", &refresh).await.error(), "invalid_grant", "{idle}");
        browser.cookies.insert(SESSION.to_owned(), session);
        assert!(is_done(&get(&mut browser, &[]).await), "without a session, there is no question");
        world.log.flush();
        assert_eq!(world.log.read_events(&Query::new().kind(EventKind::TokenRevoked)).events.len(), 1);
    }
}

#[tokio::test]
async fn an_idle_user_is_asked_and_the_tokens_of_the_session_end() {
    let world = world().await;
    let (mut browser, issued) = signed_in(&world).await;
    world.advance(3700);
    let next = IssuedTokens::of(&browser.refresh("special", issued.refresh()).await);
    assert!(asks(&get(&mut browser, &[]).await));
    assert_eq!(browser.opens(&world, "special", &next.access).await, [true; 3]);
    let answer = post(&mut browser, Some("same-origin"), Some(ISSUER), &[("confirmed", "yes")]).await;
    assert!(is_done(&answer) && answer.headers.contains_key("set-cookie"), "{answer:?}");
    assert_eq!(browser.opens(&world, "special", &next.access).await, [false; 3]);
    assert_eq!(browser.refresh("special", next.refresh()).await.error(), "invalid_grant");
    assert!(is_done(&get(&mut browser, &[]).await));
}

/// Returns the session of a browser, as an application sees it.
async fn session_of(world: &World) -> Session {
    let tenant = "acme".parse().unwrap();
    world.sessions.list(&tenant, &UserId::parse("u-ada").unwrap()).await.unwrap().pop().unwrap()
}

#[tokio::test]
async fn a_sign_out_by_the_application_ends_the_same_tokens() {
    let world = world().await;
    let (mut browser, first) = signed_in(&world).await;
    let (mut other, elsewhere) = signed_in(&world).await;
    world.advance(1);
    let second = browser.tokens("special", "openid").await;
    let session = session_of(&world).await;
    assert!(world.service.end_session(&session.sid()).await.unwrap());
    for issued in [&first, &second] {
        assert_eq!(browser.opens(&world, "special", &issued.access).await, [false; 3]);
        assert_eq!(browser.refresh("special", issued.refresh()).await.error(), "invalid_grant");
    }
    assert!(is_done(&get(&mut browser, &[]).await), "the session has ended");
    assert_eq!(other.refresh("special", elsewhere.refresh()).await.status, 200);
}

#[tokio::test]
async fn a_session_with_a_new_secret_continues_and_its_tokens_end_with_it() {
    let world = world().await;
    let (mut browser, issued) = signed_in(&world).await;
    let session = session_of(&world).await;
    let (cookie, renewed) = world.sessions.rotate(&session).await.unwrap().unwrap();
    assert!(world.sessions.rotate(&session).await.unwrap().is_none(), "the session already has a new secret");
    let cookie = cookie.header_value().to_str().unwrap().split([';', '=']).nth(1).unwrap().to_owned();
    browser.cookies.insert(SESSION.to_owned(), cookie);
    assert_eq!(browser.opens(&world, "special", &issued.access).await, [true; 3]);
    assert!(asks(&get(&mut browser, &[]).await));
    assert!(world.service.end_session(&renewed.sid()).await.unwrap());
    assert_eq!(browser.opens(&world, "special", &issued.access).await, [false; 3]);
    assert_eq!(browser.refresh("special", issued.refresh()).await.error(), "invalid_grant");
}

#[tokio::test]
async fn a_hint_of_another_session_ends_only_that_one() {
    let world = world().await;
    let (mut browser, issued) = signed_in(&world).await;
    let (mut other, elsewhere) = signed_in(&world).await;
    // not at another client than the one it was issued to
    let fields = [("id_token_hint", elsewhere.id()), ("client_id", "web")];
    assert_eq!(get(&mut browser, &fields).await.status, 400);
    assert_eq!(other.opens(&world, "special", &elsewhere.access).await, [true; 3]);
    assert!(asks(&get(&mut browser, &[("id_token_hint", elsewhere.id())]).await));
    assert_eq!(other.opens(&world, "special", &elsewhere.access).await, [false; 3]);
    assert_eq!(other.refresh("special", elsewhere.refresh()).await.error(), "invalid_grant");
    assert!(is_done(&get(&mut other, &[]).await), "without a session, there is no question");
    assert_eq!(browser.opens(&world, "special", &issued.access).await, [true; 3]);
    assert_eq!(browser.refresh("special", issued.refresh()).await.status, 200);
}

#[tokio::test]
async fn tokens_end_with_their_session_and_those_of_an_expired_session_when_it_is_replaced() {
    for way in ["hint", "hint without a cookie", "page"] {
        let world = world().await;
        let (mut browser, first) = signed_in(&world).await;
        let (mut other, elsewhere) = signed_in(&world).await;
        let mut all = vec![first];
        // the first session was idle for long before the next one replaced it
        for seconds in [3700, 1] {
            world.advance(seconds);
            all.push(browser.tokens("special", "openid").await);
        }
        world.advance(1);
        assert_eq!(browser.refresh("special", all[0].refresh()).await.error(), "invalid_grant", "{way}");
        assert_eq!(browser.refresh("special", all[1].refresh()).await.status, 200, "the token still works");
        let hint = [("id_token_hint", all[2].id())];
        let answer = match way {
            "hint" => get(&mut browser, &hint).await,
            "page" => post(&mut browser, Some("same-origin"), Some(ISSUER), &[("confirmed", "yes")]).await,
            _ => {
                browser.cookies.remove(SESSION);
                post(&mut browser, Some("cross-site"), None, &hint).await
            }
        };
        assert!(is_done(&answer) || answer.status == 303 && way == "hint without a cookie", "{way} {answer:?}");
        for issued in &all {
            assert_eq!(browser.opens(&world, "special", &issued.access).await, [false; 3], "{way}");
        }
        assert_eq!(browser.refresh("special", all[0].refresh()).await.error(), "invalid_grant", "{way}");
        assert_eq!(other.refresh("special", elsewhere.refresh()).await.status, 200, "{way}");
    }
}

#[tokio::test]
async fn only_the_newest_twenty_sign_ins_of_a_session_keep_tokens_and_all_end_with_it() {
    let world = world().await;
    let (mut browser, first) = signed_in(&world).await;
    let mut all = vec![first];
    for _ in 0..20 {
        world.advance(1);
        all.push(browser.tokens("special", "openid").await);
    }
    let (oldest, rest) = all.split_first().unwrap();
    assert_eq!(browser.opens(&world, "special", &oldest.access).await, [false; 3]);
    assert_eq!(browser.refresh("special", oldest.refresh()).await.error(), "invalid_grant");
    assert_eq!(browser.refresh("special", rest[0].refresh()).await.status, 200);
    assert!(is_done(&get(&mut browser, &[("id_token_hint", all[10].id())]).await));
    for (at, issued) in rest.iter().enumerate() {
        assert_eq!(browser.opens(&world, "special", &issued.access).await, [false; 3], "{at}");
        assert_eq!(browser.refresh("special", issued.refresh()).await.error(), "invalid_grant", "{at}");
    }
}

#[tokio::test]
async fn signing_in_over_another_user_ends_the_tokens_of_their_sessions() {
    let world = world().await;
    let (mut browser, first) = signed_in(&world).await;
    world.advance(1);
    let second = browser.tokens("special", "openid").await;
    let (mut other, elsewhere) = signed_in(&world).await;
    world.advance(1);
    browser.log_in("web", GRACE).await;
    let code = browser.authorize("web").await.redirected("code").unwrap();
    for issued in [first, second] {
        assert_eq!(browser.opens(&world, "special", &issued.access).await, [false; 3]);
        assert_eq!(browser.refresh("special", issued.refresh()).await.error(), "invalid_grant");
    }
    let of_grace = IssuedTokens::of(&browser.redeem("web", &code.into()).await);
    assert_eq!(browser.opens(&world, "web", &of_grace.access).await, [true; 3]);
    assert_eq!(other.refresh("special", elsewhere.refresh()).await.status, 200);
}

/// Something that goes wrong while grace signs in over ada's session.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Store(Fault),
    /// The browser disconnects.
    Disconnect,
}

/// Signs grace in where ada was signed in, with a second login if the first one fails. Afterwards no token of ada may
/// work. Returns whether anything went wrong.
async fn signs_in_over(wrong: Failure, at: usize) -> bool {
    let (store, world) = controlled_store_with_keys().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    world.advance(1);
    let login = async |browser: &mut Browser| {
        let id = browser.start("web", GRACE).await;
        browser.password("web", &id, GRACE, crate::world::GRACE_PASSWORD).await;
        assert_eq!(browser.complete("web", &id).await.status, 200);
    };
    login(&mut browser).await;
    let mut answer = None;
    let went_wrong = match wrong {
        Failure::Store(fault) => {
            store.fail(at, fault);
            answer = Some(browser.authorize("web").await);
            store.heal()
        }
        Failure::Disconnect => {
            store.yields();
            let mut gone = browser.clone();
            let mut call = std::pin::pin!(gone.authorize("web"));
            (0..at).all(|_| call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending())
        }
    };
    if answer.is_none_or(|answer| answer.redirected("code").is_none()) {
        login(&mut browser).await;
        assert!(browser.authorize("web").await.redirected("code").is_some(), "{wrong:?} at {at}");
    }
    assert_eq!(browser.opens(&world, "web", &issued.access).await, [false; 3], "{wrong:?} at {at}");
    assert_eq!(browser.refresh("web", issued.refresh()).await.error(), "invalid_grant", "{wrong:?} at {at}");
    went_wrong
}

#[tokio::test]
async fn no_failure_while_signing_in_over_another_user_keeps_their_tokens_alive() {
    for wrong in FAULTS.map(Failure::Store).into_iter().chain([Failure::Disconnect]) {
        let mut at = 0;
        while signs_in_over(wrong, at).await {
            at += 1;
        }
        assert!(at > 10, "{wrong:?} {at}");
    }
}

#[tokio::test]
async fn after_a_logout_browsers_are_redirected_only_to_registered_uris() {
    let world = world().await;
    let (mut browser, issued) = signed_in(&world).await;
    for uri in [
        "https://evil.example/",
        "https://app.example/goodbye/",
        "https://app.example/goodbye?a=1",
        "https://app.example/goodbye#x",
        "https://app.example/callback",
        "https://app.example/other",
        "javascript:alert(1)",
        "//evil.example",
    ] {
        let fields = [("id_token_hint", issued.id()), ("post_logout_redirect_uri", uri)];
        let answer = get(&mut browser, &fields).await;
        assert_eq!(answer.status, 400, "{uri} {answer:?}");
        assert!(!answer.headers.contains_key("location") && !answer.text.contains("evil"), "{answer:?}");
        let answer = post(&mut browser, None, None, &fields).await;
        assert_eq!((answer.status.as_u16(), answer.headers.get("location")), (400, None), "{uri}");
    }
    // no client is known, or the client has registered none
    for fields in [
        &[("post_logout_redirect_uri", AFTER)][..],
        &[("post_logout_redirect_uri", AFTER), ("client_id", "nobody")],
        &[("post_logout_redirect_uri", AFTER), ("client_id", "web")],
        &[("post_logout_redirect_uri", AFTER), ("client_id", "web"), ("id_token_hint", issued.id())],
        &[("post_logout_redirect_uri", AFTER), ("post_logout_redirect_uri", AFTER), ("client_id", "special")],
        &[("post_logout_redirect_uri", AFTER), ("client_id", "special"), ("state", &"x".repeat(4097))],
    ] {
        let answer = get(&mut browser, fields).await;
        assert_eq!((answer.status.as_u16(), answer.headers.get("location")), (400, None), "{fields:?}");
    }
    assert!(browser.cookies.contains_key(SESSION), "none of these requests ended the session");
    // a registered URI keeps its query
    let fields =
        [("id_token_hint", issued.id()), ("post_logout_redirect_uri", "https://app.example/other?a=1"), ("state", "x")];
    assert_eq!(get(&mut browser, &fields).await.header("location"), "https://app.example/other?a=1&state=x");
    // without a state, none is added
    let fields = [("id_token_hint", issued.id()), ("post_logout_redirect_uri", AFTER)];
    assert_eq!(get(&mut browser, &fields).await.header("location"), AFTER);
}

#[tokio::test]
async fn programs_get_logout_errors_as_json() {
    let world = world().await;
    let mut browser = world.browser();
    let answer = browser.send(Request::get("/logout?state=a&state=b").header("accept", "application/json"), "").await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "invalid_request"));
    let answer = browser.send(Request::post("/logout").header("content-type", "application/json"), "{}").await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (415, "unsupported_media_type"));
    let answer = browser.send(Request::delete("/logout"), "").await;
    assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, "GET, HEAD, POST, OPTIONS"));
}
