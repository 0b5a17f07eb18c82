//! Codes and refresh tokens that are used concurrently: on several threads, by two services, and interleaved in random
//! orders.

use std::{
    collections::BTreeSet,
    task::{Context, Waker},
    time::Duration,
};

use proptest::{collection::vec, prelude::*, test_runner::Config};
use tollgate::{
    Tokens, UserId,
    store::{AnyStore, Disk, Memory},
    testing::ManualClock,
};

use crate::{
    controlled_store::{ControlledStore, Running, interleave},
    issued_tokens::{IssuedTokens, all_are, at_layer},
    races::{at_once, count, from, runtime},
    restart::File,
    special_worlds::{controlled_store_with_keys, put_keys, two_nodes, world_with_keys},
    token_requests::{Grant, is_no_grant},
    world::{Answer, Browser, World, clients},
};

fn is_good(answer: &Answer) -> bool {
    answer.status == 200
}

fn winner(answers: &[Answer]) -> IssuedTokens {
    assert_eq!(count(answers, is_good), 1, "{answers:?}");
    assert_eq!(count(answers, is_no_grant), answers.len() - 1, "{answers:?}");
    IssuedTokens::of(answers.iter().find(|answer| is_good(answer)).unwrap())
}

/// Asserts that all responses contain the same tokens.
fn one_successor(answers: &[Answer]) -> IssuedTokens {
    let issued: Vec<_> = answers.iter().map(IssuedTokens::of).collect();
    let names: BTreeSet<_> = issued.iter().map(|issued| (issued.refresh().to_owned(), issued.jti())).collect();
    assert_eq!(names.len(), 1, "{issued:?}");
    issued[0].clone()
}

/// Returns stores, with files that must live as long as they do.
fn stores() -> Vec<(AnyStore, Option<File>)> {
    let file = File::new();
    vec![(Memory::new().into(), None), (Disk::open(&file.0).unwrap().into(), Some(file))]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c093_of_64_concurrent_redemptions_at_two_services_one_gets_working_tokens() {
    for (store, _file) in stores() {
        let [one, other] = two_nodes(store).await;
        for _ in 0..3 {
            let code = one.browser().sign_in("web").await;
            let answers = at_once(64, |at| {
                let mut browser = from(&[&one, &other][at % 2].browser(), at);
                let code = code.clone();
                async move { browser.redeem("web", &code).await }
            })
            .await;
            let issued = winner(&answers);
            // for two seconds, a second redemption is not a replay
            assert!(is_no_grant(&one.browser().redeem("web", &code).await));
            one.advance(2);
            assert!(is_no_grant(&other.browser().redeem("web", &code).await));
            for world in [&one, &other] {
                all_are(true, world, "web", &issued).await;
            }
            let next = IssuedTokens::of(&other.browser().refresh("web", issued.refresh()).await);
            all_are(true, &one, "web", &next).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c092_concurrent_replays_of_a_code_get_no_tokens_and_revoke_those_it_yielded() {
    for (store, _file) in stores() {
        let [one, other] = two_nodes(store).await;
        let code = one.browser().sign_in("web").await;
        let first = IssuedTokens::of(&one.browser().redeem("web", &code).await);
        let next = IssuedTokens::of(&one.browser().refresh("web", first.refresh()).await);
        one.clock.advance(Duration::from_nanos(2_000_000_001));
        let answers = at_once(32, |at| {
            let mut browser = from(&[&one, &other][at % 2].browser(), at);
            let (code, next) = (code.clone(), next.refresh().to_owned());
            // the legitimate client continues meanwhile
            async move {
                match at {
                    7 => browser.refresh("web", &next).await,
                    _ => browser.redeem("web", &code).await,
                }
            }
        })
        .await;
        assert_eq!(count(&answers[8..], is_no_grant), 24, "{answers:?}");
        let mut all = vec![first, next];
        all.extend(Some(&answers[7]).filter(|answer| is_good(answer)).map(IssuedTokens::of));
        for (issued, world) in all.iter().flat_map(|issued| [(issued, &one), (issued, &other)]) {
            all_are(false, world, "web", issued).await;
            assert!(is_no_grant(&world.browser().refresh("web", issued.refresh()).await));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c096_concurrent_refreshes_at_two_services_get_one_successor() {
    for (store, _file) in stores() {
        let [one, other] = two_nodes(store).await;
        let code = one.browser().sign_in("web").await;
        let mut issued = IssuedTokens::of(&one.browser().redeem("web", &code).await);
        for _ in 0..4 {
            let answers = at_once(16, |at| {
                let mut browser = from(&[&one, &other][at % 2].browser(), at);
                let token = issued.refresh().to_owned();
                async move { browser.refresh("web", &token).await }
            })
            .await;
            let next = one_successor(&answers);
            assert_ne!(next.refresh(), issued.refresh());
            all_are(true, &other, "web", &next).await;
            issued = next;
        }
    }
}

/// A call that overlaps with others.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    /// Redeems the code again.
    Redeem,
    /// Uses the newest refresh token, or the one before it.
    Refresh,
    RefreshOlder,
    RevokeAccess,
    RevokeRefresh,
    LogOut,
    /// Reads without changing anything.
    UserInfo,
}

impl Call {
    fn ends(self) -> bool {
        matches!(self, Self::RevokeAccess | Self::RevokeRefresh | Self::LogOut)
    }
}

fn call() -> impl Strategy<Value = Call> {
    use Call::{LogOut, Redeem, Refresh, RefreshOlder, RevokeAccess, RevokeRefresh, UserInfo};
    prop::sample::select(vec![Redeem, Refresh, Refresh, RefreshOlder, RevokeAccess, RevokeRefresh, LogOut, UserInfo])
}

/// A signed-in browser, its code and its tokens.
#[derive(Clone)]
struct Family {
    browser: Browser,
    code: Grant,
    first: IssuedTokens,
    newest: IssuedTokens,
}

impl Family {
    async fn begin(world: &World) -> Self {
        let mut browser = world.browser();
        let code = browser.sign_in("web").await;
        let first = IssuedTokens::of(&browser.redeem("web", &code).await);
        let newest = IssuedTokens::of(&browser.refresh("web", first.refresh()).await);
        Self { browser, code, first, newest }
    }

    fn make(&self, node: &World, call: Call) -> Running<Answer> {
        let Self { mut browser, code, first, newest } = self.clone();
        browser.service = node.service.clone();
        Box::pin(async move {
            match call {
                Call::Redeem => browser.redeem("web", &code).await,
                Call::Refresh => browser.refresh("web", newest.refresh()).await,
                Call::RefreshOlder => browser.refresh("web", first.refresh()).await,
                Call::RevokeAccess => browser.revoke("web", &first.access).await,
                Call::RevokeRefresh => browser.revoke("web", newest.refresh()).await,
                Call::LogOut => browser.log_out("web", newest.id()).await,
                Call::UserInfo => browser.with_token("/userinfo", &newest.access).await,
            }
        })
    }
}

proptest! {
    #![proptest_config(Config::with_cases(80))]
    #[test]
    fn c093_redemptions_that_overlap_in_any_order_on_two_nodes_yield_tokens_once(order in vec(0..4_usize, 0..150)) {
        let runtime = runtime();
        let store = ControlledStore::default();
        let (nodes, code) = runtime.block_on(async {
            let nodes = two_nodes(store.clone()).await;
            let code = nodes[0].browser().sign_in("web").await;
            // both have read the keys
            nodes[0].service.prepare().await.unwrap();
            (nodes, code)
        });
        store.yields();
        let calls = (0..4).map(|at| {
            let (mut browser, code) = (nodes[at % 2].browser(), code.clone());
            Box::pin(async move { browser.redeem("web", &code).await }) as Running<Answer>
        });
        let answers = {
            let _entered = runtime.enter();
            interleave(calls.collect(), &order)
        };
        let issued = winner(&answers);
        runtime.block_on(async {
            for node in &nodes {
                all_are(true, node, "web", &issued).await;
            }
        });
    }

    /// Regardless of concurrent calls, there is one chain of refresh tokens, and revoked tokens work nowhere, no matter
    /// when they were issued.
    #[test]
    fn c092_c095_c096_overlapping_calls_leave_one_chain_and_no_revoked_token_works(
        late in any::<bool>(),
        calls in vec(call(), 2..6),
        order in vec(0..6_usize, 0..150),
    ) {
        let runtime = runtime();
        let store = ControlledStore::default();
        let (nodes, family) = runtime.block_on(async {
            let nodes = two_nodes(store.clone()).await;
            let family = Family::begin(&nodes[0]).await;
            nodes[1].service.prepare().await.unwrap();
            (nodes, family)
        });
        // later, the code was used long ago, and the older token is past its grace
        nodes[0].advance(if late { 10 } else { 0 });
        store.yields();
        let running = calls.iter().enumerate().map(|(at, call)| family.make(&nodes[at % 2], *call)).collect();
        let answers = {
            let _entered = runtime.enter();
            interleave(running, &order)
        };
        let of = |call: Call| calls.iter().zip(&answers).filter(move |(made, _)| **made == call).map(|(_, answer)| answer);
        for answer in of(Call::Redeem) {
            prop_assert!(is_no_grant(answer), "{:?}", answer);
        }
        let successors: Vec<_> = of(Call::Refresh).filter(|answer| is_good(answer)).map(IssuedTokens::of).collect();
        let names: BTreeSet<_> = successors.iter().map(|issued| (issued.refresh(), issued.jti())).collect();
        prop_assert!(names.len() <= 1, "{:?}", answers);
        for answer in of(Call::RefreshOlder).filter(|answer| is_good(answer)) {
            prop_assert!(!late);
            prop_assert_eq!(IssuedTokens::of(answer).refresh, family.newest.refresh.clone());
        }
        // once the newest token was used, the first one is two steps behind
        let is_reused = of(Call::RefreshOlder).any(|answer| !is_good(answer));
        prop_assert!(!late || is_reused || of(Call::RefreshOlder).count() == 0);
        let ended = calls.iter().any(|call| call.ends()) || is_reused || late && of(Call::Redeem).count() > 0;
        if !ended {
            prop_assert_eq!(successors.len(), of(Call::Refresh).count(), "{:?}", answers);
        }
        let all = successors.iter().chain([&family.first, &family.newest]);
        runtime.block_on(async {
            let newest = successors.first().unwrap_or(&family.newest);
            for node in &nodes {
                if ended {
                    for issued in all.clone() {
                        all_are(false, node, "web", issued).await;
                        assert!(is_no_grant(&node.browser().refresh("web", issued.refresh()).await));
                    }
                } else {
                    all_are(true, node, "web", newest).await;
                }
            }
        });
    }

    #[test]
    fn c096_refreshes_that_overlap_in_any_order_get_one_successor(
        waits in vec(0..4_u64, 4),
        order in vec(0..4_usize, 0..120),
    ) {
        let runtime = runtime();
        let (store, world, family) = runtime.block_on(async {
            let (store, world) = controlled_store_with_keys().await;
            let family = Family::begin(&world).await;
            (store, world, family)
        });
        store.yields();
        // some time passes between them, but less than the grace
        let calls = waits.iter().map(|wait| {
            let (refresh, clock, wait) = (family.make(&world, Call::Refresh), world.clock.clone(), *wait % 3);
            Box::pin(async move {
                clock.advance(Duration::from_secs(wait));
                refresh.await
            }) as Running<Answer>
        });
        let answers = {
            let _entered = runtime.enter();
            interleave(calls.collect(), &order)
        };
        let next = one_successor(&answers);
        runtime.block_on(all_are(true, &world, "web", &next));
    }
}

/// The first call has come this far when its code is replayed, long after.
#[test]
fn c092_a_replay_while_a_code_is_being_redeemed_leaves_no_working_tokens() {
    let runtime = runtime();
    let (mut by_first, mut by_second, mut by_none) = (0, 0, 0);
    for head_start in 0.. {
        let (store, world, code) = runtime.block_on(async {
            let (store, world) = controlled_store_with_keys().await;
            let code = world.browser().sign_in("web").await;
            world.service.prepare().await.unwrap();
            (store, world, code)
        });
        store.yields();
        let _entered = runtime.enter();
        let mut first = {
            let (mut browser, code) = (world.browser(), code.clone());
            Box::pin(async move { browser.redeem("web", &code).await })
        };
        let mut answer = None;
        for _ in 0..head_start {
            if let std::task::Poll::Ready(ready) = first.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                answer = Some(ready);
                break;
            }
        }
        world.advance(3);
        let second = runtime.block_on(async { world.browser().redeem("web", &code).await });
        let is_whole = answer.is_some();
        let first = match answer {
            Some(answer) => answer,
            None => runtime.block_on(first),
        };
        runtime.block_on(async {
            if is_good(&second) {
                by_second += 1;
                assert!(is_no_grant(&first), "{head_start}: {first:?}");
                all_are(true, &world, "web", &IssuedTokens::of(&second)).await;
            } else {
                assert!(is_no_grant(&second), "{head_start}: {second:?}");
                if is_good(&first) {
                    by_first += 1;
                    all_are(false, &world, "web", &IssuedTokens::of(&first)).await;
                } else {
                    by_none += 1;
                    assert!(is_no_grant(&first), "{head_start}: {first:?}");
                }
            }
        });
        if is_whole {
            break;
        }
    }
    assert!(by_first > 0 && by_second > 0 && by_none > 0, "{by_first} {by_second} {by_none}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_rotation_interrupts_no_client() {
    let world = world_with_keys().await;
    let family = Family::begin(&world).await;
    let service = world.service.clone();
    let rotation = tokio::spawn(async move { service.tokens().unwrap().rotate_keys().await });
    let mut newest = family.newest.clone();
    while !rotation.is_finished() {
        newest = IssuedTokens::of(&world.browser().refresh("web", newest.refresh()).await);
        all_are(true, &world, "web", &newest).await;
    }
    rotation.await.unwrap().unwrap();
    all_are(true, &world, "web", &newest).await;
    // tokens that the old key signed at the last moment stay valid until they expire
    world.advance(3599);
    let last = IssuedTokens::of(&world.browser().refresh("web", newest.refresh()).await);
    world.advance(1);
    let next = IssuedTokens::of(&world.browser().refresh("web", last.refresh()).await);
    let kid = |issued: &IssuedTokens| issued.access.split('.').next().unwrap().to_owned();
    assert_ne!(kid(&last), kid(&next), "the new key signs");
    world.advance(598);
    let verifier = world.service.verifier();
    assert_eq!(at_layer(&verifier, &last.access).await, 200);
    assert_eq!(world.browser().with_token("/userinfo", &last.access).await.status, 200);
}

/// The longest possible distance: tokens of a session stay revoked even if they or their codes were used at the last
/// moment.
#[tokio::test]
async fn logged_out_tokens_stay_revoked_as_long_as_they_could_live() {
    let store = AnyStore::from(Memory::new());
    put_keys(&store).await;
    let tokens = Tokens::new().refresh_lifetime(Duration::from_secs(600));
    let world = World::made(store, ManualClock::new(), clients(), tokens, |service| service).await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let first = IssuedTokens::of(&browser.redeem("web", &code).await);
    // a code that is not redeemed when the session ends
    world.advance(580);
    let mut tab = browser.clone();
    let open = tab.sign_in("web").await;
    browser.cookies.clone_from(&tab.cookies);
    world.advance(19);
    let last = IssuedTokens::of(&browser.refresh("web", first.refresh()).await);
    let verifier = world.service.verifier();
    assert_eq!(at_layer(&verifier, &last.access).await, 200);
    world.service.end_user(&"acme".parse().unwrap(), &UserId::parse("u-ada").unwrap()).await.unwrap();
    for second in 0..700 {
        assert_eq!(at_layer(&verifier, &last.access).await, 401, "{second}");
        if second == 10 {
            let answer = browser.redeem("web", &open).await;
            assert!(is_no_grant(&answer), "{answer:?}");
        }
        world.advance(1);
    }
}
