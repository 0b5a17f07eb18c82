//! The probes of the bundled server.

use std::time::Duration;

use crate::support::{
    example::Example,
    redis_server::RedisServer,
    wire::{body, header, status},
};

async fn probe(server: &Example, path: &str) -> (u16, String) {
    let answer = server.wire().await.ask(&format!("GET {path} HTTP/1.1")).await;
    if path == "/readyz" {
        assert_eq!(header(&answer, "cache-control"), Some("no-store"));
    }
    (status(&answer), body(&answer).to_owned())
}

async fn becomes(server: &Example, expected: (u16, &str)) {
    for _ in 0..1_000 {
        let (status, text) = probe(server, "/readyz").await;
        if (status, &*text) == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never answers {expected:?}");
}

#[tokio::test]
async fn b33_the_server_is_ready_while_its_store_can_be_read_and_written() {
    let Some(mut redis) = RedisServer::start(&[]) else { return };
    let server = Example::start("server", &["--listen", "127.0.0.1:0", "--redis", &redis.url()]).await;
    let ok = (200, "ok\n");
    becomes(&server, ok).await;
    redis.cli(&["config", "set", "maxmemory", "1"]);
    becomes(&server, (503, "the store is full\n")).await;
    assert_eq!(probe(&server, "/healthz").await, (200, "ok\n".to_owned()), "it lives");
    redis.cli(&["config", "set", "maxmemory", "0"]);
    becomes(&server, ok).await;
    redis.kill();
    becomes(&server, (503, "the store is not available\n")).await;
    assert_eq!(probe(&server, "/healthz").await, (200, "ok\n".to_owned()));
    redis.restart();
    becomes(&server, ok).await;
    redis.signal("STOP");
    becomes(&server, (503, "the store is not available\n")).await;
    redis.signal("CONT");
    becomes(&server, ok).await;
}

#[tokio::test]
async fn b33_a_flood_of_probes_costs_the_store_a_call_a_second() {
    let Some(redis) = RedisServer::start(&[]) else { return };
    let server = Example::start("server", &["--listen", "127.0.0.1:0", "--redis", &redis.url()]).await;
    let second = || redis.cli(&["time"]).lines().next().unwrap().parse::<u64>().unwrap();
    let writes = || {
        let stats = redis.cli(&["info", "commandstats"]);
        let calls =
            stats.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls=")?.split(',').next()?.parse().ok());
        calls.unwrap_or(0_u64)
    };
    let mut failed = 0;
    // on a busy machine, an answer of Redis may come too late
    for _ in 0..5 {
        let (began, before) = (second(), writes());
        let mut wire = server.wire().await;
        failed = 0;
        for _ in 0..500 {
            failed += u32::from(status(&wire.ask("GET /readyz HTTP/1.1").await) != 200);
        }
        let (most, written) = (second() - began + 2, writes() - before);
        assert!((1..=most).contains(&written), "{written} writes in {most} seconds");
        if failed == 0 {
            break;
        }
        // until the last answer is too old
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
    assert_eq!(failed, 0);
}
