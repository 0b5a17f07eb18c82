//! Calls that overlap: on several threads, and interleaved in random orders.

use proptest::{collection::vec, prelude::*, test_runner::Config};
use tokio::runtime::Runtime;

use crate::{
    controlled_store::{ControlledStore, Running, interleave},
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, NOBODY, World},
};

/// The number of concurrent calls.
pub(crate) async fn at_once<F>(count: usize, call: impl Fn(usize) -> F) -> Vec<Answer>
where
    F: Future<Output = Answer> + Send + 'static,
{
    let calls: Vec<_> = (0..count).map(|at| tokio::spawn(call(at))).collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    answers
}

pub(crate) fn count(answers: &[Answer], is: impl Fn(&Answer) -> bool) -> usize {
    answers.iter().filter(|answer| is(answer)).count()
}

fn with_code(answers: &[Answer]) -> usize {
    count(answers, |answer| answer.status == 302 && answer.redirected("code").is_some())
}

/// Each call comes from another address, so that no address has too many failures.
pub(crate) fn from(browser: &Browser, at: usize) -> Browser {
    let mut browser = browser.clone();
    browser.address = [192, 0, 2, u8::try_from(at % 250).unwrap()].into();
    browser
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c045_concurrent_right_passwords_count_as_one_step() {
    for client in ["web", "mfa"] {
        let world = World::new().await;
        let mut browser = world.browser();
        let id = browser.start(client, ADA).await;
        // as many as may run at once
        let answers = at_once(5, |at| {
            let (mut browser, id) = (from(&browser, at), id.clone());
            async move { browser.password(client, &id, "ada", ADA_PASSWORD).await }
        })
        .await;
        assert_eq!(count(&answers, |answer| answer.status == 200), 1, "{answers:?}");
        assert_eq!(count(&answers, |answer| answer.status == 409), 4, "{answers:?}");
        assert_eq!(browser.status(&id).await.json()["completed_steps"], 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c045_c056_concurrent_right_codes_count_as_one_step() {
    for _ in 0..10 {
        let world = World::new().await;
        let mut browser = world.browser();
        let id = browser.start("mfa", ADA).await;
        browser.ask("mfa", &id, "sms", ADA_PHONE).await;
        let code = world.code(ADA_PHONE).await;
        let answers = at_once(5, |at| {
            let (mut browser, id, code) = (from(&browser, at), id.clone(), code.clone());
            async move { browser.verify("mfa", &id, &code).await }
        })
        .await;
        assert_eq!(count(&answers, |answer| answer.status == 200), 1, "{answers:?}");
        assert_eq!(count(&answers, |answer| answer.error() == "no_pending_challenge"), 4, "{answers:?}");
        assert_eq!(browser.status(&id).await.json()["completed_steps"], 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c057_of_fifty_concurrent_guesses_five_are_checked() {
    for identifier in [ADA, NOBODY] {
        let world = World::new().await;
        let mut browser = world.browser();
        let id = browser.start("web", identifier).await;
        browser.ask("web", &id, "sms", ADA_PHONE).await;
        let answers = at_once(50, |at| {
            let (mut browser, id) = (from(&browser, at), id.clone());
            async move { browser.verify("web", &id, &format!("{at:07}")).await }
        })
        .await;
        assert_eq!(count(&answers, |answer| answer.error() == "invalid_otp"), 5, "{answers:?}");
        let others = |answer: &Answer| ["too_many_attempts", "no_pending_challenge"].contains(&&*answer.error());
        assert_eq!(count(&answers, others), 45, "{answers:?}");
        world.advance(60);
        if identifier == ADA {
            let code = world.code(ADA_PHONE).await;
            assert_eq!(browser.verify("web", &id, &code).await.error(), "no_pending_challenge");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c110_of_forty_concurrent_passwords_five_are_checked() {
    for identifier in [ADA, NOBODY] {
        let world = World::new().await;
        let mut browser = world.browser();
        // each in its own login, because attempts are counted by account
        let mut logins = Vec::new();
        for _ in 0..4 {
            logins.push(browser.start("web", identifier).await);
        }
        let answers = at_once(40, |at| {
            let (mut browser, id) = (from(&browser, at), logins[at % 4].clone());
            async move { browser.password("web", &id, identifier, "wrong").await }
        })
        .await;
        assert_eq!(count(&answers, |answer| answer.error() == "invalid_credentials"), 5, "{answers:?}");
        assert_eq!(count(&answers, |answer| answer.error() == "too_many_attempts"), 35, "{answers:?}");
        let late = browser.password("web", &logins[0], identifier, ADA_PASSWORD).await;
        assert_eq!(late.error(), "too_many_attempts");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_failures_end_a_login_at_the_fifteenth_and_no_more_are_counted() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    // each with another name, so that no name is locked
    let answers = at_once(40, |at| {
        let (mut browser, id) = (from(&browser, at), id.clone());
        async move { browser.password("web", &id, &format!("name{at}"), "wrong").await }
    })
    .await;
    let wrong = count(&answers, |answer| answer.error() == "invalid_credentials");
    let failed = count(&answers, |answer| answer.error() == "session_failed");
    let waiting = count(&answers, |answer| answer.error() == "slow_down");
    assert!(wrong < 15 && failed >= 1, "{answers:?}");
    assert_eq!(wrong + failed + waiting, 40, "{answers:?}");
    assert_eq!(browser.status(&id).await.json()["status"], "failed");
    assert_eq!(browser.password("web", &id, "ada", ADA_PASSWORD).await.error(), "session_failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c086_concurrent_completes_all_succeed() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    browser.password("web", &id, "ada", ADA_PASSWORD).await;
    let answers = at_once(16, |at| {
        let (mut browser, id) = (from(&browser, at), id.clone());
        async move { browser.complete("web", &id).await }
    })
    .await;
    assert_eq!(count(&answers, |answer| answer.json()["status"] == "completed"), 16, "{answers:?}");
    assert!(browser.authorize("web").await.redirected("code").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c023_sixteen_concurrent_calls_of_authorize_get_one_code() {
    for _ in 0..20 {
        let world = World::new().await;
        let browser = completed(&world, "web").await;
        let answers = at_once(16, |at| {
            let mut browser = from(&browser, at);
            async move { browser.authorize("web").await }
        })
        .await;
        assert_eq!(with_code(&answers), 1, "{answers:?}");
        let to_login = |answer: &Answer| answer.header("location").starts_with("/authentication/start?");
        assert_eq!(count(&answers, to_login), 15, "{answers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c036_concurrent_starts_begin_separate_logins() {
    let world = World::new().await;
    let browser = world.browser();
    let calls: Vec<_> = (0..16)
        .map(|at| {
            let mut browser = from(&browser, at);
            tokio::spawn(async move { (browser.start("web", ADA).await, browser) })
        })
        .collect();
    let mut ids = Vec::new();
    for call in calls {
        let (id, mut browser) = call.await.unwrap();
        assert_eq!(browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 200);
        ids.push(id);
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 16);
}

async fn completed(world: &World, client: &str) -> Browser {
    let mut browser = world.browser();
    let id = browser.start(client, ADA).await;
    assert_eq!(browser.password(client, &id, "ada", ADA_PASSWORD).await.status, 200);
    if client == "mfa" {
        browser.ask(client, &id, "sms", ADA_PHONE).await;
        let code = world.code(ADA_PHONE).await;
        assert_eq!(browser.verify(client, &id, &code).await.status, 200);
    }
    assert_eq!(browser.complete(client, &id).await.status, 200);
    browser
}

/// A call that overlaps with others.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Right,
    Wrong,
    Resend,
    Password,
    Complete,
    Authorize,
    Status,
}

fn call() -> impl Strategy<Value = Call> {
    use Call::{Authorize, Complete, Password, Resend, Right, Status, Wrong};
    prop::sample::select(vec![Right, Right, Wrong, Wrong, Resend, Password, Complete, Complete, Authorize, Status])
}

fn make(browser: &Browser, client: &'static str, id: &str, code: &str, call: Call) -> Running<Answer> {
    let (mut browser, id, code) = (browser.clone(), id.to_owned(), code.to_owned());
    Box::pin(async move {
        match call {
            Call::Right => browser.verify(client, &id, &code).await,
            Call::Wrong => browser.verify(client, &id, "wrong").await,
            Call::Resend => browser.ask(client, &id, "sms", ADA_PHONE).await,
            Call::Password => browser.password(client, &id, "ada", ADA_PASSWORD).await,
            Call::Complete => browser.complete(client, &id).await,
            Call::Authorize => browser.authorize(client).await,
            Call::Status => browser.status(&id).await,
        }
    })
}

proptest! {
    #![proptest_config(Config::with_cases(60))]
    #[test]
    fn c023_c044_c045_c056_c060_overlapping_calls_count_each_proof_once_and_yield_one_code(
        mfa in any::<bool>(),
        calls in vec(call(), 2..6),
        order in vec(0..6_usize, 0..120),
    ) {
        let runtime = runtime();
        let client = if mfa { "mfa" } else { "web" };
        let store = ControlledStore::default();
        let (world, mut browser, id, code) = runtime.block_on(async {
            let world = World::with(store.clone(), |service| service).await;
            let mut browser = world.browser();
            let id = browser.start(client, ADA).await;
            browser.ask(client, &id, "sms", ADA_PHONE).await;
            let code = world.code(ADA_PHONE).await;
            world.advance(31);
            (world, browser, id, code)
        });
        store.yields();
        let running = calls.iter().map(|call| make(&browser, client, &id, &code, *call)).collect();
        let answers = {
            let _entered = runtime.enter();
            interleave(running, &order)
        };
        let of = |call: Call, status: u16| {
            calls.iter().zip(&answers).filter(|(made, answer)| **made == call && answer.status == status).count()
        };
        let shown = runtime.block_on(browser.status(&id)).json();
        let (by_code, by_password) = (of(Call::Right, 200), of(Call::Password, 200));
        prop_assert!(by_code <= 1 && by_password <= 1, "{:?}", answers);
        prop_assert_eq!(shown["completed_steps"].as_u64(), Some((by_code + by_password) as u64), "{:?}", answers);
        prop_assert_eq!(of(Call::Wrong, 200), 0);
        // a code that was replaced by a new one no longer works
        if of(Call::Resend, 200) > 0 && by_code == 0 {
            let late = runtime.block_on(browser.verify(client, &id, &code));
            prop_assert!(late.status != 200, "{:?}", late);
        }
        // a completed login yields one code
        let mut codes = with_code(&answers);
        for _ in 0..2 {
            runtime.block_on(browser.complete(client, &id));
            codes += usize::from(runtime.block_on(browser.authorize(client)).redirected("code").is_some());
        }
        let done = by_code + by_password == if mfa { 2 } else { 1 };
        prop_assert_eq!(codes, usize::from(done), "{:?}", answers);
        drop(world);
    }

    #[test]
    fn c023_calls_of_authorize_that_overlap_in_any_order_get_one_code(order in vec(0..4_usize, 0..100)) {
        let runtime = runtime();
        let store = ControlledStore::default();
        let browser = runtime.block_on(async {
            let world = World::with(store.clone(), |service| service).await;
            completed(&world, "web").await
        });
        store.yields();
        let visits = (0..4).map(|_| make(&browser, "web", "", "", Call::Authorize)).collect();
        let _entered = runtime.enter();
        let answers = interleave(visits, &order);
        prop_assert_eq!(with_code(&answers), 1, "{:?}", answers);
    }

    #[test]
    fn c023_c045_two_nodes_on_one_store_act_as_one(order in vec(0..6_usize, 0..120)) {
        let runtime = runtime();
        let store = ControlledStore::default();
        let (one, other, id, code) = runtime.block_on(async {
            let one = World::with(store.clone(), |service| service).await;
            let other = World::on(store.clone().into(), one.clock.clone(), |service| service).await;
            let mut browser = one.browser();
            let id = browser.start("web", ADA).await;
            // each node knows the codes and counters of the other
            assert_eq!(browser.ask("web", &id, "sms", ADA_PHONE).await.status, 200);
            let code = one.code(ADA_PHONE).await;
            let mut elsewhere = other.browser();
            elsewhere.cookies.clone_from(&browser.cookies);
            (browser, elsewhere, id, code)
        });
        store.yields();
        let calls = [&one, &other].into_iter().flat_map(|node| {
            [Call::Right, Call::Complete, Call::Authorize].map(|call| make(node, "web", &id, &code, call))
        });
        let answers = {
            let _entered = runtime.enter();
            interleave(calls.collect(), &order)
        };
        prop_assert_eq!(count(&[answers[0].clone(), answers[3].clone()], |answer| answer.status == 200), 1, "{:?}", answers);
        let mut codes = with_code(&answers);
        for mut node in [one, other] {
            runtime.block_on(node.complete("web", &id));
            codes += with_code(&[runtime.block_on(node.authorize("web"))]);
        }
        prop_assert_eq!(codes, 1, "{:?}", answers);
    }

    #[test]
    fn c057_at_most_five_guesses_are_checked_when_they_overlap_in_any_order(order in vec(0..9_usize, 0..200)) {
        let runtime = runtime();
        let store = ControlledStore::default();
        let (browser, id) = runtime.block_on(async {
            let world = World::with(store.clone(), |service| service).await;
            let mut browser = world.browser();
            let id = browser.start("web", ADA).await;
            browser.ask("web", &id, "sms", ADA_PHONE).await;
            (browser, id)
        });
        store.yields();
        let guesses = (0..9).map(|_| make(&browser, "web", &id, "", Call::Wrong)).collect();
        let _entered = runtime.enter();
        let answers = interleave(guesses, &order);
        prop_assert_eq!(count(&answers, |answer| answer.error() == "invalid_otp"), 5, "{:?}", answers);
    }
}

#[test]
fn c023_two_browsers_that_use_one_pushed_request_at_once_get_one_code() {
    let runtime = runtime();
    // how far the second call has come when the first one runs to its end
    for head_start in 0..40 {
        let store = ControlledStore::default();
        let (browsers, named) = runtime.block_on(async {
            let world = World::with(store.clone(), |service| service).await;
            let browsers = [completed(&world, "web").await, completed(&world, "web").await];
            let named = crate::pushed::pushed(&mut world.browser(), "web", "").await;
            (browsers, named)
        });
        store.yields();
        let visits = browsers.map(|mut browser| -> Running<Answer> {
            let named = named.clone();
            Box::pin(async move { crate::pushed::authorize(&mut browser, &named).await })
        });
        let order = [vec![1; head_start], vec![0; 200]].concat();
        let _entered = runtime.enter();
        let answers = interleave(visits.into(), &order);
        assert_eq!(with_code(&answers), 1, "{head_start} {answers:?}");
    }
}

#[test]
fn c110_a_right_code_that_arrives_second_is_not_counted_as_a_failure() {
    let runtime = runtime();
    // how far the second call has come when the first one runs to its end
    for head_start in 0..25 {
        let store = ControlledStore::default();
        let (world, mut browser, id, code) = runtime.block_on(async {
            let world = World::with(store.clone(), |service| service).await;
            let mut browser = world.browser();
            let id = browser.start("web", ADA).await;
            browser.ask("web", &id, "sms", ADA_PHONE).await;
            let code = world.code(ADA_PHONE).await;
            (world, browser, id, code)
        });
        store.yields();
        let calls = (0..2).map(|_| make(&browser, "web", &id, &code, Call::Right)).collect();
        let order = [vec![1; head_start], vec![0; 200]].concat();
        let answers = {
            let _entered = runtime.enter();
            interleave(calls, &order)
        };
        assert_eq!(count(&answers, |answer| answer.status == 200), 1, "{answers:?}");
        // five attempts are free, so a leftover count of the second call would make the fifth one wait
        runtime.block_on(async {
            world.advance(31);
            let id = browser.start("web", ADA).await;
            assert_eq!(browser.ask("web", &id, "sms", ADA_PHONE).await.status, 200);
            for _ in 0..5 {
                assert_eq!(browser.verify("web", &id, "wrong").await.error(), "invalid_otp", "{head_start}");
            }
        });
    }
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
