//! Passwords that can't be checked because all hashing threads are busy.

use std::sync::mpsc::channel;

use tokio::runtime::Runtime;
use tollgate::{Password, Passwords, store::Memory};

use crate::world::{ADA, ADA_PASSWORD, Browser, World};

/// Allows one hash at a time, on a runtime with one blocking thread.
struct BusyHasher {
    runtime: Runtime,
    passwords: Passwords,
}

impl BusyHasher {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_all().build().unwrap();
        let passwords = Passwords::builder().insecure_fast().concurrency(1).waiting(0).build().unwrap();
        Self { runtime, passwords }
    }

    async fn world(&self) -> World {
        World::with(Memory::new(), |service| service.passwords(self.passwords.clone())).await
    }

    /// Tries a password while a blocked job occupies the only thread.
    fn try_while_busy(&self, browser: &mut Browser, id: &str, typed: &str) {
        self.runtime.block_on(async {
            let (done, wait) = channel::<()>();
            let thread = tokio::task::spawn_blocking(move || wait.recv());
            let passwords = self.passwords.clone();
            let turn = tokio::spawn(async move { passwords.hash(Password::new("another")).await });
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            let answer = browser.password("web", id, "ada", typed).await;
            assert_eq!((answer.status.as_u16(), answer.error().as_str()), (503, "temporarily_unavailable"));
            done.send(()).unwrap();
            thread.await.unwrap().unwrap();
            turn.await.unwrap().unwrap();
        });
    }
}

#[test]
fn c110_an_attempt_that_could_not_be_checked_is_not_counted() {
    let hasher = BusyHasher::new();
    let runtime = &hasher.runtime;
    let (mut browser, id) = runtime.block_on(async {
        let mut browser = hasher.world().await.browser();
        let id = browser.start("web", ADA).await;
        (browser, id)
    });
    for _ in 0..40 {
        hasher.try_while_busy(&mut browser, &id, "wrong");
    }
    assert_eq!(runtime.block_on(browser.password("web", &id, "ada", ADA_PASSWORD)).status, 200);
}

#[test]
fn c058_an_attempt_that_could_not_be_checked_does_not_reopen_a_locked_account() {
    let hasher = BusyHasher::new();
    let runtime = &hasher.runtime;
    let (world, mut browser) = runtime.block_on(async {
        let world = hasher.world().await;
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
        hasher.try_while_busy(&mut browser, &id, ADA_PASSWORD);
    }
    let right = runtime.block_on(browser.password("web", &id, "ada", ADA_PASSWORD));
    assert_eq!(right.error(), "invalid_credentials");
}

#[test]
fn c110_an_attempt_that_could_not_be_checked_does_not_prolong_a_locked_account() {
    let hasher = BusyHasher::new();
    let runtime = &hasher.runtime;
    let (world, mut browser) = runtime.block_on(async {
        let world = hasher.world().await;
        let mut browser = world.browser();
        // strangers have eighty of the hundred failures
        for failure in 0..80 {
            world.advance(1801);
            let id = browser.start("web", ADA).await;
            let name = if failure % 2 == 0 { "ada" } else { ADA };
            assert_eq!(browser.password("web", &id, name, "wrong").await.error(), "invalid_credentials");
        }
        (world, browser)
    });
    let day = 24 * 3600;
    world.advance(day - 60);
    let id = runtime.block_on(browser.start("web", ADA));
    hasher.try_while_busy(&mut browser, &id, ADA_PASSWORD);
    world.advance(61);
    assert_eq!(runtime.block_on(browser.password("web", &id, "ada", ADA_PASSWORD)).status, 200);
}
