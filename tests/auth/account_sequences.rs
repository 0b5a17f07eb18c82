//! Random sequences of the calls that change an account. A thief reads the mailbox of ada and signs in with its codes. No order
//! of calls changes her password, her contacts or her factors, or deletes the account.

use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};
use tollgate::Users;

use crate::{
    own_account::{acme, begin, call, site, totp},
    random_runs,
    world::{ADA, ADA_PASSWORD, Browser, World, with},
};

const THIEF: &str = "thief@example.com";

#[derive(Clone, Copy, Debug)]
enum Action {
    /// Signs in with a code to the mailbox, or steps up.
    SignIn {
        steps: u8,
        max_age: Option<u16>,
    },
    /// Asks for a code to an address or number of the thief, perhaps in place of a contact of ada.
    Contact {
        is_phone: bool,
        replaces: Option<usize>,
    },
    /// Types the newest code that was sent to the thief or to ada.
    Confirm {
        is_own: bool,
    },
    Password,
    Delete,
    App,
    RecoveryCodes,
    Wait(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let age = prop::option::of(prop::sample::select(vec![0_u16, 60, 299]));
    prop_oneof![
        4 => (1_u8..3, age).prop_map(|(steps, max_age)| Action::SignIn { steps, max_age }),
        4 => (any::<bool>(), prop::option::of(0..2_usize))
            .prop_map(|(is_phone, replaces)| Action::Contact { is_phone, replaces }),
        4 => any::<bool>().prop_map(|is_own| Action::Confirm { is_own }),
        2 => Just(Action::Password),
        2 => Just(Action::Delete),
        2 => Just(Action::App),
        1 => Just(Action::RecoveryCodes),
        1 => (1_u64..700).prop_map(Action::Wait),
    ]
}

/// Returns the newest code that was sent to one of these.
fn newest_code(world: &World, to: &[&str]) -> String {
    let messages = world.outbox.messages();
    let newest = messages.iter().rev().find(|message| to.contains(&message.to()) && message.notice().is_none());
    newest.map_or("123456".to_owned(), |message| message.code().to_owned())
}

async fn sign_in(world: &World, browser: &mut Browser, target: &str) {
    if browser.get(target).await.header("location") == "/" {
        return;
    }
    let fields = begin(browser, target).await;
    let started = browser.post("/authentication/start", &with(fields.clone(), &[("identifier", ADA)])).await;
    if started.status != 200 {
        return;
    }
    let own = with(fields, &[("session_id", started.json()["session_id"].as_str().unwrap())]);
    world.advance(31);
    browser.post("/authentication/authenticate", &with(own.clone(), &[("method", "email"), ("email", ADA)])).await;
    world.settle().await;
    let code = newest_code(world, &[ADA]);
    browser.post("/authentication/verify-otp", &with(own.clone(), &[("otp", &code)])).await;
    browser.post("/authentication/complete", &own).await;
    browser.get("/sign-in/finish").await;
}

async fn perform(world: &World, browser: &mut Browser, action: Action) {
    match action {
        Action::SignIn { steps, max_age } => {
            let age = max_age.map(|age| format!("&max_age={age}")).unwrap_or_default();
            sign_in(world, browser, &format!("/sign-in?steps={steps}{age}")).await;
        }
        Action::Contact { is_phone, replaces } => {
            let (name, contact) = if is_phone { ("phone_number", "+15555550177") } else { ("email", THIEF) };
            let mut body: Value = json!({ name: contact });
            let asked = http::Request::get("/account/credentials").header("sec-fetch-site", "same-origin");
            let shown = browser.send(asked, "").await.json();
            if let Some(place) = replaces {
                body["contact_id"] = shown["contacts"][place]["id"].clone();
            }
            call(browser, "contacts/begin", body).await;
            world.settle().await;
        }
        Action::Confirm { is_own } => {
            let code = newest_code(world, if is_own { &[THIEF, "+15555550177"] } else { &[ADA] });
            call(browser, "contacts", json!({ "code": code })).await;
        }
        Action::Password => drop(call(browser, "password", json!({ "new_password": "gravel under moonlight" })).await),
        Action::Delete => drop(call(browser, "delete", json!({ "confirmed": true })).await),
        Action::App => {
            let begun = call(browser, "totp/begin", json!({})).await;
            if begun.status == 200 {
                let code = totp(begun.json()["secret"].as_str().unwrap(), world.time());
                call(browser, "totp", json!({ "code": code })).await;
            }
        }
        Action::RecoveryCodes => drop(call(browser, "recovery-codes", json!({})).await),
        Action::Wait(seconds) => world.advance(seconds),
    }
}

proptest! {
    #![proptest_config(random_runs::config(8, 130))]

    #[test]
    fn c117_c130_no_order_of_calls_changes_the_account_of_a_stolen_mailbox(script in vec(action(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = site(|service| service).await;
            let contacts = async || {
                let ada = world.users.by_id(&acme(), &"u-ada".parse().unwrap()).await.unwrap();
                ada.map(|ada| ada.contacts().map(|(contact, _)| contact.as_str().to_owned()).collect::<Vec<_>>())
            };
            let before = contacts().await;
            let mut browser = world.browser();
            for action in script {
                perform(&world, &mut browser, action).await;
            }
            prop_assert_eq!(contacts().await, before);
            world.advance(86_400);
            let mut own = world.browser();
            own.address = [198, 51, 100, 7].into();
            let id = own.start("web", "ada").await;
            let answer = own.password("web", &id, "ada", ADA_PASSWORD).await;
            prop_assert_eq!(answer.status.as_u16(), 200, "{:?}", answer);
            let stored = crate::enrolled::stored(&world, "u-ada").await;
            prop_assert!(stored.is_none_or(|row| row["totp"].is_null()));
            Ok(())
        })?;
    }
}
