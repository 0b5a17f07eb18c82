//! Plans that an operator changes with redis-cli while two servers run.

use std::{fs, time::Duration};

use tokio::time::{Instant, sleep};

use super::{config, sample};
use crate::support::{example::Example, redis_server::RedisServer};

#[tokio::test]
async fn plans_are_changed_with_redis_cli_while_servers_run() {
    let Some(redis) = RedisServer::start(&[]) else { return };
    let path = config("live-plans", &sample(|key| key == "redis_plans"));
    let url = redis.url();
    let arguments = ["--config", path.to_str().unwrap(), "--listen", "127.0.0.1:0", "--redis", &url];
    let servers = [Example::start("server", &arguments).await, Example::start("server", &arguments).await];
    let key = "tollgate:plan:{acme}";
    for (command, limit) in [
        (&["del", key][..], "600"),
        (&["set", key, "1200/minute reserve=600"], "1200"),
        (&["set", key, "7/second name=burst; 1400/minute"], "7"),
        (&["del", key], "600"),
    ] {
        redis.cli(command);
        for server in &servers {
            let (mut browser, began) = (server.browser(), Instant::now());
            loop {
                let answer = browser.send("GET", "/api/hello", &[("x-api-key", "a-key-of-its-own")], "").await;
                if answer.header("x-ratelimit-limit") == limit {
                    break;
                }
                // a busy machine may need longer than the second
                assert!(began.elapsed() < Duration::from_secs(20), "{command:?}: {answer:?}");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
    fs::remove_file(path).unwrap();
}
