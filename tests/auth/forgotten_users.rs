//! Users who are forgotten while they enrol something: nothing of it stays.

use serde_json::{Value, json};
use tollgate::{
    Secret, UserId, Users,
    auth::{AuthServiceBuilder, Passkeys, Totp},
    sso::{ProviderUser, SsoCallback, SsoConnection, SsoError, SsoProvider, SsoRequest},
    testing::ManualClock,
};

use crate::{
    controlled_store::{ControlledStore, Running, interleave},
    enrolled::stored,
    own_account::{acme, ada, call, totp},
    soft_passkey::{RP_ID, SoftPasskey},
    sso_provider::{Accounts, asked, begun},
    world::{ADA, ADA_PASSWORD, Browser, World, parameters, with},
};

struct Fixed;

impl SsoProvider for Fixed {
    async fn authorization_url(&self, request: &SsoRequest<'_>) -> Result<String, SsoError> {
        Ok(format!("https://idp.example/authorize?state={}", request.state()))
    }

    async fn user(&self, _: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
        Ok(ProviderUser::new("https://idp.example", "ada-there").with_email(ADA, true))
    }
}

pub(crate) async fn world(store: &ControlledStore) -> World {
    let connection = SsoConnection::new(Fixed).create_account(Accounts(&[("ada-there", "u-ada")]));
    let connection = connection.trust_email_domain("example.com").unwrap();
    let more = |service: AuthServiceBuilder| {
        service
            .first_party(acme())
            .totp(Totp::new().seal(&Secret::generate()))
            .passkeys(Passkeys::new(RP_ID))
            .sso("idp", connection)
    };
    World::on(store.clone().into(), ManualClock::new(), more).await
}

/// A call that enrols something for ada: its path and body, or the target of a redirect.
pub(crate) enum Enrolment {
    Call(&'static str, Value),
    /// The body of a call within a login.
    Post(Value),
    Visit(String),
}

/// Prepares an enrolment up to its last call.
pub(crate) async fn prepared(world: &World, kind: &str) -> (Browser, Enrolment) {
    if kind.starts_with("link") {
        let mut browser = world.browser();
        let (client, id) = match kind {
            "link by hook" => ("web", begun(&mut browser, "web").await),
            _ => ("mfa", browser.start("mfa", ADA).await),
        };
        if client == "mfa" {
            assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
        }
        let answer = browser.call("authenticate", client, &id, &[("method", "sso"), ("provider", "idp")]).await;
        return (browser, Enrolment::Visit(callback_of(&answer.json())));
    }
    if let Some(method) = kind.strip_suffix(" in a login") {
        return within_login(world, method).await;
    }
    let mut browser = ada(world).await;
    let enrolment = match kind {
        "account page" => {
            let away = call(&mut browser, "links/begin", json!({ "provider": "idp" })).await.json();
            Enrolment::Visit(callback_of(&away))
        }
        "app" => {
            let begun = call(&mut browser, "totp/begin", json!({})).await.json();
            let code = totp(begun["secret"].as_str().unwrap(), world.time());
            Enrolment::Call("totp", json!({ "code": code }))
        }
        "passkey" => {
            let options = call(&mut browser, "passkeys/options", json!({})).await.json();
            Enrolment::Call("passkeys", json!({ "response": SoftPasskey::new().create(&options) }))
        }
        _ => Enrolment::Call("recovery-codes", json!({})),
    };
    (browser, enrolment)
}

/// Returns the target to which the provider of this answer sends a user back.
fn callback_of(away: &Value) -> String {
    let state = asked(away["redirect_url"].as_str().unwrap())["state"].clone();
    format!("/authentication/sso/idp/callback?code=x&state={state}")
}

/// Prepares the enrolment of a second factor within a login of ada, who has only a password now.
async fn within_login(world: &World, method: &str) -> (Browser, Enrolment) {
    let user = UserId::parse("u-ada").unwrap();
    let account = world.users.by_id(&acme(), &user).await.unwrap().unwrap();
    for (contact, _) in account.contacts() {
        world.users.remove_contact(&acme(), &user, contact).await.unwrap();
    }
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
    let begun = browser.call("enrol", "mfa", &id, &[("method", method)]).await.json();
    let mut body = with(parameters("mfa"), &[("session_id", &id), ("method", method)]);
    match method {
        "totp" => body["code"] = json!(totp(begun["secret"].as_str().unwrap(), world.time())),
        _ => body["response"] = SoftPasskey::new().create(&begun),
    }
    (browser, Enrolment::Post(body))
}

/// Forgets ada after this many store operations of an enrolment. Returns the answer to the enrolment.
async fn forgotten(kind: &str, operations: usize) -> (u16, String) {
    let store = ControlledStore::default();
    let world = world(&store).await;
    let (mut browser, enrolment) = prepared(&world, kind).await;
    let (service, users, ada) = (world.service.clone(), world.users.clone(), UserId::parse("u-ada").unwrap());
    let is_by_hook = kind == "link by hook";
    store.yields();
    let forgetting: Running<Option<(u16, String)>> = Box::pin(async move {
        // a login without a name has no user yet, so the account must be closed first
        if is_by_hook {
            users.disable(&acme(), &ada).await.unwrap();
        }
        service.forget_user(&acme(), &ada).await.unwrap();
        None
    });
    let enrolling: Running<Option<(u16, String)>> = Box::pin(async move {
        let answer = match enrolment {
            Enrolment::Call(path, body) => call(&mut browser, path, body).await,
            Enrolment::Post(body) => browser.post("/authentication/enrol", &body).await,
            Enrolment::Visit(target) => browser.get(&target).await,
        };
        Some((answer.status.as_u16(), answer.header("location").to_owned()))
    });
    let order: Vec<usize> = [vec![0; operations], vec![1; 200]].concat();
    let answers = interleave(vec![enrolling, forgetting], &order);
    let row = stored(&world, "u-ada").await.unwrap_or_default();
    for credential in ["passkeys", "totp", "recovery", "links"] {
        assert_eq!(row[credential], Value::Null, "{kind}, forgotten after {operations} operations");
    }
    answers.into_iter().flatten().next().unwrap()
}

#[tokio::test]
async fn b09_c119_nothing_that_a_user_enrols_survives_that_the_user_is_forgotten_meanwhile() {
    let kinds = ["app", "recovery codes", "passkey", "link", "link by hook", "totp in a login", "passkey in a login"];
    for kind in kinds {
        let mut answers = Vec::new();
        for operations in 0..45 {
            answers.push(forgotten(kind, operations).await);
        }
        // the first enrolments begin too late, and the last ones end in time
        let is_done = |(status, location): &(u16, String)| [200, 201].contains(status) || location.ends_with("#sso=ok");
        assert!(!is_done(answers.first().unwrap()), "{kind}: {answers:?}");
        assert!(is_done(answers.last().unwrap()), "{kind}: {answers:?}");
    }
}
