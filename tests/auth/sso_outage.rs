//! A provider that is down, and requests that fetch a page ahead.

use std::{
    future::pending,
    pin::pin,
    task::{Context, Waker},
};

use http::Request;
use tollgate::{
    Limiter, Plans, Quota,
    sso::{ProviderUser, SsoCallback, SsoError, SsoProvider, SsoRequest},
    store::Memory,
    testing::ManualClock,
};

use crate::{
    own_account::acme,
    sso_provider::{Provider, SsoWorld, Trouble, asked, begun, oidc, outcome, sent},
    world::{ADA, ADA_PASSWORD, World},
};

#[tokio::test]
async fn a_provider_that_is_down_locks_no_address_out_of_the_other_methods() {
    let world = SsoWorld::new().await;
    let trouble = |trouble: Option<Trouble>| {
        world.provider.set(|provider| provider.trouble = trouble.map(|it| ("/token", it)).into_iter().collect());
    };
    trouble(Some(Trouble::Status(500)));
    for _ in 0..5 {
        let mut tab = world.world.browser();
        let id = begun(&mut tab, "web").await;
        for _ in 0..12 {
            assert_eq!(outcome(&world.dance(&mut tab, "web", &id).await), "unavailable");
        }
    }
    let calls = || world.provider.calls("/token").len();
    assert_eq!(calls(), 60);
    // many users share this address, and none of them has failed
    let mut browser = world.world.browser();
    let id = browser.start("web", ADA).await;
    let answer = browser.password("web", &id, ADA, ADA_PASSWORD).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    // the provider is left alone for a while
    let mut waiting = world.world.browser();
    let id = begun(&mut waiting, "web").await;
    trouble(None);
    assert_eq!(outcome(&world.dance(&mut waiting, "web", &id).await), "unavailable");
    assert_eq!(calls(), 60, "the provider was called");
    world.world.advance(60);
    assert_eq!(outcome(&world.dance(&mut waiting, "web", &id).await), "ok");
}

/// A provider that never answers.
struct Silent;

impl SsoProvider for Silent {
    async fn authorization_url(&self, request: &SsoRequest<'_>) -> Result<String, SsoError> {
        Ok(format!("https://idp.example/authorize?state={}", request.state()))
    }

    async fn user(&self, _: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
        pending().await
    }
}

#[tokio::test]
async fn users_who_do_not_wait_for_a_slow_provider_lock_no_address_out_either() {
    let world = World::on(Memory::new().into(), ManualClock::new(), |service| service.sso("idp", Silent)).await;
    let mut browser = world.browser();
    for _ in 0..60 {
        let id = begun(&mut browser, "web").await;
        let state = asked(&sent(&mut browser, "web", &id).await)["state"].clone();
        let target = format!("/authentication/sso/idp/callback?code=x&state={state}");
        let mut leaving = browser.clone();
        // the store answers at once, so the call is at the provider now
        let call = pin!(leaving.get(&target));
        assert!(call.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let id = browser.start("web", ADA).await;
    let answer = browser.password("web", &id, ADA, ADA_PASSWORD).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn c112_a_request_that_fetches_a_page_ahead_is_charged_like_any_other() {
    for target in ["/sign-in/finish", "/authentication/sso/idp/callback?state=x.y&code=z"] {
        let clock = ManualClock::new();
        let limiter = Limiter::builder(Plans::new(Quota::per_minute(3).unwrap())).clock(clock.clone()).build().unwrap();
        let provider = Provider::start(&clock).await;
        let world = World::on(Memory::new().into(), clock, |service| {
            service.sso("idp", oidc(&provider)).first_party(acme()).limiter(limiter)
        })
        .await;
        let mut browser = world.browser();
        for status in [503, 503, 503, 429] {
            let answer = browser.send(Request::get(target).header("purpose", "prefetch"), "").await;
            assert_eq!(answer.status, status, "{target}");
        }
    }
}
