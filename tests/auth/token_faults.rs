//! Token calls on a store that fails at each operation in turn: before it takes effect, after it, or permanently.

use std::{collections::BTreeSet, future::poll_fn, pin::pin, task::Poll};

use crate::{
    controlled_store::{ControlledStore, FAULTS, Fault},
    issued_tokens::{EVERYWHERE, IssuedTokens, all_are, at_layer, good_at},
    special_worlds::controlled_store_with_keys,
    token_requests::{Grant, is_no_grant},
    world::{Answer, Browser, World},
};

/// The call during which the store fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Redeem,
    /// Redeems a used code, long after.
    Replay,
    Refresh,
    /// Uses a refresh token again within its grace.
    RefreshAgain,
    /// Uses a refresh token again, long after.
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

/// A login and its tokens.
struct Flow {
    world: World,
    store: ControlledStore,
    browser: Browser,
    code: Grant,
    first: Option<IssuedTokens>,
    newest: Option<IssuedTokens>,
}

impl Flow {
    /// Returns a login in the state before this call.
    async fn before(call: Call) -> Self {
        let (store, world) = controlled_store_with_keys().await;
        let mut browser = world.browser();
        let code = browser.sign_in("web").await;
        let mut flow = Self { world, store, browser, code, first: None, newest: None };
        if call == Redeem {
            return flow;
        }
        let first = IssuedTokens::of(&flow.browser.redeem("web", &flow.code).await);
        let newest = IssuedTokens::of(&flow.browser.refresh("web", first.refresh()).await);
        (flow.first, flow.newest) = (Some(first), Some(newest));
        flow.world.advance(match call {
            Replay => 3,
            Reuse => 10,
            _ => 1,
        });
        flow
    }

    /// Switches to a service that has cached nothing.
    async fn restart_service(&mut self) {
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
            IntrospectAccess => browser.ask_about(&newest().access).await,
            IntrospectRefresh => browser.ask_about(newest().refresh()).await,
        }
    }

    /// Asserts that no token of this login works anywhere.
    async fn assert_revoked(&self, case: &str) {
        let verifier = self.world.service.verifier();
        for issued in self.first.iter().chain(&self.newest) {
            let good = good_at(&mut self.world.browser(), &verifier, "web", issued).await;
            assert_eq!(good, BTreeSet::new(), "{case}");
            assert!(is_no_grant(&self.world.browser().refresh("web", issued.refresh()).await), "{case}");
        }
    }
}

/// Tries every call, each of its operations and each kind of failure, on a new service and on one with cached keys.
#[tokio::test]
async fn c092_c093_c095_c096_c114_every_store_failure_yields_a_503_and_a_retry_succeeds() {
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

/// Fails one operation of the call. Returns whether there is such an operation.
async fn fails_at(call: Call, at: usize, fault: Fault, prepared: bool) -> bool {
    let case = format!("{call:?}, {fault:?} at operation {at}, {prepared}");
    let mut flow = Flow::before(call).await;
    if !prepared {
        flow.restart_service().await;
    }
    flow.store.fail(at, fault);
    let answer = flow.call(call).await;
    if !flow.store.heal() {
        assert!(call.is_answered(&answer), "{case}: {answer:?}");
        return false;
    }
    // cached keys also work
    assert!(is_unavailable(&answer) || call.is_answered(&answer), "{case}: {answer:?}");
    let was_answered = call.is_answered(&answer);

    let again = flow.call(call).await;
    match call {
        Redeem => {
            // it may have been used up, and then it stays used
            let answers = [&answer, &again];
            let issued: Vec<_> =
                answers.into_iter().filter(|answer| answer.status == 200).map(IssuedTokens::of).collect();
            assert!(issued.len() <= 1, "{case}: {answers:?}");
            assert!(again.status == 200 || is_no_grant(&again), "{case}: {again:?}");
            for issued in &issued {
                all_are(true, &flow.world, "web", issued).await;
                IssuedTokens::of(&flow.browser.refresh("web", issued.refresh()).await);
            }
            flow.world.advance(3);
            assert!(is_no_grant(&flow.browser.redeem("web", &flow.code).await), "{case}");
            for issued in &issued {
                all_are(false, &flow.world, "web", issued).await;
            }
        }
        Refresh => {
            let next = IssuedTokens::of(&again);
            if was_answered {
                assert_eq!(IssuedTokens::of(&answer).refresh(), next.refresh(), "{case}");
            }
            all_are(true, &flow.world, "web", &next).await;
            // and there is no second chain
            let third = IssuedTokens::of(&flow.call(Refresh).await);
            assert_eq!((third.refresh(), third.jti()), (next.refresh(), next.jti()), "{case}");
            all_are(true, &flow.world, "web", &IssuedTokens::of(&flow.browser.refresh("web", next.refresh()).await))
                .await;
        }
        RefreshAgain => {
            assert_eq!(IssuedTokens::of(&again).refresh(), flow.newest.as_ref().unwrap().refresh(), "{case}");
            all_are(true, &flow.world, "web", flow.newest.as_ref().unwrap()).await;
        }
        UserInfo | IntrospectAccess | IntrospectRefresh => {
            assert!(call.is_answered(&again), "{case}: {again:?}");
            all_are(true, &flow.world, "web", flow.newest.as_ref().unwrap()).await;
        }
        Replay | Reuse | RevokeAccess | RevokeRefresh | LogOut => {
            assert!(call.is_answered(&again), "{case}: {again:?}");
            flow.assert_revoked(&case).await;
        }
    }
    true
}

#[tokio::test]
async fn c114_a_layer_whose_store_fails_refuses_requests_with_a_503() {
    for fault in FAULTS {
        for (revoked, normally) in [(false, 200), (true, 401)] {
            for at in 0.. {
                let mut flow = Flow::before(UserInfo).await;
                let newest = flow.newest.clone().unwrap();
                if revoked {
                    flow.call(RevokeRefresh).await;
                }
                // one verifier has cached the token, the other has read nothing
                let known = flow.world.service.verifier();
                assert_eq!(at_layer(&known, &newest.access).await, normally);
                flow.restart_service().await;
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

/// The response was lost: the client asks again after some time.
#[tokio::test]
async fn c095_a_refresh_whose_response_was_lost_counts_as_theft_only_after_the_grace() {
    for (wait, expected) in [(9, 200), (10, 400)] {
        let mut flow = Flow::before(Refresh).await;
        let mut at = 0;
        // the first write uses up the token
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
            flow.assert_revoked("after its grace").await;
        }
    }
}

/// A client disconnects at any moment. Its call then has all of its effects, or none of them.
#[tokio::test]
async fn c096_disconnecting_during_a_revocation_leaves_no_half_of_the_family() {
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
            // and no revocation mark is dropped before the row
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
