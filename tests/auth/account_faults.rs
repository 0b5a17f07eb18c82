//! Resets and invitations whose accounts, or everything else, fail at each operation in turn. The accounts are in a store of their own.

use serde_json::json;
use tollgate::{Identifier, NewUser, StoredUsers, Users, password::PasswordMark, testing::ManualClock};

use crate::{
    controlled_store::{ControlledStore, FAULTS, Fault},
    reset::{FRESH, MAILA, add_maila, begin, begin_unnamed, prove, set, sign_in, signs_in, tenant},
    sign_up::{self, NEW, NEW_PASSWORD, accepted, invited},
    world::{Answer, Browser, World},
};

/// A reset that is ready for the new password, of an account of globex in a store of its own, and a session of that account.
struct Ready {
    world: World,
    users: StoredUsers,
    browser: Browser,
    id: String,
    before: Browser,
    old: Option<PasswordMark>,
}

async fn mark(users: &StoredUsers) -> Option<PasswordMark> {
    users.by_id(&tenant("globex"), &"u-maila".parse().unwrap()).await.unwrap().unwrap().current_password_mark()
}

impl Ready {
    async fn new(rest: ControlledStore, accounts: ControlledStore, by_link: bool) -> Self {
        let clock = ManualClock::new();
        let users = StoredUsers::with_clock(accounts, clock.clone());
        let own = users.clone();
        let mut world = World::on(rest.into(), clock, |service| service.users(own)).await;
        // the hash of a password comes from ada, who is in both
        let ada = world.users.by_id(&tenant("acme"), &"u-ada".parse().unwrap()).await.unwrap().unwrap();
        let new = NewUser::new("u-ada".parse().unwrap(), "ada".parse().unwrap());
        users.create(&tenant("acme"), new.password(ada.password_hash().unwrap().clone())).await.unwrap();
        world.users = users.clone();
        let maila = add_maila(&world).await;
        let mut before = world.browser();
        // proved by the mailbox, which outlives the password
        sign_in(&world, &mut before, "email", "openid").await;
        world.advance(31);
        let mut browser = world.browser();
        let id = match by_link {
            true => {
                let link = world.service.create_reset_link(&tenant("globex"), &maila).await.unwrap().unwrap();
                let id = begin_unnamed(&mut browser, "other").await;
                let secret = link.split_once("#reset=").unwrap().1;
                assert_eq!(browser.life("reset-password/link", "other", &id, &[("link", secret)]).await.status, 200);
                id
            }
            false => {
                let id = begin(&mut browser, "other", MAILA).await;
                prove(&world, &mut browser, "other", &id, MAILA).await;
                id
            }
        };
        let old = mark(&users).await;
        Self { world, users, browser, id, before, old }
    }

    async fn set(&mut self) -> Answer {
        set(&mut self.browser, "other", &self.id).await
    }

    async fn sessions(&self) -> usize {
        let listed = self.world.sessions.list(&tenant("globex"), &"u-maila".parse().unwrap()).await.unwrap();
        listed.len()
    }

    /// Returns whether the account has the new password.
    async fn is_set(&self) -> bool {
        mark(&self.users).await != self.old
    }
}

/// The accounts fail at each operation in turn. The sessions have ended, and the same reset sets the password later.
#[tokio::test]
async fn c129_a_reset_whose_password_could_not_be_written_can_be_repeated() {
    for by_link in [true, false] {
        for fault in FAULTS {
            for at in 0.. {
                let case = format!("link: {by_link}, {fault:?} at operation {at}");
                let accounts = ControlledStore::default();
                let mut ready = Ready::new(ControlledStore::default(), accounts.clone(), by_link).await;
                accounts.fail(at, fault);
                let first = ready.set().await;
                if !accounts.heal() {
                    assert_eq!(first.status, 200, "{case}");
                    assert_eq!(ready.set().await.error(), "invalid_session", "{case}");
                    assert!(at > 0, "{case}");
                    break;
                }
                assert!(first.status == 503 && first.error() == "temporarily_unavailable", "{case} {first:?}");
                assert!(first.headers.contains_key("retry-after"), "{case} {first:?}");
                let again = ready.set().await;
                assert_eq!((again.status.as_u16(), again.json()), (200, json!({ "status": "done" })), "{case}");
                assert_eq!((ready.sessions().await, ready.set().await.status.as_u16()), (0, 401), "{case}");
                assert!(signs_in(&ready.world, "other", MAILA, FRESH).await, "{case}");
            }
        }
    }
}

/// Everything else fails at each operation in turn, as after a crash if all later ones fail, too. There is never a new password while
/// a session from before lives, and no success before all of them have ended.
#[tokio::test]
async fn c129_no_session_outlives_the_password_if_a_reset_is_interrupted() {
    for by_link in [true, false] {
        for fault in FAULTS {
            for at in 0.. {
                let case = format!("link: {by_link}, {fault:?} at operation {at}");
                let rest = ControlledStore::default();
                let mut ready = Ready::new(rest.clone(), ControlledStore::default(), by_link).await;
                assert_eq!(ready.sessions().await, 1);
                rest.fail(at, fault);
                let first = ready.set().await;
                let has_failed = rest.heal();
                if ready.is_set().await {
                    assert_eq!(ready.sessions().await, 0, "{case}");
                    assert_eq!(ready.before.authorize("other").await.redirected("code"), None, "{case}");
                }
                assert!(first.status == 503 || ready.is_set().await, "{case} {first:?}");
                let again = ready.set().await;
                match (first.status.as_u16(), again.status.as_u16()) {
                    (503, 200) => {}
                    (503, _) => {
                        assert!(["session_expired", "invalid_link"].contains(&&*again.error()), "{case} {again:?}");
                    }
                    _ => assert_eq!(again.error(), "invalid_session", "{case}"),
                }
                if !has_failed {
                    assert!(at > 0, "{case}");
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn c129_a_reset_that_could_be_repeated_ends_with_everything_that_the_user_has_begun() {
    for by_link in [true, false] {
        let mut writing = None;
        for _ in 0..2 {
            let accounts = ControlledStore::default();
            let mut ready = Ready::new(ControlledStore::default(), accounts.clone(), by_link).await;
            accounts.done();
            let Some(at) = writing else {
                assert_eq!(ready.set().await.status, 200);
                writing = accounts.done().iter().rposition(|call| call.starts_with("swap"));
                continue;
            };
            accounts.fail(at, Fault::Before);
            assert_eq!(ready.set().await.status, 503);
            assert!(accounts.heal());
            ready.world.service.end_user(&tenant("globex"), &"u-maila".parse().unwrap()).await.unwrap();
            assert_eq!(ready.set().await.error(), if by_link { "invalid_link" } else { "session_expired" });
            assert!(!ready.is_set().await);
        }
    }
}

/// The call fails at each operation in turn, as after a crash if all later ones fail, too. Either there is no account, and the same
/// call creates it later, or there is one, and neither this call nor another browser with the invitation creates another.
#[tokio::test]
async fn c128_an_invitation_outlives_a_failure_and_creates_one_account() {
    for of_accounts in [true, false] {
        for fault in FAULTS {
            for at in 0.. {
                let case = format!("accounts: {of_accounts}, {fault:?} at operation {at}");
                let (rest, accounts) = (ControlledStore::default(), ControlledStore::default());
                let (world, users, secret) = invited(rest.clone(), accounts.clone()).await;
                let (mut other, other_id) = accepted(&world, &secret).await;
                let (mut browser, id) = accepted(&world, &secret).await;
                let failing = if of_accounts { &accounts } else { &rest };
                failing.fail(at, fault);
                let first = sign_up::create(&mut browser, "web", &id).await;
                let has_failed = failing.heal();
                let name = Identifier::parse(NEW).unwrap();
                let found = users.find(&tenant("acme"), &name).await.unwrap();
                let again = sign_up::create(&mut browser, "web", &id).await;
                match &found {
                    None => assert_eq!((first.status.as_u16(), again.status.as_u16()), (503, 200), "{case} {again:?}"),
                    Some(_) if first.status == 200 => assert_eq!(again.error(), "method_not_allowed", "{case}"),
                    Some(_) => {
                        assert_eq!(first.error(), "temporarily_unavailable", "{case}");
                        assert!(
                            ["account_exists", "method_not_allowed"].contains(&&*again.error()),
                            "{case} {again:?}"
                        );
                    }
                }
                let refused = sign_up::create(&mut other, "web", &other_id).await.error();
                assert!(["account_exists", "invalid_link"].contains(&&*refused), "{case} {refused}");
                let account = users.find(&tenant("acme"), &name).await.unwrap().unwrap();
                assert!(found.is_none_or(|found| found.id() == account.id()), "{case}");
                assert!(signs_in(&world, "web", NEW, NEW_PASSWORD).await, "{case}");
                if !has_failed {
                    assert!(at > 0, "{case}");
                    break;
                }
            }
        }
    }
}
