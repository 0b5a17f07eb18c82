//! Codes and refresh tokens that are used at once: on several threads, by two services, and step by step in orders that a
//! machine thinks of.

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
    given::{Given, all_are, at_layer},
    grants::{Grant, is_no_grant},
    races::{at_once, count, from, runtime},
    restart::File,
    steered::{Running, Steered, interleave},
    world::{Answer, Browser, World, clients},
    worlds::{put_keys, steered_with_keys, two_nodes, world_with_keys},
};

fn is_good(answer: &Answer) -> bool {
    answer.status == 200
}

fn winner(answers: &[Answer]) -> Given {
    assert_eq!(count(answers, is_good), 1, "{answers:?}");
    assert_eq!(count(answers, is_no_grant), answers.len() - 1, "{answers:?}");
    Given::of(answers.iter().find(|answer| is_good(answer)).unwrap())
}

/// Everybody got the same.
fn one_successor(answers: &[Answer]) -> Given {
    let given: Vec<_> = answers.iter().map(Given::of).collect();
    let names: BTreeSet<_> = given.iter().map(|given| (given.refresh().to_owned(), given.jti())).collect();
    assert_eq!(names.len(), 1, "{given:?}");
    given[0].clone()
}

/// Stores, and what has to stay as long as they do.
fn stores() -> Vec<(AnyStore, Option<File>)> {
    let file = File::new();
    vec![(Memory::new().into(), None), (Disk::open(&file.0).unwrap().into(), Some(file))]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c093_of_64_redemptions_at_once_by_two_services_one_gets_tokens_that_live() {
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
            let given = winner(&answers);
            // who came second is no thief, for two seconds
            assert!(is_no_grant(&one.browser().redeem("web", &code).await));
            one.advance(2);
            assert!(is_no_grant(&other.browser().redeem("web", &code).await));
            for world in [&one, &other] {
                all_are(true, world, "web", &given).await;
            }
            let next = Given::of(&other.browser().refresh("web", given.refresh()).await);
            all_are(true, &one, "web", &next).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c092_of_redemptions_of_a_spent_code_at_once_none_gets_tokens_and_all_that_it_gave_ends() {
    for (store, _file) in stores() {
        let [one, other] = two_nodes(store).await;
        let code = one.browser().sign_in("web").await;
        let first = Given::of(&one.browser().redeem("web", &code).await);
        let next = Given::of(&one.browser().refresh("web", first.refresh()).await);
        one.clock.advance(Duration::from_nanos(2_000_000_001));
        let answers = at_once(32, |at| {
            let mut browser = from(&[&one, &other][at % 2].browser(), at);
            let (code, next) = (code.clone(), next.refresh().to_owned());
            // one of them goes on meanwhile
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
        all.extend(Some(&answers[7]).filter(|answer| is_good(answer)).map(Given::of));
        for (given, world) in all.iter().flat_map(|given| [(given, &one), (given, &other)]) {
            all_are(false, world, "web", given).await;
            assert!(is_no_grant(&world.browser().refresh("web", given.refresh()).await));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c096_refreshes_at_once_by_two_services_get_one_successor() {
    for (store, _file) in stores() {
        let [one, other] = two_nodes(store).await;
        let code = one.browser().sign_in("web").await;
        let mut given = Given::of(&one.browser().redeem("web", &code).await);
        for _ in 0..4 {
            let answers = at_once(16, |at| {
                let mut browser = from(&[&one, &other][at % 2].browser(), at);
                let token = given.refresh().to_owned();
                async move { browser.refresh("web", &token).await }
            })
            .await;
            let next = one_successor(&answers);
            assert_ne!(next.refresh(), given.refresh());
            all_are(true, &other, "web", &next).await;
            given = next;
        }
    }
}

/// What is asked while others ask.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    /// The code, once more.
    Redeem,
    /// The newest refresh token, or the one before it.
    Refresh,
    RefreshOlder,
    RevokeAccess,
    RevokeRefresh,
    LogOut,
    /// Looks, and changes nothing.
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

/// A browser that signed in, its code, and what came of it.
#[derive(Clone)]
struct Family {
    browser: Browser,
    code: Grant,
    first: Given,
    newest: Given,
}

impl Family {
    async fn begin(world: &World) -> Self {
        let mut browser = world.browser();
        let code = browser.sign_in("web").await;
        let first = Given::of(&browser.redeem("web", &code).await);
        let newest = Given::of(&browser.refresh("web", first.refresh()).await);
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
    fn c093_redemptions_that_overlap_in_any_order_on_two_nodes_give_tokens_once(order in vec(0..4_usize, 0..150)) {
        let runtime = runtime();
        let store = Steered::default();
        let (nodes, code) = runtime.block_on(async {
            let nodes = two_nodes(store.clone()).await;
            let code = nodes[0].browser().sign_in("web").await;
            // each has read its keys
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
        let given = winner(&answers);
        runtime.block_on(async {
            for node in &nodes {
                all_are(true, node, "web", &given).await;
            }
        });
    }

    /// Whatever is asked meanwhile, there is one branch; and what was ended gives nothing to anybody, who got it when ever.
    #[test]
    fn c092_c095_c096_whatever_overlaps_there_is_one_branch_and_what_has_ended_is_over(
        late in any::<bool>(),
        calls in vec(call(), 2..6),
        order in vec(0..6_usize, 0..150),
    ) {
        let runtime = runtime();
        let store = Steered::default();
        let (nodes, family) = runtime.block_on(async {
            let nodes = two_nodes(store.clone()).await;
            let family = Family::begin(&nodes[0]).await;
            nodes[1].service.prepare().await.unwrap();
            (nodes, family)
        });
        // later the code has been spent for long, and the older token is out of its grace
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
        let successors: Vec<_> = of(Call::Refresh).filter(|answer| is_good(answer)).map(Given::of).collect();
        let names: BTreeSet<_> = successors.iter().map(|given| (given.refresh(), given.jti())).collect();
        prop_assert!(names.len() <= 1, "{:?}", answers);
        for answer in of(Call::RefreshOlder).filter(|answer| is_good(answer)) {
            prop_assert!(!late);
            prop_assert_eq!(Given::of(answer).refresh, family.newest.refresh.clone());
        }
        // the first one is older than the one before, once the newest was used
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
                    for given in all.clone() {
                        all_are(false, node, "web", given).await;
                        assert!(is_no_grant(&node.browser().refresh("web", given.refresh()).await));
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
            let (store, world) = steered_with_keys().await;
            let family = Family::begin(&world).await;
            (store, world, family)
        });
        store.yields();
        // time goes by between them, less than the grace
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

/// The first has come so far when its code comes again, long after.
#[test]
fn c092_a_replay_while_the_code_is_being_spent_leaves_no_tokens_alive() {
    let runtime = runtime();
    let (mut by_first, mut by_second, mut by_none) = (0, 0, 0);
    for head_start in 0.. {
        let (store, world, code) = runtime.block_on(async {
            let (store, world) = steered_with_keys().await;
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
                all_are(true, &world, "web", &Given::of(&second)).await;
            } else {
                assert!(is_no_grant(&second), "{head_start}: {second:?}");
                if is_good(&first) {
                    by_first += 1;
                    all_are(false, &world, "web", &Given::of(&first)).await;
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
async fn a_rotation_of_the_signing_keys_disturbs_nobody() {
    let world = world_with_keys().await;
    let family = Family::begin(&world).await;
    let service = world.service.clone();
    let rotation = tokio::spawn(async move { service.rotate_keys().await });
    let mut newest = family.newest.clone();
    while !rotation.is_finished() {
        newest = Given::of(&world.browser().refresh("web", newest.refresh()).await);
        all_are(true, &world, "web", &newest).await;
    }
    rotation.await.unwrap().unwrap();
    all_are(true, &world, "web", &newest).await;
    // what the old key signed in the last moment is good to its end
    world.advance(3599);
    let last = Given::of(&world.browser().refresh("web", newest.refresh()).await);
    world.advance(1);
    let next = Given::of(&world.browser().refresh("web", last.refresh()).await);
    let kid = |given: &Given| given.access.split('.').next().unwrap().to_owned();
    assert_ne!(kid(&last), kid(&next), "the new key signs");
    world.advance(598);
    let verifier = world.service.verifier();
    assert_eq!(at_layer(&verifier, &last.access).await, 200);
    assert_eq!(world.browser().with_token("/userinfo", &last.access).await.status, 200);
}

/// As far apart as it can be: what a session had is over, also where its tokens or its codes were used last of all.
#[tokio::test]
async fn what_was_logged_out_stays_so_as_long_as_anything_of_it_could_live() {
    let store = AnyStore::from(Memory::new());
    put_keys(&store).await;
    let tokens = Tokens::new().refresh_lifetime(Duration::from_secs(600));
    let world = World::made(store, ManualClock::new(), clients(), tokens, |service| service).await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let first = Given::of(&browser.redeem("web", &code).await);
    // a code that is open when the session ends
    world.advance(580);
    let mut tab = browser.clone();
    let open = tab.sign_in("web").await;
    browser.cookies.clone_from(&tab.cookies);
    world.advance(19);
    let last = Given::of(&browser.refresh("web", first.refresh()).await);
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
