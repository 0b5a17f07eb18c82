//! Two servers on one Redis, one of them with leases.

use super::*;
use crate::support::redis_server::RedisServer;

const KEY: (&str, &str) = ("x-api-key", "a-key-of-its-own");

/// Sends a request and returns what is left of the budget.
async fn remaining(browser: &mut Browser) -> u32 {
    let answer = browser.send("GET", "/api/hello", &[KEY], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("x-ratelimit-remaining").parse().unwrap()
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_with_leases_takes_units_and_returns_them_when_it_stops() {
    let (mut left, mut expected) = (0, 1);
    // on a busy machine, an answer of Redis may come too late
    for _ in 0..5 {
        let Some(redis) = RedisServer::start(&[]) else { return };
        (left, expected) = left_after_a_stop(&redis).await;
        if left == expected {
            break;
        }
    }
    assert_eq!(left, expected);
}

/// Returns what is left after a server with leases has stopped, and what it has not used.
async fn left_after_a_stop(redis: &RedisServer) -> (u32, u32) {
    let url = redis.url();
    let start = async |name: &str, wanted: &[&str]| {
        let path = config(name, &sample(|key| key == "seal" || wanted.contains(&key)));
        let server =
            Example::start("server", &["--config", path.to_str().unwrap(), "--listen=127.0.0.1:0", "--redis", &url])
                .await;
        fs::remove_file(path).unwrap();
        server
    };
    let (mut leased, plain) = (start("leases", &["leases"]).await, start("no-leases", &[]).await);
    let (mut by_lease, mut by_call) = (leased.browser(), plain.browser());
    let mut sent = 0;
    // until it holds some
    loop {
        for _ in 0..20 {
            remaining(&mut by_lease).await;
        }
        sent += 21;
        if remaining(&mut by_call).await < 600 - sent {
            break;
        }
    }
    let pid = leased.child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    assert!(leased.child.wait().await.unwrap().success());
    (remaining(&mut by_call).await, 600 - sent - 1)
}
