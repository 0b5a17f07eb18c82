//! A store that fails at each operation in turn: before it did anything, after it did, or for good.

use crate::{
    steered::{FAULTS, Fault, Steered},
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, CALLBACK, ISSUER, World},
};

/// The steps of a login, in their order.
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

/// One login under way.
struct Flow {
    world: World,
    store: Steered,
    browser: Browser,
    id: String,
    /// As it was once the login had begun: it keeps the cookie.
    witness: Browser,
    codes: Vec<String>,
}

impl Flow {
    async fn new() -> Self {
        let store = Steered::default();
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

/// Every step, each of its operations, each kind of failure: then the login is done again from there, to its end.
#[tokio::test]
async fn c114_whatever_fails_when_the_answer_is_503_and_there_is_never_a_second_code() {
    for step in STEPS {
        for fault in FAULTS {
            let mut at = 0;
            while fails_at(step, at, fault).await {
                at += 1;
            }
            // it has operations to fail at
            assert!(at > 0, "{step:?} {fault:?}");
        }
    }
}

/// Says whether this step has such an operation.
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
    // what was right is answered so, even where the failures before it could not be forgotten
    let is_tidying = answer.status == 200 && matches!(step, Password | Verify);
    assert!(is_tidying || is_unavailable(step, &answer), "{case}: {answer:?}");

    // it stands where it stood, or one step on, if that step was proved
    let moved = if step > Start { flow.completed().await - before } else { 0 };
    assert!(moved == 0 || (moved == 1 && matches!(step, Password | Verify)), "{case}");
    assert!(moved == 1 || !is_tidying, "{case}");

    // what is left is done again; what was done says so
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
            // the code was never sent, and another is
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
    // only the last step can cost the login, and only once it is spent
    let is_spent = flow.witness.status(&flow.id).await.json()["status"] == "expired";
    assert!(is_spent, "{case}");
    assert!(step == Authorize || flow.codes.len() == 1, "{case}");
    true
}

#[tokio::test]
async fn a_visit_for_another_request_gets_nothing_whatever_fails() {
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

/// A try that is under way when the store fails is counted, so that nobody guesses for nothing.
#[tokio::test]
async fn c057_c110_no_failure_of_the_store_gives_a_guess_for_nothing() {
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
            // the same code is right only while tries are left, and proves one step at most
            flow.world.advance(3600);
            let late = flow.browser.verify(CLIENT, &id, &code).await;
            assert_ne!(late.status, 200, "{late:?}");
        }
    }
}

/// A caller who goes away: whatever was under way stops where it is.
#[tokio::test]
async fn c023_a_caller_who_goes_away_at_any_point_leaves_one_code_at_most() {
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
    // it costs the login only between the moment in which it is spent and the answer
    assert!((1..20).contains(&cost), "{cost}");
}
