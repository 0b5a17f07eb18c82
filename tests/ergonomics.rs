//! Small things that users write often.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use axum::response::{IntoResponse, Redirect};
use proptest::prelude::*;
use tollgate::{
    Quota, Sessions, Tenant, UserId,
    client::RedirectUri,
    cookie::SetCookie,
    event::EventKind,
    policy::Method,
    session::NewSession,
    store::{Memory, StoreError, StoreErrorKind},
};

#[test]
fn a17_quotas_with_literal_limits_need_no_error_handling() {
    assert_eq!(Quota::const_per_minute::<600>(), Quota::per_minute(600).unwrap());
}

#[test]
fn a17_a_quota_is_written_and_read_as_text() {
    for (quota, text) in [
        (Quota::per_second(10).unwrap(), "10/second"),
        (Quota::per_minute(600).unwrap(), "600/minute"),
        (Quota::per_hour(1).unwrap(), "1/hour"),
        (Quota::per_day(10_000).unwrap(), "10000/day"),
        (Quota::new(5, Duration::from_secs(10)).unwrap(), "5/10s"),
        (Quota::new(5, Duration::from_secs(90)).unwrap(), "5/90s"),
        (Quota::new(5, Duration::from_millis(1500)).unwrap(), "5/1500ms"),
        (Quota::new(5, Duration::from_secs(7 * 86_400)).unwrap(), "5/7d"),
        (Quota::fixed(5, Duration::from_secs(86_400)).unwrap(), "5/day fixed"),
    ] {
        assert_eq!((quota.to_string().as_str(), text.parse().as_ref()), (text, Ok(&quota)));
    }
    assert_eq!("60/60s".parse(), Ok(Quota::const_per_minute::<60>()));
    for bad in [
        "",
        "/",
        "600",
        "600/",
        "/minute",
        "0/minute",
        "-1/minute",
        "+1/minute",
        "1 /minute",
        "1/ minute",
        "1/minutes",
        "1/Minute",
        "1/0s",
        "1/1",
        "1/s",
        "1/1us",
        "1/367d",
        "1/99999999999999999999d",
        "1/9999999999999d",
        "4294967296/minute",
        "1/minute/day",
        "1/minute rolling",
        "1/minute  fixed",
        "1/é",
    ] {
        assert!(bad.parse::<Quota>().is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn a17_every_quota_is_read_back(limit in 1..=u32::MAX, micros in 1000..31_000_000_000_000_u64, fixed: bool) {
        let window = Duration::from_micros(micros);
        let quota = if fixed { Quota::fixed(limit, window) } else { Quota::new(limit, window) }.unwrap();
        prop_assert_eq!(quota.to_string().parse(), Ok(quota));
    }

    #[test]
    fn a17_reading_a_quota_never_panics(text in r"[0-9+]{0,20}/?[0-9]{0,20}[a-zé ]{0,8}") {
        let _ = text.parse::<Quota>();
    }
}

#[cfg(feature = "smooth")]
proptest! {
    #[test]
    fn a17_a_smooth_quota_is_read_back(units in 1..10_000_u32, per in 1..1_000_000_u64, burst in 1..1000_u32) {
        let quota = Quota::smooth(units, Duration::from_millis(per), burst).unwrap();
        prop_assert_eq!(quota.to_string().parse(), Ok(quota));
    }
}

#[test]
fn a17_names_are_written_and_read() {
    for kind in EventKind::all() {
        assert_eq!((kind.to_string().as_str(), EventKind::from_name(kind.as_str())), (kind.as_str(), Some(kind)));
    }
    for method in Method::ALL {
        assert_eq!((method.to_string().as_str(), method.as_str().parse().as_ref()), (method.as_str(), Ok(method)));
    }
    assert!(EventKind::from_name("x").is_none() && "Password".parse::<Method>().is_err());
    let uri: RedirectUri = "https://app.example/callback".parse().unwrap();
    assert_eq!(uri.to_string(), "https://app.example/callback");
    assert!("http://app.example/".parse::<RedirectUri>().is_err());
}

#[tokio::test]
async fn a17_an_axum_handler_returns_a_session_cookie() {
    let sessions = Sessions::new(Memory::new());
    let new = NewSession::new(Tenant::parse("acme").unwrap(), UserId::parse("ada").unwrap());
    let (cookie, session) = sessions.create(new).await.unwrap();
    let name = cookie.name().to_owned();
    let more = SetCookie::new("theme", "dark").unwrap();
    let response = (cookie, more, Redirect::to("/account")).into_response();
    assert_eq!((response.status().as_u16(), response.headers()["location"].to_str().unwrap()), (303, "/account"));
    let cookies: Vec<_> =
        response.headers().get_all("set-cookie").iter().map(|value| value.to_str().unwrap()).collect();
    assert!(cookies.first().unwrap().starts_with(&format!("{name}=")) && cookies.last().unwrap().starts_with("theme="));
    assert!(response.headers()["set-cookie"].is_sensitive());
    let failed = StoreError::new(StoreErrorKind::Unavailable, "db-7 refused").into_response();
    assert_eq!(failed.status(), 503);
    assert!(axum::body::to_bytes(failed.into_body(), 64).await.unwrap().is_empty());
    let gone = (sessions.removal(session.tenant()), "signed out").into_response();
    assert!(gone.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
}
