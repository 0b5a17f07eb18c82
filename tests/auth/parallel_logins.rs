//! Several logins in one browser, and planted cookies.

use serde_json::Value;

use crate::world::{ADA, ADA_PASSWORD, Answer, Browser, GRACE, World, parameters, query_of, with};

/// Returns a challenge of this tab's own. No test here redeems a code, so the verifiers are not needed.
fn own_challenge(tab: usize) -> String {
    format!("{tab:A<43}")
}

fn own(client: &str, tab: usize, more: &[(&str, &str)]) -> Value {
    with(with(parameters(client), &[("code_challenge", &own_challenge(tab))]), more)
}

async fn start(browser: &mut Browser, client: &str, tab: usize) -> (String, Answer) {
    let answer = browser.post("/authentication/start", &own(client, tab, &[("identifier", ADA)])).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    (answer.json()["session_id"].as_str().unwrap().to_owned(), answer)
}

async fn finish(browser: &mut Browser, client: &str, tab: usize, id: &str) {
    let step = [("session_id", id), ("method", "password"), ("username", "ada"), ("password", ADA_PASSWORD)];
    let step = browser.post("/authentication/authenticate", &own(client, tab, &step)).await;
    assert_eq!(step.status, 200, "{step:?}");
    let done = browser.post("/authentication/complete", &own(client, tab, &[("session_id", id)])).await;
    assert_eq!(done.status, 200, "{done:?}");
}

async fn return_to_authorize(browser: &mut Browser, client: &str, tab: usize) -> Answer {
    browser.get(&format!("/authorize?{}&state=tab{tab}", query_of(&own(client, tab, &[])))).await
}

fn removed(answer: &Answer) -> Vec<String> {
    let set = answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    set.filter(|line| line.contains("Max-Age=0")).map(|line| line.split('=').next().unwrap().to_owned()).collect()
}

fn cookie_of(id: &str) -> String {
    format!("__Host-auth_session_{}", &id[..8])
}

#[tokio::test]
async fn c036_tabs_finish_in_any_order_and_each_gets_its_own_code() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
        let world = World::new().await;
        let mut browser = world.browser();
        let clients = ["web", "web", "native", "other"];
        let mut ids = Vec::new();
        for (tab, client) in clients.iter().enumerate() {
            let (id, answer) = start(&mut browser, client, tab).await;
            assert_eq!(removed(&answer), [""; 0]);
            assert_eq!(answer.headers.get_all("set-cookie").iter().count(), 1);
            ids.push(id);
        }
        // the other tenant has no such user, so no login finishes there
        for tab in order.into_iter().filter(|tab| *tab != 3) {
            finish(&mut browser, clients[tab], tab, &ids[tab]).await;
        }
        let mut codes = Vec::new();
        for tab in order.into_iter().rev() {
            let last = return_to_authorize(&mut browser, clients[tab], tab).await;
            assert_eq!(last.redirected("code").is_some(), tab != 3, "{last:?}");
            if tab == 3 {
                assert!(last.header("location").starts_with("/authentication/start?"));
                continue;
            }
            assert!(last.header("location").starts_with(&format!("{}?", crate::world::redirect_uri(clients[tab]))));
            assert_eq!(last.redirected("state"), Some(format!("tab{tab}")));
            assert_eq!(removed(&last), [cookie_of(&ids[tab])]);
            codes.push(last.redirected("code").unwrap());
            assert_eq!(return_to_authorize(&mut browser, clients[tab], tab).await.redirected("code"), None);
        }
        codes.sort();
        codes.dedup();
        assert_eq!(codes.len(), 3);
    }
}

#[tokio::test]
async fn of_two_logins_for_one_request_the_newest_is_used_first_and_each_only_once() {
    let world = World::new().await;
    let mut browser = world.browser();
    let (older, _) = start(&mut browser, "web", 0).await;
    world.advance(1);
    let (newer, _) = start(&mut browser, "web", 0).await;
    finish(&mut browser, "web", 0, &newer).await;
    finish(&mut browser, "web", 0, &older).await;
    for id in [newer, older] {
        let last = return_to_authorize(&mut browser, "web", 0).await;
        assert!(last.redirected("code").is_some(), "{last:?}");
        assert_eq!(removed(&last), [cookie_of(&id)]);
    }
    assert_eq!(return_to_authorize(&mut browser, "web", 0).await.redirected("code"), None);
}

#[tokio::test]
async fn a_fifth_login_removes_only_the_oldest_cookie() {
    let world = World::new().await;
    let mut browser = world.browser();
    let mut ids = Vec::new();
    for tab in 0..8 {
        let (id, answer) = start(&mut browser, "web", tab).await;
        ids.push(id);
        let oldest = tab.checked_sub(4).map(|oldest| cookie_of(&ids[oldest]));
        assert_eq!(removed(&answer), Vec::from_iter(oldest), "{tab}");
        world.advance(1);
    }
    for (tab, id) in ids.iter().enumerate() {
        assert_eq!(browser.status(id).await.status, if tab < 4 { 401 } else { 200 });
    }
    // an ended login makes room before an older one that is still active
    finish(&mut browser, "web", 7, &ids[7]).await;
    let kept = browser.cookies[&cookie_of(&ids[7])].clone();
    assert!(return_to_authorize(&mut browser, "web", 7).await.redirected("code").is_some());
    browser.cookies.insert(cookie_of(&ids[7]), kept);
    let (_, answer) = start(&mut browser, "web", 8).await;
    assert_eq!(removed(&answer), [cookie_of(&ids[7])]);
}

#[tokio::test]
async fn c033_a_planted_login_cookie_never_gets_the_proofs_of_its_victim() {
    let world = World::new().await;
    let (mut attacker, mut victim) = (world.browser(), world.browser());
    let planted = attacker.start("web", GRACE).await;
    victim.cookies.clone_from(&attacker.cookies);
    let before = victim.cookies.clone();
    let id = victim.start("web", ADA).await;
    assert_ne!(id, planted);
    let new: Vec<_> = victim.cookies.iter().filter(|pair| !before.contains_key(pair.0)).collect();
    assert_eq!(new.len(), 1);
    assert!(!before.values().any(|value| value == new[0].1));
    assert_eq!(victim.password("web", &id, "ada", ADA_PASSWORD).await.status, 200);
    victim.complete("web", &id).await;
    // the attacker who planted the cookie sees none of the victim's steps
    assert_eq!(attacker.status(&planted).await.json()["completed_steps"], 0);
    assert_eq!(attacker.status(&id).await.error(), "invalid_session");
    assert_eq!(attacker.authorize("web").await.redirected("code"), None);
    assert!(victim.authorize("web").await.redirected("code").is_some());

    // names of unknown logins, and made-up secrets
    for (name, value) in [
        ("__Host-auth_session_AAAAAAAA", "x".to_owned()),
        ("__Host-auth_session_", String::new()),
        ("__Host-auth_session_BBBBBBBB", "A".repeat(43)),
    ] {
        let mut browser = world.browser();
        browser.cookies.insert(name.to_owned(), value.clone());
        let id = browser.start("web", ADA).await;
        assert_eq!(browser.cookies.get(name), Some(&value));
        assert!(browser.cookies.contains_key(&cookie_of(&id)));
    }
}
