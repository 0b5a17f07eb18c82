//! Limits per address, and what happens where they cannot apply.

use std::net::{IpAddr, SocketAddr};

use http::Request;
use serde_json::json;
use tollgate::{
    ClientIp, Head, Limiter, Plans, Quota,
    auth::AbuseLimits,
    event::{Event, EventKind, Query},
    store::Memory,
    testing::ManualClock,
};

use crate::{
    controlled_store::{ControlledStore, Fault},
    own_account,
    world::{ADA, ADA_PASSWORD, Answer, Browser, World, posted, query},
};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

async fn authorize(browser: &mut Browser) -> u16 {
    browser.send(Request::get(format!("/authorize?{}", query("web"))), "").await.status.as_u16()
}

#[tokio::test]
async fn a03_two_addresses_of_one_chosen_network_share_the_limit_of_an_address() {
    let by_prefix = async |prefix: u8| {
        let world = World::with(Memory::new(), |service| {
            service
                .client_ip(ClientIp::peer().ipv6_prefix(prefix).unwrap())
                .abuse_limits(AbuseLimits::new().requests_per_address(Quota::per_minute(3).unwrap()))
        });
        let world = world.await;
        let mut statuses = Vec::new();
        for peer in ["2001:db8:1:200::1", "2001:db8:1:2ff::2", "2001:db8:1:2aa::3", "2001:db8:1:200::4"] {
            let mut browser = world.browser();
            browser.address = address(peer);
            statuses.push(authorize(&mut browser).await == 429);
        }
        let mut neighbour = world.browser();
        neighbour.address = address("2001:db8:1:300::1");
        statuses.push(authorize(&mut neighbour).await == 429);
        statuses
    };
    assert_eq!(by_prefix(56).await, [false, false, false, true, false]);
    assert_eq!(by_prefix(64).await, [false; 5]);
}

#[tokio::test]
async fn a03_guesses_from_one_chosen_network_are_counted_together() {
    let world =
        World::with(Memory::new(), |service| service.client_ip(ClientIp::peer().ipv6_prefix(56).unwrap())).await;
    let mut refused = 0;
    for guess in 0..70_u16 {
        let mut browser = world.browser();
        // another name each time, so that only the address is limited
        let id = browser.start("web", &format!("name-{guess}@example.com")).await;
        browser.address = address(&format!("2001:db8:1:2{guess:02x}::1"));
        let answer = browser.password("web", &id, &format!("name-{guess}@example.com"), "a wrong guess").await;
        refused += u16::from(answer.status == 429);
    }
    assert_eq!(refused, 10, "sixty failures a minute from one network");
}

fn events(world: &World, kinds: &[EventKind]) -> Vec<Event> {
    world.log.read_events(&Query::new()).events.into_iter().filter(|event| kinds.contains(&event.kind)).collect()
}

#[tokio::test]
async fn a06_requests_without_an_address_are_an_event_and_so_is_the_end_of_them() {
    let kinds = [EventKind::ClientAddressUnknown, EventKind::ClientAddressKnown];
    // a proxy in front that sometimes omits the address
    let peer = |head: Head<'_>| head.headers().get("x-peer")?.to_str().ok()?.parse::<SocketAddr>().ok();
    let world = World::with(Memory::new(), |service| service.client_ip(ClientIp::peer().peer_by(peer))).await;
    let mut browser = world.browser();
    let mut ask = async |peer: &str| {
        let request = Request::get(format!("/authorize?{}", query("web"))).header("x-peer", peer);
        browser.send(request, "").await;
    };
    ask("192.0.2.1:80").await;
    assert_eq!(events(&world, &kinds), []);
    for _ in 0..10 {
        ask("unknown").await;
    }
    let names = |world: &World| {
        events(world, &kinds).iter().map(|event| (event.kind.as_str(), event.count)).collect::<Vec<_>>()
    };
    assert_eq!(names(&world), [("client_address_unknown", 1)]);
    ask("192.0.2.1:80").await;
    assert_eq!(names(&world), [("client_address_unknown", 1), ("client_address_known", 1)]);
    // who can alternate at will fills no log
    for _ in 0..500 {
        ask("unknown").await;
        ask("192.0.2.1:80").await;
    }
    let all = events(&world, &kinds);
    assert!(all.len() <= 4, "{} events", all.len());
    assert_eq!(all.iter().map(|event| event.count).sum::<u64>(), 1002);
}

#[tokio::test]
async fn a06_a_store_that_fails_is_an_event_for_logins_and_for_sessions() {
    let kinds = [EventKind::StoreFailed];
    let store = ControlledStore::default();
    let world = World::with(store.clone(), |service| service).await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    assert_eq!(events(&world, &kinds), []);
    store.fail(0, Fault::Down);
    for _ in 0..50 {
        assert_eq!(browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 503);
    }
    let failed = events(&world, &kinds);
    assert!(failed.len() <= 2 && failed.iter().map(|event| event.count).sum::<u64>() >= 50, "{failed:?}");
    assert!(failed.iter().all(|event| event.tenant.is_none() && event.kind.as_str() == "store_fail"));
}

#[tokio::test]
async fn a06_a_count_that_could_not_be_cleared_is_an_event_though_the_caller_sees_none() {
    let (mut silent, mut at) = (0, 0);
    // each operation of a successful step fails in turn
    loop {
        let store = ControlledStore::default();
        let world = World::with(store.clone(), |service| service).await;
        let mut browser = world.browser();
        let id = browser.start("web", ADA).await;
        store.fail(at, Fault::Before);
        let answer = browser.password("web", &id, "ada", ADA_PASSWORD).await;
        if !store.heal() {
            break;
        }
        assert!(!events(&world, &[EventKind::StoreFailed]).is_empty(), "operation {at} failed silently");
        silent += usize::from(answer.status == 200);
        at += 1;
    }
    assert!(silent > 0, "clearing the counts is no reason to refuse");
}

#[tokio::test]
async fn a04_users_of_a_site_sign_out_and_secure_their_account_when_strangers_have_spent_the_rest() {
    let clock = ManualClock::new();
    let quota = Quota::per_minute(60).unwrap().reserve(0.5).unwrap();
    let limiter = Limiter::builder(Plans::new(quota)).clock(clock.clone()).build().unwrap();
    // lookups for made-up sessions are bounded, too
    let abuse = AbuseLimits::new().unverified_per_address(Quota::per_minute(40).unwrap());
    let store = ControlledStore::default();
    let world = World::on(store.clone().into(), clock, |service| {
        service.limiter(limiter).abuse_limits(abuse).first_party(own_account::acme())
    });
    let world = world.await;
    let mut owner = own_account::ada(&world).await;
    let mut thief = owner.clone();
    thief.address = address("192.0.2.9");
    for value in thief.cookies.values_mut() {
        value.replace_range(value.len() - 8.., "AAAAAAAA");
    }
    world.advance(120);
    let mut stranger = world.browser();
    for _ in 0..30 {
        assert_eq!(authorize(&mut stranger).await, 302);
    }
    let sign_out = || posted("/sign-out").header("sec-fetch-site", "same-origin");
    // neither without a session nor with one that was made up
    for browser in [&mut stranger, &mut thief] {
        assert_eq!(browser.get("/account/security").await.status, 429);
        assert_eq!(own_account::call(browser, "sign-out-everywhere", json!({})).await.status, 429);
        assert_eq!(browser.send(sign_out(), "").await.status, 429);
    }
    store.done();
    for _ in 0..60 {
        assert_eq!(thief.get("/account/security").await.status, 429);
    }
    assert_eq!(store.done(), vec!["get sessions"; 37]);
    let session = |answer: Answer| (answer.status.as_u16(), answer.header("x-ratelimit-remaining").to_owned());
    assert_eq!(session(owner.get("/account/security").await), (200, "29".to_owned()));
    let password = json!({ "new_password": "gravel under moonlight" });
    assert_eq!(session(own_account::call(&mut owner, "password", password).await), (204, "28".to_owned()));
    let mut elsewhere = owner.clone();
    assert_eq!(session(owner.send(sign_out(), "").await), (303, "27".to_owned()));
    assert_eq!(elsewhere.get("/account/security").await.status, 429, "the session has ended");
}

/// The budget of a tenant, at the login service: a valid access token can spend what strangers cannot.
#[tokio::test]
async fn a04_a_token_can_spend_what_is_reserved_when_strangers_have_spent_the_rest() {
    let clock = ManualClock::new();
    let quota = Quota::per_minute(60).unwrap().reserve(0.5).unwrap();
    let limiter = Limiter::builder(Plans::new(quota)).clock(clock.clone()).build().unwrap();
    let own = limiter.clone();
    let world = World::on(Memory::new().into(), clock, |service| service.limiter(own)).await;
    let (mut user, mut stranger) = (world.browser(), world.browser());
    let tokens = user.tokens("web", "openid offline_access").await;
    let token = &tokens.access;
    let mut refused = 0;
    for _ in 0..100 {
        refused += usize::from(authorize(&mut stranger).await == 429);
    }
    assert!(refused >= 70, "{refused}");
    // a login spends from the half that strangers share
    assert_eq!(limiter.peek(&"acme".parse().unwrap()).unwrap().remaining(), 30);
    // the session of the user counts, too
    assert_eq!(authorize(&mut user).await, 302);
    // and so does a refresh token, but not one that was made up
    let mut app = world.browser();
    assert_eq!(app.refresh("web", "made-up").await.status, 429);
    // callers of `/introspect` authenticate before any token is looked at
    let form = [("client_id", "web"), ("token", "x"), ("refresh_token", tokens.refresh())];
    assert_eq!(app.form("/introspect", &form).await.status, 429);
    assert_eq!(app.refresh("web", tokens.refresh()).await.status, 200);
    for remaining in (0..28).rev() {
        let answer = user.with_token("/userinfo", token).await;
        assert_eq!((answer.status.as_u16(), answer.header("x-ratelimit-remaining")), (200, &*remaining.to_string()));
    }
    assert_eq!(user.with_token("/userinfo", token).await.status, 429);
}
