//! Failing on purpose elsewhere does not lock out the owner of an account: browsers in which the user completed a login
//! have attempts and messages of their own.

use http::header::COOKIE;
use tollgate::{
    Identifier, Password, Passwords, UserId, Users,
    auth::{AuthServiceBuilder, LoginLimits},
    event::{EventKind, Query},
    store::{AnyStore, Memory},
    testing::ManualClock,
    user::{Account, Contact, NewUser, PhoneNumber},
};

use crate::{
    controlled_store::ControlledStore,
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, GRACE, GRACE_PASSWORD, NOBODY, World, parameters, with},
};

const DEVICE: &str = "__Host-auth_device";

fn acme() -> tollgate::Tenant {
    "acme".parse().unwrap()
}

/// A browser in which this user has completed a login, with no cookie but that of the device.
async fn trusted(world: &World, who: &str) -> Browser {
    let mut browser = world.browser();
    browser.log_in("web", who).await;
    browser.cookies.retain(|name, _| name == DEVICE);
    assert_eq!(browser.cookies.len(), 1);
    browser
}

/// Attempts a login with a password, and keeps no cookie of it.
async fn attempt(browser: &Browser, who: &str, password: &str) -> Answer {
    let mut browser = browser.clone();
    let id = browser.start("web", who).await;
    browser.password("web", &id, who, password).await
}

fn seen(answer: &Answer) -> (u16, String, String) {
    let error = if answer.status == 200 { String::new() } else { answer.error() };
    (answer.status.as_u16(), error, answer.header("retry-after").to_owned())
}

/// Fails as a stranger until the account takes no more, from many addresses and by two names.
async fn fail_as_stranger(world: &World, failures: usize) {
    for failure in 0..failures {
        let mut stranger = world.browser();
        stranger.address = [10, 9, (failure / 250) as u8, (failure % 250) as u8].into();
        let name = if failure % 2 == 0 { "ada" } else { ADA };
        let answer = attempt(&stranger, name, "wrong").await;
        assert_eq!(answer.status, 401, "{failure} {answer:?}");
        world.advance(1801);
    }
}

#[tokio::test]
async fn a05_a_stranger_who_fails_on_purpose_does_not_lock_the_owner_out() {
    let world = World::new().await;
    let owner = trusted(&world, ADA).await;
    let stranger = world.browser();
    for _ in 0..5 {
        assert_eq!(attempt(&stranger, ADA, "wrong").await.status, 401);
    }
    // untrusted browsers wait, even with the right password
    assert_eq!(seen(&attempt(&stranger, ADA, ADA_PASSWORD).await).0, 429);
    assert_eq!(seen(&attempt(&world.browser(), ADA, ADA_PASSWORD).await).0, 429);
    // the owner gets in at once, by any of the names
    for name in [ADA, "ada"] {
        assert_eq!(attempt(&owner, name, ADA_PASSWORD).await.status, 200);
    }
    // and that tells the stranger nothing
    assert_eq!(seen(&attempt(&stranger, ADA, "wrong").await), (429, "too_many_attempts".into(), "30".into()));
}

#[tokio::test]
async fn a05_a_stranger_who_asks_for_codes_does_not_stop_those_of_the_owner() {
    for (method, address, most, wait) in [("sms", ADA_PHONE, 10, 30), ("email", ADA, 50, 30)] {
        let world = World::new().await;
        let owner = trusted(&world, ADA).await;
        let ask = async |browser: &Browser| {
            let mut browser = browser.clone();
            let id = browser.start("web", ADA).await;
            let answer = browser.ask("web", &id, method, address).await;
            world.settle().await;
            (answer, browser, id)
        };
        // one request every 30 seconds, and in the end all messages of the receiver
        for _ in 0..most {
            assert_eq!(ask(&world.browser()).await.0.status, 200);
            assert_eq!(ask(&world.browser()).await.0.error(), "slow_down");
            world.advance(wait);
        }
        assert_eq!(ask(&world.browser()).await.0.error(), "too_many_attempts");
        let sent = world.outbox.messages().len();
        assert_eq!(sent, most);
        let (answer, mut browser, id) = ask(&owner).await;
        assert_eq!(answer.status, 200, "{method}");
        assert_eq!(world.outbox.messages().len(), sent + 1, "{method}");
        let code = world.code(address).await;
        assert_eq!(browser.verify("web", &id, &code).await.status, 200, "{method}");
        // the owner's own requests are bounded as well
        assert_eq!(ask(&owner).await.0.error(), "slow_down");
        for _ in 1..most {
            world.advance(wait);
            assert_eq!(ask(&owner).await.0.status, 200);
        }
        world.advance(wait);
        assert_eq!(ask(&owner).await.0.error(), "too_many_attempts");
        assert_eq!(world.outbox.messages().len(), 2 * most);
    }
}

#[tokio::test]
async fn a05_wrong_codes_of_strangers_do_not_count_for_the_owner() {
    let world = World::new().await;
    let (mut owner, mut stranger) = (trusted(&world, ADA).await, world.browser());
    let id = stranger.start("web", ADA).await;
    assert_eq!(stranger.ask("web", &id, "sms", ADA_PHONE).await.status, 200);
    world.advance(30);
    let own = owner.start("web", ADA).await;
    assert_eq!(owner.ask("web", &own, "sms", ADA_PHONE).await.status, 200);
    let code = world.code(ADA_PHONE).await;
    for _ in 0..5 {
        assert_eq!(stranger.verify("web", &id, "wrong").await.status, 401);
    }
    let mut untrusted = owner.clone();
    untrusted.cookies.remove(DEVICE);
    assert_eq!(untrusted.verify("web", &own, &code).await.error(), "too_many_attempts");
    assert_eq!(owner.verify("web", &own, &code).await.status, 200);
}

#[tokio::test]
async fn a05_no_number_of_starts_refuses_a_name() {
    for name in [ADA, NOBODY] {
        let world = World::new().await;
        for round in 0_u16..700 {
            let mut stranger = world.browser();
            stranger.address = [10, 0, (round / 256) as u8, (round % 256) as u8].into();
            let answer =
                stranger.post("/authentication/start", &with(parameters("web"), &[("identifier", name)])).await;
            assert_eq!(answer.status, 200, "{round}");
        }
    }
}

#[tokio::test]
async fn c125_a_trusted_browser_has_its_own_waits_and_never_waits_longer_than_a_stranger() {
    let world = World::new().await;
    let owner = trusted(&world, ADA).await;
    for _ in 0..10 {
        assert_eq!(attempt(&owner, ADA, "wrong").await.status, 401);
    }
    // five as a trusted browser, then five as any other
    assert_eq!(seen(&attempt(&owner, ADA, ADA_PASSWORD).await), (429, "too_many_attempts".into(), "30".into()));
    assert_eq!(attempt(&world.browser(), ADA, ADA_PASSWORD).await.status, 429);
    world.service.unlock(&acme(), &Identifier::parse(ADA).unwrap()).await.unwrap();
    assert_eq!(attempt(&owner, ADA, ADA_PASSWORD).await.status, 200);
}

#[tokio::test]
async fn c125_the_ceiling_of_a_hundred_includes_trusted_browsers_and_strangers_cannot_use_it_up() {
    let world = World::new().await;
    let owner = trusted(&world, ADA).await;
    fail_as_stranger(&world, 90).await;
    world.log.flush();
    let ceilings = |world: &World| world.log.read_events(&Query::new().kind(EventKind::LoginCeiling)).events.len();
    assert!(ceilings(&world) > 0);
    // strangers are at their end, even with the right password
    let mut stranger = world.browser();
    stranger.address = [10, 10, 0, 1].into();
    world.advance(1801);
    assert_eq!(seen(&attempt(&stranger, "ada", ADA_PASSWORD).await).1, "invalid_credentials");
    // twenty are left for trusted browsers
    let mut failures = 0;
    while failures < 20 {
        let answer = attempt(&owner, ADA, "wrong").await;
        match answer.status.as_u16() {
            401 => failures += 1,
            _ => world.advance(answer.header("retry-after").parse().unwrap()),
        }
    }
    world.advance(3600);
    assert_eq!(seen(&attempt(&owner, ADA, ADA_PASSWORD).await).1, "invalid_credentials");
    world.service.unlock(&acme(), &Identifier::parse(ADA).unwrap()).await.unwrap();
    world.advance(3600);
    assert_eq!(attempt(&owner, ADA, ADA_PASSWORD).await.status, 200);

    let world = World::new().await;
    let owner = trusted(&world, ADA).await;
    fail_as_stranger(&world, 90).await;
    // a login of the owner ends the count of the account
    assert_eq!(attempt(&owner, ADA, ADA_PASSWORD).await.status, 200);
    world.advance(3600);
    assert_eq!(attempt(&world.browser(), ADA, ADA_PASSWORD).await.status, 200);
}

/// Locks strangers out of the password, and returns whether this browser gets in.
async fn is_trusted(world: &World, browser: &Browser, who: &str, password: &str) -> bool {
    let stranger = world.browser();
    while attempt(&stranger, who, "wrong").await.status != 429 {}
    let status = attempt(browser, who, password).await.status;
    assert!(status == 200 || status == 429, "{status}");
    status == 200
}

#[tokio::test]
async fn c125_a_device_ends_with_the_password_and_with_end_user() {
    let user = UserId::parse("u-ada").unwrap();
    let new = async || Passwords::insecure_fast().hash(Password::new("another good password")).await.unwrap();
    {
        let world = World::new().await;
        let browser = trusted(&world, ADA).await;
        assert!(is_trusted(&world, &browser, ADA, ADA_PASSWORD).await);
        world.users.set_password(&acme(), &user, Some(new().await)).await.unwrap();
        assert!(!is_trusted(&world, &browser, ADA, "another good password").await);
    }
    {
        let world = World::new().await;
        let browser = trusted(&world, ADA).await;
        world.users.set_password(&acme(), &user, Some(new().await)).await.unwrap();
        world.service.credential_changed(&acme(), &user).await.unwrap();
        assert!(!is_trusted(&world, &browser, ADA, "another good password").await);
    }
    {
        let world = World::new().await;
        let browser = trusted(&world, ADA).await;
        world.service.end_user(&acme(), &user).await.unwrap();
        assert!(!is_trusted(&world, &browser, ADA, ADA_PASSWORD).await);
        // a new login makes a new one
        world.advance(60);
        let again = trusted(&world, ADA).await;
        assert!(is_trusted(&world, &again, ADA, ADA_PASSWORD).await);
        assert!(!is_trusted(&world, &browser, ADA, ADA_PASSWORD).await);
    }
}

#[tokio::test]
async fn c125_a_device_ends_after_its_lifetime_and_each_login_renews_it() {
    const DAY: u64 = 24 * 3600;
    let limits = LoginLimits::new().device_lifetime(std::time::Duration::from_secs(2 * DAY));
    let world = World::with(Memory::new(), |service| service.login_limits(limits)).await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    browser.password("web", &id, ADA, ADA_PASSWORD).await;
    let completed = browser.complete("web", &id).await;
    let cookie = completed.header("set-cookie").to_owned();
    let attributes = cookie.split_once(';').unwrap().1;
    assert!(cookie.starts_with("__Host-auth_device="));
    assert_eq!(attributes, " Path=/; Max-Age=172800; Secure; HttpOnly; SameSite=Lax");
    let (old, value) = (browser.clone(), browser.cookies[DEVICE].clone());
    world.advance(DAY);
    browser.log_in("web", ADA).await;
    assert_ne!(browser.cookies[DEVICE], value);
    assert_eq!(browser.cookies[DEVICE].len(), value.len(), "the same device");
    world.advance(DAY - 1);
    assert!(is_trusted(&world, &old, ADA, ADA_PASSWORD).await);
    world.advance(DAY / 2);
    assert!(!is_trusted(&world, &old, ADA, ADA_PASSWORD).await);
    assert!(is_trusted(&world, &browser, ADA, ADA_PASSWORD).await);
}

#[tokio::test]
async fn c125_the_cookie_is_bound_to_its_user_and_tenant_and_shows_neither() {
    let world = World::new().await;
    let (ada, grace) = (trusted(&world, ADA).await, trusted(&world, GRACE).await);
    assert!(!is_trusted(&world, &grace, ADA, ADA_PASSWORD).await);
    assert!(!is_trusted(&world, &ada, GRACE, GRACE_PASSWORD).await);
    assert!(is_trusted(&world, &ada, ADA, ADA_PASSWORD).await);
    // nothing in the cookie is the same for two browsers of a user, and nothing names the user
    world.advance(3600);
    let other = trusted(&world, ADA).await;
    let value = |browser: &Browser| browser.cookies[DEVICE].clone();
    assert!((0..value(&ada).len() - 8).all(|at| !value(&other).contains(&value(&ada)[at..at + 8])));

    // a user of the same id, name and password in another tenant, on the same store
    let store = AnyStore::from(Memory::new());
    let clock = ManualClock::new();
    let home = World::on(store.clone(), clock.clone(), |service| service).await;
    let ada = trusted(&home, ADA).await;
    let account = home.users.by_id(&acme(), &UserId::parse("u-ada").unwrap()).await.unwrap().unwrap();
    let abroad = World::on(store, clock, |service: AuthServiceBuilder| service.users(Twins(account))).await;
    let mut browser = abroad.browser();
    browser.cookies = ada.cookies.clone();
    for client in ["other", "web"].repeat(6) {
        let mut stranger = abroad.browser();
        let id = stranger.start(client, ADA).await;
        stranger.password(client, &id, ADA, "wrong").await;
    }
    let id = browser.start("other", ADA).await;
    assert_eq!(browser.password("other", &id, ADA, ADA_PASSWORD).await.status, 429);
    let id = browser.start("web", ADA).await;
    assert_eq!(browser.password("web", &id, ADA, ADA_PASSWORD).await.status, 200);
}

/// One account that exists in all tenants.
#[derive(Clone, Debug)]
struct Twins(Account);

impl Users for Twins {
    type Error = std::convert::Infallible;

    async fn find(&self, _: &tollgate::Tenant, name: &Identifier) -> Result<Option<Account>, Self::Error> {
        Ok(Some(self.0.clone()).filter(|_| name.as_str() == ADA))
    }

    async fn by_id(&self, _: &tollgate::Tenant, id: &UserId) -> Result<Option<Account>, Self::Error> {
        Ok(Some(self.0.clone()).filter(|account| account.id() == id))
    }
}

#[tokio::test]
async fn c125_what_is_no_device_cookie_of_the_user_changes_nothing() {
    let world = World::new().await;
    let genuine = trusted(&world, ADA).await.cookies[DEVICE].clone();
    let grace = trusted(&world, GRACE).await.cookies[DEVICE].clone();
    let flipped = |at: usize| {
        let mut text = genuine.clone().into_bytes();
        text[at] = if text[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(text).unwrap()
    };
    let pair = |value: &str| format!("{DEVICE}={value}");
    let mut forged: Vec<String> = (0..genuine.len()).step_by(5).map(|at| pair(&flipped(at))).collect();
    forged.extend((0..genuine.len()).step_by(7).map(|length| pair(&genuine[..length])));
    forged.extend([
        pair(""),
        pair("x"),
        pair(&"A".repeat(genuine.len())),
        pair(&"A".repeat(8000)),
        pair(&genuine.repeat(5)),
        pair(&grace),
        vec![pair(&grace); 2].join("; "),
        format!("auth_device={genuine}"),
        format!("__host-auth_device={genuine}"),
        // four entries of others hide one
        vec![pair(&grace); 4].join("; ") + "; " + &pair(&genuine),
    ]);
    let stranger = world.browser();
    while attempt(&stranger, ADA, "wrong").await.status != 429 {}
    let without = seen(&attempt(&stranger, ADA, ADA_PASSWORD).await);
    assert_eq!(without.0, 429);
    for cookies in forged {
        let mut browser = world.browser();
        let id = browser.start("web", ADA).await;
        let login: Vec<_> = browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let body = with(
            parameters("web"),
            &[("session_id", &id), ("method", "password"), ("username", ADA), ("password", ADA_PASSWORD)],
        );
        let request = http::Request::post("/authentication/authenticate")
            .header("content-type", "application/json")
            .header(COOKIE, format!("{}; {cookies}", login.join("; ")));
        let answer = browser.send(request, body.to_string()).await;
        assert_eq!(seen(&answer), without, "{cookies}");
    }
    // a genuine one counts however often it comes
    let mut twice = world.browser();
    twice.cookies.insert(DEVICE.to_owned(), format!("{genuine}; {DEVICE}={grace}; {DEVICE}={genuine}"));
    assert_eq!(attempt(&twice, ADA, ADA_PASSWORD).await.status, 200);
}

#[tokio::test]
async fn c125_the_work_is_the_same_with_any_cookie_and_without_a_user() {
    let store = ControlledStore::default();
    let world = World::with(store.clone(), |service| service).await;
    let grace = trusted(&world, GRACE).await;
    let mut forged = grace.clone();
    forged.cookies.insert(DEVICE.to_owned(), "A".repeat(75));
    let mut works = Vec::new();
    for (browser, name) in [
        (world.browser(), ADA),
        (world.browser(), NOBODY),
        (grace.clone(), ADA),
        (grace, NOBODY),
        (forged.clone(), ADA),
        (forged, NOBODY),
    ] {
        let mut work = Vec::new();
        for attempt in 0..7 {
            let mut browser = browser.clone();
            let id = browser.start("web", name).await;
            store.done();
            let answer = browser.password("web", &id, name, "wrong").await;
            let asked = browser.ask("web", &id, "sms", ADA_PHONE).await;
            // a row that has expired is replaced instead of inserted
            let done: Vec<_> =
                store.done().iter().map(|it| it.replace("insert", "write").replace("swap", "write")).collect();
            work.push((attempt, seen(&answer), seen(&asked), done));
        }
        works.push(work);
        for name in [ADA, NOBODY] {
            world.service.unlock(&acme(), &Identifier::parse(name).unwrap()).await.unwrap();
        }
        world.advance(24 * 3600);
    }
    for (at, work) in works.iter().enumerate() {
        for (own, first) in work.iter().zip(&works[0]) {
            assert_eq!(own, first, "{at}");
        }
    }
}

#[tokio::test]
async fn c125_a_device_skips_no_step_and_stays_for_several_users() {
    let world = World::new().await;
    let mut browser = trusted(&world, ADA).await;
    let id = browser.start("mfa", ADA).await;
    assert_eq!(browser.status(&id).await.json()["completed_steps"], 0);
    assert_eq!(browser.complete("mfa", &id).await.error(), "steps_remaining");
    assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.json()["remaining_steps"], 1);
    assert_eq!(browser.complete("mfa", &id).await.error(), "steps_remaining");
    assert!(browser.authorize("mfa").await.redirected("code").is_none());
    // others who log in here do not end it
    browser.log_in("web", GRACE).await;
    browser.cookies.retain(|name, _| name == DEVICE);
    assert!(is_trusted(&world, &browser, ADA, ADA_PASSWORD).await);
    assert!(is_trusted(&world, &browser, GRACE, GRACE_PASSWORD).await);
    // four users at most
    let length = browser.cookies[DEVICE].len();
    for number in 0..5 {
        let (name, phone) = (format!("user{number}"), format!("+1555555020{number}"));
        let user = NewUser::new(UserId::parse(&name).unwrap(), Identifier::parse(&name).unwrap())
            .contact(Contact::Phone(PhoneNumber::parse(&phone).unwrap()));
        world.users.create(&acme(), user).await.unwrap();
        let id = browser.start("web", &name).await;
        assert_eq!(browser.ask("web", &id, "sms", &phone).await.status, 200);
        let code = world.code(&phone).await;
        assert_eq!(browser.verify("web", &id, &code).await.status, 200);
        assert_eq!(browser.complete("web", &id).await.status, 200);
    }
    assert!(browser.cookies[DEVICE].len() <= 2 * length);
    world.advance(3600);
    assert!(!is_trusted(&world, &browser, ADA, ADA_PASSWORD).await);
}

#[tokio::test]
async fn c125_a_device_survives_a_restart_and_counts_on_every_node() {
    let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
    let first = World::on(store.clone(), clock.clone(), |service| service).await;
    let mut browser = trusted(&first, ADA).await;
    let second = World::on(store, clock, |service| service).await;
    browser.service = second.service.clone();
    assert!(is_trusted(&second, &browser, ADA, ADA_PASSWORD).await);
    // and its failures, too
    for _ in 0..5 {
        attempt(&browser, ADA, "wrong").await;
    }
    browser.service = first.service.clone();
    assert_eq!(attempt(&browser, ADA, ADA_PASSWORD).await.status, 429);
}
