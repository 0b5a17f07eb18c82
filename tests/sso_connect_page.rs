//! Sign-in at a provider from npm that fails, and connecting that provider on the account page, in a real browser.

#![cfg(feature = "external-providers")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;
#[path = "auth/openapi.rs"]
mod openapi;
#[expect(dead_code, reason = "not every test uses all of it")]
#[path = "support/site.rs"]
mod site;
#[expect(dead_code, reason = "not every test uses all of it")]
#[path = "auth/world.rs"]
mod world;

use axum::Router;
use serde_json::json;
use site::{COUNTS, Site};
use support::identity_provider::IdentityProvider;
use tollgate::{
    clock::{Clock, SystemClock},
    sso::{OidcProvider, SsoConnection},
};

/// A site whose users can sign in at the provider, if it is installed.
async fn site(name: &str) -> Option<(Site, IdentityProvider)> {
    let mut provider = IdentityProvider::start("http://localhost/").await?;
    let issuer = provider.issuer.clone();
    let more = |service: tollgate::auth::AuthServiceBuilder, _: &str| {
        let connection = SsoConnection::new(OidcProvider::new(&issuer, "ES256").unwrap()).label("Example ID");
        service.sso("idp", connection)
    };
    let site = Site::with(name, more, Router::new()).await?;
    let system = SystemClock::new();
    site.world.clock.set_wall(system.unix(system.now()));
    let uri = format!("{}/authentication/sso/idp/callback", site.origin);
    assert_eq!(provider.ask(&format!("return {uri}")).await, "replaced");
    Some((site, provider))
}

/// Presses the button of the provider on the first screen of a login, and waits for this message.
async fn refused(site: &mut Site, words: &str) {
    site.until("document.querySelector('#providers button')?.getClientRects().length && idle()").await;
    site.ask("document.querySelector('#providers button').focus()").await;
    site.browser.press("Enter").await;
    site.says(words).await;
    site.focus("identifier").await;
    assert_eq!(site.ask("location.hash").await, "");
}

const CONNECT: &str = "Sign in another way first, then connect that provider on your account page.";

#[tokio::test]
async fn b11_b17_a_refused_user_learns_what_helps_and_connects_the_provider() {
    let Some((mut site, mut provider)) = site("sso-connect").await else { return };
    site.log_in("web").await;
    for (claims, words) in [
        (json!({}), format!("That provider did not tell us your e-mail address. {CONNECT}")),
        (
            json!({ "email": "ada@example.com", "email_verified": false }),
            "That provider has not verified your e-mail address. Verify it there and try again, or sign in another way."
                .to_owned(),
        ),
        (
            json!({ "email": "nobody@example.com", "email_verified": true }),
            "There is no account for you here yet. Sign in another way, or contact your administrator.".to_owned(),
        ),
        (
            json!({ "email": "ada@example.com", "email_verified": true, "name": "Ada there" }),
            format!("An account with your address exists already. {CONNECT}"),
        ),
    ] {
        assert_eq!(provider.ask(&format!("claims {claims}")).await, "replaced");
        refused(&mut site, &words).await;
    }

    // what the page says works: sign in another way, and connect the provider there
    site.run_first(COUNTS).await;
    site.open_account().await;
    site.reset_counts().await;
    assert_eq!(site.texts("#links button").await, ["Connect Example ID"]);
    assert_eq!(site.texts("#links input").await, [""; 0]);
    site.press_button("connect-idp").await;
    site.until("text('done').startsWith('The account was connected.') && idle()").await;
    assert_eq!(site.ask("location.pathname + location.hash").await, "/account/security");
    assert_eq!(site.texts("#links strong").await, ["Example ID"]);
    assert_eq!(site.texts("#links button").await, ["Unlink"]);
    // before, there was no way at all
    assert_eq!(site.counts().await, (1, 0));

    // from now on one button signs in
    site.reset_counts().await;
    site.log_in("web").await;
    site.until("document.querySelector('#providers button')?.getClientRects().length && idle()").await;
    site.ask("document.querySelector('#providers button').focus()").await;
    site.browser.press("Enter").await;
    site.comes_back().await;
    // the callback has the same origin, and sees what the page before has stored soon after it
    site.until("Number(sessionStorage.getItem('buttons')) === 1").await;
    assert_eq!(site.counts().await, (1, 0));
    assert_eq!(site.browser.complaints(), [""; 0]);
}

#[tokio::test]
async fn b17_unlinking_says_beforehand_that_it_signs_out() {
    let Some((mut site, _provider)) = site("sso-unlink").await else { return };
    site.open_account().await;
    site.press_button("connect-idp").await;
    site.until("text('done').startsWith('The account was connected.') && idle()").await;
    // a session by the provider alone
    site.browser.call("Network.clearBrowserCookies", json!({})).await;
    site.browser.open(&format!("{}/sign-in?return_to=%2Faccount%2Fsecurity", site.origin)).await;
    site.until("document.querySelector('#providers button')?.getClientRects().length && idle()").await;
    site.ask("document.querySelector('#providers button').focus()").await;
    site.browser.press("Enter").await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    site.ask("document.querySelector('#links-list button').focus()").await;
    site.browser.press("Enter").await;
    let words = "Unlink Example ID? You then cannot sign in with it any more. You have signed in with it, so you will be \
                 signed out here.";
    site.until(&format!("text('question') === {} && document.getElementById('ask').open", json!(words))).await;
}

#[tokio::test]
async fn b13_a_user_who_is_late_at_the_provider_starts_again() {
    let Some((mut site, mut provider)) = site("sso-late").await else { return };
    assert_eq!(provider.ask("wait").await, "waits");
    site.browser.open(&format!("{}/sign-in?return_to=%2Faccount%2Fsecurity", site.origin)).await;
    site.until("document.querySelector('#providers button')?.getClientRects().length && idle()").await;
    site.ask("document.querySelector('#providers button').focus()").await;
    site.browser.press("Enter").await;
    site.until("document.title === 'Provider'").await;
    site.world.advance(601);
    site.browser.click("#go").await;
    site.says("Your sign-in timed out. Please start again.").await;
    site.ask("document.querySelector('#again button').focus()").await;
    site.browser.press("Enter").await;
    site.focus("identifier").await;
    // the new sign-in leads to where the old one was to lead
    site.prove_password().await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;

    // a return that nothing is known about any more
    site.browser.call("Network.clearBrowserCookies", json!({})).await;
    let callback = format!("{}/authentication/sso/idp/callback?state=x.y&code=z", site.origin);
    site.browser.open(&callback).await;
    site.until("document.title === 'Sign-in failed'").await;
    site.browser.click("a").await;
    site.focus("identifier").await;
}
