//! Signing in at another provider from the login page, in a real browser.

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

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use axum::{Router, extract::Query, response::Html, routing::get};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use site::Site;
use tollgate::{
    Tenant, UserId,
    clock::UnixTime,
    sso::{CreateAccount, ProviderUser, SsoCallback, SsoConnection, SsoError, SsoProvider, SsoRequest},
};
use world::ADA;

/// A provider at this origin, whose only user is Ada.
struct Corp(String);

impl SsoProvider for Corp {
    async fn authorization_url(&self, request: &SsoRequest<'_>) -> Result<String, SsoError> {
        let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let (back, state) = (encoded(request.redirect_uri()), encoded(request.state()));
        Ok(format!("{}/corp?back={back}&state={state}", self.0))
    }

    async fn user(&self, callback: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
        let ada = ProviderUser::new("https://corp.example", "1").with_email(ADA, true);
        match callback.code()? {
            // at most the current time counts
            "ada" => Ok(ada.with_auth_time(UnixTime::from_nanos(u64::MAX), Duration::ZERO)),
            "old" => Ok(ada),
            _ => Err(SsoError::Failed("the code is wrong")),
        }
    }
}

/// Knows that the only user is Ada.
struct OnlyAda;

impl CreateAccount for OnlyAda {
    type Error = Infallible;

    async fn account(&self, _: &Tenant, _: &ProviderUser) -> Result<Option<UserId>, Infallible> {
        Ok(Some(UserId::parse("u-ada").unwrap()))
    }
}

async fn page(Query(asked): Query<BTreeMap<String, String>>) -> Html<String> {
    let link = |id: &str, answer: &str| {
        format!("<p><a id={id} href=\"{}?{answer}&state={}\">{id}</a>", asked["back"], asked["state"])
    };
    Html(format!(
        "<!doctype html><title>Corp</title>{}{}{}{}{}",
        link("allow", "code=ada"),
        link("old", "code=old"),
        link("deny", "error=access_denied"),
        link("down", "error=server_error"),
        link("broken", "code=wrong")
    ))
}

async fn site(name: &str) -> Option<Site> {
    let with_corp = |service: tollgate::auth::AuthServiceBuilder, origin: &str| {
        let corp = SsoConnection::new(Corp(origin.to_owned())).label("Example Corp").create_account(OnlyAda);
        service.sso("corp", corp.trust_email_domain("example.com").unwrap())
    };
    Site::with(name, with_corp, Router::new().route("/corp", get(page))).await
}

/// Presses the button of the provider, and follows a link there.
async fn visit(site: &mut Site, button: &str, link: &str) {
    site.until(&format!("document.querySelector('{button}')?.getClientRects().length && idle()")).await;
    site.ask(&format!("document.querySelector('{button}').focus()")).await;
    site.browser.press("Enter").await;
    site.until("document.title === 'Corp'").await;
    site.browser.click(&format!("#{link}")).await;
}

const ON_FIRST_SCREEN: &str = "#providers button";
const AMONG_CHOICES: &str = "#ways button[value=sso]";
const DENIED: &str = "The sign-in at the other provider was cancelled. Try again, or sign in another way.";
const DOWN: &str = "That provider cannot be reached right now. Try again later, or sign in another way.";
const OLD: &str = "That provider did not ask you to sign in again, which is needed here. Sign in another way first.";
const BROKEN: &str = "Signing in there did not work. Try again, or sign in another way.";

#[tokio::test]
async fn a_user_signs_in_at_a_provider_without_a_name() {
    let Some(mut site) = site("sso-first").await else { return };
    site.log_in("web").await;
    site.focus("identifier").await;
    assert_eq!(site.texts("#providers button").await, ["Continue with Example Corp"]);
    for (link, message) in [("deny", DENIED), ("down", DOWN), ("broken", BROKEN), ("old", OLD)] {
        visit(&mut site, ON_FIRST_SCREEN, link).await;
        site.says(message).await;
        site.focus("identifier").await;
        assert_eq!(site.ask("location.hash").await, "");
        assert_eq!(site.logins().await, 1, "the login stays alive");
    }
    visit(&mut site, ON_FIRST_SCREEN, "allow").await;
    site.comes_back().await;
    assert_eq!(site.ask("sessionStorage.length").await, 0);
}

#[tokio::test]
async fn a_provider_is_the_second_step() {
    let Some(mut site) = site("sso-second").await else { return };
    // links the account
    site.log_in("web").await;
    visit(&mut site, ON_FIRST_SCREEN, "allow").await;
    site.comes_back().await;

    site.log_in("mfa").await;
    site.prove_password().await;
    site.until("text('step') === 'Step 2 of 2' && shown('choose') && idle()").await;
    assert!(site.texts("#ways button").await.contains(&"Continue with Example Corp".to_owned()));
    visit(&mut site, AMONG_CHOICES, "deny").await;
    site.says(DENIED).await;
    site.until("text('step') === 'Step 2 of 2' && shown('choose')").await;
    visit(&mut site, AMONG_CHOICES, "allow").await;
    site.comes_back().await;
}

#[tokio::test]
async fn a_provider_is_the_first_step_of_two() {
    let Some(mut site) = site("sso-first-of-two").await else { return };
    site.log_in("mfa").await;
    visit(&mut site, ON_FIRST_SCREEN, "allow").await;
    site.until("text('step') === 'Step 2 of 2' && shown('choose') && idle()").await;
    site.press_button("email").await;
    site.focus("otp").await;
    let code = site.world.code(ADA).await;
    site.enter(&code).await;
    site.comes_back().await;
}

#[tokio::test]
async fn a_return_into_another_tab_does_not_continue_a_login() {
    let Some(mut site) = site("sso-tab").await else { return };
    // a suggestion would start a login of its own in between
    site.run_first("delete globalThis.PublicKeyCredential").await;
    site.log_in("web").await;
    site.focus("identifier").await;
    site.ask("sessionStorage.clear(); location.hash = '#sso=ok'").await;
    site.browser.reload().await;
    site.says("Your sign-in has ended. Please start again.").await;
    site.focus("identifier").await;
}
