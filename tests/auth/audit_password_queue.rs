//! A flood of password checks at one tenant leaves the others their turn.

use std::sync::{Arc, Condvar, Mutex};

use tollgate::{
    Identifier, Passwords, Tenant, UserId, Users,
    store::Memory,
    user::{Account, PasswordAttempt, PasswordCheck},
};

use crate::world::World;

/// Nobody has an account. Checks run one at a time in the common pool, and wait until the gate opens.
#[derive(Clone, Debug, Default)]
struct Gated {
    open: Arc<(Mutex<bool>, Condvar)>,
    checked: Arc<Mutex<Vec<String>>>,
}

impl Users for Gated {
    type Error = std::convert::Infallible;

    async fn find(&self, _: &Tenant, _: &Identifier) -> Result<Option<Account>, Self::Error> {
        Ok(None)
    }

    async fn by_id(&self, _: &Tenant, _: &UserId) -> Result<Option<Account>, Self::Error> {
        Ok(None)
    }

    async fn verify_password(&self, attempt: PasswordAttempt<'_>) -> Result<PasswordCheck, Self::Error> {
        let gated = self.clone();
        let check = attempt.blocking("decoy", move |_, typed| {
            let (open, opened) = &*gated.open;
            drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
            gated.checked.lock().unwrap().push(typed.to_owned());
            false
        });
        Ok(check.await)
    }
}

#[tokio::test]
async fn a10_a_flood_of_passwords_at_one_tenant_leaves_the_others_their_turn() {
    let users = Gated::default();
    let passwords = Passwords::builder().insecure_fast().concurrency(1).waiting(8).build().unwrap();
    let world = World::with(Memory::new(), |service| service.users(users.clone()).passwords(passwords)).await;
    let attempt = |client: &'static str, typed: String| {
        let mut browser = world.browser();
        tokio::spawn(async move {
            let id = browser.start(client, &typed).await;
            browser.password(client, &id, &typed, &typed).await.status.as_u16()
        })
    };
    let (mut flood, mut other) = (Vec::new(), Vec::new());
    // one runs, eight wait, and the others are refused
    for number in 0..12 {
        flood.push(attempt("web", format!("acme{number}")));
        world.settle().await;
    }
    for number in 0..2 {
        other.push(attempt("other", format!("globex{number}")));
        world.settle().await;
    }
    *users.open.0.lock().unwrap() = true;
    users.open.1.notify_all();
    let mut refused = Vec::new();
    for (number, attempt) in flood.into_iter().enumerate() {
        if attempt.await.unwrap() == 503 {
            refused.push(number);
        }
    }
    for attempt in other {
        assert_eq!(attempt.await.unwrap(), 401, "it was checked");
    }
    let checked = users.checked.lock().unwrap().clone();
    assert_eq!(checked[..5], ["acme0", "acme1", "globex0", "acme2", "globex1"]);
    // those of the flood that came last
    assert_eq!(refused, [7, 8, 9, 10, 11]);
}
