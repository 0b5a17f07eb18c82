//! A store that fails at each operation of each call about tokens: before it did anything, after it did, or for good.

use std::{collections::BTreeSet, future::poll_fn, pin::pin, task::Poll};

use crate::{
    given::{EVERYWHERE, Given, all_are, at_layer, good_at},
    grants::{Grant, is_no_grant},
    steered::{FAULTS, Fault, Steered},
    world::{Answer, Browser, World},
    worlds::steered_with_keys,
};

/// What is asked when the store fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Redeem,
    /// A spent code, long after.
    Replay,
    Refresh,
    /// A refresh token once more, within its grace.
    RefreshAgain,
    /// The same long after.
    Reuse,
    RevokeAccess,
    RevokeRefresh,
    LogOut,
    UserInfo,
    IntrospectAccess,
    IntrospectRefresh,
}

use Call::{
    IntrospectAccess, IntrospectRefresh, LogOut, Redeem, Refresh, RefreshAgain, Replay, Reuse, RevokeAccess,
    RevokeRefresh, UserInfo,
};

const CALLS: [Call; 11] = [
    Redeem,
    Replay,
    Refresh,
    RefreshAgain,
    Reuse,
    RevokeAccess,
    RevokeRefresh,
    LogOut,
    UserInfo,
    IntrospectAccess,
    IntrospectRefresh,
];

impl Call {
    fn is_answered(self, answer: &Answer) -> bool {
        match self {
            Replay | Reuse => is_no_grant(answer),
            IntrospectAccess | IntrospectRefresh => answer.status == 200 && answer.json()["active"] == true,
            _ => answer.status == 200,
        }
    }
}

fn is_unavailable(answer: &Answer) -> bool {
    answer.status == 503
        && answer.error() == "temporarily_unavailable"
        && answer.headers.contains_key("retry-after")
        && !answer.headers.contains_key("set-cookie")
}

/// A login, and what came of it.
struct Flow {
    world: World,
    store: Steered,
    browser: Browser,
    code: Grant,
    first: Option<Given>,
    newest: Option<Given>,
}

impl Flow {
    /// As it stands before this call.
    async fn before(call: Call) -> Self {
        let (store, world) = steered_with_keys().await;
        let mut browser = world.browser();
        let code = browser.sign_in("web").await;
        let mut flow = Self { world, store, browser, code, first: None, newest: None };
        if call == Redeem {
            return flow;
        }
        let first = Given::of(&flow.browser.redeem("web", &flow.code).await);
        let newest = Given::of(&flow.browser.refresh("web", first.refresh()).await);
        (flow.first, flow.newest) = (Some(first), Some(newest));
        flow.world.advance(match call {
            Replay => 3,
            Reuse => 10,
            _ => 1,
        });
        flow
    }

    /// To a service that has read nothing yet.
    async fn move_on(&mut self) {
        let world = World::on(self.store.clone().into(), self.world.clock.clone(), |service| service).await;
        self.browser.service = world.service.clone();
        self.world = world;
    }

    async fn call(&mut self, call: Call) -> Answer {
        let browser = &mut self.browser;
        let first = || self.first.as_ref().unwrap();
        let newest = || self.newest.as_ref().unwrap();
        match call {
            Redeem | Replay => browser.redeem("web", &self.code).await,
            Refresh => browser.refresh("web", newest().refresh()).await,
            RefreshAgain | Reuse => browser.refresh("web", first().refresh()).await,
            RevokeAccess => browser.revoke("web", &newest().access).await,
            RevokeRefresh => browser.revoke("web", newest().refresh()).await,
            LogOut => browser.log_out("web", newest().id()).await,
            UserInfo => browser.with_token("/userinfo", &newest().access).await,
            IntrospectAccess => browser.ask_about("web", &newest().access).await,
            IntrospectRefresh => browser.ask_about("web", newest().refresh()).await,
        }
    }

    /// All that anybody was given is good for nothing, at any place.
    async fn is_over(&self, case: &str) {
        let verifier = self.world.service.verifier();
        for given in self.first.iter().chain(&self.newest) {
            let good = good_at(&mut self.world.browser(), &verifier, "web", given).await;
            assert_eq!(good, BTreeSet::new(), "{case}");
            assert!(is_no_grant(&self.world.browser().refresh("web", given.refresh()).await), "{case}");
        }
    }
}

/// Every call, each of its operations, each kind of failure, on a service that has just begun and on one that has not.
#[tokio::test]
async fn c092_c093_c095_c096_c114_whatever_fails_the_answer_is_503_and_asking_again_leads_where_it_should() {
    for call in CALLS {
        for fault in FAULTS {
            for prepared in [false, true] {
                let mut at = 0;
                while fails_at(call, at, fault, prepared).await {
                    at += 1;
                }
                assert!(at > 0, "{call:?} {fault:?}");
            }
        }
    }
}

/// Says whether this call has such an operation.
async fn fails_at(call: Call, at: usize, fault: Fault, prepared: bool) -> bool {
    let case = format!("{call:?}, {fault:?} at operation {at}, {prepared}");
    let mut flow = Flow::before(call).await;
    if !prepared {
        flow.move_on().await;
    }
    flow.store.fail(at, fault);
    let answer = flow.call(call).await;
    if !flow.store.heal() {
        assert!(call.is_answered(&answer), "{case}: {answer:?}");
        return false;
    }
    // old keys do as well
    assert!(is_unavailable(&answer) || call.is_answered(&answer), "{case}: {answer:?}");
    let was_answered = call.is_answered(&answer);

    let again = flow.call(call).await;
    match call {
        Redeem => {
            // it may be spent, and then it is so for ever
            let answers = [&answer, &again];
            let given: Vec<_> = answers.into_iter().filter(|answer| answer.status == 200).map(Given::of).collect();
            assert!(given.len() <= 1, "{case}: {answers:?}");
            assert!(again.status == 200 || is_no_grant(&again), "{case}: {again:?}");
            for given in &given {
                all_are(true, &flow.world, "web", given).await;
                Given::of(&flow.browser.refresh("web", given.refresh()).await);
            }
            flow.world.advance(3);
            assert!(is_no_grant(&flow.browser.redeem("web", &flow.code).await), "{case}");
            for given in &given {
                all_are(false, &flow.world, "web", given).await;
            }
        }
        Refresh => {
            let next = Given::of(&again);
            if was_answered {
                assert_eq!(Given::of(&answer).refresh(), next.refresh(), "{case}");
            }
            all_are(true, &flow.world, "web", &next).await;
            // and there is no other branch
            let third = Given::of(&flow.call(Refresh).await);
            assert_eq!((third.refresh(), third.jti()), (next.refresh(), next.jti()), "{case}");
            all_are(true, &flow.world, "web", &Given::of(&flow.browser.refresh("web", next.refresh()).await)).await;
        }
        RefreshAgain => {
            assert_eq!(Given::of(&again).refresh(), flow.newest.as_ref().unwrap().refresh(), "{case}");
            all_are(true, &flow.world, "web", flow.newest.as_ref().unwrap()).await;
        }
        UserInfo | IntrospectAccess | IntrospectRefresh => {
            assert!(call.is_answered(&again), "{case}: {again:?}");
            all_are(true, &flow.world, "web", flow.newest.as_ref().unwrap()).await;
        }
        Replay | Reuse | RevokeAccess | RevokeRefresh | LogOut => {
            assert!(call.is_answered(&again), "{case}: {again:?}");
            flow.is_over(&case).await;
        }
    }
    true
}

#[tokio::test]
async fn c114_a_layer_whose_store_fails_lets_nobody_through_and_says_503() {
    for fault in FAULTS {
        for (revoked, normally) in [(false, 200), (true, 401)] {
            for at in 0.. {
                let mut flow = Flow::before(UserInfo).await;
                let newest = flow.newest.clone().unwrap();
                if revoked {
                    flow.call(RevokeRefresh).await;
                }
                // one that remembers the token, and one that has read nothing
                let known = flow.world.service.verifier();
                assert_eq!(at_layer(&known, &newest.access).await, normally);
                flow.move_on().await;
                let mut failed = false;
                for verifier in [known, flow.world.service.verifier()] {
                    flow.store.fail(at, fault);
                    let status = at_layer(&verifier, &newest.access).await;
                    let has_failed = flow.store.heal();
                    assert_eq!(status, if has_failed { 503 } else { normally }, "{fault:?} {at}");
                    assert_eq!(at_layer(&verifier, &newest.access).await, normally);
                    failed |= has_failed;
                }
                if !failed {
                    assert!(at > 0);
                    break;
                }
            }
        }
    }
}

/// An answer that never came: the client asks again, once its time is over.
#[tokio::test]
async fn c095_a_refresh_whose_answer_was_lost_is_a_theft_after_its_grace_and_not_before() {
    for (wait, expected) in [(9, 200), (10, 400)] {
        let mut flow = Flow::before(Refresh).await;
        let mut at = 0;
        // the first write is what uses the token
        flow.store.done();
        loop {
            flow.store.fail(at, Fault::After);
            let answer = flow.call(Refresh).await;
            assert!(flow.store.heal(), "no write was made");
            let last = flow.store.done().pop().unwrap();
            if last == "swap token_families" {
                assert!(is_unavailable(&answer));
                break;
            }
            at += 1;
        }
        flow.world.advance(wait);
        let again = flow.call(Refresh).await;
        assert_eq!(again.status.as_u16(), expected, "{again:?}");
        if expected == 400 {
            flow.is_over("after its grace").await;
        }
    }
}

/// A client that hangs up at any moment: what it set off is done wholly, or not at all.
#[tokio::test]
async fn c096_who_hangs_up_while_a_family_ends_keeps_no_half_of_it() {
    for call in [Reuse, Replay, RevokeAccess, RevokeRefresh] {
        let mut ends = 0;
        for polls in 1.. {
            let mut flow = Flow::before(call).await;
            let newest = flow.newest.clone().unwrap();
            flow.store.yields();
            let is_done = {
                let mut asked = pin!(flow.call(call));
                let mut left = polls;
                poll_fn(|context| match asked.as_mut().poll(context) {
                    Poll::Ready(_) => Poll::Ready(true),
                    Poll::Pending if left == 0 => Poll::Ready(false),
                    Poll::Pending => {
                        left -= 1;
                        Poll::Pending
                    }
                })
                .await
            };
            flow.world.settle().await;
            let good = good_at(&mut flow.world.browser(), &flow.world.service.verifier(), "web", &newest).await;
            assert!(good.is_empty() || good == BTreeSet::from(EVERYWHERE), "{call:?} {polls}: {good:?}");
            ends += usize::from(good.is_empty());
            // and no mark is forgotten before the row
            flow.world.advance(13 * 60);
            let answer = flow.browser.refresh("web", newest.refresh()).await;
            assert_eq!(answer.status == 200, !good.is_empty(), "{call:?} {polls}: {answer:?}");
            if is_done {
                break;
            }
        }
        assert!(ends > 1, "{call:?} was never cut off on its way");
    }
}
