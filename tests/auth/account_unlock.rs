//! How locked accounts are unlocked.

use tollgate::{Identifier, Tenant};

use crate::world::{ADA, ADA_PASSWORD, ADA_PHONE, Browser, NOBODY, World};

fn acme() -> Tenant {
    "acme".parse().unwrap()
}

/// Enters wrong passwords for ada. Each attempt uses a new login and address, and the clock skips each wait.
async fn fail(world: &World, username: &str, times: u32) {
    for time in 0..times {
        let mut browser = world.browser();
        browser.address = std::net::Ipv4Addr::from(0x0a00_0000 + time).into();
        let id = browser.start("web", ADA).await;
        assert_eq!(browser.password("web", &id, username, "wrong").await.status, 401);
        world.advance(3600);
    }
}

async fn right(browser: &mut Browser) -> u16 {
    let id = browser.start("web", ADA).await;
    browser.password("web", &id, ADA, ADA_PASSWORD).await.status.as_u16()
}

#[tokio::test]
async fn c110_an_operator_unlocks_one_person_only() {
    let world = World::new().await;
    let mut browser = world.browser();
    for _ in 0..5 {
        let id = browser.start("web", ADA).await;
        assert_eq!(browser.password("web", &id, ADA, "wrong").await.status, 401);
    }
    assert_eq!(right(&mut browser).await, 429);
    // another tenant, and another user
    world.service.unlock(&"globex".parse().unwrap(), &Identifier::parse(ADA).unwrap()).await.unwrap();
    world.service.unlock(&acme(), &Identifier::parse(NOBODY).unwrap()).await.unwrap();
    assert_eq!(right(&mut browser).await, 429);
    // by any of her names: she can also sign in with the address
    world.service.unlock(&acme(), &Identifier::parse("ada").unwrap()).await.unwrap();
    assert_eq!(right(&mut browser).await, 200);
}

#[tokio::test]
async fn c058_an_account_at_its_ceiling_opens_when_it_is_unlocked() {
    let world = World::new().await;
    // with her other name, so that the name used below has no failures
    fail(&world, "ada", 79).await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    assert_eq!(browser.password("web", &id, ADA, "wrong").await.status, 401);
    assert_eq!(right(&mut browser).await, 401, "strangers have eighty of the hundred failures");
    world.service.unlock(&acme(), &Identifier::parse(ADA).unwrap()).await.unwrap();
    assert_eq!(right(&mut browser).await, 200);
}

#[tokio::test]
async fn c111_knowing_an_address_is_not_enough_to_lock_its_owner_out() {
    let world = World::new().await;
    let mut stranger = world.browser();
    let id = stranger.start("web", NOBODY).await;
    assert_eq!(stranger.ask("web", &id, "sms", ADA_PHONE).await.status, 200);
    for _ in 0..5 {
        assert_eq!(stranger.verify("web", &id, "000000").await.status, 401);
    }
    let mut ada = world.browser();
    let id = ada.start("web", ADA).await;
    assert_eq!(ada.ask("web", &id, "sms", ADA_PHONE).await.status, 200);
    let code = world.code(ADA_PHONE).await;
    assert_eq!(ada.verify("web", &id, &code).await.status, 200);
}
