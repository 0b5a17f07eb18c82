//! GitHub, and a small server of the same shape: OAuth 2 without ID tokens.

use std::sync::{Arc, Mutex};

use axum::{Router, extract::State, http::HeaderMap, routing};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::{
    pkce::{CodeChallenge, CodeVerifier},
    sso::{ClientSecret, GitHub, SsoConnection},
    store::Memory,
    testing::ManualClock,
};

use crate::{
    sso_provider::{Accounts, asked, begun, is_open, outcome, pairs, sent},
    world::{ADA, ADA_PASSWORD, World, encode},
};

/// The answers of the server.
#[derive(Clone)]
struct Answers {
    challenge: String,
    token: Value,
    user: Value,
    emails: Value,
}

type Shared = Arc<Mutex<Answers>>;

async fn token(State(answers): State<Shared>, form: String) -> String {
    let form = pairs(&form);
    let field = |name: &str| form[name].as_str();
    let answers = answers.lock().unwrap();
    let verifier = CodeVerifier::parse(field("code_verifier")).unwrap();
    assert!(CodeChallenge::parse(&answers.challenge).unwrap().verify(&verifier));
    assert_eq!([field("client_id"), field("client_secret"), field("code")], ["our-app", "s3cret", "their-code"]);
    assert_eq!(field("redirect_uri"), "https://auth.example/authentication/sso/idp/callback");
    answers.token.to_string()
}

async fn api(State(answers): State<Shared>, headers: HeaderMap, uri: http::Uri) -> String {
    assert_eq!(
        (&headers["authorization"], &headers["user-agent"]),
        (&"Bearer gho_x".parse().unwrap(), &"tollgate".parse().unwrap())
    );
    let answers = answers.lock().unwrap();
    if uri.path().ends_with("/emails") { answers.emails.to_string() } else { answers.user.to_string() }
}

#[tokio::test]
async fn c084_github_users_are_known_by_their_number_and_their_verified_primary_address() {
    let good = Answers {
        challenge: String::new(),
        token: json!({ "access_token": "gho_x", "token_type": "bearer", "scope": "user:email" }),
        user: json!({ "id": 583_231, "login": "ada", "name": null, "email": null, "plan": {} }),
        emails: json!([
            { "email": "old@example.com", "primary": false, "verified": true, "visibility": null },
            { "email": ADA, "primary": true, "verified": true, "visibility": "public" },
        ]),
    };
    let answers: Shared = Arc::new(Mutex::new(good.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new()
        .route("/login/oauth/access_token", routing::post(token))
        .route("/api/v3/user", routing::get(api))
        .route("/api/v3/user/emails", routing::get(api))
        .with_state(answers.clone());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    let github = GitHub::enterprise(&url, "our-app", ClientSecret::new("s3cret")).unwrap();
    for bad in [std::time::Duration::ZERO, std::time::Duration::from_millis(10_001)] {
        let other = GitHub::new("our-app", ClientSecret::new("s3cret")).unwrap();
        assert!(other.timeout(bad).is_err(), "{bad:?}");
    }
    let github = github.timeout(std::time::Duration::from_secs(10)).unwrap();
    let connection = SsoConnection::new(github)
        .trust_email_domain("example.com")
        .unwrap()
        .create_account(Accounts(&[("7", "u-grace")]));
    let world = World::on(Memory::new().into(), ManualClock::new(), |service| service.sso("idp", connection)).await;

    let mut browser = world.browser();
    let id = begun(&mut browser, "web").await;
    let without = |name: &str| {
        let mut emails = good.emails.clone();
        emails[1][name] = json!(false);
        emails
    };
    let cases = [
        (json!({ "token": { "error": "bad_verification_code" } }), "failed"),
        (json!({ "user": { "login": "ada" } }), "failed"),
        (json!({ "emails": { "message": "Not Found" } }), "failed"),
        // right, but without an account
        (json!({}), "failed"),
        (json!({ "user": { "id": 7, "login": "ada" } }), "ok"),
    ];
    for (change, expected) in cases {
        let url_of_user = sent(&mut browser, "web", &id).await;
        assert!(url_of_user.starts_with(&format!("{url}/login/oauth/authorize?client_id=our-app&")), "{url_of_user}");
        let request = asked(&url_of_user);
        assert_eq!((request["scope"].as_str(), request.get("nonce")), ("read:user user:email", None));
        let mut now = Answers { challenge: request["code_challenge"].clone(), ..good.clone() };
        for (name, value) in change.as_object().unwrap() {
            match name.as_str() {
                "token" => now.token = value.clone(),
                "user" => now.user = value.clone(),
                _ => now.emails = value.clone(),
            }
        }
        *answers.lock().unwrap() = now;
        let target = format!("/authentication/sso/idp/callback?code=their-code&state={}", encode(&request["state"]));
        let answer = browser.get(&target).await;
        assert_eq!(outcome(&answer), expected, "{change}");
        assert_eq!(is_open(&mut browser, &id).await, expected == "failed", "{change}");
    }

    // as a second step, the verified primary address links the account of ada
    for (emails, expected) in
        [(without("verified"), "failed"), (without("primary"), "failed"), (good.emails.clone(), "ok")]
    {
        let mut browser = world.browser();
        let id = browser.start("mfa", ADA).await;
        assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
        let request = asked(&sent(&mut browser, "mfa", &id).await);
        *answers.lock().unwrap() = Answers { challenge: request["code_challenge"].clone(), emails, ..good.clone() };
        let target = format!("/authentication/sso/idp/callback?code=their-code&state={}", encode(&request["state"]));
        assert_eq!(outcome(&browser.get(&target).await), expected);
    }
}
