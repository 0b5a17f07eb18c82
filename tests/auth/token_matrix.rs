//! Makes every token call in every state of a code's tokens, and calls every token endpoint in every way.
//!
//! `token_matrix.txt` contains the expected text. `TOLLGATE_WRITE_MATRIX=1` writes it; review the difference line by
//! line.

use http::{Method, Request};
use serde_json::json;
use tollgate::UserId;

use crate::{
    confidential_clients::{KEYED, SHOP, Way, confidential_world},
    issued_tokens::IssuedTokens,
    matrix::{Case, compare, table},
    special_worlds::world_with_keys,
    token_requests::{Grant, redemption, set, without},
    wire_text::after,
    world::{Answer, Browser, ISSUER, NOTES, World, encode, form_of, parameters, posted},
};

const STATES: &[&str] = &[
    "no code",
    "code open",
    "code 60 s old",
    "code spent",
    "refreshed",
    "refreshed 10 s ago",
    "access tokens over",
    "a day old",
    "code replayed",
    "revoked",
    "logged out",
    "account closed",
];

const CALLS: &[&str] = &[
    "POST /token code",
    "POST /token code, wrong verifier",
    "POST /token code, another client",
    "POST /token code, another resource",
    "POST /token refresh token",
    "POST /token refresh token before it",
    "POST /token refresh token, another client",
    "POST /token refresh token, another resource",
    "POST /token password",
    "POST /token client credentials",
    "POST /revoke access token",
    "POST /revoke refresh token",
    "POST /revoke refresh token, another client",
    "POST /introspect access token",
    "POST /introspect refresh token",
    "POST /introspect refresh token before it",
    "POST /introspect access token, without authentication",
    "GET /userinfo",
    "POST /userinfo",
    "HEAD /userinfo",
    "GET /logout",
    "GET /logout hint",
    "GET /logout hint, another client",
    "HEAD /logout hint",
    "POST /logout by our own page",
    "POST /logout by another page",
];

const PATHS: [&str; 9] = [
    "/token",
    "/revoke",
    "/introspect",
    "/userinfo",
    "/jwks",
    "/logout",
    "/par",
    "/.well-known/openid-configuration",
    "/.well-known/oauth-authorization-server",
];

/// Requests that contain only what is named here.
const WAYS: [&str; 15] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "OPTIONS",
    "preflight",
    "preflight by another page",
    "POST form",
    "POST form with a field twice",
    "POST form with a resource twice",
    "POST form compressed",
    "POST form by another page",
    "POST JSON",
    "POST form in the URL",
];

/// A family in one state, with the browser that began it.
struct Family {
    world: World,
    browser: Browser,
    code: Grant,
    /// The first tokens, and the newest.
    first: IssuedTokens,
    newest: IssuedTokens,
}

async fn family(state: &str) -> Family {
    let world = world_with_keys().await;
    let browser = world.browser();
    let none = || Some("x".to_owned());
    let issued = IssuedTokens { access: "x".to_owned(), refresh: none(), id: none(), scope: String::new() };
    let code = Grant::from("x".repeat(43));
    let mut family = Family { world, browser, code, first: issued.clone(), newest: issued };
    if state == "no code" {
        return family;
    }
    family.code = family.browser.sign_in("web").await;
    match state {
        "code open" => return family,
        "code 60 s old" => {
            family.world.advance(60);
            return family;
        }
        _ => family.first = IssuedTokens::of(&family.browser.redeem("web", &family.code).await),
    }
    family.newest = family.first.clone();
    if state == "code spent" {
        return family;
    }
    family.newest = IssuedTokens::of(&family.browser.refresh("web", family.first.refresh()).await);
    let Family { world, browser, code, newest, .. } = &mut family;
    match state {
        "refreshed" => {}
        "refreshed 10 s ago" => world.advance(10),
        "access tokens over" => world.advance(600),
        "a day old" => world.advance(24 * 3600),
        "code replayed" => {
            world.advance(3);
            assert_eq!(browser.redeem("web", code).await.status, 400);
        }
        "revoked" => assert_eq!(browser.revoke("web", newest.refresh()).await.status, 200),
        "logged out" => {
            world.advance(1);
            assert_eq!(browser.log_out("web", newest.id()).await.status, 200);
        }
        "account closed" => {
            let ada = UserId::parse("u-ada").unwrap();
            world.users.disable(&"acme".parse().unwrap(), &ada).await.unwrap();
        }
        _ => panic!("{state}"),
    }
    family
}

impl Case for Family {
    async fn call(&mut self, call: &str) -> Answer {
        let Self { browser, code, first, newest, .. } = self;
        let (call, client) = match call.strip_suffix(", another client") {
            Some(call) => (call, "mfa"),
            None => (call, "web"),
        };
        let wanting = |request: http::request::Builder| request.header("accept", "text/html");
        let hinted = format!("/logout?client_id={client}&id_token_hint={}", encode(newest.id()));
        let bearer = format!("Bearer {}", newest.access);
        let confirmed = wanting(posted("/logout"));
        let answer = match call {
            "POST /token code" => browser.form("/token", &redemption(client, code)).await,
            "POST /token code, wrong verifier" => {
                let wrong = "A".repeat(43);
                browser.form("/token", &set(&redemption(client, code), "code_verifier", &wrong)).await
            }
            // that the client may request, but was not granted
            "POST /token code, another resource" => {
                browser.form("/token", &set(&redemption(client, code), "resource", NOTES)).await
            }
            "POST /token refresh token, another resource" => {
                let token = newest.refresh();
                let fields = [("grant_type", "refresh_token"), ("refresh_token", token), ("client_id", client)];
                browser.form("/token", &set(&fields, "resource", NOTES)).await
            }
            "POST /token refresh token" => browser.refresh(client, newest.refresh()).await,
            "POST /token refresh token before it" => browser.refresh(client, first.refresh()).await,
            "POST /token password" => {
                browser.form("/token", &[("grant_type", "password"), ("client_id", client), ("username", "ada")]).await
            }
            "POST /token client credentials" => {
                browser.form("/token", &[("grant_type", "client_credentials"), ("client_id", client)]).await
            }
            "POST /revoke access token" => browser.revoke(client, &newest.access).await,
            "POST /revoke refresh token" => browser.revoke(client, newest.refresh()).await,
            "POST /introspect access token" => browser.ask_about(&newest.access).await,
            "POST /introspect access token, without authentication" => {
                browser.form("/introspect", &[("client_id", client), ("token", &newest.access)]).await
            }
            "POST /introspect refresh token" => browser.ask_about(newest.refresh()).await,
            "POST /introspect refresh token before it" => browser.ask_about(first.refresh()).await,
            "GET /userinfo" => browser.with_token("/userinfo", &newest.access).await,
            "POST /userinfo" => browser.send(Request::post("/userinfo").header("authorization", bearer), "").await,
            "HEAD /userinfo" => browser.send(Request::head("/userinfo").header("authorization", bearer), "").await,
            "GET /logout" => browser.send(wanting(Request::get("/logout")), "").await,
            "GET /logout hint" => browser.send(wanting(Request::get(hinted)), "").await,
            "HEAD /logout hint" => browser.send(wanting(Request::head(hinted)), "").await,
            "POST /logout by our own page" => {
                browser.send(confirmed.header("sec-fetch-site", "same-origin"), "confirmed=yes").await
            }
            "POST /logout by another page" => {
                browser.send(confirmed.header("sec-fetch-site", "cross-site"), "confirmed=yes").await
            }
            _ => panic!("{call}"),
        };
        if call.starts_with("POST /token") && answer.status == 200 {
            *newest = IssuedTokens::of(&answer);
        }
        answer
    }

    /// Returns what still works, as the family's client sees it, and whether the session is active.
    async fn state(&self) -> String {
        let mut browser = self.browser.clone();
        let IssuedTokens { access, .. } = &self.newest;
        let (acme, ada) = ("acme".parse().unwrap(), UserId::parse("u-ada").unwrap());
        let good = [
            ("access", browser.introspect("web", access).await["active"] == true),
            ("refresh", browser.introspect("web", self.newest.refresh()).await["active"] == true),
            ("session", !self.world.sessions.list(&acme, &ada).await.unwrap().is_empty()),
        ];
        let good: Vec<_> = good.iter().filter(|(_, good)| *good).map(|(name, _)| *name).collect();
        if good.is_empty() { "nothing".to_owned() } else { good.join("+") }
    }
}

/// A family in some state, and requests that don't contain any of its tokens.
struct WithoutTokens {
    family: Family,
    way: String,
}

impl Case for WithoutTokens {
    async fn call(&mut self, path: &str) -> Answer {
        let form = form_of(&[("client_id", "web")]);
        let preflight = |origin| {
            let request = Request::options(path).header("origin", origin);
            request.header("access-control-request-method", "POST")
        };
        let (request, body) = match &*self.way {
            "preflight" => (preflight("https://app.example"), String::new()),
            "preflight by another page" => (preflight("https://evil.example"), String::new()),
            "POST form" => (posted(path), form),
            "POST form with a field twice" => (posted(path), format!("{form}&{form}")),
            "POST form with a resource twice" => (posted(path), form + &format!("&resource={NOTES}&resource={NOTES}")),
            "POST form compressed" => (posted(path).header("content-encoding", "gzip"), form),
            "POST form by another page" => (posted(path).header("origin", "https://evil.example"), form),
            "POST form in the URL" => (posted(&format!("{path}?{form}")), String::new()),
            "POST JSON" => {
                let request = Request::post(path).header("content-type", "application/json");
                (request, json!({ "client_id": "web" }).to_string())
            }
            method => (Request::builder().method(Method::try_from(method).unwrap()).uri(path), String::new()),
        };
        self.family.browser.send(request, body).await
    }

    async fn state(&self) -> String {
        self.family.state().await
    }
}

/// Replaces tokens with names, and shortens what other tests compare in full: keys, the OpenAPI document, and pages.
fn own(answer: &Answer) -> String {
    let named = |text: &str| Answer { text: format!("({text})"), ..answer.clone() };
    let answer = match &*answer.text {
        text if text.starts_with("<!doctype html>") => {
            let heading = text.split_once("<h1>").and_then(|(_, rest)| rest.split_once("</h1>"));
            named(&format!("the page: {}", heading.unwrap().0))
        }
        text if text.starts_with(r#"{"keys":"#) => named("the keys"),
        text if text.starts_with(&format!(r#"{{"issuer":"{ISSUER}""#)) => named("the document"),
        _ => answer.clone(),
    };
    // cacheable documents belong to no tenant and show no budget, and the logout page needs to send its origin
    let is_usual = answer.header("cache-control") == "no-store" && answer.header("referrer-policy") == "no-referrer";
    let text = if is_usual { answer.own() } else { answer.whole() + "\n" };
    ["access_token", "refresh_token", "id_token", "jti", "request_uri"]
        .iter()
        .fold(text, |text, name| after(&text, &format!("\"{name}\":\""), |_| format!("<{name}>")))
}

/// How a confidential client authenticates, and as which client.
const CREDENTIALS: [&str; 10] = [
    "nothing",
    "client_id",
    "basic",
    "basic, the old secret",
    "basic, wrong",
    "basic, with another client_id",
    "post",
    "post, wrong",
    "both",
    "assertion of another client",
];

const CONFIDENTIAL_CALLS: [&str; 5] =
    ["POST /token code", "POST /token refresh token", "POST /par", "POST /revoke", "POST /introspect"];

/// A family of a confidential client, and how a request authenticates.
struct Confidential {
    world: World,
    browser: Browser,
    code: Grant,
    issued: IssuedTokens,
    credentials: String,
}

async fn confidential(credentials: &str) -> Confidential {
    let world = confidential_world(|client| client).await;
    let mut browser = world.browser();
    let issued = world.tokens_by(Way::Basic).await;
    let code = browser.sign_in(SHOP).await;
    Confidential { world, browser, code, issued, credentials: credentials.to_owned() }
}

impl Case for Confidential {
    async fn call(&mut self, call: &str) -> Answer {
        let own = parameters(SHOP);
        let fields = match call {
            "POST /token code" => without(&redemption(SHOP, &self.code), "client_id"),
            "POST /token refresh token" => {
                vec![("grant_type", "refresh_token"), ("refresh_token", self.issued.refresh())]
            }
            "POST /par" => {
                own.as_object().unwrap().iter().map(|(name, value)| (&**name, value.as_str().unwrap())).collect()
            }
            _ => vec![("token", &*self.issued.access)],
        };
        let (way, client) = match &*self.credentials {
            "nothing" => (Way::Nothing, None),
            "client_id" => (Way::Nothing, Some(SHOP)),
            "basic" => (Way::Basic, None),
            "basic, the old secret" => (Way::OldSecret, Some(SHOP)),
            "basic, wrong" => (Way::WrongBasic, None),
            "basic, with another client_id" => (Way::Basic, Some("web")),
            "post" => (Way::Post, Some(SHOP)),
            "post, wrong" => (Way::WrongPost, Some(SHOP)),
            "both" => (Way::Twice, Some(SHOP)),
            "assertion of another client" => (Way::Key, None),
            other => panic!("{other}"),
        };
        let fields = client.into_iter().fold(fields, |fields, client| set(&fields, "client_id", client));
        let path = call.split(' ').nth(1).unwrap();
        let signer = if way == Way::Key { KEYED } else { SHOP };
        let (request, form) = way.request(&self.world, signer, path, &fields);
        self.browser.send(request, form).await
    }

    /// Returns what still works.
    async fn state(&self) -> String {
        let mut browser = self.browser.clone();
        let tokens = [("access", &*self.issued.access), ("refresh", self.issued.refresh())];
        let mut good = Vec::new();
        for (name, token) in tokens {
            if browser.introspect(SHOP, token).await["active"] == true {
                good.push(name);
            }
        }
        if good.is_empty() { "nothing".to_owned() } else { good.join("+") }
    }
}

#[tokio::test]
async fn every_call_in_every_state_of_a_family_responds_as_the_table_says() {
    let of_a_family = table(STATES, CALLS, family, own).await;
    let bare = async |way: &str| WithoutTokens { family: family("refreshed").await, way: way.to_owned() };
    let of_paths = table(&WAYS, &PATHS, bare, own).await;
    let authenticated = table(&CREDENTIALS, &CONFIDENTIAL_CALLS, confidential, own).await;
    let text = format!(
        "{of_a_family}\n\nEach endpoint, called in each way with no token:\n\n{of_paths}\n\n\
         A confidential client that authenticates in each way:\n\n{authenticated}"
    );
    compare(&text, "token_matrix.txt");
}
