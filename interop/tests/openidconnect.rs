//! The crate `openidconnect`, with nothing of its checks turned off.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

#[path = "../../tests/browser/mod.rs"]
mod browser;
mod server;
mod user;
mod party;

use party::Party;
use server::Server;
use user::User;

#[tokio::test]
async fn the_crate_openidconnect_goes_all_the_way() {
    let server = Server::start().await;
    let redirect_uri = format!("{}/demo/callback", server.issuer);
    let after_logout = format!("{}/demo/", server.issuer);
    for client_id in ["demo-web", "demo-mfa"] {
        let mut user = User::new(&server.issuer, &redirect_uri);
        let party = Party::discover(&server.issuer, client_id, &redirect_uri).await;
        party.dance(&mut user, &after_logout).await;
    }
}
