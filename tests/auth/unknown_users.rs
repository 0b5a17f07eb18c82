//! Responses never reveal whether an account exists. Two worlds run the same script, one about a known and one about an
//! unknown person. Their responses must match byte for byte, and so must their store operations.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*, test_runner::Config};
use tollgate::{
    Identifier, UserId, Users,
    auth::SignUp,
    event::{EventKind, Query},
    user::{Contact, EmailAddress, NewUser, PhoneNumber},
};

use crate::{
    controlled_store::{ControlledStore, Written},
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, GRACE, GRACE_PHONE, NOBODY, World, parameters, with},
};

/// The names and addresses of a script's person.
#[derive(Clone, Copy, Debug)]
struct Person {
    /// Two names that may belong to one account, and one that is always unknown.
    names: [&'static str; 3],
    phone: &'static str,
    mailbox: &'static str,
}

/// Used in place of a name's number: a login without a name.
const UNNAMED: usize = 3;

const fn person(name: &'static str, other: &'static str, phone: &'static str, mailbox: &'static str) -> Person {
    Person { names: [name, other, "zed"], phone, mailbox }
}

impl Person {
    /// Returns an unknown person with texts of the same lengths. Equal texts stay equal, because they count as one name wherever
    /// they are submitted.
    fn unknown_like_it(self) -> Self {
        let other = |text: &'static str| match text.strip_prefix("+1555555") {
            Some(number) => format!("+1555555{}{}", "7", &number[1..]),
            None if text == self.names[2] => text.to_owned(),
            None => format!("x{}", &text[1..]),
        };
        let other = |text| &*other(text).leak();
        Self { names: self.names.map(other), phone: other(self.phone), mailbox: other(self.mailbox) }
    }
}

/// Known persons, who must look like unknown ones.
const KNOWN: &[(&str, Person)] = &[
    ("an account with everything", person("ada", ADA, ADA_PHONE, ADA)),
    ("somebody else's addresses", person("ada", ADA, GRACE_PHONE, GRACE)),
    ("unknown addresses", person("ada", ADA, "+15555550888", "other@example.com")),
    ("names of two accounts", person("ada", GRACE, ADA_PHONE, GRACE)),
    ("one name known", person("ada", NOBODY, ADA_PHONE, NOBODY)),
    ("disabled", person("dora", "dora@example.com", "+15555550102", "dora@example.com")),
    (
        "without a password, with addresses not verified",
        person("bob", "bob@example.com", "+15555550103", "bob@example.com"),
    ),
];

#[derive(Clone, Copy, Debug)]
enum Action {
    Start(usize, &'static str),
    Password(usize, usize, &'static str),
    Ask(usize, &'static str),
    Verify(usize, &'static str),
    ResetStart(usize, &'static str),
    SignUp(usize),
    SignUpGuess(usize, &'static str),
    /// A made-up link of an invitation, or of the application for a reset.
    Link(usize, &'static str),
    SetPassword(usize, &'static str),
    Complete(usize),
    Status(usize),
    Authorize(&'static str),
    Wait(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let name = || prop_oneof![5 => 0..2_usize, 1 => Just(2)];
    let login = || 0..4_usize;
    let client = || prop::sample::select(vec!["web", "mfa"]);
    // never the right password: its response has to differ
    let password = prop::sample::select(vec!["wrong", "Correct horse battery staple", " "]);
    let guess = prop::sample::select(vec!["wrong", "12345", "1234567", "٠٠٠٠٠٠"]);
    let method = prop::sample::select(vec!["sms", "email", "whatsapp"]);
    let guess_again = guess.clone();
    let wait = prop_oneof![3 => 0..40_u64, 2 => 60..400_u64, 1 => Just(601), 1 => Just(1801), 1 => Just(3600)];
    prop_oneof![
        3 => (prop_oneof![4 => name(), 1 => Just(UNNAMED)], client()).prop_map(|(name, client)| Action::Start(name, client)),
        7 => (login(), name(), password).prop_map(|(login, name, typed)| Action::Password(login, name, typed)),
        6 => (login(), method).prop_map(|(login, method)| Action::Ask(login, method)),
        6 => (login(), guess).prop_map(|(login, guess)| Action::Verify(login, guess)),
        2 => (name(), client()).prop_map(|(name, client)| Action::ResetStart(name, client)),
        3 => login().prop_map(Action::SignUp),
        3 => (login(), guess_again).prop_map(|(login, guess)| Action::SignUpGuess(login, guess)),
        1 => (login(), prop::sample::select(vec!["sign-up", "reset-password"])).prop_map(|(login, path)| Action::SetPassword(login, path)),
        1 => (login(), prop::sample::select(vec!["sign-up/invitation", "reset-password/link"])).prop_map(|(login, path)| Action::Link(login, path)),
        1 => login().prop_map(Action::Complete),
        1 => login().prop_map(Action::Status),
        1 => client().prop_map(Action::Authorize),
        3 => wait.prop_map(Action::Wait),
    ]
}

/// A world that runs a script about one person.
struct ScriptedWorld {
    world: World,
    store: ControlledStore,
    browser: Browser,
    person: Person,
    logins: Vec<(String, &'static str)>,
    /// Random values of the responses, and the placeholders that replace them.
    random: BTreeMap<String, String>,
}

impl ScriptedWorld {
    async fn of(person: Person) -> Self {
        let store = ControlledStore::default();
        let world = World::with(store.clone(), |service| service.sign_up(SignUp::Open)).await;
        let new = |id, name, other| {
            let new = NewUser::new(UserId::parse(id).unwrap(), Identifier::parse(name).unwrap());
            new.identifier(Identifier::parse(other).unwrap())
        };
        let phone = |number| Contact::Phone(PhoneNumber::parse(number).unwrap());
        let mailbox = |address| Contact::Email(EmailAddress::parse(address).unwrap());
        let acme = "acme".parse().unwrap();
        let ada = world.users.by_id(&acme, &UserId::parse("u-ada").unwrap()).await.unwrap().unwrap();
        let dora = new("u-dora", "dora", "dora@example.com").password(ada.password_hash().unwrap().clone());
        let dora = dora.contact(phone("+15555550102")).contact(mailbox("dora@example.com")).disabled(true);
        world.users.create(&acme, dora).await.unwrap();
        let bob = new("u-bob", "bob", "bob@example.com").unverified_contact(phone("+15555550103"));
        world.users.create(&acme, bob.unverified_contact(mailbox("bob@example.com"))).await.unwrap();
        let mut browser = world.browser();
        // creates the key of the service
        browser.start("web", "zed").await;
        browser.cookies.clear();
        store.done();
        store.written();
        Self { world, store, browser, person, logins: Vec::new(), random: BTreeMap::new() }
    }

    async fn call(&mut self, action: Action) -> String {
        let login = |at: usize| self.logins.get(self.logins.len().saturating_sub(1 + at)).cloned();
        let none = || (String::from("AAAAAAAAAAAAAAAAAAAAAA"), "web");
        let answer = match action {
            Action::Wait(seconds) => {
                self.world.advance(seconds);
                return String::new();
            }
            Action::Start(name, client) | Action::ResetStart(name, client) => {
                // only the newest three, because chance decides which of several ended logins makes room for a fifth
                if let Some((oldest, _)) = self.logins.iter().rev().nth(2) {
                    self.browser.cookies.remove(&cookie_of(oldest));
                }
                let body = match self.person.names.get(name) {
                    Some(name) => with(parameters(client), &[("identifier", name)]),
                    None => parameters(client),
                };
                let is_reset = matches!(action, Action::ResetStart(..));
                let path = if is_reset { "/reset-password/start" } else { "/authentication/start" };
                let answer = self.browser.post(path, &body).await;
                if answer.status == 200 {
                    self.note(&answer, client);
                }
                answer
            }
            Action::Password(at, name, typed) => {
                let (id, client) = login(at).unwrap_or_else(none);
                self.browser.password(client, &id, self.person.names[name], typed).await
            }
            Action::Ask(at, method) => {
                let (id, client) = login(at).unwrap_or_else(none);
                let address = if method == "email" { self.person.mailbox } else { self.person.phone };
                self.browser.ask(client, &id, method, address).await
            }
            Action::Verify(at, guess) => {
                let (id, client) = login(at).unwrap_or_else(none);
                self.browser.verify(client, &id, guess).await
            }
            Action::SignUp(at) => {
                let (id, client) = login(at).unwrap_or_else(none);
                self.browser.life("sign-up/code", client, &id, &[("email", self.person.mailbox)]).await
            }
            Action::SignUpGuess(at, guess) => {
                let (id, client) = login(at).unwrap_or_else(none);
                self.browser.life("sign-up/verify", client, &id, &[("otp", guess)]).await
            }
            Action::SetPassword(at, path) => {
                let (id, client) = login(at).unwrap_or_else(none);
                self.browser.life(path, client, &id, &[("password", "a password of nobody")]).await
            }
            Action::Link(at, path) => {
                let (id, client) = login(at).unwrap_or_else(none);
                self.browser.life(path, client, &id, &[("link", &"A".repeat(43))]).await
            }
            Action::Complete(at) => {
                let (id, client) = login(at).unwrap_or_else(none);
                self.browser.complete(client, &id).await
            }
            Action::Status(at) => self.browser.status(&login(at).unwrap_or_else(none).0).await,
            Action::Authorize(client) => self.browser.authorize(client).await,
        };
        // deliver all messages before the time advances
        settle().await;
        self.shown(&answer)
    }

    fn note(&mut self, answer: &Answer, client: &'static str) {
        let id = answer.json()["session_id"].as_str().unwrap().to_owned();
        let name = cookie_of(&id);
        let number = self.logins.len();
        self.random.insert(self.browser.cookies[&name].clone(), format!("SECRET{number}"));
        self.random.insert(id[..8].to_owned(), format!("NAME{number}"));
        self.logins.push((id, client));
    }

    /// Returns the events by kind, method and reason, and how often each of them happened, without those of accounts alone: codes
    /// that were sent, and a ceiling.
    fn counted(&self) -> BTreeMap<String, u64> {
        self.world.log.flush();
        let mut counted = BTreeMap::new();
        let events = self.world.log.read_events(&Query::default()).events;
        let is_of_accounts = |kind| [EventKind::OtpSent, EventKind::LoginCeiling].contains(&kind);
        for event in events.into_iter().filter(|event| !is_of_accounts(event.kind)) {
            let name = format!("{:?} {:?} {:?} {:?}", event.kind, event.tenant, event.method, event.reason);
            *counted.entry(name).or_default() += event.count;
        }
        counted
    }

    /// Returns the complete response, followed by the store operations it took, and by the rows that it wrote.
    fn shown(&self, answer: &Answer) -> String {
        let headers: Vec<_> = answer
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
            .collect();
        let mut text = format!("{}\n{}\n\n{}", answer.status, headers.join("\n"), answer.text);
        for (number, (id, _)) in self.logins.iter().enumerate() {
            text = text.replace(id.as_str(), &format!("ID{number}"));
        }
        for (random, name) in &self.random {
            text = text.replace(random.as_str(), name);
        }
        // inserts and swaps both count as a write
        let done = self.store.done().into_iter().map(|done| done.replace("insert", "write").replace("swap", "write"));
        let done: Vec<_> = done.collect();
        let written: Vec<_> = self.store.written().iter().map(Written::shape).collect();
        format!("{text}\n\n{}\n\n{}", done.join("\n"), written.join("\n"))
    }
}

fn cookie_of(id: &str) -> String {
    format!("__Host-auth_session_{}", &id[..8])
}

/// Runs a script in both worlds and compares them after each call.
async fn compare(
    known: Person,
    script: impl IntoIterator<Item = Action>,
) -> Result<(ScriptedWorld, ScriptedWorld), TestCaseError> {
    let unknown = known.unknown_like_it();
    let (mut known, mut unknown) = (ScriptedWorld::of(known).await, ScriptedWorld::of(unknown).await);
    for (at, action) in script.into_iter().enumerate() {
        let (one, other) = (known.call(action).await, unknown.call(action).await);
        prop_assert_eq!(one, other, "call {}: {:?}", at, action);
    }
    prop_assert_eq!(known.counted(), unknown.counted());
    Ok((known, unknown))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

proptest! {
    // set PROPTEST_CASES to run more
    #![proptest_config(Config::with_cases(Config::default().cases / 4))]
    #[test]
    fn c031_c048_c053_c064_c066_c127_c129_responses_and_store_operations_never_reveal_a_known_user(
        known in 0..KNOWN.len(),
        script in vec(action(), 1..60),
    ) {
        let mut begun = vec![Action::Start(0, "web")];
        begun.extend(script);
        runtime().block_on(compare(KNOWN[known].1, begun))?;
    }
}

/// Repeats attempts for all names and addresses until something is locked, and continues afterwards.
#[tokio::test]
async fn c031_c066_locks_and_limits_are_the_same_for_unknown_users() {
    for (what, known) in KNOWN {
        let mut script = Vec::new();
        for round in 0..3 {
            script.push(Action::Start(round % 2, "web"));
            for _ in 0..7 {
                script.extend([Action::Password(0, round % 2, "wrong"), Action::Ask(0, "sms"), Action::Wait(16)]);
                script.extend([Action::Ask(0, "email"), Action::Verify(0, "wrong"), Action::Status(0)]);
            }
            script.extend([Action::Wait(120), Action::Password(0, round % 2, "wrong"), Action::Complete(0)]);
            script.extend([Action::Authorize("web"), Action::Wait(600), Action::Verify(0, "wrong")]);
        }
        let outcome = compare(*known, script).await;
        assert!(outcome.is_ok(), "{what}: {outcome:?}", outcome = outcome.err());
    }
}

/// More failures of one account than strangers have, under two of its names.
#[tokio::test]
async fn c058_c110_the_ceiling_of_an_account_is_invisible() {
    let mut script = Vec::new();
    for failure in 0..110 {
        script.extend([Action::Start(failure % 2, "web"), Action::Password(0, failure % 2, "wrong")]);
        script.push(Action::Wait(1801));
    }
    let (mut known, mut unknown) = compare(KNOWN[0].1, script).await.unwrap();
    known.world.log.flush();
    let ceilings = known.world.log.read_events(&Query::default().kind(EventKind::LoginCeiling));
    assert!(!ceilings.events.is_empty());
    // now the right password fails too, with the same response
    let right = [Action::Wait(3600), Action::Start(0, "web"), Action::Password(0, 0, ADA_PASSWORD)];
    for action in right {
        assert_eq!(known.call(action).await, unknown.call(action).await);
    }
    let (id, _) = known.logins.last().unwrap().clone();
    assert_eq!(known.browser.status(&id).await.json()["completed_steps"], 0);
    // the ceiling ends a day after the last counted failure, regardless of later attempts
    known.world.advance(86_400);
    let id = known.browser.start("web", ADA).await;
    assert_eq!(known.browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 200);
}

/// Attempts beyond the ceiling do not extend it.
#[tokio::test]
async fn c110_attempts_beyond_the_ceiling_do_not_extend_it() {
    let mut stage = ScriptedWorld::of(KNOWN[0].1).await;
    for failure in 0..80 {
        stage.call(Action::Start(failure % 2, "web")).await;
        stage.call(Action::Password(0, failure % 2, "wrong")).await;
        stage.call(Action::Wait(3600)).await;
    }
    // 23 hours are left, and each attempt waits for an hour
    for failure in 0..22 {
        stage.call(Action::Start(failure % 2, "web")).await;
        stage.call(Action::Password(0, failure % 2, "wrong")).await;
        stage.call(Action::Wait(3600)).await;
    }
    let id = stage.browser.start("web", ADA).await;
    assert_eq!(stage.browser.password("web", &id, "ada", ADA_PASSWORD).await.error(), "invalid_credentials");
    stage.world.advance(3600);
    let id = stage.browser.start("web", ADA).await;
    assert_eq!(stage.browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 200);
}

/// Ten messages an hour to one phone, requested under two names of its account.
#[tokio::test]
async fn c059_the_message_limit_of_an_address_is_invisible() {
    let mut script = Vec::new();
    for ask in 0..24 {
        if ask % 4 == 0 {
            script.push(Action::Start(ask / 4 % 2, "web"));
        }
        script.extend([Action::Ask(0, if ask % 3 == 0 { "whatsapp" } else { "sms" }), Action::Wait(31)]);
    }
    let (known, unknown) = compare(KNOWN[0].1, script).await.unwrap();
    settle().await;
    assert_eq!((known.world.outbox.messages().len(), unknown.world.outbox.messages().len()), (10, 0));
}

/// Messages to a phone, requested under an unknown name. If they counted for other names, the response would reveal the
/// owner of the number.
#[tokio::test]
async fn c059_messages_requested_by_strangers_do_not_reveal_the_owner_of_an_address() {
    let mut script = Vec::new();
    for ask in 0..20 {
        if ask % 4 == 0 {
            script.push(Action::Start(if ask < 12 { 2 } else { 0 }, "web"));
        }
        script.extend([Action::Ask(0, "sms"), Action::Wait(31)]);
    }
    let (known, _) = compare(KNOWN[0].1, script).await.unwrap();
    // the decoys before them take some time
    let outbox = &known.world.outbox;
    let arrive = async {
        while outbox.messages().len() < 8 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), arrive).await.unwrap();
    settle().await;
    assert_eq!(outbox.messages().len(), 8);
}

async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
