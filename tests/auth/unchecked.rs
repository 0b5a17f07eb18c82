//! Passwords that can't be checked, for there is nothing to hash them with: here, no runtime.

use tokio::runtime::Runtime;
use tollgate::testing::block_on;

use crate::world::{ADA, ADA_PASSWORD, Browser, World};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn unchecked(browser: &mut Browser, id: &str, typed: &str) {
    let answer = block_on(browser.password("web", id, "ada", typed));
    assert_eq!((answer.status.as_u16(), answer.error().as_str()), (503, "temporarily_unavailable"));
}

#[test]
fn c110_what_could_not_be_checked_is_not_counted() {
    let runtime = runtime();
    let (mut browser, id) = runtime.block_on(async {
        let mut browser = World::new().await.browser();
        let id = browser.start("web", ADA).await;
        (browser, id)
    });
    for _ in 0..40 {
        unchecked(&mut browser, &id, "wrong");
    }
    assert_eq!(runtime.block_on(browser.password("web", &id, "ada", ADA_PASSWORD)).status, 200);
}

#[test]
fn c058_what_could_not_be_checked_opens_no_account_that_is_at_its_ceiling() {
    let runtime = runtime();
    let (world, mut browser) = runtime.block_on(async {
        let world = World::new().await;
        let mut browser = world.browser();
        for failure in 0..100 {
            let id = browser.start("web", ADA).await;
            let name = if failure % 2 == 0 { "ada" } else { ADA };
            assert_eq!(browser.password("web", &id, name, "wrong").await.error(), "invalid_credentials");
            world.advance(1801);
        }
        (world, browser)
    });
    let id = runtime.block_on(browser.start("web", ADA));
    world.advance(60);
    for _ in 0..3 {
        unchecked(&mut browser, &id, ADA_PASSWORD);
    }
    let right = runtime.block_on(browser.password("web", &id, "ada", ADA_PASSWORD));
    assert_eq!(right.error(), "invalid_credentials");
}
