//! What the bundled server prints for its operator.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::timeout,
};

use crate::support::{
    example::{Example, command},
    redis_server::RedisServer,
    wire::status,
};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn b41_the_server_prints_when_its_limiter_falls_back_and_when_it_is_back() {
    let Some(mut redis) = RedisServer::start(&[]) else { return };
    let mut command = command("server", &["--listen", "127.0.0.1:0", "--redis", &redis.url()]);
    command.stderr(Stdio::piped());
    let mut server = Example::of(command).await;
    let mut lines = BufReader::new(server.child.stderr.take().unwrap()).lines();
    let hello = async || status(&server.wire().await.ask("GET /api/hello HTTP/1.1\nx-api-key: demo-acme-key").await);
    assert_eq!(hello().await, 200);
    redis.kill();
    // one line for any number of requests
    for _ in 0..20 {
        assert_eq!(hello().await, 200);
    }
    let line = timeout(PATIENCE, lines.next_line()).await.expect("it prints a line").unwrap().unwrap();
    let text = " Redis does not answer the limiter (no_connection). Until it does, this server counts on its own.";
    assert_eq!(line.split_at(8).1, text, "{line}");
    redis.restart();
    let back = async {
        loop {
            hello().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let line = tokio::select! {
        line = lines.next_line() => line.unwrap().unwrap(),
        _ = timeout(PATIENCE, back) => panic!("it does not print that Redis is back"),
    };
    assert_eq!(line.split_at(8).1, " Redis answers the limiter again. Budgets are shared.", "{line}");
}
