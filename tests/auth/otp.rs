//! Section F of the checklist: one-time codes.

use std::collections::BTreeSet;

use tollgate::{event::Query, store::Memory};

use crate::{
    failing_store::FailingStore,
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, GRACE, GRACE_PHONE, NOBODY, World, join},
};

const STRANGE_PHONE: &str = "+15555559999";

/// Starts a login and requests a code. Returns both.
async fn opened(world: &World, method: &str, address: &str) -> (Browser, String, String) {
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    let answer = browser.ask("web", &id, method, address).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let code = world.code(address).await;
    (browser, id, code)
}

/// Returns a different code.
fn another_code(code: &str) -> String {
    if code.starts_with('0') { "1" } else { "0" }.to_owned() + &code[1..]
}

fn is(answer: &Answer, status: u16, error: &str) {
    assert_eq!((answer.status.as_u16(), &*answer.error()), (status, error), "{answer:?}");
}

#[tokio::test]
async fn c053_codes_are_sent_only_to_verified_addresses_of_the_account() {
    let world = World::new().await;
    let mut answers = BTreeSet::new();
    for (identifier, method, address, sent) in [
        (ADA, "sms", ADA_PHONE, true),
        (ADA, "sms", "+1 (555) 555-01.00", true),
        (ADA, "sms", GRACE_PHONE, false),
        (ADA, "sms", STRANGE_PHONE, false),
        (NOBODY, "sms", ADA_PHONE, false),
        (NOBODY, "sms", STRANGE_PHONE, false),
    ] {
        let before = world.outbox.messages().len();
        let mut browser = world.browser();
        let id = browser.start("web", identifier).await;
        answers.insert(browser.ask("web", &id, method, address).await.whole());
        answers.insert(browser.status(&id).await.whole());
        world.settle().await;
        assert_eq!(world.outbox.messages().len() - before, usize::from(sent), "{identifier} {address}");
        world.advance(30);
    }
    assert_eq!(answers.len(), 2, "{answers:?}");
    // upper and lower case are equal
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    browser.ask("web", &id, "email", " ADA@Example.COM ").await;
    let code = world.code(ADA).await;
    assert_eq!(browser.verify("web", &id, &code).await.status, 200);
}

#[tokio::test]
async fn c053_an_unverified_address_gets_no_code() {
    let world = World::new().await;
    let (acme, ada) = ("acme".parse().unwrap(), tollgate::UserId::parse("u-ada").unwrap());
    let new = tollgate::user::Contact::Email(tollgate::user::EmailAddress::parse("new@example.com").unwrap());
    world.users.add_contact(&acme, &ada, new.clone()).await.unwrap();
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    assert_eq!(browser.ask("web", &id, "email", "new@example.com").await.status, 200);
    world.settle().await;
    assert!(world.outbox.messages().is_empty());
    world.users.verify_contact(&acme, &ada, new).await.unwrap();
    world.advance(30);
    browser.ask("web", &id, "email", "new@example.com").await;
    assert_eq!(browser.verify("web", &id, &world.code("new@example.com").await).await.status, 200);
}

#[tokio::test]
async fn c054_codes_have_six_digits_and_differ() {
    let world = World::new().await;
    let mut seen = BTreeSet::new();
    for round in 1..=20 {
        let (_, _, code) = opened(&world, "email", ADA).await;
        assert!(code.len() == 6 && code.bytes().all(|byte| byte.is_ascii_digit()), "{code}");
        seen.insert(code);
        assert_eq!(world.outbox.messages().len(), round);
        world.advance(30);
    }
    assert!(seen.len() > 17, "{seen:?}");
}

#[tokio::test]
async fn c055_a_code_expires_after_five_minutes() {
    for (seconds, status) in [(299, 200), (300, 401)] {
        let world = World::new().await;
        let (mut browser, id, code) = opened(&world, "sms", ADA_PHONE).await;
        world.advance(seconds);
        let answer = browser.verify("web", &id, &code).await;
        assert_eq!(answer.status, status, "{seconds}");
        if status == 401 {
            is(&answer, 401, "invalid_otp");
        }
    }
}

#[tokio::test]
async fn c056_a_code_works_once() {
    let world = World::with(FailingStore::new(), |service| service).await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    browser.ask("mfa", &id, "sms", ADA_PHONE).await;
    let code = world.code(ADA_PHONE).await;
    let mut tabs: Vec<_> = (0..4).map(|_| browser.clone()).collect();
    let answers = join(tabs.iter_mut().map(|tab| tab.verify("mfa", &id, &code))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1, "{answers:?}");
    assert_eq!(browser.status(&id).await.json()["completed_steps"], 1);
    is(&browser.verify("mfa", &id, &code).await, 409, "no_pending_challenge");
}

#[tokio::test]
async fn c057_after_five_wrong_attempts_the_right_code_fails_too() {
    let world = World::new().await;
    let (mut browser, id, code) = opened(&world, "sms", ADA_PHONE).await;
    for _ in 0..5 {
        is(&browser.verify("web", &id, &another_code(&code)).await, 401, "invalid_otp");
    }
    is(&browser.verify("web", &id, &code).await, 409, "no_pending_challenge");
    // the fifth attempt may be the right one
    let world = World::new().await;
    let (mut browser, id, code) = opened(&world, "sms", ADA_PHONE).await;
    for _ in 0..4 {
        browser.verify("web", &id, &another_code(&code)).await;
    }
    assert_eq!(browser.verify("web", &id, &code).await.status, 200);
}

#[tokio::test]
async fn c057_concurrent_attempts_are_counted_before_they_are_compared() {
    let world = World::with(FailingStore::new(), |service| service).await;
    let (browser, id, code) = opened(&world, "sms", ADA_PHONE).await;
    let guesses: Vec<_> = (0..20).map(|n| if n < 19 { another_code(&code) } else { code.clone() }).collect();
    let mut tabs: Vec<_> = guesses.iter().map(|_| browser.clone()).collect();
    let answers = join(tabs.iter_mut().zip(&guesses).map(|(tab, guess)| tab.verify("web", &id, guess))).await;
    let compared = answers.iter().filter(|answer| matches!(answer.status.as_u16(), 200 | 401)).count();
    assert!(compared <= 5, "{answers:?}");
}

#[tokio::test]
async fn c058_a_new_code_does_not_reset_the_failures() {
    let world = World::new().await;
    let (mut browser, id, code) = opened(&world, "sms", ADA_PHONE).await;
    for _ in 0..5 {
        browser.verify("web", &id, &another_code(&code)).await;
    }
    // the wait after five failures is longer than the resend interval
    world.advance(29);
    is(&browser.ask("web", &id, "sms", ADA_PHONE).await, 429, "slow_down");
    world.advance(1);
    assert_eq!(browser.ask("web", &id, "sms", ADA_PHONE).await.status, 200);
    let code = world.code(ADA_PHONE).await;
    is(&browser.verify("web", &id, &another_code(&code)).await, 401, "invalid_otp");
    // the sixth failure in a row doubles the wait, although it is the first one for this code
    let refused = browser.verify("web", &id, &code).await;
    is(&refused, 429, "too_many_attempts");
    assert_eq!(refused.header("retry-after"), "60");
    world.advance(60);
    assert_eq!(browser.verify("web", &id, &code).await.status, 200);
}

#[tokio::test]
async fn c058_after_a_hundred_failures_a_method_is_locked_without_a_visible_difference() {
    let world = World::new().await;
    let ada = |round: u32, guess: &'static str| {
        let mut browser = world.browser();
        browser.address = [10, 1, (round / 250) as u8, (round % 250) as u8].into();
        async move {
            let id = browser.start("web", ADA).await;
            browser.password("web", &id, if round.is_multiple_of(2) { "ada" } else { ADA }, guess).await
        }
    };
    let mut round = 0;
    let mut failures = 0;
    while failures < 100 {
        round += 1;
        let answer = ada(round, "wrong").await;
        match answer.status.as_u16() {
            401 => failures += 1,
            429 => world.advance(answer.header("retry-after").parse().unwrap()),
            _ => panic!("{answer:?}"),
        }
        assert!(round < 1000);
    }
    world.advance(3600);
    let right = ada(1, ADA_PASSWORD).await;
    is(&right, 401, "invalid_credentials");
    world.log.flush();
    let seen = world.log.read_events(&Query::new().kind(tollgate::event::EventKind::LoginCeiling)).events;
    assert!(!seen.is_empty());
    // other methods still work
    let (mut browser, id, code) = opened(&world, "email", ADA).await;
    assert_eq!(browser.verify("web", &id, &code).await.status, 200);
}

#[tokio::test]
async fn c059_codes_can_be_resent_after_a_wait_and_only_a_few_times() {
    let world = World::new().await;
    let (mut browser, id, _) = opened(&world, "sms", ADA_PHONE).await;
    world.advance(10);
    let soon = browser.ask("web", &id, "sms", ADA_PHONE).await;
    is(&soon, 429, "slow_down");
    assert_eq!((soon.header("retry-after"), soon.json()["retry_after"].as_u64()), ("20", Some(20)));
    // another login or another browser does not help
    let mut other = world.browser();
    let second = other.start("web", ADA).await;
    is(&other.ask("web", &second, "sms", ADA_PHONE).await, 429, "slow_down");
    for _ in 0..4 {
        world.advance(30);
        assert_eq!(browser.ask("web", &id, "sms", ADA_PHONE).await.status, 200);
    }
    world.advance(30);
    let sixth = browser.ask("web", &id, "sms", ADA_PHONE).await;
    is(&sixth, 429, "too_many_attempts");
    // until the end of this login
    assert_eq!(sixth.header("retry-after"), "570");
    // not with another method either: this login has sent its five codes
    is(&browser.ask("web", &id, "email", ADA).await, 429, "too_many_attempts");
}

#[tokio::test]
async fn c059_an_address_gets_at_most_ten_messages_an_hour_or_fifty_mails_a_day() {
    for (method, address, most, span) in [("sms", ADA_PHONE, 10, 3600), ("email", ADA, 50, 24 * 3600)] {
        let world = World::new().await;
        for round in 0..most {
            let mut browser = world.browser();
            let id = browser.start("web", ADA).await;
            assert_eq!(browser.ask("web", &id, method, address).await.status, 200, "{round}");
            world.advance(30);
        }
        let mut browser = world.browser();
        let id = browser.start("web", ADA).await;
        let answer = browser.ask("web", &id, method, address).await;
        is(&answer, 429, "too_many_attempts");
        assert_eq!(answer.header("retry-after"), (span - 30 * most).to_string());
        // under another of her names, the response is the same but nothing is sent
        world.settle().await;
        let before = world.outbox.messages().len();
        let id = browser.start("web", "ada").await;
        assert_eq!(browser.ask("web", &id, method, address).await.status, 200);
        world.settle().await;
        assert_eq!(world.outbox.messages().len(), before);
    }
}

#[tokio::test]
async fn c060_a_new_code_replaces_the_one_before() {
    let world = World::new().await;
    let (mut browser, id, first) = opened(&world, "sms", ADA_PHONE).await;
    world.advance(30);
    browser.ask("web", &id, "sms", ADA_PHONE).await;
    let second = world.code(ADA_PHONE).await;
    assert_eq!(world.outbox.messages().len(), 2);
    if first != second {
        is(&browser.verify("web", &id, &first).await, 401, "invalid_otp");
    }
    assert_eq!(browser.verify("web", &id, &second).await.status, 200);
    // even if another method sends it
    let (mut browser, id, first) = opened(&world, "email", ADA).await;
    browser.ask("web", &id, "whatsapp", ADA_PHONE).await;
    is(&browser.verify("web", &id, &first).await, 401, "invalid_otp");
}

#[tokio::test]
async fn c061_a_code_works_only_in_its_login() {
    let world = World::new().await;
    let (mut browser, id, code) = opened(&world, "sms", ADA_PHONE).await;
    let mut other = world.browser();
    let second = other.start("web", ADA).await;
    other.ask("web", &second, "email", ADA).await;
    let mail = world.code(ADA).await;
    if mail != code {
        is(&other.verify("web", &second, &code).await, 401, "invalid_otp");
        is(&browser.verify("web", &id, &mail).await, 401, "invalid_otp");
    }
    assert_eq!(other.verify("web", &second, &mail).await.status, 200);
    assert_eq!(browser.verify("web", &id, &code).await.status, 200);
}

#[tokio::test]
async fn c061_a_code_of_one_user_never_proves_another() {
    // grace begins a login for ada and requests a code to her own phone
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    assert_eq!(browser.ask("web", &id, "sms", GRACE_PHONE).await.status, 200);
    world.settle().await;
    assert!(world.outbox.messages().is_empty());
    // ada's phone can't be used in a login for grace either
    let id = browser.start("web", GRACE).await;
    assert_eq!(browser.ask("web", &id, "sms", ADA_PHONE).await.status, 200);
    world.settle().await;
    assert!(world.outbox.messages().is_empty());
}

#[tokio::test]
async fn c062_codes_and_addresses_never_appear_in_responses_or_logs() {
    let world = World::new().await;
    let (mut browser, id, code) = opened(&world, "sms", ADA_PHONE).await;
    let answers = [
        browser.verify("web", &id, &another_code(&code)).await,
        browser.status(&id).await,
        browser.verify("web", &id, &code).await,
    ];
    world.log.flush();
    let text = format!(
        "{answers:?} {:?} {:?} {:?}",
        world.log.read_events(&Query::new()),
        world.service,
        world.outbox.messages()
    );
    let text = text.replace(&id, "").replace(&another_code(&code), "");
    for secret in [&*code, ADA_PHONE, "5550100"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[tokio::test]
async fn c063_every_wrong_code_gets_the_same_error_and_is_counted() {
    let world = World::new().await;
    let (mut browser, id, code) = opened(&world, "sms", ADA_PHONE).await;
    let mut answers = BTreeSet::new();
    for wrong in [&another_code(&code), &code[..5], &format!("{code}0"), " ", &code.replace(|_: char| true, "٣")] {
        answers.insert(browser.verify("web", &id, wrong).await.whole());
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    is(&browser.verify("web", &id, &code).await, 409, "no_pending_challenge");
    // spaces and punctuation do not make a wrong code right
    let world = World::new().await;
    let (mut browser, id, code) = opened(&world, "sms", ADA_PHONE).await;
    for wrong in [format!(" {code}"), format!("{code}\n"), format!("+{code}"), format!("{}-{}", &code[..3], &code[3..])]
    {
        is(&browser.verify("web", &id, &wrong).await, 401, "invalid_otp");
    }
}

#[tokio::test]
async fn c064_without_a_pending_code_the_error_says_so() {
    let world = World::new().await;
    let mut shown = BTreeSet::new();
    for identifier in [ADA, NOBODY] {
        let mut browser = world.browser();
        let id = browser.start("web", identifier).await;
        for _ in 0..20 {
            let answer = browser.verify("web", &id, "000000").await;
            is(&answer, 409, "no_pending_challenge");
            shown.insert(answer.whole());
        }
        assert_eq!(browser.status(&id).await.json()["status"], "pending");
    }
    assert_eq!(shown.len(), 1);
}

/// A gateway that never responds.
struct HangingGateway;

impl tollgate::delivery::OtpSender for HangingGateway {
    async fn send(&self, _: &tollgate::delivery::Message) -> Result<(), tollgate::delivery::SendError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn c065_responses_do_not_wait_for_the_gateway() {
    let world = World::with(Memory::new(), |service| service.sms(HangingGateway)).await;
    let mut shown = BTreeSet::new();
    for identifier in [ADA, NOBODY] {
        let mut browser = world.browser();
        let id = browser.start("web", identifier).await;
        shown.insert(browser.ask("web", &id, "sms", ADA_PHONE).await.whole());
    }
    assert_eq!(shown.len(), 1, "{shown:?}");
}

#[tokio::test]
async fn c066_unknown_users_get_the_same_attempts_and_responses() {
    let mut told = Vec::new();
    for (identifier, address) in
        [(ADA, ADA_PHONE), (NOBODY, STRANGE_PHONE), (ADA, STRANGE_PHONE), (NOBODY, GRACE_PHONE)]
    {
        let world = World::new().await;
        let mut answers = Vec::new();
        let mut browser = world.browser();
        let mut id = browser.start("web", identifier).await;
        for round in 0..12 {
            let opened = browser.ask("web", &id, "sms", address).await;
            answers.push(opened.whole());
            for _ in 0..6 {
                answers.push(browser.verify("web", &id, "wrong").await.whole());
            }
            answers.push(browser.status(&id).await.whole());
            world.advance(if round % 3 == 0 { 30 } else { 300 });
            if browser.status(&id).await.json()["status"] != "pending" {
                id = browser.start("web", identifier).await;
            }
        }
        told.push(answers);
    }
    for other in &told[1..] {
        assert_eq!(other, &told[0]);
    }
    // make sure that the comparison covered something
    let all = told[0].join("\n");
    for error in ["invalid_otp", "no_pending_challenge", "too_many_attempts"] {
        assert!(all.contains(error), "{error}");
    }
}
