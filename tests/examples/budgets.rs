//! One anonymous address against the budget of a tenant.

use super::*;

const KEY: [(&str, &str); 1] = [("x-api-key", "a-key-of-its-own")];

/// Sends this many requests to the login of a client, as anyone can who knows its id, and returns how many were admitted.
async fn flood(browser: &mut Browser, client: &str, requests: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..requests {
        let answer = browser.open(&format!("/authorize?client_id={client}")).await;
        admitted += usize::from(answer.status != 429);
    }
    admitted
}

async fn served(browser: &mut Browser, key: (&str, &str), requests: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..requests {
        let answer = browser.send("GET", "/api/hello", &[key], "").await;
        assert!([200, 429].contains(&answer.status), "{answer:?}");
        admitted += usize::from(answer.status == 200);
    }
    admitted
}

/// By the letter of the interface, all requests of a tenant share one budget.
#[tokio::test]
async fn a04_in_the_demo_one_address_can_use_up_the_budget_of_a_tenant() {
    let server = Example::start("server", &FREE_PORT).await;
    let mut browser = server.browser();
    assert_eq!(flood(&mut browser, "demo-web", 620).await, 600);
    assert_eq!(served(&mut browser, ("x-api-key", "demo-acme-key"), 1).await, 0);
}

#[tokio::test]
async fn a04_with_a_file_one_address_gets_a_tenth_and_a_key_all_the_rest() {
    let path = config("tenth", &sample(|_| false));
    let server = Example::start("server", &["--config", path.to_str().unwrap(), "--listen=127.0.0.1:0"]).await;
    let mut browser = server.browser();
    assert_eq!(flood(&mut browser, "web", 620).await, 60);
    assert_eq!(served(&mut browser, KEY[0], 560).await, 540);
    fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn a04_with_a_file_all_anonymous_requests_together_leave_half_to_the_keys() {
    let text = sample(|_| false).replace("# per_address = 60", "per_address = 10000");
    let path = config("half", &text);
    let server = Example::start("server", &["--config", path.to_str().unwrap(), "--listen=127.0.0.1:0"]).await;
    let mut browser = server.browser();
    assert_eq!(flood(&mut browser, "web", 620).await, 300);
    let refused = browser.open("/authorize?client_id=web").await;
    assert_eq!((refused.header("x-ratelimit-limit"), refused.header("x-ratelimit-remaining")), ("600", "0"));
    assert_eq!(served(&mut browser, KEY[0], 320).await, 300);

    // a value of the file replaces the half
    let text = text.replace("# reserve = 0.5", "reserve = 0.9");
    fs::write(&path, text).unwrap();
    let server = Example::start("server", &["--config", path.to_str().unwrap(), "--listen=127.0.0.1:0"]).await;
    assert_eq!(flood(&mut server.browser(), "web", 100).await, 60);
    fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn a13_plans_from_database_gives_customers_their_plan_and_others_the_default() {
    let example = Example::start("plans_from_database", &["127.0.0.1:0"]).await;
    let mut wire = example.wire().await;
    for (key, limit, left) in [("acme", "600", "599"), ("initech", "60", "59"), ("acme", "600", "598")] {
        let answer = wire.ask(&format!("GET / HTTP/1.1\nx-api-key: demo-{key}-key")).await;
        assert_eq!((status(&answer), header(&answer, "x-ratelimit-limit")), (200, Some(limit)), "{answer}");
        assert_eq!(header(&answer, "x-ratelimit-remaining"), Some(left));
    }
    assert_eq!(status(&wire.ask("POST /upgrade HTTP/1.1\ncontent-length: 0").await), 200);
}
