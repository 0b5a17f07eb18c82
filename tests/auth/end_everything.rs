//! Everything that was begun ends with one call, and accounts stay.

use tollgate::{
    Tenant, UserId, Users,
    event::{EventKind, Query},
    store::{AnyStore, Disk, Memory},
    testing::ManualClock,
};

use crate::{
    issued_tokens::all_are,
    machine_clients::{ES256, token, world_on},
    restart::File,
    world::{ADA, ADA_PASSWORD, GRACE, World},
};

#[tokio::test]
async fn b37_everything_ends_and_accounts_stay() {
    let file = File::new();
    let clock = ManualClock::new();
    for is_on_disk in [false, true] {
        let store: AnyStore = if is_on_disk { Disk::open(&file.0).unwrap().into() } else { Memory::new().into() };
        let mut world = World::on(store, clock.clone(), |service| service).await;
        let (acme, ada) = (Tenant::parse("acme").unwrap(), UserId::parse("u-ada").unwrap());
        let mut browser = world.browser();
        let old = browser.tokens("web", "openid offline_access").await;
        all_are(true, &world, "web", &old).await;
        // a code that waits, a completed login, and one with a proved step
        let mut with_code = world.browser();
        let code = with_code.sign_in("web").await;
        let (mut completed, mut proved) = (world.browser(), world.browser());
        completed.log_in("web", GRACE).await;
        let id = proved.start("web", ADA).await;
        assert_eq!(proved.password("web", &id, ADA, ADA_PASSWORD).await.status, 200);
        assert_eq!(world.sessions.list(&acme, &ada).await.unwrap().len(), 2);

        world.service.end_everything().await.unwrap();
        let ended = world.log.read_events(&Query::new().kind(EventKind::EverythingEnded)).events;
        assert_eq!(ended.iter().map(|event| event.count).sum::<u64>(), 1);
        for _ in 0..2 {
            assert!(world.sessions.list(&acme, &ada).await.unwrap().is_empty());
            all_are(false, &world, "web", &old).await;
            assert_eq!(browser.refresh("web", old.refresh()).await.error(), "invalid_grant");
            assert_eq!(with_code.redeem("web", &code).await.error(), "invalid_grant");
            assert_eq!(completed.authorize("web").await.redirected("code"), None);
            world.advance(2);
        }
        assert_eq!(proved.complete("web", &id).await.json()["status"], "completed");
        assert_eq!(proved.authorize("web").await.redirected("code"), None, "its login began before");
        assert!(world.sessions.list(&acme, &ada).await.unwrap().is_empty());
        assert!(world.users.by_id(&acme, &ada).await.unwrap().is_some());

        let new = world.browser().tokens("web", "openid offline_access").await;
        all_are(true, &world, "web", &new).await;
        if is_on_disk {
            drop((browser, with_code, completed, proved));
            drop(std::mem::replace(&mut world, World::new().await));
            let store = Disk::open(&file.0).unwrap().into();
            world = World::on(store, clock.clone(), |service| service).await;
            all_are(false, &world, "web", &old).await;
            all_are(true, &world, "web", &new).await;
            assert_eq!(world.sessions.list(&acme, &ada).await.unwrap().len(), 1);
        }
    }
}

#[tokio::test]
async fn b37_a_machine_token_from_before_everything_ended_does_not_count_after_a_restart() {
    let (file, clock) = (File::new(), ManualClock::new());
    let open = async || {
        let store = Disk::open(&file.0).unwrap().into();
        world_on((store, clock.clone()), &ES256, |client| client).await
    };
    let world = open().await;
    let token = token(&world).await;
    let ask = async |world: &World| world.browser().ask_about(&token).await.json()["active"].clone();
    assert_eq!(ask(&world).await, true);
    world.service.end_everything().await.unwrap();
    drop(world);
    // nothing else was asked of the new process
    assert_eq!(ask(&open().await).await, false);
}
