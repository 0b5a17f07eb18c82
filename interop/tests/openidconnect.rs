//! The crate `openidconnect`, with all of its checks enabled.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

#[expect(dead_code, reason = "these tests use only a part of it")]
#[path = "../../tests/support/browser.rs"]
mod browser;
mod server;
mod user;
mod party;

use party::Party;
use server::Server;
use user::User;

#[tokio::test]
async fn the_openidconnect_crate_works() {
    let server = Server::start().await;
    let redirect_uri = format!("{}/demo/callback", server.issuer);
    let after_logout = format!("{}/demo/", server.issuer);
    for client_id in ["demo-web", "demo-mfa"] {
        let mut user = User::new(&server.issuer, &redirect_uri);
        let party = Party::discover(&server.issuer, client_id, &redirect_uri).await;
        party.run_flow(&mut user, &after_logout).await;
    }
}
