//! Connections of HTTP/1.1 after calls that do not use their body, or refuse it.

use axum::Router;
use http::{Request, Version};
use tokio::net::TcpListener;
use tollgate::Passkeys;

use crate::{
    late_bodies::{self, LateCall, Outcome},
    own_account::{ada, site},
    soft_passkey::RP_ID,
    world::{World, parameters},
};

async fn serve(world: &World) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, app) = (listener.local_addr().unwrap(), Router::new().fallback_service(world.service.clone()));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

#[tokio::test]
async fn b20_no_call_is_lost_whose_body_comes_later_and_is_not_used() {
    let world = site(|service| service.passkeys(Passkeys::new(RP_ID))).await;
    let browser = ada(&world).await;
    let cookies: Vec<_> = browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let own = format!("sec-fetch-site: same-origin\ncookie: {}\ncontent-type: application/json", cookies.join("; "));
    let (json, form) = ("content-type: application/json", "content-type: application/x-www-form-urlencoded");
    let posted = |path: &str, headers: &str| LateCall::new(&format!("POST {path}\n{headers}"), "{}");
    let kept = [
        (posted("/account/totp/begin", &own), 200),
        (posted("/account/recovery-codes", &own), 201),
        (posted("/account/sessions/end-others", &own), 204),
        (posted("/account/passkeys/options", &own), 200),
        (posted("/account/passkeys/delete", "sec-fetch-site: cross-site"), 403),
        (posted("/account/totp", json), 403),
        (posted("/account/sign-out-everywhere", "sec-fetch-site: same-origin"), 401),
        (posted("/nowhere", json), 404),
        (LateCall::chunked("POST /nowhere/in-chunks", "{}"), 404),
        (LateCall::new("DELETE /token", "{}"), 405),
        (LateCall::new("GET /authentication/status", "{}"), 400),
        (LateCall::new("OPTIONS /token", "{}"), 204),
        // another type than the endpoint takes
        (posted("/authentication/start", form), 415),
        (posted("/token", json), 415),
        (posted("/par", &format!("{form}\ncontent-encoding: gzip")), 415),
        (posted("/sign-out", json), 403),
        (posted("/userinfo", json), 401),
        (LateCall::new(&format!("POST /authentication/complete\n{json}"), parameters("web").to_string()), 400),
    ];
    let closed = [
        (LateCall::new(&format!("POST /authentication/verify-otp\n{json}"), " ".repeat(64 * 1024 + 1)), 413),
        (LateCall::new(&format!("POST /nowhere/large\n{json}"), " ".repeat(200 * 1024)), 404),
        (posted("/nowhere/expecting", "expect: 100-continue"), 404),
    ];
    let calls: Vec<_> = kept.iter().chain(&closed).map(|(call, _)| call.clone()).collect();
    let all = late_bodies::make(serve(&world).await, calls, 3_000).await;
    let lost: Vec<_> = all.iter().filter(|(_, outcome)| outcome.lost > 0).collect();
    assert!(lost.is_empty(), "{lost:#?}");
    let as_expected = |calls: &[(LateCall, u16)], closes: bool| {
        for (call, status) in calls {
            let outcome @ Outcome { answered, closing, .. } = all[call.name()];
            assert_eq!((outcome.status, closing), (*status, answered * usize::from(closes)), "{}", call.name());
        }
    };
    as_expected(&kept, false);
    as_expected(&closed, true);
    assert_eq!(all.values().map(|outcome| outcome.answered).sum::<usize>(), 3_000);
}

/// HTTP/2 knows no such header, and a request there does not wait for the body of another one.
#[tokio::test]
async fn b20_http_2_connections_are_neither_kept_waiting_nor_closed() {
    let world = World::new().await;
    let large = |version| {
        let request = Request::post("/nowhere").version(version).body(axum::body::Body::from(vec![0; 1 << 20]));
        let mut browser = world.browser();
        async move { browser.serve(request.unwrap()).await.header("connection").to_owned() }
    };
    assert_eq!([large(Version::HTTP_2).await, large(Version::HTTP_11).await], ["", "close"]);
}
