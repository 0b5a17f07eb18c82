//! The memory of argon2 after many users have logged in at once.

use std::time::Duration;

use super::*;

/// Returns how much private memory of a process is resident, in MiB.
fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() / 1024
}

/// Each hash takes 19 MiB. The server keeps one such buffer, and gives the others back to the system.
#[tokio::test]
async fn the_server_is_small_again_after_a_burst_of_password_logins() {
    let server = Example::start("server", &FREE_PORT).await;
    let process = server.child.id().unwrap();
    let before = resident(process);
    let callback = format!("{}/demo/callback", server.origin);
    let logins = (0..16).map(|number| {
        let (mut browser, redirect_uri) = (server.browser(), callback.clone());
        tokio::spawn(async move {
            let web = Registered { id: "demo-web", redirect_uri: &redirect_uri };
            for attempt in 0..3 {
                let name = format!("user{number}-{attempt}");
                let id = browser.start(&web, &name).await;
                let guess =
                    members!({ "session_id": id, "method": "password", "username": name, "password": "a guess" });
                assert_eq!(browser.call("authenticate", &web, guess).await.status, 401);
            }
        })
    });
    for login in logins.collect::<Vec<_>>() {
        login.await.unwrap();
    }
    let (mut after, began) = (resident(process), tokio::time::Instant::now());
    while after >= before + 32 && began.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        after = resident(process);
    }
    assert!(after < before + 32, "{before} MiB before the burst, {after} MiB after it");
}
