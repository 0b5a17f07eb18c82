//! What must hold at two nodes with one store, whichever it is.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    Nodes, PASSWORD, USERS,
    person::{Issued, Person, count, is_no_grant},
    support::process::patiently,
};

pub(crate) async fn steps_go_on_at_the_other_node(nodes: &mut Nodes) {
    for first_node in [0, 1] {
        let mut person = Person { client: "mfa", ..nodes.person(first_node, first_node) };
        person.start().await;
        assert_eq!(person.password(PASSWORD).await.0.json()["remaining_steps"], 1);
        assert_eq!(person.steps().await, 1);
        let mailbox = format!("{}@example.com", person.name);
        let sender = person.turn % 2;
        assert_eq!(person.call("authenticate", json!({ "method": "email", "email": mailbox })).await.0.status, 200);
        let code = patiently(nodes.running[sender].line()).await.expect("the code is sent").unwrap();
        // the other node checks it, and knows the wrong one before it
        let wrong = if code == "000000" { "000001" } else { "000000" };
        assert_eq!(person.call("verify-otp", json!({ "otp": wrong })).await.0.error(), "invalid_otp");
        let (answer, _) = person.call("verify-otp", json!({ "otp": code })).await;
        assert_eq!((answer.status, &answer.json()["remaining_steps"]), (200, &json!(0)), "{answer:?}");
        assert_eq!(person.call("verify-otp", json!({ "otp": code })).await.0.error(), "no_pending_challenge");
        assert_eq!(person.call("complete", json!({})).await.0.json()["status"], "completed");
        let code = person.authorize().await.0.redirected("code").unwrap();
        assert_eq!(person.authorize().await.0.redirected("code"), None, "the login is used up");
        let mut issued = Issued::of(&person.redeem(&code).await.0);
        assert!(is_no_grant(&person.redeem(&code).await.0));
        for _ in 0..3 {
            assert_eq!(person.api(&issued.access).await, 200);
            issued = Issued::of(&person.refresh(&issued.refresh).await.0);
        }
        assert_eq!([person.page().await, person.page().await], [200; 2]);
    }
}

pub(crate) async fn calls_at_the_same_time_count_once(nodes: &Nodes) {
    for user in 0..3 {
        let mut person = nodes.person(user, user);
        person.start().await;
        let answers = person.at_once(4, async |mut own, _| own.password(PASSWORD).await).await;
        assert_eq!(count(&answers, |answer| answer.status == 200), 1, "{answers:?}");
        assert_eq!(count(&answers, |answer| answer.status == 409), 3, "{answers:?}");
        assert_eq!(person.steps().await, 1);
        let answers = person.at_once(8, async |mut own, _| own.call("complete", json!({})).await).await;
        assert_eq!(count(&answers, |answer| answer.json()["status"] == "completed"), 8, "{answers:?}");
        let answers = person.at_once(8, async |mut own, _| own.authorize().await).await;
        let codes: Vec<_> = answers.iter().filter_map(|answer| answer.redirected("code")).collect();
        assert_eq!(codes.len(), 1, "{answers:?}");
        let code = &codes[0];
        let redeem = |mut own: Person, _| {
            let code = code.clone();
            async move { own.redeem(&code).await }
        };
        let answers = person.at_once(8, redeem).await;
        assert_eq!(count(&answers, is_no_grant), 7, "{answers:?}");
        let mut issued = Issued::of(answers.iter().find(|answer| answer.status == 200).unwrap());
        for _ in 0..3 {
            let refresh = |mut own: Person, _| {
                let token = issued.refresh.clone();
                async move { own.refresh(&token).await }
            };
            let answers = person.at_once(8, refresh).await;
            let all: Vec<_> = answers.iter().map(Issued::of).collect();
            assert_eq!(all.iter().map(|issued| &issued.refresh).collect::<BTreeSet<_>>().len(), 1, "{all:?}");
            assert_ne!(all[0].refresh, issued.refresh);
            issued = all[0].clone();
            assert_eq!([person.api(&issued.access).await, person.api(&issued.access).await], [200; 2]);
        }
        // guesses are counted by both together
        let mut guesser = nodes.person(USERS - 1 - user, 0);
        guesser.start().await;
        let answers = guesser.at_once(20, async |mut own, _| own.password("wrong").await).await;
        assert_eq!(count(&answers, |answer| answer.error() == "invalid_credentials"), 5, "{answers:?}");
        assert_eq!(count(&answers, |answer| answer.error() == "too_many_attempts"), 15, "{answers:?}");
    }
}

pub(crate) async fn endings_reach_both_nodes_at_once(nodes: &Nodes) {
    for round in 0..6 {
        let mut person = nodes.person(0, round);
        let issued = person.sign_in().await.unwrap();
        // both nodes have seen the session and the token
        for _ in 0..2 {
            assert_eq!((person.page().await, person.api(&issued.access).await), (200, 200));
            person.turn += 1;
        }
        // a revocation ends the tokens alone
        let only_tokens = round % 3 == 2;
        // requests that go on meanwhile
        let has_ended = Arc::new(AtomicBool::new(false));
        let mut requests = JoinSet::new();
        for turn in 0..4 {
            let (mut own, issued, has_ended) =
                (Person { turn, ..person.clone() }, issued.clone(), Arc::clone(&has_ended));
            requests.spawn(async move {
                loop {
                    let is_late = has_ended.load(SeqCst);
                    let is_api = turn < 2 || only_tokens;
                    let seen = if is_api { own.api(&issued.access).await } else { own.page().await };
                    assert!(seen == 401 || seen == 200 && !is_late, "{seen}");
                    if is_late {
                        return;
                    }
                }
            });
        }
        if only_tokens {
            person.revoke(&issued.refresh).await;
        } else {
            person.log_out(&issued).await;
        }
        has_ended.store(true, SeqCst);
        assert_eq!([person.api(&issued.access).await, person.api(&issued.access).await], [401; 2]);
        let page = if only_tokens { 200 } else { 401 };
        assert_eq!([person.page().await, person.page().await], [page; 2]);
        requests.join_all().await;
        for _ in 0..2 {
            assert!(is_no_grant(&person.refresh(&issued.refresh).await.0));
        }
    }
}

/// Signs in, refreshes and signs out until the test is over. Returns how often that went through, and how many requests
/// were lost.
pub(crate) async fn live(mut person: Person, is_over: Arc<AtomicBool>) -> (usize, usize) {
    let mut rounds = 0;
    while !is_over.load(SeqCst) {
        let Some(mut issued) = person.sign_in().await else { continue };
        for _ in 0..3 {
            assert_eq!(person.api(&issued.access).await, 200, "an answered token is lost");
            assert_eq!(person.page().await, 200, "an answered session is lost");
            // a lost answer is repeated
            issued = Issued::of(&person.refresh(&issued.refresh).await.0);
        }
        if rounds % 2 == 0 {
            person.log_out(&issued).await;
            assert_eq!([person.page().await, person.page().await], [401; 2], "an answered sign-out is lost");
        } else {
            person.revoke(&issued.refresh).await;
        }
        assert_eq!([person.api(&issued.access).await, person.api(&issued.access).await], [401; 2]);
        assert!(is_no_grant(&person.refresh(&issued.refresh).await.0), "an answered revocation is lost");
        rounds += 1;
    }
    (rounds, person.lost)
}

/// Signs in a few times in each of several seconds. All tokens work at both nodes until the end.
pub(crate) async fn new_tokens_stay_valid(nodes: &Nodes) {
    let mut issued = Vec::new();
    for round in 0..4 {
        for user in 0..3 {
            let mut person = nodes.person(user, round + user);
            issued.push(person.sign_in().await.unwrap());
        }
        nodes.next_second();
        let mut person = nodes.person(0, 0);
        for (number, issued) in issued.iter().enumerate() {
            let seen = [person.api(&issued.access).await, person.api(&issued.access).await];
            assert_eq!(seen, [200; 2], "token {number} in round {round}");
        }
    }
}

pub(crate) async fn everything_ends_at_both_nodes(nodes: &Nodes) {
    for ending in [0, 1] {
        let mut person = nodes.person(0, 0);
        let old = person.sign_in().await.unwrap();
        // a login that is under way, and one that is completed
        let (mut begun, mut completed) = (nodes.person(1, 0), nodes.person(2, 0));
        begun.start().await;
        completed.start().await;
        assert_eq!(completed.password(PASSWORD).await.0.status, 200);
        assert_eq!(completed.call("complete", json!({})).await.0.status, 200);
        assert_eq!([person.page().await, person.page().await], [200; 2]);
        let mut operator = nodes.person(0, ending);
        assert_eq!(operator.ask("GET", "/end-everything", &[], "").await.0.text, "ok");
        for _ in 0..2 {
            assert_eq!((person.page().await, person.api(&old.access).await), (401, 401));
            assert!(is_no_grant(&person.refresh(&old.refresh).await.0));
            person.turn += 1;
        }
        assert_eq!(completed.authorize().await.0.redirected("code"), None);
        assert_eq!(begun.password(PASSWORD).await.0.status, 200);
        assert_eq!(begun.call("complete", json!({})).await.0.status, 200);
        assert_eq!(begun.authorize().await.0.redirected("code"), None);
        assert_eq!(begun.page().await, 401);
        // the second by which clocks may differ
        nodes.next_second();
        nodes.next_second();
        new_tokens_stay_valid(nodes).await;
    }
}
