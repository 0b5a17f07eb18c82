//! Failing on purpose against the bundled server does not lock out the owner of an account.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use serde_json::json;
use support::{
    browser::{Answer, Browser, Registered},
    example::Example,
};

const ADA: &str = "ada@example.com";
const PASSWORD: &str = "correct horse battery staple";

async fn attempt(browser: &mut Browser, client: &Registered<'_>, password: &str) -> Answer {
    let id = browser.start(client, ADA).await;
    let members = json!({ "session_id": id, "method": "password", "username": ADA, "password": password });
    browser.call("authenticate", client, members).await
}

#[tokio::test]
async fn a05_at_the_bundled_server_strangers_do_not_lock_the_owner_out() {
    let server = Example::start("server", &["--listen", "localhost:0"]).await;
    let origin = server.origin.clone();
    let callback = format!("{origin}/demo/callback");
    let client = Registered { id: "demo-web", redirect_uri: &callback };

    let mut owner = Browser::new(&origin, "");
    owner.log_in(&client, ADA, PASSWORD).await;
    let mut stranger = Browser::new(&origin, "");
    for _ in 0..5 {
        assert_eq!(attempt(&mut stranger, &client, "wrong").await.status, 401);
    }
    assert_eq!(attempt(&mut stranger, &client, PASSWORD).await.error(), "too_many_attempts");
    // neither the session nor an earlier login helps the owner, only the device
    owner.cookies.retain(|name, _| name.ends_with("auth_device"));
    assert_eq!(attempt(&mut owner.clone(), &client, PASSWORD).await.status, 200);
    owner.cookies.clear();
    assert_eq!(attempt(&mut owner, &client, PASSWORD).await.error(), "too_many_attempts");
}
