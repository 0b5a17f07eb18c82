//! Logins on a store that fails at each operation in turn: before it takes effect, after it, or permanently.

use crate::{
    controlled_store::{ControlledStore, FAULTS, Fault},
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, CALLBACK, ISSUER, World},
};

/// The steps of a login, in order.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Step {
    Start,
    Status,
    Password,
    Ask,
    Verify,
    Complete,
    Authorize,
}

use Step::{Ask, Authorize, Complete, Password, Start, Status, Verify};

const STEPS: [Step; 7] = [Start, Status, Password, Ask, Verify, Complete, Authorize];
const CLIENT: &str = "mfa";

/// A login in progress.
struct Flow {
    world: World,
    store: ControlledStore,
    browser: Browser,
    id: String,
    /// A copy of the browser from after the start, which keeps the cookie.
    witness: Browser,
    codes: Vec<String>,
}

impl Flow {
    async fn new() -> Self {
        let store = ControlledStore::default();
        let world = World::with(store.clone(), |service| service).await;
        let browser = world.browser();
        Self { world, store, witness: browser.clone(), browser, id: String::new(), codes: Vec::new() }
    }

    async fn call(&mut self, step: Step) -> Answer {
        let id = self.id.clone();
        let answer = match step {
            Start => {
                let body = crate::world::with(crate::world::parameters(CLIENT), &[("identifier", ADA)]);
                self.browser.post("/authentication/start", &body).await
            }
            Status => self.browser.status(&id).await,
            Password => self.browser.password(CLIENT, &id, "ada", ADA_PASSWORD).await,
            Ask => self.browser.ask(CLIENT, &id, "sms", ADA_PHONE).await,
            Verify => {
                let code = self.newest_code().await;
                self.browser.verify(CLIENT, &id, &code).await
            }
            Complete => self.browser.complete(CLIENT, &id).await,
            Authorize => self.browser.authorize(CLIENT).await,
        };
        if step == Start && answer.status == 200 {
            answer.json()["session_id"].as_str().unwrap().clone_into(&mut self.id);
            self.witness = self.browser.clone();
        }
        self.codes.extend(answer.headers.get("location").and_then(|_| answer.redirected("code")));
        answer
    }

    async fn newest_code(&self) -> String {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        self.world.outbox.messages().last().map_or("000000".to_owned(), |message| message.code().to_owned())
    }

    async fn completed(&mut self) -> u64 {
        self.browser.status(&self.id).await.json()["completed_steps"].as_u64().unwrap()
    }
}

fn is_unavailable(step: Step, answer: &Answer) -> bool {
    if step == Authorize {
        return answer.status == 302
            && answer.header("location").starts_with(&format!("{CALLBACK}?"))
            && answer.redirected("error").as_deref() == Some("temporarily_unavailable")
            && answer.redirected("state").as_deref() == Some("xyz")
            && answer.redirected("iss").as_deref() == Some(ISSUER)
            && answer.redirected("code").is_none();
    }
    answer.status == 503
        && answer.error() == "temporarily_unavailable"
        && answer.headers.contains_key("retry-after")
        && !answer.headers.contains_key("set-cookie")
}

/// Tries every step, each of its operations and each kind of failure, and then repeats the login from there to its end.
#[tokio::test]
async fn c114_every_store_failure_yields_a_503_and_never_a_second_code() {
    for step in STEPS {
        for fault in FAULTS {
            let mut at = 0;
            while fails_at(step, at, fault).await {
                at += 1;
            }
            // at least one operation must have failed
            assert!(at > 0, "{step:?} {fault:?}");
        }
    }
}

/// Returns whether this step has that many operations.
async fn fails_at(step: Step, at: usize, fault: Fault) -> bool {
    let case = format!("{step:?}, {fault:?} at operation {at}");
    let mut flow = Flow::new().await;
    for earlier in STEPS.into_iter().filter(|earlier| *earlier < step) {
        assert_eq!(flow.call(earlier).await.status, 200, "{case}");
    }
    let before = if step > Start { flow.completed().await } else { 0 };
    flow.store.fail(at, fault);
    let answer = flow.call(step).await;
    if !flow.store.heal() {
        return false;
    }
    // a right secret is accepted even if the failures before it could not be reset
    let is_tidying = answer.status == 200 && matches!(step, Password | Verify);
    assert!(is_tidying || is_unavailable(step, &answer), "{case}: {answer:?}");

    // the login is where it was, or one step further if that step was proved
    let moved = if step > Start { flow.completed().await - before } else { 0 };
    assert!(moved == 0 || (moved == 1 && matches!(step, Password | Verify)), "{case}");
    assert!(moved == 1 || !is_tidying, "{case}");

    // remaining steps are repeated; steps that took effect report so
    flow.world.advance(31);
    for again in STEPS.into_iter().filter(|again| *again >= step) {
        let mut answer = flow.call(again).await;
        if answer.status == 409 {
            let said = answer.error();
            assert!(
                ["method_not_allowed", "no_step_remaining", "no_pending_challenge"].contains(&&*said),
                "{case}: {said}"
            );
        } else if answer.status == 401 && again == Verify {
            // the code was never sent, so request another
            flow.world.advance(31);
            assert_eq!(flow.call(Ask).await.status, 200, "{case}");
            answer = flow.call(Verify).await;
            assert_eq!(answer.status, 200, "{case}: {answer:?}");
        } else if again != Authorize {
            assert_eq!(answer.status, 200, "{case}: {answer:?}");
        }
    }
    for _ in 0..3 {
        flow.call(Complete).await;
        flow.call(Authorize).await;
    }
    assert!(flow.codes.len() <= 1, "{case}: {:?}", flow.codes);
    // only the last step can lose the login, and only once it has been used up
    let is_spent = flow.witness.status(&flow.id).await.json()["status"] == "expired";
    assert!(is_spent, "{case}");
    assert!(step == Authorize || flow.codes.len() == 1, "{case}");
    true
}

#[tokio::test]
async fn a_call_for_another_request_gets_nothing_at_any_store_failure() {
    for fault in FAULTS {
        for at in 0..20 {
            let mut flow = Flow::new().await;
            for step in STEPS.into_iter().filter(|step| *step < Authorize) {
                flow.call(step).await;
            }
            flow.store.fail(at, fault);
            let other = flow.browser.authorize("web").await;
            assert_eq!(other.redirected("code"), None, "{fault:?} {at}");
            flow.store.heal();
            assert!(flow.call(Authorize).await.redirected("code").is_some(), "{fault:?} {at}");
        }
    }
}

/// An attempt in progress when the store fails is counted, so that failures give no free guesses.
#[tokio::test]
async fn c057_c110_no_store_failure_allows_an_uncounted_guess() {
    for fault in FAULTS {
        for at in 0..24 {
            let mut flow = Flow::new().await;
            for step in [Start, Ask] {
                flow.call(step).await;
            }
            let code = flow.newest_code().await;
            let (mut told, id) = (0, flow.id.clone());
            for _ in 0..8 {
                flow.store.fail(at, fault);
                let answer = flow.browser.verify(CLIENT, &id, "wrong").await;
                told += usize::from(answer.status != 503 && answer.error() == "invalid_otp");
                flow.store.heal();
            }
            assert!(told <= 5, "{fault:?} {at}");
            // the same code works only while attempts remain, and proves at most one step
            flow.world.advance(3600);
            let late = flow.browser.verify(CLIENT, &id, &code).await;
            assert_ne!(late.status, 200, "{late:?}");
        }
    }
}

/// A caller who disconnects. The call stops wherever it is.
#[tokio::test]
async fn c023_a_caller_who_disconnects_at_any_point_leaves_at_most_one_code() {
    use std::task::{Context, Poll, Waker};

    let (mut whole, mut cost) = (false, 0);
    for polls in 0..100 {
        let mut flow = Flow::new().await;
        for step in STEPS.into_iter().filter(|step| *step < Authorize) {
            flow.call(step).await;
        }
        flow.store.yields();
        let mut codes = 0;
        {
            let mut gone = flow.browser.clone();
            let mut call = std::pin::pin!(gone.authorize(CLIENT));
            for _ in 0..polls {
                if let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    codes += usize::from(answer.redirected("code").is_some());
                    whole = true;
                    break;
                }
            }
        }
        flow.call(Authorize).await;
        flow.call(Authorize).await;
        codes += flow.codes.len();
        assert!(codes <= 1, "{polls}");
        cost += 1 - codes;
        if whole {
            break;
        }
    }
    assert!(whole);
    // the login is lost only between the moment when it is used up and the response
    assert!((1..20).contains(&cost), "{cost}");
}
