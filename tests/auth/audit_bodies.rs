//! Slow senders: how many bodies the service receives at the same time.

use std::{
    convert::Infallible,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame};
use tokio::task::{JoinSet, yield_now};
use tollgate::{
    auth::{AbuseLimits, AuthServiceBuilder},
    store::Memory,
};

use crate::world::{ADA, Answer, World};

/// A body that begins and never ends.
struct Stalled;

impl Body for Stalled {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

/// Begins requests whose bodies do not arrive.
async fn stall(world: &World, path: &'static str, addresses: impl IntoIterator<Item = IpAddr>) -> JoinSet<Answer> {
    let mut requests = JoinSet::new();
    for address in addresses {
        let mut browser = world.browser();
        browser.address = address;
        let kind = if path == "/token" { "application/x-www-form-urlencoded" } else { "application/json" };
        let request = Request::post(path).header("content-type", kind).body(Stalled).unwrap();
        requests.spawn(async move { browser.serve(request).await });
    }
    for _ in 0..1_000 {
        yield_now().await;
    }
    requests
}

fn numbered(count: u8) -> impl Iterator<Item = IpAddr> {
    (1..=count).map(|last| [198, 51, 100, last].into())
}

#[tokio::test(start_paused = true)]
async fn a08_one_address_can_stall_fifty_bodies_and_no_more() {
    let world = World::new().await;
    let mut stalled = stall(&world, "/authentication/start", [[192, 0, 2, 1].into(); 50]).await;
    let mut same = world.browser();
    for path in ["/authentication/start", "/token"] {
        let refused = stall(&world, path, [same.address]).await.try_join_next().unwrap().unwrap();
        assert_eq!((refused.status.as_u16(), refused.error().as_str()), (429, "rate_limit_exceeded"), "{path}");
        assert_eq!(refused.header("retry-after"), "1");
    }
    // requests without a body go on, and so do other addresses
    assert_eq!(same.get("/jwks").await.status, 200);
    let mut other = world.browser();
    other.address = [192, 0, 2, 2].into();
    other.start("web", ADA).await;
    // the places come back when the time of a body is over
    while let Some(ended) = stalled.join_next().await {
        assert_eq!(ended.unwrap().status, 400);
    }
    same.start("web", ADA).await;
}

#[tokio::test(start_paused = true)]
async fn a08_many_addresses_share_the_places_of_the_service() {
    let few =
        |service: AuthServiceBuilder| service.abuse_limits(AbuseLimits::new().bodies_at_once(3).bodies_per_address(2));
    let world = World::with(Memory::new(), few).await;
    let stalled = stall(&world, "/token", numbered(3)).await;
    let refused = stall(&world, "/token", numbered(4).skip(3)).await.try_join_next().unwrap().unwrap();
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (503, "temporarily_unavailable"));
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(world.browser().get("/jwks").await.status, 200);
    // a client that goes away leaves its place
    drop(stalled);
    for _ in 0..1_000 {
        yield_now().await;
    }
    world.browser().start("web", ADA).await;
}

#[tokio::test]
async fn a08_a_limit_of_no_bodies_is_refused() {
    for zero in [AbuseLimits::bodies_at_once, AbuseLimits::bodies_per_address] {
        let service = tollgate::AuthService::builder("https://auth.example", Memory::new())
            .users(tollgate::StoredUsers::new(Memory::new()))
            .client_ip(tollgate::ClientIp::peer());
        assert_eq!(
            service.abuse_limits(zero(AbuseLimits::new(), 0)).build().unwrap_err().reason(),
            "must be at least 1"
        );
    }
}
