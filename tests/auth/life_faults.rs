//! Sign-up, reset and changes of an account on a store that fails at each operation in turn: before it takes effect, after it, or
//! permanently.

use serde_json::json;
use tollgate::{Users, auth::SignUp, user::Account};

use crate::{
    controlled_store::{ControlledStore, FAULTS, Fault},
    own_account::{acme, call, sessions, sign_in},
    reset::{self, FRESH, MAILA, add_maila, signs_in},
    sign_up::{self, NEW, NEW_PASSWORD},
    world::{ADA, ADA_PASSWORD, Answer, Browser, World},
};

const CHANGED: &str = "gravel under moonlight";
const MOVED: &str = "lovelace@example.com";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    SignUpCode,
    ProveAddress,
    Create,
    ResetStart,
    Ask,
    Prove,
    SetPassword,
    ChangePassword,
    ChangeName,
    NewContact,
    ConfirmContact,
    Delete,
}

use Call::{
    Ask, ChangeName, ChangePassword, ConfirmContact, Create, Delete, NewContact, Prove, ProveAddress, ResetStart,
    SetPassword, SignUpCode,
};

/// The calls that follow each other.
const LIVES: [&[Call]; 6] = [
    &[SignUpCode, ProveAddress, Create],
    &[ResetStart, Ask, Prove, SetPassword],
    &[ChangePassword],
    &[ChangeName],
    &[NewContact, ConfirmContact],
    &[Delete],
];

struct Life {
    world: World,
    store: ControlledStore,
    browser: Browser,
    id: String,
}

impl Life {
    async fn new(calls: &[Call]) -> Self {
        let store = ControlledStore::default();
        let world = World::with(store.clone(), |service| service.sign_up(SignUp::Open).first_party(acme())).await;
        let mut life = Self { browser: world.browser(), world, store, id: String::new() };
        add_maila(&life.world).await;
        life.begin(calls).await;
        life
    }

    /// Begins in a new browser: signs up without a name, or is signed in.
    async fn begin(&mut self, calls: &[Call]) {
        self.world.advance(61);
        self.browser = self.world.browser();
        match calls[0] {
            SignUpCode => self.id = sign_up::begin(&mut self.browser, "web").await,
            ResetStart => {}
            _ => self.browser = sign_in(&self.world, ADA, &[self.password().await, "sms"]).await,
        }
    }

    /// Returns the name of the method by which ada proves a password. The changed one is set back first.
    async fn password(&self) -> &'static str {
        if !signs_in(&self.world, "web", ADA, ADA_PASSWORD).await {
            let ada = self.ada().await.unwrap();
            let hash = tollgate::Passwords::insecure_fast().hash(tollgate::Password::new(ADA_PASSWORD)).await;
            self.world.users.set_password(&acme(), ada.id(), Some(hash.unwrap())).await.unwrap();
        }
        "password"
    }

    async fn call(&mut self, which: Call) -> Answer {
        let id = self.id.clone();
        match which {
            SignUpCode => self.browser.life("sign-up/code", "web", &id, &[("email", NEW)]).await,
            ProveAddress => {
                let code = self.world.code(NEW).await;
                self.browser.life("sign-up/verify", "web", &id, &[("otp", &code)]).await
            }
            Create => self.browser.life("sign-up", "web", &id, &[("password", NEW_PASSWORD)]).await,
            ResetStart => {
                let body = crate::world::with(crate::world::parameters("other"), &[("identifier", MAILA)]);
                let answer = self.browser.post("/reset-password/start", &body).await;
                if answer.status == 200 {
                    answer.json()["session_id"].as_str().unwrap().clone_into(&mut self.id);
                }
                answer
            }
            Ask => self.browser.ask("other", &id, "email", MAILA).await,
            Prove => {
                let code = self.world.code(MAILA).await;
                self.browser.verify("other", &id, &code).await
            }
            SetPassword => reset::set(&mut self.browser, "other", &id).await,
            ChangePassword => call(&mut self.browser, "password", json!({ "new_password": CHANGED })).await,
            ChangeName => call(&mut self.browser, "name", json!({ "name": "Ada L." })).await,
            NewContact => call(&mut self.browser, "contacts/begin", json!({ "email": MOVED })).await,
            ConfirmContact => {
                let code = self.world.code(MOVED).await;
                call(&mut self.browser, "contacts", json!({ "code": code })).await
            }
            Delete => call(&mut self.browser, "delete", json!({ "confirmed": true })).await,
        }
    }

    async fn ada(&self) -> Option<Account> {
        self.world.users.by_id(&acme(), &"u-ada".parse().unwrap()).await.unwrap()
    }

    async fn owner_of(&self, name: &str) -> Option<String> {
        let found = self.world.users.find(&acme(), &name.parse().unwrap()).await.unwrap();
        found.map(|account| account.id().to_string())
    }

    /// Checks what a call has left behind that has failed, or has succeeded in spite of a failure, and repeats the calls.
    async fn check(&mut self, calls: &[Call], failed: Call, is_done: bool, case: &str) {
        match failed {
            SignUpCode | ProveAddress => assert_eq!(self.owner_of(NEW).await, None, "{case}"),
            Create => {
                if self.owner_of(NEW).await.is_some() {
                    return assert!(signs_in(&self.world, "web", NEW, NEW_PASSWORD).await, "{case}");
                }
                assert!(!is_done, "{case}");
            }
            ResetStart | Ask | Prove => assert!(signs_in(&self.world, "other", MAILA, ADA_PASSWORD).await, "{case}"),
            SetPassword => {
                let is_new = signs_in(&self.world, "other", MAILA, FRESH).await;
                assert!(is_new != signs_in(&self.world, "other", MAILA, ADA_PASSWORD).await, "{case}");
                assert!(is_new || !is_done, "{case}");
            }
            ChangePassword => {
                let is_new = signs_in(&self.world, "web", ADA, CHANGED).await;
                assert!(is_new != signs_in(&self.world, "web", ADA, ADA_PASSWORD).await, "{case}");
                assert!(is_new || !is_done, "{case}");
            }
            ChangeName => {
                let name = self.ada().await.unwrap().display_name().map(str::to_owned);
                assert!(name.is_none() && !is_done || name.as_deref() == Some("Ada L."), "{case}");
            }
            NewContact | ConfirmContact => {
                let contacts: Vec<_> =
                    self.ada().await.unwrap().contacts().map(|(it, _)| it.as_str().to_owned()).collect();
                let has_new = contacts.iter().any(|contact| contact == MOVED);
                assert!(if has_new { failed == ConfirmContact } else { failed == NewContact || !is_done }, "{case}");
                assert!(!has_new || self.owner_of(MOVED).await.as_deref() == Some("u-ada"), "{case}");
                assert!(contacts.contains(&ADA.to_owned()), "{case}");
            }
            Delete => {
                if self.ada().await.is_none() {
                    assert_eq!(self.owner_of(ADA).await, None, "{case}");
                    return assert!(sessions(&self.world, "u-ada").await.is_empty(), "{case}");
                }
                assert!(!is_done, "{case}");
            }
        }
        self.begin(calls).await;
        for again in calls {
            let answer = self.call(*again).await;
            if answer.status == 400 && *again == NewContact {
                assert_eq!(answer.json()["error_description"], "this user has the contact already", "{case}");
                break;
            }
            assert!(answer.status.is_success(), "{case}, {again:?} again: {answer:?}");
        }
        match calls[0] {
            SignUpCode => assert!(signs_in(&self.world, "web", NEW, NEW_PASSWORD).await, "{case}"),
            ResetStart => assert!(signs_in(&self.world, "other", MAILA, FRESH).await, "{case}"),
            ChangePassword => assert!(signs_in(&self.world, "web", ADA, CHANGED).await, "{case}"),
            NewContact => assert_eq!(self.owner_of(MOVED).await.as_deref(), Some("u-ada"), "{case}"),
            Delete => assert!(self.ada().await.is_none() && self.owner_of(ADA).await.is_none(), "{case}"),
            _ => {}
        }
    }
}

/// Returns whether this call has that many operations.
async fn fails_at(calls: &[Call], place: usize, at: usize, fault: Fault) -> bool {
    let failed = calls[place];
    let case = format!("{failed:?}, {fault:?} at operation {at}");
    let mut life = Life::new(calls).await;
    for earlier in &calls[..place] {
        let answer = life.call(*earlier).await;
        assert!(answer.status.is_success(), "{case}, {earlier:?}: {answer:?}");
        life.world.settle().await;
    }
    life.store.fail(at, fault);
    let answer = life.call(failed).await;
    life.world.settle().await;
    if !life.store.heal() {
        return false;
    }
    let is_unavailable = answer.status == 503
        && answer.error() == "temporarily_unavailable"
        && answer.headers.contains_key("retry-after")
        && !answer.headers.contains_key("set-cookie");
    assert!(answer.status.is_success() || is_unavailable, "{case}: {answer:?}");
    life.check(calls, failed, answer.status.is_success(), &case).await;
    true
}

#[tokio::test]
async fn c114_c127_c129_c130_a_failing_store_leaves_accounts_whole_and_every_call_can_be_repeated() {
    for calls in LIVES {
        for place in 0..calls.len() {
            for fault in FAULTS {
                let mut at = 0;
                while fails_at(calls, place, at, fault).await {
                    at += 1;
                }
                // at least one operation must have failed
                assert!(at > 0, "{:?} {fault:?}", calls[place]);
            }
        }
    }
}
