//! How a user who has one factor gets a second one: on the account page, and within a login of two steps. And how thieves fail.

use http::Request;
use serde_json::{Value, json};
use tollgate::{
    Client, ClientTable, NewUser, Password, Passwords, Policies, Tokens, UserId,
    auth::{AuthServiceBuilder, EnrolledCredential, Passkeys, Totp},
    delivery::NoticeKind,
    event::EventKind,
    policy::{Method, Policy},
    store::{AnyStore, Memory},
    testing::ManualClock,
    user::{Contact, EmailAddress},
};

use crate::{
    controlled_store::ControlledStore,
    enrolled::{app, enrol as enrolled, stored},
    own_account::{LONE, acme, ada, call, credentials, enrol_totp, events, sign_in, totp},
    soft_passkey::{RP_ID, SoftPasskey, text},
    world::{ADA, ADA_PASSWORD, Answer, Browser, CALLBACK, NOBODY, World, clients, join, query},
};

/// A user with a mailbox and nothing else.
pub(crate) const MAILBOX: &str = "mailbox@example.com";

/// The clients of every world, and others of acme which need two steps: `sso` takes part in single sign-on, `in-person` wants
/// second factors that somebody else enrols, and `named` names the methods.
pub(crate) async fn world_on(store: AnyStore, more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder) -> World {
    let client = |id: &str, policy: Policy| {
        let client = Client::new(id, acme()).unwrap().scopes("openid").unwrap().redirect_uri(CALLBACK).unwrap();
        client.policy(policy)
    };
    let two = || Policy::any(2).unwrap();
    let named = Policy::slots([Method::Password.into(), Method::Totp | Method::Passkey]).unwrap();
    let own = [
        client("sso", two()).single_sign_on(),
        client("in-person", two().without_self_enrolment()),
        client("named", named),
    ];
    let all = clients().iter().map(|client| Client::clone(client)).chain(own).collect::<Vec<_>>();
    let more = |service: AuthServiceBuilder| {
        more(
            service
                .first_party(acme())
                .totp(Totp::new().seal(&tollgate::Secret::generate()))
                .passkeys(Passkeys::new(RP_ID)),
        )
    };
    let world = World::made(store, ManualClock::new(), ClientTable::new(all).unwrap(), Tokens::new(), more).await;
    let hash = Passwords::insecure_fast().hash(Password::new(ADA_PASSWORD)).await.unwrap();
    let lone = NewUser::new("u-lone".parse().unwrap(), LONE.parse().unwrap()).password(hash);
    let mailbox = NewUser::new("u-mailbox".parse().unwrap(), MAILBOX.parse().unwrap())
        .contact(Contact::Email(EmailAddress::parse(MAILBOX).unwrap()));
    for user in [lone, mailbox] {
        world.users.create(&acme(), user).await.unwrap();
    }
    world
}

pub(crate) async fn world() -> World {
    world_on(Memory::new().into(), |service| service).await
}

/// A login in which a user has proved a password.
pub(crate) struct Half {
    pub(crate) browser: Browser,
    pub(crate) client: &'static str,
    pub(crate) id: String,
}

impl Half {
    pub(crate) async fn of(world: &World, client: &'static str, who: &str) -> Self {
        let mut browser = world.browser();
        let id = browser.start(client, who).await;
        let proved = browser.password(client, &id, who, ADA_PASSWORD).await;
        assert_eq!(proved.status, 200, "{proved:?}");
        Self { browser, client, id }
    }

    pub(crate) async fn choices(&mut self) -> Value {
        self.browser.get(&format!("/authentication/choices?session_id={}", self.id)).await.json()
    }

    pub(crate) async fn enrol(&mut self, method: &str, more: &[(&str, &str)]) -> Answer {
        let more = [&[("method", method)], more].concat();
        self.browser.call("enrol", self.client, &self.id, &more).await
    }

    /// Begins to set up an app, and returns its secret.
    pub(crate) async fn begin(&mut self) -> String {
        let begun = self.enrol("totp", &[]).await;
        assert_eq!(begun.status, 200, "{begun:?}");
        begun.json()["secret"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn confirm(&mut self, world: &World, secret: &str) -> Answer {
        self.enrol("totp", &[("code", &totp(secret, world.time()))]).await
    }

    pub(crate) async fn code(&mut self) -> Option<String> {
        let completed = self.browser.complete(self.client, &self.id).await;
        assert_eq!(completed.status, 200, "{completed:?}");
        self.browser.authorize(self.client).await.redirected("code")
    }

    pub(crate) async fn is_not_offered(&mut self) {
        assert_eq!(self.choices().await["enrol"], Value::Null);
        for method in ["totp", "passkey"] {
            refused(&self.enrol(method, &[]).await, 409, "method_not_allowed");
            refused(&self.enrol(method, &[("code", "123456")]).await, 409, "method_not_allowed");
        }
    }
}

pub(crate) fn refused(answer: &Answer, status: u16, error: &str) {
    assert_eq!((answer.status.as_u16(), &*answer.error()), (status, error), "{answer:?}");
}

pub(crate) async fn strength(world: &World, user: &str, kind: &str) -> Value {
    stored(world, user).await.unwrap()[kind]["strength"].clone()
}

// ---- within a login

#[tokio::test]
async fn b09_a_user_with_only_a_password_sets_up_an_app_as_the_second_step() {
    let world = world().await;
    let mut half = Half::of(&world, "mfa", LONE).await;
    let choices = half.choices().await;
    let until = world.time().as_secs() + 300;
    assert_eq!(choices["methods"], json!([]));
    assert_eq!(choices["enrol"], json!({ "methods": ["passkey", "totp"], "fresh_until": until }));
    let begun = half.enrol("totp", &[]).await.json();
    assert_eq!((&begun["completed_steps"], &begun["remaining_steps"]), (&json!(1), &json!(1)));
    assert!(begun["qr_svg"].as_str().unwrap().starts_with("<svg ") && begun["uri"].as_str().unwrap().contains("lone"));
    let secret = begun["secret"].as_str().unwrap().to_owned();
    refused(&half.browser.complete("mfa", &half.id).await, 409, "steps_remaining");
    assert_eq!(stored(&world, "u-lone").await, None, "it is not confirmed yet");
    refused(&half.enrol("totp", &[("code", "12345")]).await, 401, "invalid_otp");
    let confirmed = half.confirm(&world, &secret).await;
    assert_eq!((confirmed.status.as_u16(), &confirmed.json()["remaining_steps"]), (200, &json!(0)));
    assert!(half.code().await.is_some());
    assert_eq!(strength(&world, "u-lone", "totp").await, json!({ "steps": 2, "proved": [["password"]] }));
    assert_eq!(events(&world, EventKind::CredentialAdded), ["totp"]);
    assert!(events(&world, EventKind::LoginStepProved).contains(&"totp"));

    // from now on, it is the second step, and nothing else can be set up without it
    world.advance(30);
    let mut next = Half::of(&world, "mfa", LONE).await;
    assert_eq!(next.choices().await["methods"], json!(["totp"]));
    next.is_not_offered().await;
    let code = totp(&secret, world.time());
    let proved = next.browser.call("authenticate", "mfa", &next.id, &[("method", "totp"), ("code", &code)]).await;
    assert_eq!(proved.status, 200);
    assert!(next.code().await.is_some());
}

#[tokio::test]
async fn b09_a_user_with_only_a_password_sets_up_a_passkey_as_the_second_step() {
    let world = world().await;
    let (mut half, mut passkey) = (Half::of(&world, "mfa", LONE).await, SoftPasskey::new());
    let options = half.enrol("passkey", &[]).await.json();
    assert_eq!(options["publicKey"]["user"]["name"], LONE);
    let mut body =
        crate::world::with(crate::world::parameters("mfa"), &[("session_id", &half.id), ("method", "passkey")]);
    body["response"] = passkey.create(&options);
    let proved = half.browser.post("/authentication/enrol", &body).await;
    assert_eq!((proved.status.as_u16(), &proved.json()["remaining_steps"]), (200, &json!(0)), "{proved:?}");
    refused(&half.browser.post("/authentication/enrol", &body).await, 409, "no_step_remaining");
    assert!(half.code().await.is_some());
    let row = stored(&world, "u-lone").await.unwrap();
    assert_eq!((&row["passkeys"][0]["id"], row["passkeys"].as_array().unwrap().len()), (&json!(text(&passkey.id)), 1));
    assert_eq!(row["passkeys"][0]["strength"], json!({ "steps": 2, "proved": [["password"]] }));
    // a response that was made for another challenge is a failed attempt, and uses up the challenge
    let mut other = Half::of(&world, "mfa", LONE).await;
    other.is_not_offered().await;
}

#[tokio::test]
async fn b09_a_response_for_another_challenge_is_a_failed_attempt_and_uses_the_challenge_up() {
    let world = world().await;
    let mut half = Half::of(&world, "mfa", LONE).await;
    let old = SoftPasskey::new().create(&half.enrol("passkey", &[]).await.json());
    half.enrol("passkey", &[]).await;
    let mut body =
        crate::world::with(crate::world::parameters("mfa"), &[("session_id", &half.id), ("method", "passkey")]);
    body["response"] = old;
    refused(&half.browser.post("/authentication/enrol", &body).await, 401, "invalid_assertion");
    refused(&half.browser.post("/authentication/enrol", &body).await, 409, "no_pending_challenge");
    body["response"] = json!({ "id": "AA" });
    refused(&half.browser.post("/authentication/enrol", &body).await, 400, "invalid_request");
    assert!(stored(&world, "u-lone").await.is_none_or(|row| row["passkeys"].is_null()));
}

#[tokio::test]
async fn b09_the_user_is_told_and_the_session_can_have_recovery_codes_at_once() {
    let world = world().await;
    let mut browser = world.browser();
    let id = browser.start("mfa", MAILBOX).await;
    assert_eq!(browser.ask("mfa", &id, "email", MAILBOX).await.status, 200);
    let code = world.code(MAILBOX).await;
    assert_eq!(browser.verify("mfa", &id, &code).await.status, 200);
    let mut half = Half { browser, client: "mfa", id };
    let secret = half.begin().await;
    assert_eq!(half.confirm(&world, &secret).await.status, 200);
    world.settle().await;
    let messages = world.outbox.messages();
    let notices: Vec<_> =
        messages.iter().filter_map(|message| Some((message.to(), message.notice()?.kind()))).collect();
    assert_eq!(notices, [(MAILBOX, NoticeKind::TotpAdded)]);
    assert_eq!(events(&world, EventKind::NoticeSent), ["totp"]);
    assert!(half.code().await.is_some());
    assert_eq!(call(&mut half.browser, "recovery-codes", json!({})).await.status, 201);
}

#[tokio::test]
async fn b09_nothing_shows_before_a_proved_step_who_could_set_something_up() {
    let world = world().await;
    enrolled(&world, "u-grace", json!({ "totp": app(2) })).await;
    let mut seen: Vec<Vec<(u16, Value)>> = Vec::new();
    for who in [LONE, ADA, crate::world::GRACE, NOBODY] {
        let mut browser = world.browser();
        let id = browser.start("mfa", who).await;
        let mut half = Half { browser, client: "mfa", id: id.clone() };
        let mut answers = Vec::new();
        for more in [&[][..], &[("code", "123456")]] {
            answers.push(half.enrol("totp", more).await);
        }
        answers.push(half.enrol("passkey", &[]).await);
        answers.push(half.browser.password("mfa", &id, who, "wrong").await);
        answers.push(half.enrol("totp", &[]).await);
        answers.push(half.browser.get(&format!("/authentication/choices?session_id={id}")).await);
        let shown = |answer: &Answer| {
            let mut body = answer.json();
            body["session_id"].take();
            (answer.status.as_u16(), body)
        };
        assert_eq!(answers[0].error(), "step_required");
        seen.push(answers.iter().map(shown).collect());
    }
    assert!(seen.iter().all(|other| *other == seen[0]), "{seen:#?}");
}

#[tokio::test]
async fn b09_a_stolen_password_sets_nothing_up_where_the_account_has_a_second_factor() {
    let world = world().await;
    // a mailbox
    Half::of(&world, "mfa", ADA).await.is_not_offered().await;
    // an app, recovery codes or a passkey
    let mut passkey = SoftPasskey::new();
    passkey.handle = vec![0; 32];
    let codes =
        json!({ "enrolment": "AAAAAAAAAAAAAAAAAAAAAQ", "unused": ["A".repeat(43)], "created_at": 0, "strength": 2 });
    for row in [json!({ "totp": app(2) }), json!({ "recovery": codes }), json!({ "passkeys": [passkey.stored(2)] })] {
        enrolled(&world, "u-lone", row).await;
        let before = stored(&world, "u-lone").await;
        Half::of(&world, "mfa", LONE).await.is_not_offered().await;
        assert_eq!(stored(&world, "u-lone").await, before);
    }
    // in a login of one step there is nothing to set up
    enrolled(&world, "u-lone", json!({})).await;
    let mut one = Half::of(&world, "web", LONE).await;
    refused(&one.enrol("totp", &[]).await, 409, "no_step_remaining");
}

#[tokio::test]
async fn b09_of_two_enrolments_at_the_same_time_one_wins() {
    let store = ControlledStore::default();
    let world = world_on(store.clone().into(), |service| service).await;
    for round in 0..6 {
        enrolled(&world, "u-lone", json!({})).await;
        let mut halves = [Half::of(&world, "mfa", LONE).await, Half::of(&world, "mfa", LONE).await];
        let mut secrets = Vec::new();
        for half in &mut halves {
            secrets.push(half.begin().await);
        }
        let answers = if round == 0 {
            let first = halves[0].confirm(&world, &secrets[0]).await;
            vec![first, halves[1].confirm(&world, &secrets[1]).await]
        } else {
            store.yields();
            join(halves.iter_mut().zip(&secrets).map(|(half, secret)| half.confirm(&world, secret))).await
        };
        let won: Vec<bool> = answers.iter().map(|answer| answer.status == 200).collect();
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "{answers:?}");
        let [lost, winner] = if won[0] { [1, 0] } else { [0, 1] };
        refused(&answers[lost], 409, "method_not_allowed");
        // the loser needs what the winner has
        assert_eq!(halves[lost].choices().await["methods"], json!(["totp"]));
        halves[lost].is_not_offered().await;
        assert!(halves[winner].code().await.is_some());
        world.advance(30);
    }
}

#[tokio::test]
async fn b09_an_enrolment_belongs_to_one_login_and_its_browser_and_a_code_counts_once() {
    let world = world().await;
    let mut half = Half::of(&world, "mfa", LONE).await;
    let mut other = Half::of(&world, "mfa", LONE).await;
    let secret = half.begin().await;
    refused(&other.confirm(&world, &secret).await, 409, "no_pending_challenge");
    // without the cookie of the login, its id is worth nothing
    let mut foreign = Half { id: half.id.clone(), ..Half::of(&world, "mfa", LONE).await };
    refused(&foreign.confirm(&world, &secret).await, 401, "invalid_session");
    refused(&foreign.enrol("totp", &[]).await, 401, "invalid_session");
    refused(&half.browser.call("enrol", "web", &half.id, &[("method", "totp")]).await, 400, "invalid_request");
    // nor is a key that a session has begun
    let mut session = sign_in(&world, LONE, &["password"]).await;
    let of_session = call(&mut session, "totp/begin", json!({})).await.json();
    refused(&other.confirm(&world, of_session["secret"].as_str().unwrap()).await, 409, "no_pending_challenge");
    let code = totp(&secret, world.time());
    assert_eq!(half.enrol("totp", &[("code", &code)]).await.status, 200);
    refused(&half.enrol("totp", &[("code", &code)]).await, 409, "no_step_remaining");
    // the code is used up for logins, too
    let mut replay = Half::of(&world, "mfa", LONE).await;
    let more = [("method", "totp"), ("code", &*code)];
    refused(&replay.browser.call("authenticate", "mfa", &replay.id, &more).await, 401, "invalid_otp");
}

#[tokio::test]
async fn b09_other_sites_and_unknown_methods_are_refused() {
    let world = world().await;
    let mut half = Half::of(&world, "mfa", LONE).await;
    let body = crate::world::with(crate::world::parameters("mfa"), &[("session_id", &half.id), ("method", "totp")]);
    for origin in ["https://evil.example", "null"] {
        let request = Request::post("/authentication/enrol").header("content-type", "application/json");
        let answer = half.browser.send(request.header("origin", origin), body.to_string()).await;
        refused(&answer, 403, "origin_not_allowed");
    }
    let form = Request::post("/authentication/enrol").header("content-type", "text/plain");
    assert_eq!(half.browser.send(form, body.to_string()).await.status, 415);
    for method in ["password", "email", "sso", "recovery_code", "pigeon"] {
        refused(&half.enrol(method, &[]).await, 400, "unsupported_method");
    }
    refused(&half.browser.call("enrol", "mfa", &half.id, &[]).await, 400, "invalid_request");
}

#[tokio::test]
async fn b09_the_first_step_must_be_fresh_and_its_user_and_password_unchanged() {
    let world = world().await;
    let mut half = Half::of(&world, "mfa", LONE).await;
    let secret = half.begin().await;
    world.advance(299);
    assert_eq!(half.confirm(&world, &secret).await.status, 200, "299 seconds later");
    enrolled(&world, "u-lone", json!({})).await;
    let mut half = Half::of(&world, "mfa", LONE).await;
    world.advance(299);
    let secret = half.begin().await;
    world.advance(1);
    assert_eq!(half.choices().await["enrol"]["fresh_until"], Value::Null);
    refused(&half.confirm(&world, &secret).await, 403, "fresh_login_required");
    world.advance(300);
    refused(&half.confirm(&world, &secret).await, 401, "session_expired");
    // a changed password, and an ended user
    for change in ["password", "end", "disable"] {
        let mut half = Half::of(&world, "mfa", LONE).await;
        let secret = half.begin().await;
        let user = UserId::parse("u-lone").unwrap();
        match change {
            "password" => {
                let new = Passwords::insecure_fast().hash(Password::new(ADA_PASSWORD)).await.unwrap();
                world.users.set_password(&acme(), &user, Some(new)).await.unwrap();
            }
            "end" => drop(world.service.end_user(&acme(), &user).await.unwrap()),
            _ => world.users.disable(&acme(), &user).await.unwrap(),
        }
        refused(&half.confirm(&world, &secret).await, 401, "session_expired");
        assert_eq!(stored(&world, "u-lone").await.unwrap()["totp"], Value::Null);
    }
}

#[tokio::test]
async fn b09_a_stolen_session_without_a_fresh_proof_sets_nothing_up() {
    let world = world().await;
    let mut browser = sign_in(&world, LONE, &["password"]).await;
    let continued = async |browser: &Browser| {
        let mut browser = browser.clone();
        let started = browser.post("/authentication/start", &crate::world::parameters("sso")).await.json();
        assert_eq!(started["next_step"], 2, "{started}");
        Half { browser, client: "sso", id: started["session_id"].as_str().unwrap().to_owned() }
    };
    // the proof of the session is as good as one of the login while it is fresh
    let mut half = continued(&browser).await;
    assert!(half.choices().await["enrol"]["fresh_until"].is_u64());
    let secret = half.begin().await;
    world.advance(300);
    refused(&half.confirm(&world, &secret).await, 403, "fresh_login_required");
    let mut half = continued(&browser).await;
    assert_eq!(half.choices().await["enrol"], json!({ "methods": ["passkey", "totp"], "fresh_until": null }));
    for method in ["totp", "passkey"] {
        refused(&half.enrol(method, &[]).await, 403, "fresh_login_required");
    }
    // neither the account page
    for path in ["totp/begin", "totp", "passkeys/options", "passkeys"] {
        let answer = call(&mut browser, path, json!({ "code": "123456", "response": {} })).await;
        refused(&answer, 403, "fresh_login_required");
        assert!(answer.json()["login_url"].as_str().unwrap().ends_with("&steps=1"), "{answer:?}");
    }
    // nor a session that has ended since
    let browser = sign_in(&world, LONE, &["password"]).await;
    let mut half = continued(&browser).await;
    let secret = half.begin().await;
    world.sessions.revoke_user(&acme(), &UserId::parse("u-lone").unwrap()).await.unwrap();
    refused(&half.confirm(&world, &secret).await, 401, "session_expired");
    assert!(stored(&world, "u-lone").await.is_none_or(|row| row["totp"].is_null()));
}

#[tokio::test]
async fn b09_wrong_codes_count_like_those_of_other_steps() {
    let world = world().await;
    let mut half = Half::of(&world, "mfa", LONE).await;
    let secret = half.begin().await;
    let mut errors = Vec::new();
    for _ in 0..7 {
        errors.push(half.enrol("totp", &[("code", "12345")]).await.error());
    }
    assert_eq!(errors, [["invalid_otp"; 5].as_slice(), &["too_many_attempts"; 2]].concat());
    refused(&half.confirm(&world, &secret).await, 429, "too_many_attempts");
    assert_eq!(events(&world, EventKind::LoginFailed).first(), Some(&"totp"));
    world.advance(60);
    assert_eq!(half.confirm(&world, &secret).await.status, 200);
}

#[tokio::test]
async fn b09_b01_policies_that_name_methods_or_want_enrolment_in_person_offer_nothing() {
    let world = world().await;
    let mut older = sign_in(&world, LONE, &["password"]).await;
    let mut browser = sign_in(&world, LONE, &["password"]).await;
    for client in ["named", "in-person"] {
        Half::of(&world, client, LONE).await.is_not_offered().await;
    }
    // the app that was set up on the account page counts where steps are counted, and nowhere else
    let secret = enrol_totp(&world, &mut browser).await;
    let prove = async |client: &'static str| {
        world.advance(30);
        let mut half = Half::of(&world, client, LONE).await;
        let methods = half.choices().await["methods"].clone();
        let code = totp(&secret, world.time());
        let answer = half.browser.call("authenticate", client, &half.id, &[("method", "totp"), ("code", &code)]).await;
        assert_eq!(methods == json!(["totp"]), answer.status == 200, "{answer:?}");
        answer.status.as_u16()
    };
    assert_eq!([prove("mfa").await, prove("named").await, prove("in-person").await], [200, 401, 401]);
    let lone = UserId::parse("u-lone").unwrap();
    assert!(world.service.vouch_for(&acme(), &lone, EnrolledCredential::Totp).await.unwrap());
    assert_eq!([prove("mfa").await, prove("named").await, prove("in-person").await], [200; 3]);
    // an app for which two factors were proved counts
    let mut owner = ada(&world).await;
    let secret = enrol_totp(&world, &mut owner).await;
    world.advance(30);
    let mut half = Half::of(&world, "in-person", ADA).await;
    let code = totp(&secret, world.time());
    let proved = half.browser.call("authenticate", "in-person", &half.id, &[("method", "totp"), ("code", &code)]).await;
    assert_eq!(proved.status, 200, "{proved:?}");
    // nor does its session open a client that wants more
    let silent = older.get(&format!("/authorize?{}&prompt=none", query("in-person"))).await;
    assert_eq!(silent.redirected("error").as_deref(), Some("login_required"));
}

// ---- on the account page

#[tokio::test]
async fn b09_a_user_with_only_a_password_adds_an_app_and_then_changes_need_it() {
    let world = world().await;
    let mut thief = sign_in(&world, LONE, &["password"]).await;
    let mut browser = sign_in(&world, LONE, &["password"]).await;
    let shown = credentials(&mut browser).await;
    assert_eq!((&shown["required_proofs"], &shown["can_use_codes"]), (&json!(1), &json!(true)));
    // recovery codes alone are no second factor to begin with
    refused(&call(&mut browser, "recovery-codes", json!({})).await, 403, "second_factor_required");
    enrol_totp(&world, &mut browser).await;
    assert_eq!(strength(&world, "u-lone", "totp").await, json!({ "steps": 2, "proved": [["password"]] }));
    // the user has just proved it, and can go on
    assert_eq!(credentials(&mut browser).await["required_proofs"], 2);
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.status, 201);
    assert_eq!(call(&mut browser, "passkeys/options", json!({})).await.status, 200);
    // an older session of the password alone cannot
    for path in ["totp/begin", "totp", "totp/delete", "recovery-codes", "passkeys/options", "passkeys"] {
        let answer = call(&mut thief, path, json!({ "code": "123456", "response": {} })).await;
        refused(&answer, 403, "fresh_login_required");
        assert!(answer.json()["login_url"].as_str().unwrap().ends_with("&steps=2"), "{answer:?}");
    }
    // nor the first one once its proofs are old
    world.advance(300);
    refused(&call(&mut browser, "recovery-codes", json!({})).await, 403, "fresh_login_required");
}

#[tokio::test]
async fn b09_a_passkey_that_a_user_with_only_a_password_adds_counts_as_the_second_step() {
    let world = world().await;
    let (mut browser, mut passkey) = (sign_in(&world, LONE, &["password"]).await, SoftPasskey::new());
    assert_eq!(crate::soft_passkey::add(&mut browser, &mut passkey).await.status, 201);
    assert_eq!(events(&world, EventKind::CredentialAdded), ["passkey"]);
    assert_eq!(credentials(&mut browser).await["required_proofs"], 2);
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.status, 201, "it was proved just now");
    let mut other = world.browser();
    let begun = crate::soft_passkey::begin(&mut other, "mfa", Some(LONE)).await;
    assert_eq!(crate::soft_passkey::prove(&mut other, &begun, &passkey).await.status, 200);
    assert_eq!(other.password("mfa", &begun.id, LONE, ADA_PASSWORD).await.status, 200);
    assert_eq!(other.complete("mfa", &begun.id).await.status, 200);
    assert!(other.authorize("mfa").await.redirected("code").is_some());
}

#[tokio::test]
async fn b09_of_two_sessions_that_add_the_first_second_factor_one_wins() {
    let store = ControlledStore::default();
    let world = world_on(store.clone().into(), |service| service).await;
    for round in 0..6 {
        enrolled(&world, "u-lone", json!({})).await;
        let mut tabs = Vec::new();
        for _ in 0..2 {
            let mut browser = sign_in(&world, LONE, &["password"]).await;
            let begun = call(&mut browser, "totp/begin", json!({})).await.json();
            let code = totp(begun["secret"].as_str().unwrap(), world.time());
            tabs.push((browser, json!({ "code": code })));
        }
        let answers = if round == 0 {
            let mut answers = Vec::new();
            for (browser, code) in &mut tabs {
                answers.push(call(browser, "totp", code.clone()).await);
            }
            answers
        } else {
            store.yields();
            join(tabs.iter_mut().map(|(browser, code)| call(browser, "totp", code.clone()))).await
        };
        assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1, "{answers:?}");
        let lost = answers.iter().find(|answer| answer.status != 201).unwrap();
        refused(lost, 403, "fresh_login_required");
        assert!(lost.json()["login_url"].as_str().unwrap().ends_with("&steps=2"), "{lost:?}");
    }
}

#[tokio::test]
async fn b09_a_factor_that_does_not_count_in_two_steps_vouches_for_no_second_one() {
    let world = world().await;
    let mut by_password = sign_in(&world, LONE, &["password"]).await;
    let mut passkey = SoftPasskey::new();
    passkey.handle = vec![0; 32];
    enrolled(&world, "u-lone", json!({ "passkeys": [passkey.stored(1)] })).await;
    let (mut browser, begun) = (world.browser(), crate::own_account::begin(&mut world.browser(), "/sign-in").await);
    let started = browser.post("/authentication/start", &begun).await.json();
    let own =
        crate::world::with(begun, &[("session_id", started["session_id"].as_str().unwrap()), ("method", "passkey")]);
    let (options, mut step) = (&started["challenges"]["passkey"], own.clone());
    (step["challenge"], step["response"]) = (options["challenge"].clone(), passkey.get(options));
    assert_eq!(browser.post("/authentication/authenticate", &step).await.status, 200);
    assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
    browser.get("/sign-in/finish").await;
    // nor does the password alone: both are needed
    for browser in [&mut browser, &mut by_password] {
        refused(&call(browser, "totp/begin", json!({})).await, 403, "fresh_login_required");
    }
}

#[tokio::test]
async fn b09_a_site_whose_policy_needs_two_steps_is_reached_and_can_refuse_self_enrolment() {
    let site = async |policy: Policy| {
        let policies = Policies::default().tenant(acme(), policy);
        world_on(Memory::new().into(), |service| service.policies(policies)).await
    };
    let two = Policy::any(2).unwrap();
    let world = site(two.clone()).await;
    let mut half = Half::of(&world, "web", LONE).await;
    let secret = half.begin().await;
    assert_eq!(half.confirm(&world, &secret).await.status, 200);
    assert!(half.code().await.is_some());
    let world = site(two.without_self_enrolment()).await;
    Half::of(&world, "web", LONE).await.is_not_offered().await;
}
