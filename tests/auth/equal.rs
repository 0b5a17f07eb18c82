//! Whether there is an account shows in nothing: two worlds run one script, of people of whom one is known and one is
//! not, and answer alike, byte for byte, with as many operations of the store.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*, test_runner::Config};
use tollgate::{
    Identifier, UserId, Users,
    event::{EventKind, Query},
    user::{Contact, EmailAddress, NewUser, PhoneNumber},
};

use crate::{
    steered::Steered,
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, GRACE, GRACE_PHONE, NOBODY, World, parameters, with},
};

/// What a script is about: the names and addresses that its author has heard of.
#[derive(Clone, Copy, Debug)]
struct Person {
    /// Two names that may be one person's, and one that nobody has.
    names: [&'static str; 3],
    phone: &'static str,
    mailbox: &'static str,
}

/// In place of the number of a name: a login without one.
const UNNAMED: usize = 3;

const fn person(name: &'static str, other: &'static str, phone: &'static str, mailbox: &'static str) -> Person {
    Person { names: [name, other, "zed"], phone, mailbox }
}

const UNKNOWN: Person = person("nora", "nora@example.com", "+15555550999", "nora@example.com");

/// The same, with a mailbox that is none of the names. Two equal texts count as one name wherever they are submitted.
const UNKNOWN_WITH_OTHER_MAILBOX: Person = person("nora", "nora@example.com", "+15555550999", "other.nora@example.com");

/// Who must not be told from the ones above.
const KNOWN: &[(&str, Person)] = &[
    ("an account with everything", person("ada", ADA, ADA_PHONE, ADA)),
    ("somebody else's addresses", person("ada", ADA, GRACE_PHONE, GRACE)),
    ("addresses of nobody", person("ada", ADA, "+15555550888", "other@example.com")),
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
    Complete(usize),
    Status(usize),
    Authorize(&'static str),
    Wait(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let name = || prop_oneof![5 => 0..2_usize, 1 => Just(2)];
    let login = || 0..4_usize;
    let client = || prop::sample::select(vec!["web", "mfa"]);
    // never a right one: what is right shows, and has to
    let password = prop::sample::select(vec!["wrong", "Correct horse battery staple", " "]);
    let guess = prop::sample::select(vec!["wrong", "12345", "1234567", "٠٠٠٠٠٠"]);
    let method = prop::sample::select(vec!["sms", "email", "whatsapp"]);
    let wait = prop_oneof![3 => 0..40_u64, 2 => 60..400_u64, 1 => Just(601), 1 => Just(1801), 1 => Just(3600)];
    prop_oneof![
        3 => (prop_oneof![4 => name(), 1 => Just(UNNAMED)], client()).prop_map(|(name, client)| Action::Start(name, client)),
        7 => (login(), name(), password).prop_map(|(login, name, typed)| Action::Password(login, name, typed)),
        6 => (login(), method).prop_map(|(login, method)| Action::Ask(login, method)),
        6 => (login(), guess).prop_map(|(login, guess)| Action::Verify(login, guess)),
        1 => login().prop_map(Action::Complete),
        1 => login().prop_map(Action::Status),
        1 => client().prop_map(Action::Authorize),
        3 => wait.prop_map(Action::Wait),
    ]
}

/// A world in which a script runs, about one person.
struct Stage {
    world: World,
    store: Steered,
    browser: Browser,
    person: Person,
    logins: Vec<(String, &'static str)>,
    /// What is random, and what stands for it.
    random: BTreeMap<String, String>,
}

impl Stage {
    async fn of(person: Person) -> Self {
        let store = Steered::default();
        let world = World::with(store.clone(), |service| service).await;
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
        // the key of the service is made
        browser.start("web", "zed").await;
        browser.cookies.clear();
        store.done();
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
            Action::Start(name, client) => {
                // three at once: which of several that have ended makes room for a fifth is left to chance
                if let Some((oldest, _)) = self.logins.iter().rev().nth(2) {
                    self.browser.cookies.remove(&cookie_of(oldest));
                }
                let body = match self.person.names.get(name) {
                    Some(name) => with(parameters(client), &[("identifier", name)]),
                    None => parameters(client),
                };
                let answer = self.browser.post("/authentication/start", &body).await;
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
            Action::Complete(at) => {
                let (id, client) = login(at).unwrap_or_else(none);
                self.browser.complete(client, &id).await
            }
            Action::Status(at) => self.browser.status(&login(at).unwrap_or_else(none).0).await,
            Action::Authorize(client) => self.browser.authorize(client).await,
        };
        // what is sent is sent before time goes on
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

    /// The whole answer, and what was done for it.
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
        // an insert and a swap are one write
        let done = self.store.done().into_iter().map(|done| done.replace("insert", "write").replace("swap", "write"));
        let done: Vec<_> = done.collect();
        format!("{text}\n\n{}", done.join("\n"))
    }
}

fn cookie_of(id: &str) -> String {
    format!("__Host-auth_session_{}", &id[..8])
}

/// Runs a script in both worlds.
async fn compare(known: Person, script: impl IntoIterator<Item = Action>) -> Result<(Stage, Stage), TestCaseError> {
    let unknown = if known.names.contains(&known.mailbox) { UNKNOWN } else { UNKNOWN_WITH_OTHER_MAILBOX };
    let (mut known, mut unknown) = (Stage::of(known).await, Stage::of(unknown).await);
    for (at, action) in script.into_iter().enumerate() {
        let (one, other) = (known.call(action).await, unknown.call(action).await);
        prop_assert_eq!(one, other, "call {}: {:?}", at, action);
    }
    Ok((known, unknown))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

proptest! {
    // more where PROPTEST_CASES says so
    #![proptest_config(Config::with_cases(Config::default().cases / 4))]
    #[test]
    fn c031_c048_c053_c064_c066_no_answer_and_no_work_tells_who_is_known(
        known in 0..KNOWN.len(),
        script in vec(action(), 1..60),
    ) {
        let mut begun = vec![Action::Start(0, "web")];
        begun.extend(script);
        runtime().block_on(compare(KNOWN[known].1, begun))?;
    }
}

/// As often as names and addresses let it be asked, until something is locked, and on.
#[tokio::test]
async fn c031_c066_locks_and_limits_come_alike() {
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

/// More failures of one account than strangers have, by two of its names.
#[tokio::test]
async fn c058_c110_the_ceiling_of_an_account_shows_in_nothing() {
    let mut script = Vec::new();
    for failure in 0..110 {
        script.extend([Action::Start(failure % 2, "web"), Action::Password(0, failure % 2, "wrong")]);
        script.push(Action::Wait(1801));
    }
    let (mut known, mut unknown) = compare(KNOWN[0].1, script).await.unwrap();
    known.world.log.flush();
    let ceilings = known.world.log.read(&Query::default().kind(EventKind::LoginCeiling));
    assert!(!ceilings.events.is_empty());
    // now the right one is wrong as well, and looks so
    let right = [Action::Wait(3600), Action::Start(0, "web"), Action::Password(0, 0, ADA_PASSWORD)];
    for action in right {
        assert_eq!(known.call(action).await, unknown.call(action).await);
    }
    let (id, _) = known.logins.last().unwrap().clone();
    assert_eq!(known.browser.status(&id).await.json()["completed_steps"], 0);
    // it ends a day after the last failure that was counted, whatever was tried since
    known.world.advance(86_400);
    let id = known.browser.start("web", ADA).await;
    assert_eq!(known.browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 200);
}

/// The end of the ceiling is not put off by those who go on.
#[tokio::test]
async fn c110_what_is_tried_beyond_the_ceiling_does_not_put_off_its_end() {
    let mut stage = Stage::of(KNOWN[0].1).await;
    for failure in 0..80 {
        stage.call(Action::Start(failure % 2, "web")).await;
        stage.call(Action::Password(0, failure % 2, "wrong")).await;
        stage.call(Action::Wait(3600)).await;
    }
    // it has 23 hours to go, and an hour each is waited
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

/// Ten messages an hour to one phone, asked for by two names of its account.
#[tokio::test]
async fn c059_the_ceiling_of_an_address_shows_in_nothing() {
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

/// Messages to a phone that were asked for in a name of nobody: whether they count for others would tell whose it is.
#[tokio::test]
async fn c059_an_address_that_strangers_asked_for_is_not_told_from_one_of_an_account() {
    let mut script = Vec::new();
    for ask in 0..20 {
        if ask % 4 == 0 {
            script.push(Action::Start(if ask < 12 { 2 } else { 0 }, "web"));
        }
        script.extend([Action::Ask(0, "sms"), Action::Wait(31)]);
    }
    let (known, _) = compare(KNOWN[0].1, script).await.unwrap();
    settle().await;
    assert_eq!(known.world.outbox.messages().len(), 8);
}

async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
