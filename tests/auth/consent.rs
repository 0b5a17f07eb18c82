//! Third-party clients: the page that asks, the stored decision, and its revocation.

use http::Request;
use serde_json::{Value, json};
use tollgate::{
    Client, ClientTable, Tokens, UserId,
    event::{EventKind, Query},
    policy::Policy,
    store::{AnyStore, Key, Memory},
    testing::ManualClock,
};

use crate::{
    consent_pages::{decide, field, is_question, send},
    issued_tokens::IssuedTokens,
    matrix::{Case, compare, table},
    own_account::{acme, call, credentials, sign_in},
    pushed::pushed,
    special_worlds::{client, put_keys},
    token_requests::{Grant, is_no_grant},
    wire_text::after,
    world::{ADA, Answer, Browser, CALLBACK, GRACE, World, clients, form_of, posted, query_of, with},
};

const SCOPES: &str = "openid profile email phone invoices:read offline_access";

/// The clients of the world, `partner` and `other-partner` of somebody else, `quick` of somebody else with single sign-on,
/// `buyer` of somebody else with APIs, and an app of somebody else.
fn with_partners() -> ClientTable {
    let partner = |id: &str| client(id).scopes(SCOPES).unwrap().third_party();
    let all = clients().iter().map(|client| Client::clone(client)).collect::<Vec<_>>();
    let app = Client::new("app", acme()).unwrap().redirect_uri("http://[::1]/callback").unwrap();
    let more = [
        partner("partner").name("Partner & Co").unwrap(),
        partner("other-partner"),
        partner("quick").single_sign_on(),
        partner("local").single_sign_on().redirect_uri("http://127.0.0.1/callback").unwrap(),
        partner("buyer").audience("https://invoices.example").unwrap().resource("https://orders.example").unwrap(),
        partner("strict").single_sign_on().policy(Policy::any(2).unwrap()),
        app.scopes("openid").unwrap().third_party(),
    ];
    ClientTable::new(all.into_iter().chain(more)).unwrap()
}

async fn world() -> World {
    let store = AnyStore::from(Memory::new());
    put_keys(&store).await;
    let site = |service: tollgate::auth::AuthServiceBuilder| service.first_party(acme());
    World::made(store, ManualClock::new(), with_partners(), Tokens::new(), site).await
}

/// A request that a browser has made, and the verifier of its code.
#[derive(Clone)]
struct Asked {
    query: String,
    verifier: String,
}

impl Asked {
    /// Logs ada in for this request.
    async fn of(browser: &mut Browser, client: &str, more: &[(&str, &str)]) -> Self {
        let (own, verifier) = browser.log_in_with(client, more).await;
        Self { query: query_of(&with(own, &[("state", "xyz")])), verifier }
    }

    async fn open(&self, browser: &mut Browser) -> Answer {
        browser.get(&format!("/authorize?{}", self.query)).await
    }

    fn grant(&self, answer: &Answer) -> Grant {
        let code = answer.redirected("code").unwrap_or_else(|| panic!("no code: {answer:?}"));
        Grant { code, verifier: self.verifier.clone() }
    }
}

/// Logs ada in to a client, and allows it what it asks for.
async fn allowed(browser: &mut Browser, client: &str, more: &[(&str, &str)]) -> IssuedTokens {
    let asked = Asked::of(browser, client, more).await;
    let page = asked.open(browser).await;
    let answer = decide(browser, &page, "allow").await;
    IssuedTokens::of(&browser.redeem(client, &asked.grant(&answer)).await)
}

fn counted(world: &World, kind: EventKind) -> usize {
    world.log.flush();
    world.log.read_events(&Query::new().kind(kind)).events.len()
}

async fn consents(world: &World, browser: &Browser) -> Value {
    // the session of the login is one of the site, too
    let mut browser = browser.clone();
    assert!(!world.sessions.list(&acme(), &UserId::parse("u-ada").unwrap()).await.unwrap().is_empty());
    credentials(&mut browser).await["consents"].take()
}

async fn revoke(browser: &mut Browser, client: &str) -> Answer {
    call(browser, "consents/revoke", json!({ "client_id": client })).await
}

#[tokio::test]
async fn c134_a_third_party_client_gets_a_code_only_after_the_user_allows_it() {
    let world = world().await;
    let mut browser = world.browser();
    let asked = Asked::of(&mut browser, "partner", &[("scope", "openid email")]).await;
    let page = asked.open(&mut browser).await;
    assert!(is_question(&page), "{page:?}");
    assert_eq!(
        page.header("content-security-policy"),
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self' https://app.example; frame-ancestors 'none'"
    );
    assert_eq!((page.header("x-frame-options"), page.header("cache-control")), ("DENY", "no-store"));
    assert_eq!(page.header("referrer-policy"), "same-origin");
    for part in ["Allow Partner &amp; Co access to your account?", "as ada.", "(app.example)", "your e-mail address"] {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }
    assert!(!page.text.contains("phone number") && !page.text.contains("xyz</"), "{}", page.text);
    // asking has changed nothing: no session, no code
    assert!(world.sessions.list(&acme(), &UserId::parse("u-ada").unwrap()).await.unwrap().is_empty());
    assert_eq!(counted(&world, EventKind::CodeIssued), 0);
    assert!(is_question(&asked.open(&mut browser).await));

    let answer = decide(&mut browser, &page, "allow").await;
    assert_eq!(answer.status, 303, "{answer:?}");
    assert!(answer.header("location").starts_with(CALLBACK), "{answer:?}");
    assert_eq!(answer.redirected("state").as_deref(), Some("xyz"));
    let issued = IssuedTokens::of(&browser.redeem("partner", &asked.grant(&answer)).await);
    assert_eq!(issued.scope, "email openid");
    assert_eq!(counted(&world, EventKind::ConsentGiven), 1);
    // from now on, the same or less needs no page
    for scope in ["openid email", "openid"] {
        let asked = Asked::of(&mut browser, "partner", &[("scope", scope)]).await;
        assert_eq!(asked.open(&mut browser).await.status, 302, "{scope}");
    }
    // more does, by scope and by claim, and so do another client, another user and `prompt=consent`
    for more in [
        [("scope", "openid phone"), ("prompt", "login")],
        [("scope", "openid"), ("claims", r#"{"userinfo":{"phone_number":null}}"#)],
        [("scope", "openid"), ("claims", r#"{"id_token":{"favourite_colour":null}}"#)],
        [("scope", "openid"), ("prompt", "consent")],
    ] {
        let asked = Asked::of(&mut browser, "partner", &more).await;
        assert!(is_question(&asked.open(&mut browser).await), "{more:?}");
    }
    let asked = Asked::of(&mut browser, "other-partner", &[("scope", "openid")]).await;
    assert!(is_question(&asked.open(&mut browser).await));
    // clients of one's own ask nothing, also with `prompt=consent`, which the login page has confirmed
    let asked = Asked::of(&mut browser, "web", &[("prompt", "consent")]).await;
    assert_eq!(asked.open(&mut browser).await.status, 302);
}

#[tokio::test]
async fn c134_the_page_shows_what_is_asked_for_in_words_and_in_german() {
    let world = world().await;
    let mut browser = world.browser();
    let claims = r#"{"id_token":{"email":null,"favourite_<b>":null},"userinfo":{"name":null}}"#;
    let more = [("scope", SCOPES), ("claims", claims)];
    let asked = Asked::of(&mut browser, "partner", &more).await;
    let lines = |page: &Answer| -> Vec<String> {
        page.text.split("<li>").skip(1).map(|rest| rest.split("</li>").next().unwrap().to_owned()).collect()
    };
    let page = asked.open(&mut browser).await;
    let expected = [
        "your e-mail address",
        "the permission <code>invoices:read</code>",
        "your data while you are away",
        "your identity",
        "your phone number",
        "your name",
        "<code>favourite_&lt;b&gt;</code> of your account",
    ];
    assert_eq!(lines(&page), expected, "each once");
    let german = Asked { query: format!("{}&ui_locales=de", asked.query), ..asked };
    let page = german.open(&mut browser).await;
    assert!(page.text.contains("<html lang=\"de\">"), "{page:?}");
    assert_eq!(lines(&page)[0], "Ihre E-Mail-Adresse");
}

#[tokio::test]
async fn c135_the_audience_of_tokens_without_a_resource_is_shown_and_decided_like_one() {
    let world = world().await;
    let mut browser = world.browser();
    let (default, other) =
        ("access to <code>https://invoices.example</code>", "access to <code>https://orders.example</code>");
    let orders = [("resource", "https://orders.example")];
    let asked = Asked::of(&mut browser, "buyer", &orders).await;
    let page = asked.open(&mut browser).await;
    assert!(page.text.contains(other) && !page.text.contains(default), "{page:?}");
    assert!(decide(&mut browser, &page, "allow").await.redirected("code").is_some());
    // a decision about one API does not count for the other
    let asked = Asked::of(&mut browser, "buyer", &[]).await;
    let page = asked.open(&mut browser).await;
    assert!(page.text.contains(default) && !page.text.contains(other), "{page:?}");
    let answer = decide(&mut browser, &page, "allow").await;
    let issued = IssuedTokens::of(&browser.redeem("buyer", &asked.grant(&answer)).await);
    assert_eq!(browser.refresh("buyer", issued.refresh()).await.status, 200);
    for more in [&orders[..], &[]] {
        assert_eq!(Asked::of(&mut browser, "buyer", more).await.open(&mut browser).await.status, 302, "{more:?}");
    }
    let given = consents(&world, &browser).await;
    assert_eq!(given[0]["resources"], json!(["https://invoices.example", "https://orders.example"]));
    // the scopes describe tokens for the service itself
    let page = Asked::of(&mut browser, "partner", &[]).await.open(&mut browser).await;
    assert!(is_question(&page) && !page.text.contains("access to <code>"), "{page:?}");
}

#[tokio::test]
async fn c134_a_user_who_does_not_allow_it_returns_with_access_denied() {
    let world = world().await;
    let mut browser = world.browser();
    let asked = Asked::of(&mut browser, "partner", &[]).await;
    let page = asked.open(&mut browser).await;
    let answer = decide(&mut browser, &page, "deny").await;
    assert_eq!(answer.status, 303);
    assert!(answer.header("location").starts_with(CALLBACK), "{answer:?}");
    let told = ["error", "state", "iss", "code"].map(|name| answer.redirected(name));
    assert_eq!(told[0].as_deref(), Some("access_denied"));
    assert_eq!((told[1].as_deref(), told[2].is_some(), &told[3]), (Some("xyz"), true, &None));
    // nothing is stored, so the next request asks again
    assert!(is_question(&asked.open(&mut browser).await));
    assert_eq!(counted(&world, EventKind::ConsentGiven), 0);
}

#[tokio::test]
async fn c134_without_a_page_the_answer_is_consent_required() {
    let world = world().await;
    let mut browser = world.browser();
    // signed in at another client
    browser.log_in("web", ADA).await;
    browser.authorize("web").await;
    let silent = async |browser: &mut Browser, scope: &str| {
        let asked = Asked {
            query: query_of(&with(crate::world::parameters("quick"), &[("scope", scope), ("prompt", "none")])),
            verifier: String::new(),
        };
        let answer = asked.open(browser).await;
        answer.redirected("error").unwrap_or_else(|| answer.redirected("code").map(|_| "none".to_owned()).unwrap())
    };
    assert_eq!(silent(&mut browser, "openid").await, "consent_required");
    // the session is enough to be asked, without a new login
    let asked = Asked { query: query_of(&crate::world::parameters("quick")), verifier: String::new() };
    let page = asked.open(&mut browser).await;
    assert!(decide(&mut browser, &page, "allow").await.redirected("code").is_some());
    assert_eq!(silent(&mut browser, "openid").await, "none");
    assert_eq!(silent(&mut browser, "openid email").await, "consent_required");
    // what a login lacks comes first
    assert_eq!(silent(&mut world.browser(), "openid").await, "login_required");
    // a program gets no page
    let program = Request::get(format!("/authorize?{}", asked.query)).header("sec-fetch-mode", "cors");
    let answer = world.browser().send(program, "").await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "login_required"));
}

#[tokio::test]
async fn c134_a_decision_counts_for_its_request_its_user_and_its_browser_only() {
    let world = world().await;
    let mut browser = world.browser();
    let asked = Asked::of(&mut browser, "partner", &[("scope", "openid")]).await;
    let page = asked.open(&mut browser).await;
    let ticket = field(&page, "ticket");
    // for another request of this browser: of more scopes, or of another client
    for (client, more) in [("partner", [("scope", "openid email")]), ("other-partner", [("scope", "openid")])] {
        let other = Asked::of(&mut browser, client, &more).await;
        assert!(is_question(&send(&mut browser, &other.query, &ticket, "allow").await), "{client}");
        // no is always no
        let denied = send(&mut browser, &other.query, &ticket, "deny").await;
        assert_eq!(denied.redirected("error").as_deref(), Some("access_denied"), "{client}");
    }
    // for another parameter of this request
    let changed = asked.query.replace("xyz", "abc");
    assert!(is_question(&send(&mut browser, &changed, &ticket, "allow").await));
    // in another browser, whose user asks for the very same, and in none
    let mut thief = world.browser();
    let challenge = asked.query.split("code_challenge=").nth(1).unwrap().split('&').next().unwrap();
    let challenge = challenge.replace("%2D", "-").replace("%5F", "_");
    let own = with(crate::world::parameters("partner"), &[("code_challenge", &challenge)]);
    let id = {
        let started = thief.post("/authentication/start", &with(own.clone(), &[("identifier", GRACE)])).await;
        started.json()["session_id"].as_str().unwrap().to_owned()
    };
    let fields =
        [("session_id", &*id), ("method", "password"), ("username", GRACE), ("password", crate::world::GRACE_PASSWORD)];
    assert_eq!(thief.post("/authentication/authenticate", &with(own.clone(), &fields)).await.status, 200);
    assert_eq!(thief.post("/authentication/complete", &with(own.clone(), &fields[..1])).await.status, 200);
    assert!(is_question(&send(&mut thief, &asked.query, &ticket, "allow").await));
    let none = send(&mut world.browser(), &asked.query, &ticket, "allow").await;
    assert!(none.status == 303 && none.header("location").starts_with("/authentication/start?"), "{none:?}");
    // made-up tickets
    let (ends, seal) = ticket.split_once('.').unwrap();
    let later = ends.parse::<u64>().unwrap() + 1;
    for bad in ["", "x", ends, &format!("{later}.{seal}"), &format!("{ends}.{}", "A".repeat(43)), &format!("{ticket}A")]
    {
        assert!(is_question(&send(&mut browser, &asked.query, bad, "allow").await), "{bad}");
    }
    assert_eq!(counted(&world, EventKind::ConsentGiven), 0);
    // the page can be answered for ten minutes, but a login for five
    world.advance(299);
    assert!(decide(&mut browser, &page, "allow").await.redirected("code").is_some());
    let mut browser = world.browser();
    browser.log_in("web", ADA).await;
    browser.authorize("web").await;
    let asked = Asked { query: query_of(&crate::world::parameters("quick")), verifier: String::new() };
    let page = asked.open(&mut browser).await;
    world.advance(600);
    assert!(is_question(&decide(&mut browser, &page, "allow").await));
}

#[tokio::test]
async fn c134_a_refusal_counts_after_the_login_and_users_who_allow_too_late_are_told_why_they_sign_in_again() {
    let world = world().await;
    let mut browser = world.browser();
    let asked = Asked::of(&mut browser, "partner", &[]).await;
    let page = asked.open(&mut browser).await;
    world.advance(301);
    let late = decide(&mut browser, &page, "allow").await;
    let login_page = format!("/authentication/start?{}#consent=late", asked.query);
    assert_eq!((late.status.as_u16(), late.header("location")), (303, &*login_page));
    // in this browser, and in one that has lost its cookies
    for mut browser in [browser.clone(), world.browser()] {
        let denied = decide(&mut browser, &page, "deny").await;
        assert!(denied.status == 303 && denied.header("location").starts_with(CALLBACK), "{denied:?}");
        let told = ["error", "state", "iss", "code"].map(|name| denied.redirected(name));
        let expected = [Some("access_denied"), Some("xyz"), Some(crate::world::ISSUER), None];
        assert_eq!(told.each_ref().map(Option::as_deref), expected);
    }
    // a request that is not valid is not answered for the user
    let wrong = send(&mut browser, &asked.query.replace("S256", "plain"), "", "deny").await;
    assert_eq!(wrong.redirected("error").as_deref(), Some("invalid_request"), "{wrong:?}");
    assert_eq!((counted(&world, EventKind::ConsentGiven), counted(&world, EventKind::CodeIssued)), (0, 0));
    // the next login is asked again
    let asked = Asked::of(&mut browser, "partner", &[]).await;
    let page = asked.open(&mut browser).await;
    assert!(decide(&mut browser, &page, "allow").await.redirected("code").is_some());
}

#[tokio::test]
async fn c134_only_the_page_itself_can_send_the_decision() {
    let world = world().await;
    let mut browser = world.browser();
    let asked = Asked::of(&mut browser, "partner", &[]).await;
    let page = asked.open(&mut browser).await;
    let fields =
        |decision| form_of(&[("request", &asked.query), ("ticket", &field(&page, "ticket")), ("decision", decision)]);
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "none"),
        ("origin", "https://app.example"),
        ("origin", "null"),
        ("x-nothing", ""),
    ] {
        let answer = browser.send(posted("/consent").header(name, value), fields("allow")).await;
        assert_eq!((answer.status.as_u16(), answer.headers.get("location")), (403, None), "{name} {value} {answer:?}");
    }
    for wrong in ["", "maybe"] {
        let answer = browser.send(posted("/consent").header("sec-fetch-site", "same-origin"), fields(wrong)).await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
    assert_eq!(browser.get(&format!("/consent?{}", fields("allow"))).await.status, 405);
    let own = posted("/consent").header("origin", crate::world::ISSUER);
    assert!(browser.send(own, fields("allow")).await.redirected("code").is_some());
}

#[tokio::test]
async fn c134_a_pushed_request_is_asked_about_and_answered_once() {
    let world = world().await;
    let mut browser = world.browser();
    browser.log_in("partner", ADA).await;
    let named = pushed(&mut browser, "partner", "nonce=n").await;
    let open = async |browser: &mut Browser| browser.get(&format!("/authorize?{named}")).await;
    let page = open(&mut browser).await;
    assert!(!page.text.contains("nonce"), "{}", page.text);
    let answer = decide(&mut browser, &page, "allow").await;
    assert!(answer.redirected("code").is_some(), "{answer:?}");
    let again = decide(&mut browser, &page, "allow").await;
    assert_eq!((again.status.as_u16(), again.headers.get("location")), (400, None), "{again:?}");
}

#[tokio::test]
async fn c134_decisions_are_listed_and_revoking_one_ends_the_tokens_of_its_client() {
    let world = world().await;
    let mut browser = world.browser();
    let claims = r#"{"userinfo":{"favourite_colour":null}}"#;
    let offline = [("scope", "openid offline_access"), ("claims", claims)];
    let partner = allowed(&mut browser, "partner", &offline).await;
    world.advance(10);
    let elsewhere = allowed(&mut world.browser(), "partner", &[("prompt", "consent")]).await;
    let other = allowed(&mut browser, "other-partner", &[]).await;
    let own = browser.tokens("web", "openid").await;
    let now = world.time().as_secs();
    let consent = |id: &str, name: &str, scopes: &[&str], claims: &[&str]| json!({ "client_id": id, "client_name": name, "given_at": now, "scopes": scopes, "claims": claims, "resources": [] });
    let of_other = consent("other-partner", "other-partner", &["openid"], &[]);
    let of_partner = consent("partner", "Partner & Co", &["offline_access", "openid"], &["favourite_colour"]);
    assert_eq!(consents(&world, &browser).await, json!([of_other, of_partner]));
    // a code that is not exchanged yet
    let asked = Asked::of(&mut browser, "partner", &[]).await;
    let pending = asked.open(&mut browser).await;

    let mut grace = world.browser();
    grace.log_in("web", GRACE).await;
    grace.authorize("web").await;
    assert_eq!(revoke(&mut grace, "partner").await.status, 404, "another user has not decided");
    for unknown in ["web", "nobody", ""] {
        assert_eq!(revoke(&mut browser, unknown).await.status, 404, "{unknown}");
    }
    assert_eq!(call(&mut browser, "consents/revoke", json!({})).await.error(), "invalid_request");
    assert_eq!(browser.introspect("partner", &partner.access).await["active"], true);

    let answer = revoke(&mut browser, "partner").await;
    assert_eq!((answer.status.as_u16(), &*answer.text), (204, ""));
    assert_eq!(counted(&world, EventKind::ConsentRevoked), 1);
    for tokens in [&partner, &elsewhere] {
        assert_eq!(browser.introspect("partner", &tokens.access).await, json!({ "active": false }));
        assert_eq!(browser.with_token("/userinfo", &tokens.access).await.status, 401);
        assert!(is_no_grant(&browser.refresh("partner", tokens.refresh()).await));
    }
    assert!(is_no_grant(&browser.redeem("partner", &asked.grant(&pending)).await));
    assert_eq!(browser.introspect("other-partner", &other.access).await["active"], true);
    assert_eq!(browser.introspect("web", &own.access).await["active"], true);
    assert_eq!(consents(&world, &browser).await, json!([of_other]));
    assert_eq!(revoke(&mut browser, "partner").await.status, 404);
    // the application sees and does the same
    let ada = UserId::parse("u-ada").unwrap();
    let listed = world.service.consents(&acme(), &ada).await.unwrap();
    assert_eq!(listed.iter().map(tollgate::auth::Consent::client_id).collect::<Vec<_>>(), ["other-partner"]);
    assert_eq!((listed[0].scopes().collect::<Vec<_>>(), listed[0].resources().count()), (vec!["openid"], 0));
    allowed(&mut world.browser(), "quick", &[]).await;
    let withdraw = async || world.service.withdraw_consent(&acme(), &ada, "quick").await.unwrap();
    assert!(withdraw().await && !withdraw().await);
    // it asks again
    let asked = Asked::of(&mut browser, "partner", &[]).await;
    assert!(is_question(&asked.open(&mut browser).await));
    // the end of everything that a user has begun is no decision about clients, the end of the user is
    world.service.end_user(&acme(), &ada).await.unwrap();
    let mut browser = world.browser();
    let asked = Asked::of(&mut browser, "other-partner", &[]).await;
    assert_eq!(asked.open(&mut browser).await.status, 302);
    world.service.forget_user(&acme(), &ada).await.unwrap();
    let asked = Asked::of(&mut browser, "other-partner", &[]).await;
    assert!(is_question(&asked.open(&mut browser).await));
}

#[tokio::test]
async fn c134_users_who_delete_their_account_take_their_decisions_and_tokens_with_them() {
    let world = world().await;
    let mut browser = world.browser();
    let tokens = allowed(&mut browser, "partner", &[("scope", "openid offline_access")]).await;
    let ada = UserId::parse("u-ada").unwrap();
    let row = || async {
        let key = Key::new("consents", Some(&acme()), b"u-ada").unwrap();
        let found = world.store.get(&key).wait().await.unwrap();
        found.filter(|row| row.expires_at > world.time())
    };
    assert!(row().await.is_some());
    let mut own = sign_in(&world, ADA, &["password", "email"]).await;
    assert_eq!(call(&mut own, "delete", json!({ "confirmed": true })).await.status, 204);
    assert!(row().await.is_none());
    assert!(world.service.consents(&acme(), &ada).await.unwrap().is_empty());
    assert!(is_no_grant(&browser.refresh("partner", tokens.refresh()).await));
    assert_eq!(browser.introspect("partner", &tokens.access).await, json!({ "active": false }));
}

#[tokio::test]
async fn c134_a_narrower_decision_is_no_way_around_the_wider_one() {
    let world = world().await;
    let mut browser = world.browser();
    let first = allowed(&mut browser, "partner", &[("scope", "openid email")]).await;
    // a second decision counts next to the first, so the tokens of both work
    let second = allowed(&mut browser, "partner", &[("scope", "openid phone")]).await;
    for tokens in [&first, &second] {
        assert_eq!(browser.refresh("partner", tokens.refresh()).await.status, 200);
    }
    // together they are no decision about both at once
    let both = Asked::of(&mut browser, "partner", &[("scope", "openid email phone")]).await;
    assert!(is_question(&both.open(&mut browser).await));
    // after a revocation, a decision about less does not revive a code for more
    let asked = Asked::of(&mut browser, "partner", &[("scope", "openid email")]).await;
    let pending = asked.open(&mut browser).await;
    assert_eq!(revoke(&mut browser, "partner").await.status, 204);
    allowed(&mut browser, "partner", &[("scope", "openid")]).await;
    assert!(is_no_grant(&browser.redeem("partner", &asked.grant(&pending)).await));
}

#[tokio::test]
async fn c134_a_user_who_was_ended_or_forgotten_decides_nothing() {
    let ada = UserId::parse("u-ada").unwrap();
    for (is_session, forgets) in [(false, false), (false, true), (true, true)] {
        let world = world().await;
        let mut browser = world.browser();
        let asked = if is_session {
            browser.log_in("web", ADA).await;
            browser.authorize("web").await;
            Asked { query: query_of(&crate::world::parameters("quick")), verifier: String::new() }
        } else {
            Asked::of(&mut browser, "quick", &[]).await
        };
        let page = asked.open(&mut browser).await;
        match forgets {
            true => world.service.forget_user(&acme(), &ada).await.unwrap(),
            false => world.service.end_user(&acme(), &ada).await.unwrap(),
        };
        let answer = decide(&mut browser, &page, "allow").await;
        assert_eq!(answer.redirected("code"), None, "{answer:?}");
        assert_eq!(counted(&world, EventKind::ConsentGiven), 0, "{answer:?}");
        let mut browser = world.browser();
        assert!(is_question(&Asked::of(&mut browser, "quick", &[]).await.open(&mut browser).await));
    }
}

#[tokio::test]
async fn c134_a_target_that_no_policy_can_name_gets_a_link() {
    let world = world().await;
    let mut browser = world.browser();
    let more = [("redirect_uri", "http://[::1]:9/callback"), ("scope", "openid")];
    let asked = Asked::of(&mut browser, "app", &more).await;
    let page = asked.open(&mut browser).await;
    assert!(page.header("content-security-policy").contains("form-action 'self';"), "{page:?}");
    assert!(page.text.contains("a program on this device"), "{}", page.text);
    let answer = decide(&mut browser, &page, "allow").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.text.contains(r#"<a href="http://[::1]:9/callback?code="#), "{}", answer.text);
    assert!(browser.cookies.keys().any(|name| name.starts_with("__Host-session_")));
}

#[tokio::test]
async fn c134_a_signed_in_user_is_asked_once_about_a_program_on_the_device() {
    let world = world().await;
    let mut browser = world.browser();
    browser.log_in("web", ADA).await;
    browser.authorize("web").await;
    let [asked, other] = ["xyz", "abc"].map(|state| {
        let more = [("redirect_uri", "http://127.0.0.1:9/callback"), ("state", state)];
        Asked { query: query_of(&with(crate::world::parameters("local"), &more)), verifier: String::new() }
    });
    let page = asked.open(&mut browser).await;
    let login_page = format!("/authentication/start?{}", asked.query);
    assert!(page.text.contains(&format!(r#"<a href="{}">"#, login_page.replace('&', "&amp;"))), "{page:?}");
    assert!(decide(&mut browser, &page, "allow").await.redirected("code").is_some());
    // then the login page asks before each silent code, and the answer to one request confirms no other
    let next = other.open(&mut browser).await;
    assert!(next.header("location").starts_with("/authentication/start?"), "{next:?}");
    let next = send(&mut browser, &other.query, &field(&page, "ticket"), "allow").await;
    assert!(next.header("location").starts_with("/authentication/start?"), "{next:?}");
}

#[tokio::test]
async fn c134_more_steps_come_before_the_question() {
    let world = world().await;
    let mut browser = world.browser();
    browser.log_in("web", ADA).await;
    browser.authorize("web").await;
    let asked = Asked { query: query_of(&crate::world::parameters("strict")), verifier: String::new() };
    let answer = asked.open(&mut browser).await;
    assert!(answer.header("location").starts_with("/authentication/start?"), "{answer:?}");
}

/// The states of a browser that calls `/authorize` and `/consent` for a third-party client.
const STATES: &[&str] = &[
    "signed out",
    "logged in",
    "logged in, allowed less",
    "logged in, allowed",
    "signed in",
    "signed in, allowed",
    "revoked",
];

const CALLS: &[&str] = &[
    "GET /authorize",
    "GET /authorize prompt=none",
    "GET /authorize prompt=consent",
    "HEAD /authorize",
    "POST /consent allow",
    "POST /consent deny",
    "POST /consent allow, without a ticket",
    "POST /consent by another page",
    "POST /consent for an unknown client",
    "POST /account/consents/revoke",
];

/// A browser in one state, with the request that it makes.
struct InState {
    world: World,
    browser: Browser,
    asked: Asked,
}

async fn in_state(state: &str) -> InState {
    let world = world().await;
    let mut browser = world.browser();
    let scope = [("scope", "openid email")];
    if state.contains("allowed") || state == "revoked" {
        let less = [("scope", if state.ends_with("less") { "openid" } else { "openid email" })];
        allowed(&mut browser, "quick", &less).await;
        if !state.starts_with("signed in") && state != "revoked" {
            browser = world.browser();
        }
    }
    match state {
        "revoked" => assert_eq!(revoke(&mut browser, "quick").await.status, 204),
        "signed in" => {
            browser.log_in("web", ADA).await;
            browser.authorize("web").await;
        }
        _ => {}
    }
    let asked = match state.starts_with("logged in") {
        true => Asked::of(&mut browser, "quick", &scope).await,
        false => {
            let own = with(crate::world::parameters("quick"), &scope);
            Asked { query: query_of(&with(own, &[("state", "xyz")])), verifier: String::new() }
        }
    };
    InState { world, browser, asked }
}

impl Case for InState {
    async fn call(&mut self, call_of: &str) -> Answer {
        let (browser, query) = (&mut self.browser, &self.asked.query);
        let target = |more: &str| format!("/authorize?{query}{more}");
        match call_of {
            "GET /authorize" => browser.get(&target("")).await,
            "GET /authorize prompt=none" => browser.get(&target("&prompt=none")).await,
            "GET /authorize prompt=consent" => browser.get(&target("&prompt=consent")).await,
            "HEAD /authorize" => browser.send(Request::head(target("")).header("accept", "*/*"), "").await,
            "POST /account/consents/revoke" => revoke(browser, "quick").await,
            "POST /consent by another page" => {
                let fields = form_of(&[("request", query), ("ticket", ""), ("decision", "allow")]);
                browser.send(posted("/consent").header("sec-fetch-site", "cross-site"), fields).await
            }
            "POST /consent for an unknown client" => send(browser, "client_id=nobody", "", "allow").await,
            "POST /consent allow, without a ticket" => send(browser, query, "", "allow").await,
            _ => {
                // the page of `prompt=consent` is there in each state with a user
                let asking = format!("{query}&prompt=consent");
                let page = browser.clone().get(&format!("/authorize?{asking}")).await;
                let ticket = if is_question(&page) { field(&page, "ticket") } else { String::new() };
                send(browser, &asking, &ticket, call_of.rsplit(' ').next().unwrap()).await
            }
        }
    }

    /// Returns what the user has allowed.
    async fn state(&self) -> String {
        let mut browser = self.world.browser();
        browser.log_in("web", ADA).await;
        browser.authorize("web").await;
        let consents = credentials(&mut browser).await["consents"].take();
        let scopes = consents[0]["scopes"].as_array().cloned().unwrap_or_default();
        let scopes: Vec<&str> = scopes.iter().filter_map(Value::as_str).collect();
        if scopes.is_empty() { "nothing".to_owned() } else { scopes.join("+") }
    }
}

/// Replaces what differs between runs, and shortens pages.
fn own(answer: &Answer) -> String {
    let is_page = answer.text.starts_with("<!doctype html>");
    let heading = answer.text.split_once("<h1>").and_then(|(_, rest)| rest.split_once("</h1>"));
    let mut answer = answer.clone();
    if is_page {
        answer.text = format!("(the page: {})", heading.unwrap().0);
    }
    let is_usual = answer.header("referrer-policy") == "no-referrer";
    let text = if is_usual { answer.own() } else { answer.whole() + "\n" };
    after(&text, "code_challenge=", |_| "<challenge>".to_owned())
}

#[tokio::test]
async fn c134_every_call_about_a_third_party_client_responds_as_the_table_says() {
    let text = table(STATES, CALLS, in_state, own).await;
    compare(&text, "consent_matrix.txt");
}
