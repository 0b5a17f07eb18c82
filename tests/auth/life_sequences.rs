//! Random sequences of the calls that create accounts and set passwords, in two browsers and two tenants. A thief reads the
//! mailbox of ada. No order of calls gains her account, removes a factor or adds one.

use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};
use tollgate::{Identifier, Users, auth::SignUp, store::Memory};

use crate::{
    enrolled, random_runs,
    reset::FRESH,
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, World, parameters, with},
};

const CLIENTS: [&str; 3] = ["web", "mfa", "other"];
const ADDRESSES: [&str; 3] = [ADA, "ada", "thief@example.com"];

#[derive(Clone, Debug)]
enum Action {
    Start {
        client: usize,
        name: Option<usize>,
        is_reset: bool,
    },
    /// Asks for a code by e-mail or by text message.
    Ask {
        login: usize,
        to: usize,
    },
    AskPhone {
        login: usize,
    },
    /// Types the newest code of a mailbox: ada's, or the thief's own.
    Verify {
        login: usize,
        mailbox: usize,
    },
    SignUp {
        login: usize,
        to: usize,
    },
    VerifySignUp {
        login: usize,
        mailbox: usize,
    },
    Create {
        login: usize,
    },
    SetPassword {
        login: usize,
    },
    Totp {
        login: usize,
    },
    Enrol {
        login: usize,
    },
    Complete {
        login: usize,
    },
    Finish {
        client: usize,
    },
    /// A made-up link.
    Link {
        login: usize,
        path: &'static str,
    },
    Wait(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let (login, client, address) = (|| 0..4_usize, || 0..CLIENTS.len(), || 0..ADDRESSES.len());
    let link = prop::sample::select(vec!["sign-up/invitation", "reset-password/link"]);
    prop_oneof![
        4 => (client(), prop::option::of(address()), any::<bool>())
            .prop_map(|(client, name, is_reset)| Action::Start { client, name, is_reset }),
        4 => (login(), address()).prop_map(|(login, to)| Action::Ask { login, to }),
        1 => login().prop_map(|login| Action::AskPhone { login }),
        5 => (login(), address()).prop_map(|(login, mailbox)| Action::Verify { login, mailbox }),
        4 => (login(), address()).prop_map(|(login, to)| Action::SignUp { login, to }),
        4 => (login(), address()).prop_map(|(login, mailbox)| Action::VerifySignUp { login, mailbox }),
        3 => login().prop_map(|login| Action::Create { login }),
        4 => login().prop_map(|login| Action::SetPassword { login }),
        1 => login().prop_map(|login| Action::Totp { login }),
        1 => login().prop_map(|login| Action::Enrol { login }),
        2 => login().prop_map(|login| Action::Complete { login }),
        2 => client().prop_map(|client| Action::Finish { client }),
        2 => (login(), link).prop_map(|(login, path)| Action::Link { login, path }),
        1 => (1_u64..700).prop_map(Action::Wait),
    ]
}

struct Thief {
    world: World,
    browsers: [Browser; 2],
    /// The logins that were begun: the browser, the client and the id.
    logins: Vec<(usize, usize, String)>,
    codes: Vec<String>,
}

impl Thief {
    async fn new() -> Self {
        let world = enrolled::world_on(Memory::new().into(), |service| service.sign_up(SignUp::Open)).await;
        enrolled::enrol(&world, "u-ada", json!({ "totp": enrolled::app(2) })).await;
        let browsers = [world.browser(), world.browser()];
        Self { world, browsers, logins: Vec::new(), codes: Vec::new() }
    }

    async fn step(&mut self, at: usize, path: &str, more: &[(&str, &str)]) -> Option<Answer> {
        let (browser, client, id) = self.logins.get(self.logins.len().checked_sub(1 + at)?)?.clone();
        Some(self.browsers[browser].life(path, CLIENTS[client], &id, more).await)
    }

    /// Returns the newest message to a mailbox that the thief reads.
    fn read(&self, mailbox: usize) -> String {
        let to = if mailbox == 2 { ADDRESSES[2] } else { ADA };
        let messages = self.world.outbox.messages();
        let newest = messages.iter().rev().find(|message| message.to() == to && !message.code().is_empty());
        newest.map_or("123456".to_owned(), |message| message.code().to_owned())
    }

    async fn perform(&mut self, at: usize, action: &Action) {
        match action {
            Action::Start { client, name, is_reset } => {
                let mut body: Value = parameters(CLIENTS[*client]);
                if let Some(name) = name {
                    body = with(body, &[("identifier", ADDRESSES[*name])]);
                }
                let path = if *is_reset { "/reset-password/start" } else { "/authentication/start" };
                let answer = self.browsers[at % 2].post(path, &body).await;
                if answer.status == 200 {
                    let id = answer.json()["session_id"].as_str().unwrap().to_owned();
                    self.logins.push((at % 2, *client, id));
                }
            }
            Action::Ask { login, to } => {
                let address = if *to == 1 { ADA } else { ADDRESSES[*to] };
                self.step(*login, "authentication/authenticate", &[("method", "email"), ("email", address)]).await;
            }
            Action::AskPhone { login } => {
                let more = [("method", "sms"), ("phone_number", ADA_PHONE)];
                self.step(*login, "authentication/authenticate", &more).await;
            }
            Action::Verify { login, mailbox } => {
                let code = self.read(*mailbox);
                self.step(*login, "authentication/verify-otp", &[("otp", &code)]).await;
            }
            Action::SignUp { login, to } => {
                let address = if *to == 1 { ADA } else { ADDRESSES[*to] };
                self.step(*login, "sign-up/code", &[("email", address)]).await;
            }
            Action::VerifySignUp { login, mailbox } => {
                let code = self.read(*mailbox);
                self.step(*login, "sign-up/verify", &[("otp", &code)]).await;
            }
            Action::Create { login } => {
                self.step(*login, "sign-up", &[("password", FRESH)]).await;
            }
            Action::SetPassword { login } => {
                self.step(*login, "reset-password", &[("password", FRESH)]).await;
            }
            Action::Totp { login } => {
                let more = [("method", "totp"), ("code", "000000")];
                self.step(*login, "authentication/authenticate", &more).await;
            }
            Action::Enrol { login } => {
                self.step(*login, "authentication/enrol", &[("method", "totp")]).await;
            }
            Action::Complete { login } => {
                self.step(*login, "authentication/complete", &[]).await;
            }
            Action::Finish { client } => {
                let answer = self.browsers[at % 2].authorize(CLIENTS[*client]).await;
                self.codes.extend(answer.redirected("code"));
            }
            Action::Link { login, path } => {
                self.step(*login, path, &[("link", &"A".repeat(43))]).await;
            }
            Action::Wait(seconds) => self.world.advance(*seconds),
        }
        self.world.settle().await;
    }

    /// Returns the user of each session that the thief has.
    async fn users(&self) -> Vec<String> {
        let sessions = self.world.sessions.clone();
        let mut users = Vec::new();
        for tenant in ["acme", "globex"] {
            for user in ["u-ada", "u-grace"] {
                let user = tollgate::UserId::parse(user).unwrap();
                let held = sessions.list(&tenant.parse().unwrap(), &user).await.unwrap();
                users.extend(held.iter().map(|session| session.user().to_string()));
            }
        }
        users
    }
}

proptest! {
    #![proptest_config(random_runs::config(8, 127))]

    #[test]
    fn c127_c128_c129_no_order_of_calls_gains_an_account_or_changes_its_factors(script in vec(action(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut thief = Thief::new().await;
            let before = enrolled::stored(&thief.world, "u-ada").await.unwrap();
            for (at, action) in script.iter().enumerate() {
                thief.perform(at, action).await;
            }
            let after = enrolled::stored(&thief.world, "u-ada").await.unwrap();
            prop_assert_eq!(&after["totp"]["secret"], &before["totp"]["secret"]);
            prop_assert_eq!(after["passkeys"].as_array().map(Vec::len), before["passkeys"].as_array().map(Vec::len));
            prop_assert_eq!(thief.users().await, Vec::<String>::new());
            // her password is the old one, and her address belongs to no other account
            let ada = thief.world.users.find(&"acme".parse().unwrap(), &Identifier::parse(ADA).unwrap()).await.unwrap();
            let ada = ada.unwrap();
            prop_assert_eq!(ada.id().as_str(), "u-ada");
            thief.world.advance(86_400);
            let mut own = thief.world.browser();
            own.address = [198, 51, 100, 7].into();
            let id = own.start("web", "ada").await;
            let answer = own.password("web", &id, "ada", ADA_PASSWORD).await;
            prop_assert_eq!(answer.status.as_u16(), 200, "{:?}", answer);
            Ok(())
        })?;
    }
}
