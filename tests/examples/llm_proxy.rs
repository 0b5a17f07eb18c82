//! The proxy in front of a model that streams.

use std::time::Duration;

use super::*;

async fn generate(proxy: &Example, query: &str) -> Wire {
    let mut wire = proxy.wire().await;
    let head = format!("GET /generate?{query} HTTP/1.1\r\nhost: localhost\r\nx-api-key: demo-key\r\n\r\n");
    wire.send(&head).await;
    wire
}

async fn tokens_left(proxy: &Example) -> u32 {
    let answer = proxy.wire().await.ask("GET /left HTTP/1.1").await;
    body(&answer).trim().strip_prefix("tokens: ").unwrap().parse().unwrap()
}

/// Waits until an answer is over, whose estimate has left this many, and returns how many are left then.
async fn left_after(proxy: &Example, estimated: u32) -> u32 {
    let waits = async {
        loop {
            match tokens_left(proxy).await {
                left if left == estimated => tokio::time::sleep(Duration::from_millis(5)).await,
                left => return left,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waits).await.unwrap()
}

#[tokio::test]
async fn an_answer_pays_for_its_tokens_and_not_for_the_estimate() {
    let proxy = Example::start("llm_proxy", &["127.0.0.1:0"]).await;
    let mut whole = generate(&proxy, "tokens=500").await;
    let head = whole.until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(header(&head, "x-ratelimit-limit"), Some("1000"));
    assert_eq!(header(&head, "x-ratelimit-remaining"), Some("500"));
    assert_eq!(tokens_left(&proxy).await, 500, "the estimate counts while the answer streams");
    // the last chunk
    let tokens = whole.until("\r\n0\r\n\r\n").await;
    assert_eq!(tokens.matches("token").count(), 40);
    assert_eq!(left_after(&proxy, 500).await, 960);
}

#[tokio::test]
async fn a_client_that_hangs_up_in_the_middle_of_an_answer_pays_for_what_it_got() {
    let proxy = Example::start("llm_proxy", &["127.0.0.1:0"]).await;
    let mut cut = generate(&proxy, "tokens=500").await;
    let mut received = 0;
    for _ in 0..5 {
        received += cut.until("}\n").await.matches("token").count();
    }
    // some tokens may be on their way
    received += cut.hang_up().await.matches("token").count();
    assert!((5..40).contains(&received), "{received}");
    assert_eq!(left_after(&proxy, 500).await, 1_000 - u32::try_from(received).unwrap());
}

#[tokio::test]
async fn a_model_that_fails_before_its_first_token_costs_nothing() {
    let proxy = Example::start("llm_proxy", &["127.0.0.1:0"]).await;
    let failed = generate(&proxy, "tokens=500&model=broken").await.answer(false).await;
    assert_eq!(status(&failed), 502);
    assert_eq!(tokens_left(&proxy).await, 1_000);
}

#[tokio::test]
async fn a_third_answer_at_the_same_time_is_refused() {
    let proxy = Example::start("llm_proxy", &["127.0.0.1:0"]).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut wire = generate(&proxy, "tokens=100").await;
        assert!(wire.until("\r\n\r\n").await.starts_with("HTTP/1.1 200"));
        open.push(wire);
    }
    let refused = generate(&proxy, "tokens=100").await.answer(false).await;
    assert_eq!((status(&refused), header(&refused, "retry-after")), (429, Some("1")));
    assert_eq!(json(&refused)["violated-policies"], serde_json::json!(["concurrent"]));
}
