//! Random sequences of all calls about the life of an account: sign-up, invitation, reset, change and deletion, in two tenants.
//! Ada changes her own account meanwhile. A thief reads her mailbox, has two browsers, and has accounts of their own in both
//! tenants. No order of calls gains the account of ada, changes or removes a factor of it, accepts a ticket elsewhere, or shows
//! whether somebody else has an account.

mod owner;
mod scene;
mod steps;
mod thief;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tollgate::Users;

use self::{
    owner::Kept,
    scene::{Scene, ada},
    steps::{OwnerCall, Step, script},
};
use crate::{
    own_account::acme,
    random_runs,
    world::{ADA, World},
};

/// Returns the sessions of ada that the thief has begun, and how they proved to be her.
async fn stolen_sessions(scene: &Scene) -> BTreeMap<String, Vec<String>> {
    let all = scene.sites[0].sessions.list(&acme(), &ada()).await.unwrap();
    let all = all.iter().map(|session| (session.sid().to_string(), session.amr().map(str::to_owned).collect()));
    all.filter(|(sid, _)| !scene.own_sessions.contains(sid)).collect()
}

async fn owner_of(world: &World, name: &str) -> Option<String> {
    let found = world.users.find(&acme(), &name.parse().unwrap()).await.unwrap();
    found.map(|account| account.id().to_string())
}

/// The account of ada, and the sessions that the thief has begun.
struct Standing {
    account: Option<Kept>,
    stolen: BTreeMap<String, Vec<String>>,
}

impl Standing {
    async fn of(scene: &Scene) -> Self {
        Self { account: scene.account().await, stolen: stolen_sessions(scene).await }
    }

    /// Compares this with what they had before a step.
    fn check(&self, before: &Self, scene: &Scene, step: &Step) -> Result<(), TestCaseError> {
        prop_assert_eq!(&scene.faults, &[""; 0]);
        // a mailbox is one factor, and as long as the account has no second one, it begins sessions of one step
        let has_mailbox = |kept: &Kept| kept.contacts.iter().any(|contact| contact == ADA);
        let is_open = scene.app.is_none() && self.account.as_ref().is_some_and(has_mailbox);
        for (sid, methods) in &self.stolen {
            let is_old = self.account.is_some() && before.stolen.contains_key(sid);
            prop_assert!(is_open || is_old, "a session by {:?} after {:?}", methods, step);
            prop_assert!(methods.iter().all(|method| method == "otp"), "a session by {:?} after {:?}", methods, step);
        }
        if let Step::Owner(_) = step {
            return Ok(());
        }
        // the full name needs no fresh proofs
        let visible = |kept: &Option<Kept>| {
            kept.clone().map(|kept| match before.stolen.is_empty() {
                true => kept,
                false => Kept { name: None, ..kept },
            })
        };
        prop_assert_eq!(visible(&before.account), visible(&self.account), "after {:?}", step);
        Ok(())
    }
}

async fn run_in(has_grace: bool, starts_with_app: bool, script: &[Step]) -> Result<Scene, TestCaseError> {
    let mut scene = Scene::new(has_grace).await;
    if starts_with_app {
        prop_assert!(scene.act_as_owner(OwnerCall::App).await, "ada adds an app");
    }
    let mut before = Standing::of(&scene).await;
    for step in script {
        let mut done = None;
        match step {
            Step::Owner(call) if before.account.is_some() => done = Some(scene.act_as_owner(*call).await),
            Step::Owner(_) => {}
            _ => scene.perform(step).await,
        }
        let after = Standing::of(&scene).await;
        if let Some(done) = done {
            let is_change = !matches!(step, Step::Owner(OwnerCall::SignIn));
            prop_assert_eq!(after.account != before.account, done && is_change, "{:?}", step);
        }
        after.check(&before, &scene, step)?;
        before = after;
    }
    if let Some(kept) = before.account {
        let addresses = kept.contacts.iter().filter(|contact| contact.contains('@'));
        for name in addresses.map(String::as_str).chain(["ada"]) {
            let owner = owner_of(&scene.sites[0], name).await;
            prop_assert_eq!(owner.as_deref(), Some("u-ada"), "{}", name);
        }
        // the locks of strangers end, and ada signs in with what she has
        scene.sites[0].advance(86_400);
        let signed_in = scene.signs_in_by_two_factors().await;
        prop_assert!(signed_in.is_ok(), "ada can't sign in: {:?}", signed_in);
    }
    Ok(scene)
}

/// Runs a script where grace has an account and where she has none, and compares the answers to the thief.
fn run(starts_with_app: bool, script: &[Step]) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let one = run_in(true, starts_with_app, script).await?;
        let other = run_in(false, starts_with_app, script).await?;
        for (place, (known, unknown)) in one.seen.iter().zip(&other.seen).enumerate() {
            prop_assert_eq!(known, unknown, "answer {}", place);
        }
        prop_assert_eq!(one.seen.len(), other.seen.len());
        Ok(())
    })
}

proptest! {
    #![proptest_config(random_runs::config(1, 127))]

    #[test]
    fn c117_c127_c128_c129_c130_no_order_of_calls_gains_an_account_or_shows_whether_one_exists(
        starts_with_app: bool,
        script in script(),
    ) {
        run(starts_with_app, &script)?;
    }
}

/// Makes sure that random calls reach what they are about.
#[test]
fn many_random_calls_go_through_the_life_of_accounts() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let scripts = random_runs::config(2, 127).cases;
    if scripts < 100 {
        return; // on purpose, to save time
    }
    let mut reached = BTreeMap::<String, usize>::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for at in 0..scripts.min(128) {
        let script = script().new_tree(&mut runner).unwrap().current();
        for (what, times) in runtime.block_on(run_in(true, at % 2 == 0, &script)).unwrap().reached {
            *reached.entry(what).or_default() += times;
        }
    }
    let all = [
        "authentication/verify-otp",
        "sign-up",
        "sign-up/invitation",
        "reset-password",
        "reset-password/link",
        "session",
        "code",
        "contacts/begin",
        "contacts",
        "password",
        "name",
        "totp",
        "recovery-codes",
        "delete",
        "sessions/end-others",
        "owner Password",
        "owner Name",
        "owner Email",
        "owner App",
        "owner RemoveApp",
        "owner Reset",
        "owner Delete",
    ];
    let missing: Vec<_> = all.iter().filter(|what| !reached.contains_key(**what)).collect();
    assert!(missing.is_empty(), "{missing:?} of {reached:?}");
}
