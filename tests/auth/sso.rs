//! Single sign-on: one session for several clients, and steps that are still missing.

use std::time::Duration;

use http::Request;
use serde_json::{Value, json};
use tollgate::{
    AuthService, Client, ClientIp, ClientTable, Policies, Tenant, UserId, auth::AuthServiceBuilder, policy::Policy,
    store::Memory,
};

use crate::world::{
    ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, CALLBACK, GRACE, GRACE_PASSWORD, NOBODY, World, encode, parameters,
    query, with,
};

const SESSION: &str = "__Host-session_giszrYfB";

/// Clients of acme: `web` and `mfa` as usual; `shop`, `bank` (two steps) and `native` (loopback) share sessions.
/// `other` of globex shares sessions too.
pub(crate) async fn world() -> World {
    World::with(Memory::new(), |service| service).await.sharing()
}

impl World {
    pub(crate) fn sharing(self) -> Self {
        self.sharing_with(|service| service)
    }

    fn sharing_with(self, more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder) -> Self {
        let client = |id: &str, tenant: &str| {
            Client::new(id, tenant.parse().unwrap()).unwrap().scopes("openid profile email").unwrap()
        };
        let site = |id: &str, tenant: &str| {
            client(id, tenant).redirect_uri(CALLBACK).unwrap().origin("https://app.example").unwrap()
        };
        let two = || Policy::any(2).unwrap();
        let clients = ClientTable::new([
            site("web", "acme"),
            site("mfa", "acme").policy(two()),
            site("shop", "acme").single_sign_on(),
            site("bank", "acme").single_sign_on().policy(two()),
            client("native", "acme").redirect_uri("http://127.0.0.1/callback").unwrap().single_sign_on(),
            site("other", "globex").single_sign_on(),
        ])
        .unwrap();
        let service = AuthService::builder(crate::world::ISSUER, self.store.clone())
            .clients(clients)
            .users(self.users.clone())
            .client_ip(ClientIp::peer())
            .sms(self.outbox.clone())
            .email(self.outbox.clone())
            .passwords(tollgate::Passwords::insecure_fast())
            .policies(Policies::default().acr("two", two()).unwrap())
            .events(self.log.clone())
            .clock(self.clock.clone());
        let service = more(service).build().unwrap();
        let sessions = service.sessions().clone();
        Self { service, sessions, ..self }
    }

    fn ada(&self) -> (Tenant, UserId) {
        ("acme".parse().unwrap(), UserId::parse("u-ada").unwrap())
    }

    async fn sessions_of_ada(&self) -> usize {
        let (acme, ada) = self.ada();
        self.sessions.list(&acme, &ada).await.unwrap().len()
    }
}

async fn authorize(browser: &mut Browser, client: &str, more: &str) -> Answer {
    browser.get(&format!("/authorize?{}&state=xyz&{more}", query(client))).await
}

fn is_page(answer: &Answer) -> bool {
    answer.header("location").starts_with("/authentication/start?")
}

/// Starts a login without a name, continuing from the browser's session.
pub(crate) async fn continue_login(browser: &mut Browser, client: &str, more: &[(&str, &str)]) -> Answer {
    browser.post("/authentication/start", &with(parameters(client), more)).await
}

async fn described(browser: &mut Browser, client: &str, more: &str) -> Value {
    let target = format!("/authentication/start?{}&{more}", query(client));
    browser.send(Request::get(target).header("accept", "application/json"), "").await.json()
}

fn steps(answer: &Answer) -> (Option<u64>, Option<u64>) {
    assert_eq!(answer.status, 200, "{answer:?}");
    (answer.json()["required_steps"].as_u64(), answer.json()["next_step"].as_u64())
}

pub(crate) fn id_of(answer: &Answer) -> String {
    answer.json()["session_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn c109_a_signed_in_user_gets_a_code_at_once_at_clients_that_share_sessions() {
    let world = world().await;
    let mut browser = world.browser();
    browser.sign_in("web").await;
    let before = browser.cookies.clone();
    for more in ["", "prompt=none", "max_age=10", "prompt=none&nonce=n"] {
        let answer = authorize(&mut browser, "shop", more).await;
        assert!(answer.redirected("code").is_some(), "{more} {answer:?}");
        assert_eq!(answer.redirected("state").as_deref(), Some("xyz"));
        assert!(!answer.headers.contains_key("set-cookie"));
    }
    assert_eq!((&browser.cookies, world.sessions_of_ada().await), (&before, 1));
    // not at clients without single sign-on, even if the session began there
    for client in ["web", "mfa"] {
        assert!(is_page(&authorize(&mut browser, client, "").await));
        let told = authorize(&mut browser, client, "prompt=none").await;
        assert_eq!(told.redirected("error").as_deref(), Some("login_required"), "{client}");
    }
    // not if a client or a level requires two steps and one was done
    for (client, more) in [("bank", "prompt=none"), ("shop", "prompt=none&acr_values=two")] {
        let told = authorize(&mut browser, client, more).await;
        assert_eq!(told.redirected("error").as_deref(), Some("login_required"), "{client}");
    }
    // not at another tenant, and not in another browser
    assert_eq!(
        authorize(&mut browser, "other", "prompt=none").await.redirected("error").as_deref(),
        Some("login_required")
    );
    assert_eq!(authorize(&mut world.browser(), "shop", "").await.redirected("code"), None);
    // HEAD and prefetch requests get nothing
    let head = browser.send(Request::head(format!("/authorize?{}", query("shop"))).header("accept", "*/*"), "").await;
    assert!(is_page(&head));
}

#[tokio::test]
async fn c025_login_parameters_of_a_request_apply_to_sessions_too() {
    let world = world().await;
    let mut browser = world.browser();
    browser.sign_in("web").await;
    world.advance(100);
    assert!(authorize(&mut browser, "shop", "max_age=100").await.redirected("code").is_some());
    let sub = |user: &str| format!("claims={}", encode(&format!(r#"{{"id_token":{{"sub":{{"value":"{user}"}}}}}}"#)));
    assert!(authorize(&mut browser, "shop", &sub("u-ada")).await.redirected("code").is_some());
    for more in ["max_age=99", "max_age=0", "prompt=login", "prompt=consent", "prompt=select_account", &sub("u-grace")]
    {
        let answer = authorize(&mut browser, "shop", more).await;
        assert!(is_page(&answer), "{more} {answer:?}");
    }
    for more in ["max_age=99", "max_age=0", &sub("u-grace")] {
        let told = authorize(&mut browser, "shop", &format!("prompt=none&{more}")).await;
        assert_eq!(told.redirected("error").as_deref(), Some("login_required"), "{more}");
    }
    // a login that must be fresh carries nothing over
    for more in
        [("prompt", "login"), ("max_age", "0"), ("max_age", "99"), ("claims", r#"{"id_token":{"sub":{"value":"x"}}}"#)]
    {
        assert_eq!(steps(&continue_login(&mut browser, "shop", &[more]).await), (Some(1), Some(1)), "{more:?}");
        assert_eq!(
            steps(&continue_login(&mut browser, "shop", &[more, ("identifier", ADA)]).await),
            (Some(1), Some(1))
        );
    }
    let carried = continue_login(&mut browser, "shop", &[]).await;
    assert_eq!(steps(&carried), (Some(1), None));
    assert_eq!(browser.complete("shop", &id_of(&carried)).await.status, 200);
    for more in ["prompt=login", "max_age=0", "max_age=99"] {
        assert!(is_page(&authorize(&mut browser, "shop", more).await), "{more}");
    }
    // a login that did not ask the user does not answer a request that requires it
    for prompt in ["consent", "select_account"] {
        let more = format!("prompt={prompt}");
        assert!(is_page(&authorize(&mut browser, "shop", &more).await), "{prompt}");
        let carried = continue_login(&mut browser, "shop", &[("prompt", prompt)]).await;
        assert_eq!(steps(&carried), (Some(1), None));
        assert_eq!(browser.complete("shop", &id_of(&carried)).await.status, 200);
        assert!(authorize(&mut browser, "shop", &more).await.redirected("code").is_some());
    }
    assert_eq!(world.sessions_of_ada().await, 1);
}

#[tokio::test]
async fn c109_a_session_that_ended_or_whose_account_changed_yields_no_code() {
    let (acme, ada) = world().await.ada();
    for what in 0..5 {
        let world = world().await;
        let mut browser = world.browser();
        browser.sign_in("web").await;
        let carried = id_of(&continue_login(&mut browser, "shop", &[]).await);
        assert_eq!(browser.complete("shop", &carried).await.status, 200);
        match what {
            0 => drop(world.sessions.revoke_user(&acme, &ada).await.unwrap()),
            1 => world.users.disable(&acme, &ada).await.unwrap(),
            2 => {
                let hashing = tollgate::Passwords::insecure_fast();
                let hash = hashing.hash(tollgate::Password::new("another".to_owned())).await.unwrap();
                world.users.set_password(&acme, &ada, Some(hash)).await.unwrap();
            }
            3 => world.clock.advance(Duration::from_secs(3601)),
            _ => drop(browser.cookies.remove(SESSION)),
        }
        for more in ["", "prompt=none"] {
            let answer = authorize(&mut browser, "shop", more).await;
            assert_eq!(answer.redirected("code"), None, "{what} {answer:?}");
        }
        assert_eq!(steps(&continue_login(&mut browser, "shop", &[]).await), (Some(1), Some(1)), "{what}");
        assert_eq!(described(&mut browser, "shop", "").await["signed_in"], Value::Null, "{what}");
    }
}

#[tokio::test]
async fn c021_a_signed_in_user_does_only_the_missing_steps() {
    let world = world().await;
    let mut browser = world.browser();
    browser.sign_in("web").await;
    let old = browser.cookies[SESSION].clone();
    assert_eq!(described(&mut browser, "bank", "").await["signed_in"], "ada");
    let started = continue_login(&mut browser, "bank", &[]).await;
    assert_eq!(steps(&started), (Some(2), Some(2)));
    assert_eq!(started.json()["available_methods"], json!(["sms", "email"]));
    let id = id_of(&started);
    assert_eq!(browser.complete("bank", &id).await.error(), "steps_remaining");
    let again = browser.password("bank", &id, ADA, ADA_PASSWORD).await;
    assert_eq!(again.error(), "method_not_allowed");
    browser.ask("bank", &id, "sms", ADA_PHONE).await;
    let code = world.code(ADA_PHONE).await;
    world.advance(5);
    assert_eq!(browser.verify("bank", &id, &code).await.json()["remaining_steps"], 0);
    assert_eq!(browser.complete("bank", &id).await.status, 200);
    // the proof that it began with is too old, even though another is new
    assert!(is_page(&authorize(&mut browser, "bank", "max_age=4").await));
    assert!(browser.authorize("bank").await.redirected("code").is_some());
    // the session has a new secret, and both steps count in it
    assert_ne!(browser.cookies[SESSION], old);
    assert_eq!(browser.cookies[SESSION].split_once('.').unwrap().0, old.split_once('.').unwrap().0);
    let (acme, ada) = world.ada();
    let sessions = world.sessions.list(&acme, &ada).await.unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].amr().collect::<Vec<_>>(), ["pwd", "otp", "sms", "mfa"]);
    for client in ["bank", "shop"] {
        assert!(authorize(&mut browser, client, "prompt=none&acr_values=two").await.redirected("code").is_some());
    }
    // but not if the older proof is too old
    assert!(is_page(&authorize(&mut browser, "bank", "max_age=4").await));
    assert!(authorize(&mut browser, "shop", "max_age=4").await.redirected("code").is_some());
}

#[tokio::test]
async fn c021_no_proof_outlives_its_session() {
    const HOUR: u64 = 3600;
    let world = World::with(Memory::new(), |service| service)
        .await
        .sharing_with(|service| service.session_idle(Duration::from_secs(24 * HOUR)));
    let mut browser = world.browser();
    browser.sign_in("web").await;
    world.advance(23 * HOUR);
    let started = continue_login(&mut browser, "bank", &[]).await;
    assert_eq!(steps(&started), (Some(2), Some(2)), "the password still counts");
    browser.ask("bank", &id_of(&started), "sms", ADA_PHONE).await;
    let code = world.code(ADA_PHONE).await;
    browser.verify("bank", &id_of(&started), &code).await;
    assert_eq!(browser.complete("bank", &id_of(&started)).await.status, 200);
    assert!(authorize(&mut browser, "bank", "acr_values=two").await.redirected("code").is_some());
    let (acme, ada) = world.ada();
    let sessions = world.sessions.list(&acme, &ada).await.unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!(
        (sessions[0].amr().collect::<Vec<_>>().join(" "), sessions[0].acr()),
        ("pwd otp sms mfa".into(), Some("two"))
    );
    // another step does not extend the session
    world.advance(HOUR - 1);
    assert!(authorize(&mut browser, "bank", "prompt=none").await.redirected("code").is_some());
    // a login that begins while the session is active can't complete with its proofs afterwards
    let late = id_of(&continue_login(&mut browser, "bank", &[("prompt", "consent")]).await);
    assert_eq!(browser.complete("bank", &late).await.status, 200);
    world.advance(1);
    assert_eq!(authorize(&mut browser, "bank", "prompt=consent").await.redirected("code"), None);
    for client in ["bank", "shop"] {
        let told = authorize(&mut browser, client, "prompt=none").await;
        assert_eq!(told.redirected("error").as_deref(), Some("login_required"));
    }
    assert_eq!(steps(&continue_login(&mut browser, "bank", &[]).await), (Some(2), Some(1)));
    assert_eq!(world.sessions_of_ada().await, 0);
}

#[tokio::test]
async fn c021_a_step_up_needs_no_single_sign_on_at_the_client_of_the_session() {
    let world = world().await;
    let mut browser = world.browser();
    browser.sign_in("web").await;
    // with no step missing, it would be single sign-on
    assert_eq!(steps(&continue_login(&mut browser, "web", &[]).await), (Some(1), Some(1)));
    assert_eq!(steps(&continue_login(&mut browser, "web", &[("identifier", ADA)]).await), (Some(1), Some(1)));
    assert_eq!(steps(&continue_login(&mut browser, "web", &[("acr_values", "two")]).await), (Some(2), Some(2)));
    assert_eq!(steps(&continue_login(&mut browser, "mfa", &[("identifier", ADA)]).await), (Some(2), Some(1)));
    assert_eq!(steps(&continue_login(&mut browser, "mfa", &[]).await), (Some(2), Some(1)));
}

#[tokio::test]
async fn c031_a_login_for_another_name_carries_nothing_over_whether_the_name_exists_or_not() {
    let world = world().await;
    let mut browser = world.browser();
    browser.sign_in("web").await;
    let mut answers = Vec::new();
    for name in [GRACE, NOBODY] {
        let started = continue_login(&mut browser, "bank", &[("identifier", name)]).await;
        assert_eq!(steps(&started), (Some(2), Some(1)), "{name}");
        answers.push(started.own());
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
    // all names of the signed-in user lead to the same account
    for name in [ADA, "ada"] {
        assert_eq!(
            steps(&continue_login(&mut browser, "bank", &[("identifier", name)]).await),
            (Some(2), Some(2)),
            "{name}"
        );
    }
    // and proofs of other users are not added to hers
    let id = id_of(&continue_login(&mut browser, "bank", &[("identifier", ADA)]).await);
    let asked = browser.ask("bank", &id, "email", GRACE).await;
    assert_eq!(asked.status, 200);
    world.settle().await;
    assert!(!world.outbox.messages().iter().any(|message| message.to() == GRACE));
    // another user signs in over her session
    let id = id_of(&continue_login(&mut browser, "shop", &[("identifier", GRACE)]).await);
    assert_eq!(browser.password("shop", &id, GRACE, GRACE_PASSWORD).await.status, 200);
    browser.complete("shop", &id).await;
    assert!(authorize(&mut browser, "shop", "prompt=login").await.redirected("code").is_some());
    assert_eq!(world.sessions_of_ada().await, 0);
}

#[tokio::test]
async fn a_program_on_the_users_machine_gets_a_code_only_after_confirmation() {
    let world = world().await;
    let mut browser = world.browser();
    browser.sign_in("web").await;
    assert!(is_page(&authorize(&mut browser, "native", "").await));
    let told = authorize(&mut browser, "native", "prompt=none").await;
    assert_eq!(told.redirected("error").as_deref(), Some("interaction_required"));
    let shown = described(&mut browser, "native", "").await;
    assert_eq!((&shown["signed_in"], &shown["confirmation_required"]), (&json!("ada"), &json!(true)));
    assert_eq!(shown["redirect"], json!({ "kind": "loopback", "host": "127.0.0.1:51004" }));
    assert_eq!(described(&mut browser, "shop", "prompt=consent").await["confirmation_required"], true);
    assert_eq!(described(&mut browser, "shop", "").await["confirmation_required"], false);
    assert_eq!(described(&mut world.browser(), "native", "").await["signed_in"], Value::Null);
    // the user presses the button
    let started = continue_login(&mut browser, "native", &[]).await;
    assert_eq!(steps(&started), (Some(1), None));
    assert_eq!(browser.complete("native", &id_of(&started)).await.status, 200);
    let session = browser.cookies[SESSION].clone();
    assert!(browser.authorize("native").await.redirected("code").is_some());
    assert_eq!((&browser.cookies[SESSION], world.sessions_of_ada().await), (&session, 1));
    assert!(is_page(&authorize(&mut browser, "native", "").await), "each confirmation yields one code");
}

#[tokio::test]
async fn c025_a_session_is_not_used_if_the_request_expects_another_user() {
    let world = crate::special_worlds::world_with(Client::single_sign_on).await;
    let (mut ada, mut grace) = (world.browser(), world.browser());
    let hint = format!("id_token_hint={}", ada.tokens("special", "openid").await.id());
    let id = grace.start("special", GRACE).await;
    assert_eq!(grace.password("special", &id, GRACE, GRACE_PASSWORD).await.status, 200);
    assert_eq!(grace.complete("special", &id).await.status, 200);
    assert!(grace.authorize("special").await.redirected("code").is_some());
    let sub = format!("claims={}", encode(r#"{"id_token":{"sub":{"value":"u-ada"}}}"#));
    let (wrong, asking) = (format!("{hint}x"), format!("prompt=consent&{hint}"));
    for (more, to_ada, to_grace) in [
        ("", json!("ada"), json!("grace")),
        (&hint, json!("ada"), Value::Null),
        (&asking, json!("ada"), Value::Null),
        (&sub, json!("ada"), Value::Null),
        (&wrong, Value::Null, Value::Null),
    ] {
        assert_eq!(described(&mut ada, "special", more).await["signed_in"], to_ada, "{more}");
        assert_eq!(described(&mut grace, "special", more).await["signed_in"], to_grace, "{more}");
    }
}

#[tokio::test]
async fn c029_pages_of_other_origins_cannot_see_the_signed_in_user_or_confirm_for_them() {
    let world = world().await;
    let mut browser = world.browser();
    browser.sign_in("web").await;
    let target = format!("/authentication/start?{}", query("shop"));
    let request = Request::get(&target).header("accept", "application/json").header("origin", "https://app.example");
    let answer = browser.send(request, "").await;
    assert_eq!(
        (answer.header("access-control-allow-origin"), &answer.json()["signed_in"]),
        ("https://app.example", &Value::Null)
    );
    let from_app = |prompt: &str| {
        let body = with(parameters("shop"), &[("prompt", prompt)]).to_string();
        let request = Request::post("/authentication/start").header("content-type", "application/json");
        (request.header("origin", "https://app.example"), body)
    };
    for (prompt, next) in [("", None), ("consent", Some(1))] {
        let (request, body) = from_app(prompt);
        assert_eq!(steps(&browser.send(request, body).await), (Some(1), next), "{prompt}");
    }
}
