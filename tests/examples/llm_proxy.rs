//! The proxy in front of a model that streams.

use std::time::Duration;

use super::*;

async fn generate(proxy: &Example, tokens: u32) -> Wire {
    let mut wire = proxy.wire().await;
    let head = format!("GET /generate?tokens={tokens} HTTP/1.1\r\nhost: localhost\r\nx-api-key: demo-key\r\n\r\n");
    wire.send(&head).await;
    wire
}

async fn tokens_left(proxy: &Example) -> u32 {
    let answer = proxy.wire().await.ask("GET /left HTTP/1.1").await;
    body(&answer).trim().strip_prefix("tokens: ").unwrap().parse().unwrap()
}

/// Waits until no estimate of an open answer counts, which this many are left with.
async fn wait_until_left(proxy: &Example, expected: impl Fn(u32) -> bool) -> u32 {
    let waits = async {
        loop {
            let left = tokens_left(proxy).await;
            if expected(left) {
                return left;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waits).await.unwrap()
}

#[tokio::test]
async fn a_client_that_hangs_up_in_the_middle_of_an_answer_pays_for_what_it_got() {
    let proxy = Example::start("llm_proxy", &["127.0.0.1:0"]).await;
    let mut whole = generate(&proxy, 3).await;
    let head = whole.until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(header(&head, "x-ratelimit-limit"), Some("1000"));
    assert_eq!(header(&head, "x-ratelimit-remaining"), Some("997"));
    // the last chunk
    let tokens = whole.until("\r\n0\r\n\r\n").await;
    assert_eq!(tokens.matches("token").count(), 3);
    assert_eq!(wait_until_left(&proxy, |left| left == 997).await, 997);

    let mut cut = generate(&proxy, 500).await;
    for _ in 0..5 {
        cut.until("}\n").await;
    }
    assert_eq!(tokens_left(&proxy).await, 497, "the estimate counts while the answer streams");
    drop(cut);
    let left = wait_until_left(&proxy, |left| left > 497).await;
    // a few tokens may have been on their way
    assert!((900..=992).contains(&left), "{left}");
}

#[tokio::test]
async fn a_third_answer_at_the_same_time_is_refused() {
    let proxy = Example::start("llm_proxy", &["127.0.0.1:0"]).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut wire = generate(&proxy, 100).await;
        assert!(wire.until("\r\n\r\n").await.starts_with("HTTP/1.1 200"));
        open.push(wire);
    }
    let refused = generate(&proxy, 100).await.answer(false).await;
    assert_eq!((status(&refused), header(&refused, "retry-after")), (429, Some("1")));
    assert_eq!(json(&refused)["violated-policies"], serde_json::json!(["concurrent"]));
}
