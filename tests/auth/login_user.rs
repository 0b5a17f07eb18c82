//! Sections M and N of the checklist: the user that a login is for.

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;
use tollgate::{
    Identifier, Password, Passwords, Tenant, UserId, Users,
    auth::LoginLimits,
    store::Memory,
    user::{Account, Contact, EmailAddress, NewUser, PhoneNumber},
};

use crate::world::{
    ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, GRACE, GRACE_PASSWORD, GRACE_PHONE, NOBODY, World, parameters,
};

fn acme() -> Tenant {
    "acme".parse().unwrap()
}

fn id(user: &str) -> UserId {
    UserId::parse(user).unwrap()
}

fn phone(number: &str) -> Contact {
    Contact::Phone(PhoneNumber::parse(number).unwrap())
}

fn name(text: &str) -> Identifier {
    Identifier::parse(text).unwrap()
}

fn is(answer: &Answer, status: u16, error: &str) {
    assert_eq!((answer.status.as_u16(), &*answer.error()), (status, error), "{answer:?}");
}

async fn set_password(world: &World, user: &str, password: &str) {
    let new = Passwords::insecure_fast().hash(Password::new(password)).await.unwrap();
    world.users.set_password(&acme(), &id(user), Some(new)).await.unwrap();
}

impl World {
    async fn end_user(&self, user: &str) {
        self.service.end_user(&acme(), &id(user)).await.unwrap();
    }

    async fn messages(&self) -> usize {
        self.settle().await;
        self.outbox.messages().len()
    }
}

impl Browser {
    /// Begins a login without a name.
    async fn start_unnamed(&mut self, client: &str) -> String {
        let answer = self.post("/authentication/start", &parameters(client)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["session_id"].as_str().unwrap().to_owned()
    }

    async fn code_by_mail(&mut self, world: &World, client: &str, id: &str, address: &str) -> Answer {
        assert_eq!(self.ask(client, id, "email", address).await.status, 200);
        let code = world.code(address).await;
        self.verify(client, id, &code).await
    }
}

#[tokio::test]
async fn c116_a_login_without_a_name_is_bound_by_its_first_proved_step() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start_unnamed("mfa").await;
    is(&browser.password("mfa", &id, NOBODY, ADA_PASSWORD).await, 401, "invalid_credentials");
    is(&browser.password("mfa", &id, GRACE, ADA_PASSWORD).await, 401, "invalid_credentials");
    assert_eq!(browser.password("mfa", &id, "ada", ADA_PASSWORD).await.status, 200);
    // now the login belongs to her, so no codes are sent to others
    assert_eq!(browser.ask("mfa", &id, "email", GRACE).await.status, 200);
    assert_eq!(world.messages().await, 0);
    is(&browser.verify("mfa", &id, "000000").await, 401, "invalid_otp");
    assert_eq!(browser.ask("mfa", &id, "sms", ADA_PHONE).await.status, 200);
    let code = world.code(ADA_PHONE).await;
    assert_eq!(browser.verify("mfa", &id, &code).await.status, 200);
    assert_eq!(browser.complete("mfa", &id).await.status, 200);
    assert!(browser.authorize("mfa").await.redirected("code").is_some());
}

#[tokio::test]
async fn c116_a_code_binds_a_login_without_a_name_to_the_owner_of_the_address() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start_unnamed("mfa").await;
    // her phone number is a contact, but not an identifier
    assert_eq!(browser.ask("mfa", &id, "sms", ADA_PHONE).await.status, 200);
    assert_eq!(world.messages().await, 0);
    assert_eq!(browser.code_by_mail(&world, "mfa", &id, GRACE).await.status, 200);
    is(&browser.password("mfa", &id, "ada", ADA_PASSWORD).await, 401, "invalid_credentials");
    // the user is known now, so the name can be left out
    let own = [("method", "password"), ("password", GRACE_PASSWORD)];
    assert_eq!(browser.call("authenticate", "mfa", &id, &own).await.status, 200);
    assert_eq!(browser.complete("mfa", &id).await.status, 200);
}

#[tokio::test]
async fn c116_a_name_that_is_also_a_contact_of_another_user_binds_neither() {
    let world = World::new().await;
    // grace signs in with a name that is an address of ada
    let number = "+15555550100";
    world.users.add_identifier(&acme(), &id("u-grace"), &name(number)).await.unwrap();
    let mut browser = world.browser();
    let login = browser.start_unnamed("web").await;
    assert_eq!(browser.ask("web", &login, "sms", number).await.status, 200);
    assert_eq!(world.messages().await, 0);
}

#[tokio::test]
async fn c116_a_login_with_a_name_accepts_only_its_user() {
    let world = World::new().await;
    for (start, username, password, is_right) in [
        (ADA, ADA, ADA_PASSWORD, true),
        (ADA, "ada", ADA_PASSWORD, true),
        (ADA, GRACE, GRACE_PASSWORD, false),
        (ADA, "grace", GRACE_PASSWORD, false),
        (NOBODY, ADA, ADA_PASSWORD, false),
        (NOBODY, NOBODY, ADA_PASSWORD, false),
    ] {
        let mut browser = world.browser();
        let login = browser.start("web", start).await;
        let answer = browser.password("web", &login, username, password).await;
        assert_eq!(answer.status.as_u16(), if is_right { 200 } else { 401 }, "{start} {username}");
    }
    let mut browser = world.browser();
    let login = browser.start("web", ADA).await;
    let call = [("method", "password"), ("password", ADA_PASSWORD)];
    is(&browser.call("authenticate", "web", &login, &call).await, 400, "invalid_request");
}

#[tokio::test]
async fn c116_a_name_that_is_created_after_the_start_does_not_join_the_login() {
    let world = World::new().await;
    let mut browser = world.browser();
    let login = browser.start("web", NOBODY).await;
    world.users.add_identifier(&acme(), &id("u-ada"), &name(NOBODY)).await.unwrap();
    is(&browser.password("web", &login, NOBODY, ADA_PASSWORD).await, 401, "invalid_credentials");
}

#[tokio::test]
async fn c120_a_name_that_changes_during_a_login_changes_nothing() {
    for typed in [ADA, "new@example.com", "ada"] {
        let world = World::new().await;
        let mut browser = world.browser();
        let login = browser.start("mfa", ADA).await;
        world.users.add_identifier(&acme(), &id("u-ada"), &name("new@example.com")).await.unwrap();
        world.users.remove_identifier(&acme(), &id("u-ada"), &name(ADA)).await.unwrap();
        // somebody else takes the old name
        world.users.add_identifier(&acme(), &id("u-grace"), &name(ADA)).await.unwrap();
        is(&browser.password("mfa", &login, ADA, GRACE_PASSWORD).await, 401, "invalid_credentials");
        assert_eq!(browser.password("mfa", &login, typed, ADA_PASSWORD).await.status, 200, "{typed}");
        assert_eq!(browser.code_by_mail(&world, "mfa", &login, ADA).await.status, 200);
        assert_eq!(browser.complete("mfa", &login).await.status, 200);
        assert!(browser.authorize("mfa").await.redirected("code").is_some());
    }
}

#[tokio::test]
async fn c115_no_answer_depends_on_what_an_account_has_enrolled() {
    let world = World::new().await;
    let new = |user: &str, email: &str| NewUser::new(id(user), name(user)).identifier(name(email));
    let mail = |address: &str| Contact::Email(EmailAddress::parse(address).unwrap());
    let hash =
        world.users.by_id(&acme(), &id("u-ada")).await.unwrap().as_ref().and_then(Account::password_hash).cloned();
    for user in [
        new("nothing", "nothing@example.com"),
        new("password", "password@example.com").password(hash.clone().unwrap()),
        new("phone", "phone@example.com").contact(phone("+15555550130")),
        new("mailbox", "mailbox@example.com").contact(mail("mailbox@example.com")),
        new("disabled", "disabled@example.com").password(hash.unwrap()).disabled(true),
    ] {
        world.users.create(&acme(), user).await.unwrap();
    }
    let mut seen = BTreeSet::new();
    for user in ["ada", "nothing", "password", "phone", "mailbox", "disabled", "unknown"] {
        for is_named in [true, false] {
            let mut browser = world.browser();
            let mut body = parameters("mfa");
            if is_named {
                body["identifier"] = json!(user);
            }
            let started = browser.post("/authentication/start", &body).await;
            let login = started.json()["session_id"].as_str().unwrap().to_owned();
            let address = format!("{user}@example.com");
            let mut answers = vec![started, browser.status(&login).await];
            answers.push(browser.password("mfa", &login, user, "wrong").await);
            answers.push(browser.ask("mfa", &login, "email", &address).await);
            answers.push(browser.verify("mfa", &login, "wrong").await);
            answers.push(browser.ask("mfa", &login, "sms", "+15555550130").await);
            answers.push(browser.status(&login).await);
            answers.push(browser.complete("mfa", &login).await);
            seen.insert(answers.iter().map(Answer::whole).collect::<String>());
            // the limit of a phone counts per login name, but never within this time
            world.advance(3600);
        }
    }
    assert_eq!(seen.len(), 1, "{seen:#?}");
}

#[tokio::test]
async fn c119_ending_a_user_stops_logins_in_progress() {
    let world = World::new().await;
    let mut named = world.browser();
    let login = named.start("mfa", ADA).await;
    let mut other = world.browser();
    let others = other.start("mfa", GRACE).await;
    world.end_user("u-ada").await;
    // strangers must not see it before the first proof
    is(&named.password("mfa", &login, ADA, "wrong").await, 401, "invalid_credentials");
    assert_eq!(named.status(&login).await.json()["status"], "pending");
    is(&named.password("mfa", &login, ADA, ADA_PASSWORD).await, 401, "session_expired");
    assert_eq!(named.status(&login).await.json()["status"], "expired");
    is(&named.password("mfa", &login, ADA, ADA_PASSWORD).await, 401, "session_expired");
    // other users are not affected, and she can sign in again
    assert_eq!(other.password("mfa", &others, GRACE, GRACE_PASSWORD).await.status, 200);
    let again = named.start("mfa", ADA).await;
    assert_eq!(named.password("mfa", &again, ADA, ADA_PASSWORD).await.status, 200);
}

#[tokio::test]
async fn c119_ending_a_user_stops_a_login_after_each_of_its_steps() {
    for steps in 1..=3 {
        for is_named in [true, false] {
            let world = World::new().await;
            let mut browser = world.browser();
            let login = if is_named { browser.start("mfa", ADA).await } else { browser.start_unnamed("mfa").await };
            assert_eq!(browser.password("mfa", &login, ADA, ADA_PASSWORD).await.status, 200);
            if steps > 1 {
                assert_eq!(browser.code_by_mail(&world, "mfa", &login, ADA).await.status, 200);
            }
            if steps > 2 {
                assert_eq!(browser.complete("mfa", &login).await.status, 200);
            }
            world.end_user("u-ada").await;
            let sent = world.messages().await;
            match steps {
                1 => is(&browser.ask("mfa", &login, "email", ADA).await, 401, "session_expired"),
                2 => is(&browser.complete("mfa", &login).await, 401, "session_expired"),
                _ => {}
            }
            assert_eq!(world.messages().await, sent);
            let answer = browser.authorize("mfa").await;
            assert_eq!(answer.redirected("code"), None, "{steps} {answer:?}");
        }
    }
}

#[tokio::test]
async fn c119_a_code_sent_before_its_user_was_ended_does_not_work() {
    for is_named in [true, false] {
        let world = World::new().await;
        let mut browser = world.browser();
        let login = if is_named { browser.start("web", ADA).await } else { browser.start_unnamed("web").await };
        assert_eq!(browser.ask("web", &login, "email", ADA).await.status, 200);
        let code = world.code(ADA).await;
        world.end_user("u-ada").await;
        is(&browser.verify("web", &login, "wrong").await, 401, "invalid_otp");
        is(&browser.verify("web", &login, &code).await, 401, "session_expired");
    }
}

#[tokio::test]
async fn c120_a_changed_password_or_contact_ends_a_login_before_it_completes() {
    for change in ["password", "phone", "disabled", "nothing", "other contact"] {
        let world = World::new().await;
        let mut browser = world.browser();
        let login = browser.start("mfa", ADA).await;
        assert_eq!(browser.password("mfa", &login, ADA, ADA_PASSWORD).await.status, 200);
        assert_eq!(browser.ask("mfa", &login, "sms", ADA_PHONE).await.status, 200);
        let code = world.code(ADA_PHONE).await;
        assert_eq!(browser.verify("mfa", &login, &code).await.status, 200);
        match change {
            "password" => set_password(&world, "u-ada", "another one entirely").await,
            "phone" => world.users.remove_contact(&acme(), &id("u-ada"), &phone(ADA_PHONE)).await.unwrap(),
            "disabled" => world.users.disable(&acme(), &id("u-ada")).await.unwrap(),
            "other contact" => {
                let mail = Contact::Email(EmailAddress::parse(ADA).unwrap());
                world.users.remove_contact(&acme(), &id("u-ada"), &mail).await.unwrap();
            }
            _ => {}
        }
        let answer = browser.complete("mfa", &login).await;
        if ["nothing", "other contact"].contains(&change) {
            assert_eq!(answer.status, 200, "{change}: {answer:?}");
        } else {
            is(&answer, 401, "session_expired");
            assert_eq!(browser.authorize("mfa").await.redirected("code"), None, "{change}");
        }
    }
}

#[tokio::test]
async fn c110_guesses_in_a_login_without_a_name_count_for_the_address() {
    let world = World::new().await;
    let mut browser = world.browser();
    let login = browser.start_unnamed("web").await;
    assert_eq!(browser.ask("web", &login, "email", ADA).await.status, 200);
    for _ in 0..5 {
        is(&browser.verify("web", &login, "wrong").await, 401, "invalid_otp");
    }
    world.advance(29);
    let login = browser.start("web", ADA).await;
    is(&browser.ask("web", &login, "email", ADA).await, 429, "slow_down");
    world.advance(1);
    assert_eq!(browser.ask("web", &login, "email", ADA).await.status, 200);
    let code = world.code(ADA).await;
    assert_eq!(browser.verify("web", &login, &code).await.status, 200);
    // a login with grace's name has its own limit
    let login = browser.start("web", GRACE).await;
    assert_eq!(browser.ask("web", &login, "email", ADA).await.status, 200);
}

#[tokio::test]
async fn c055_c059_c087_lifetimes_and_limits_can_be_configured() {
    let limits = LoginLimits::new()
        .absolute_timeout(Duration::from_secs(1000))
        .code_lifetime(Duration::from_secs(90))
        .code_attempts(2);
    let world = World::with(Memory::new(), |service| service.login_limits(limits)).await;
    let mut browser = world.browser();
    let login = browser.start("web", ADA).await;
    let sent = browser.ask("web", &login, "sms", ADA_PHONE).await.json();
    assert_eq!((&sent["challenge"]["expires_in"], &sent["challenge"]["resend_in"]), (&json!(90), &json!(30)));
    let code = world.code(ADA_PHONE).await;
    world.advance(29);
    is(&browser.ask("web", &login, "sms", ADA_PHONE).await, 429, "slow_down");
    world.advance(61);
    is(&browser.verify("web", &login, &code).await, 401, "invalid_otp");
    is(&browser.verify("web", &login, &code).await, 401, "invalid_otp");
    is(&browser.verify("web", &login, &code).await, 409, "no_pending_challenge");
    assert_eq!(browser.password("web", &login, ADA, ADA_PASSWORD).await.status, 200);
    assert_eq!(browser.complete("web", &login).await.status, 200);
    world.advance(300);
    assert_eq!(browser.authorize("web").await.redirected("code"), None);
    let login = browser.start("web", ADA).await;
    world.advance(600);
    is(&browser.password("web", &login, ADA, ADA_PASSWORD).await, 401, "session_expired");
    assert_eq!(world.outbox.messages().iter().filter(|message| message.to() == GRACE_PHONE).count(), 0);
}

#[tokio::test]
async fn c055_settings_beyond_the_standards_are_refused_when_the_service_is_built() {
    use tollgate::{AuthService, ClientIp, StoredUsers};
    let build = |limits| {
        AuthService::builder("https://auth.example", Memory::new())
            .users(StoredUsers::new(Memory::new()))
            .client_ip(ClientIp::peer())
            .login_limits(limits)
            .build()
    };
    assert!(build(LoginLimits::new()).is_ok());
    let error = build(LoginLimits::new().code_lifetime(Duration::from_secs(601))).unwrap_err().to_string();
    assert!(error.contains("login code_lifetime"), "{error}");
}
