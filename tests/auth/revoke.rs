//! `POST /revoke` (RFC 7009).

use serde_json::json;
use tollgate::event::{EventKind, Query};

use crate::{issued_tokens::IssuedTokens, world::World};

const DONE: &str = "200\ncontent-type: application/json\n\n{}\n";

#[tokio::test]
async fn c100_revoking_a_refresh_or_access_token_revokes_its_family() {
    for what in ["refresh", "used refresh", "access", "older access"] {
        let world = World::new().await;
        let mut browser = world.browser();
        let other = browser.tokens("web", "openid").await;
        let first = browser.tokens("web", "openid").await;
        let last = IssuedTokens::of(&browser.refresh("web", first.refresh()).await);
        world.advance(60);
        let token = match what {
            "refresh" => last.refresh(),
            "used refresh" => first.refresh(),
            "access" => &last.access,
            _ => &first.access,
        };
        assert_eq!(browser.revoke("web", token).await.own(), DONE);
        for one in [&first, &last] {
            assert_eq!(browser.opens(&world, "web", &one.access).await, [false; 3], "{what}");
            assert_eq!(browser.introspect("web", one.refresh()).await, json!({ "active": false }));
            assert_eq!(browser.refresh("web", one.refresh()).await.error(), "invalid_grant");
        }
        assert_eq!(browser.opens(&world, "web", &other.access).await, [true; 3]);
        assert_eq!(browser.refresh("web", other.refresh()).await.status, 200);
        // revoking again succeeds too
        assert_eq!(browser.revoke("web", token).await.own(), DONE);
        world.log.flush();
        assert_eq!(world.log.read_events(&Query::new().kind(EventKind::TokenRevoked)).events.len(), 1);
    }
}

#[tokio::test]
async fn c100_revoking_anything_but_a_token_of_this_client_succeeds_and_changes_nothing() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    let code = browser.sign_in("web").await;
    let mut changed = issued.refresh().to_owned().into_bytes();
    changed[40] = if changed[40] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    let unsigned = format!("{}.AAAA", issued.access.rsplit_once('.').unwrap().0);
    for (client, token) in [
        ("mfa", issued.refresh()),
        ("mfa", &issued.access),
        ("other", issued.refresh()),
        ("web", issued.id()),
        ("web", &code.code),
        ("web", &changed),
        ("web", &unsigned),
        ("web", "x"),
        ("web", &"A".repeat(91)),
        ("web", &"x".repeat(60_000)),
    ] {
        assert_eq!(browser.revoke(client, token).await.own(), DONE);
    }
    for hint in ["access_token", "refresh_token", "x"] {
        let fields = [("client_id", "mfa"), ("token", issued.refresh()), ("token_type_hint", hint)];
        assert_eq!(browser.form("/revoke", &fields).await.own(), DONE);
    }
    assert_eq!(browser.opens(&world, "web", &issued.access).await, [true; 3]);
    assert_eq!(browser.refresh("web", issued.refresh()).await.status, 200);
    assert_eq!(browser.redeem("web", &code).await.status, 200);
    world.log.flush();
    assert!(world.log.read_events(&Query::new().kind(EventKind::TokenRevoked)).events.is_empty());
}
