//! Two tenants with a site each, ada, the thief, and the application.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate::{
    Identifier, NewUser, Password, Passwords, Tenant, UserId, Users,
    auth::{Invitation, SignUp, Totp},
    delivery::Outbox,
    store::{AnyStore, Memory},
    testing::ManualClock,
    user::EmailAddress,
};

use super::steps::{ADDRESSES, CLIENTS, Step, THIEF};
use crate::{
    enrolled,
    own_account::acme,
    random_provider,
    reset::FRESH,
    world::{ADA_PASSWORD, Answer, Browser, World},
};

#[derive(Clone)]
pub(super) struct Login {
    pub(super) browser: usize,
    /// The site of its tenant.
    pub(super) site: usize,
    /// Its parameters and its id.
    pub(super) fields: Value,
    /// The invitation whose address it has proved, and no other since.
    pub(super) invitation: Option<usize>,
}

/// A link that the thief has read.
pub(super) struct Link {
    pub(super) secret: String,
    pub(super) site: usize,
    pub(super) is_reset: bool,
    pub(super) is_used: bool,
}

pub(super) struct Scene {
    /// The sites of acme and of globex: two services with one store and one issuer.
    pub(super) sites: [World; 2],
    pub(super) owner: Browser,
    pub(super) password: String,
    /// The key of ada's app.
    pub(super) app: Option<String>,
    /// The sessions that ada has begun.
    pub(super) own_sessions: Vec<String>,
    /// How often ada has changed something. Makes each password and address new.
    pub(super) changes: usize,
    pub(super) thief: [Browser; 2],
    pub(super) logins: Vec<Login>,
    pub(super) links: Vec<Link>,
    /// The key of the app that the thief has begun to set up.
    pub(super) thiefs_app: String,
    /// How often each call succeeded.
    pub(super) reached: BTreeMap<String, usize>,
    /// The answers to the thief, without what is random.
    pub(super) seen: Vec<String>,
    /// Links and logins that a call has accepted although they belong elsewhere.
    pub(super) faults: Vec<String>,
}

pub(super) fn tenants() -> [Tenant; 2] {
    [acme(), "globex".parse().unwrap()]
}

pub(super) fn ada() -> UserId {
    "u-ada".parse().unwrap()
}

impl Scene {
    /// The thief has an account in globex, and ada has one in acme. Grace exists in acme, or not.
    pub(super) async fn new(has_grace: bool) -> Self {
        let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
        let outbox = Outbox::new();
        let site = async |tenant: Tenant| {
            let world = World::on(store.clone(), clock.clone(), |service| {
                // no message waits for a decoy, which takes some real time
                let service =
                    service.queue_for_tests(64).sms(outbox.clone()).email(outbox.clone()).sign_up(SignUp::Open);
                random_provider::both(service.first_party(tenant).totp(Totp::new()))
            });
            World { outbox: outbox.clone(), ..world.await }
        };
        let [first, second] = tenants();
        let sites = [site(first).await, site(second).await];
        let hash = Passwords::insecure_fast().hash(Password::new(FRESH)).await.unwrap();
        let mallory = NewUser::new("u-mallory".parse().unwrap(), "mallory".parse().unwrap());
        let mallory = mallory.identifier(THIEF.parse().unwrap());
        let mallory = mallory.password(hash).contact(EmailAddress::parse(THIEF).unwrap());
        sites[1].users.create(&tenants()[1], mallory).await.unwrap();
        if !has_grace {
            sites[0].users.remove(&acme(), &"u-grace".parse().unwrap()).await.unwrap();
        }
        let links = random_provider::enrolled("u-ada");
        enrolled::enrol(&sites[0], "u-ada", json!({ "links": links, "recovery": enrolled::recovery(2) })).await;
        let browsers = [1, 2, 3].map(|host| Browser { address: [192, 0, 2, host].into(), ..sites[0].browser() });
        let [owner, one, two] = browsers;
        Self {
            sites,
            owner,
            password: ADA_PASSWORD.to_owned(),
            app: None,
            own_sessions: Vec::new(),
            changes: 0,
            thief: [one, two],
            logins: Vec::new(),
            links: Vec::new(),
            thiefs_app: "A".repeat(32),
            reached: BTreeMap::new(),
            seen: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Returns the newest code that was sent to an address.
    pub(super) async fn newest_code(&self, to: &str) -> String {
        self.sites[0].settle().await;
        let messages = self.sites[0].outbox.messages();
        let newest = messages.iter().rev().find(|message| message.to() == to && !message.code().is_empty());
        newest.map_or("wrong".to_owned(), |message| message.code().to_owned())
    }

    pub(super) fn count(&mut self, what: &str, answer: &Answer) -> bool {
        let is_done = answer.status.is_success() || answer.header("location") == "/";
        if is_done {
            *self.reached.entry(what.to_owned()).or_default() += 1;
        }
        is_done
    }

    /// Notes an answer to the thief.
    pub(super) fn note(&mut self, what: &str, answer: &Answer) {
        self.count(what, answer);
        // pictures, keys and what goes to a provider are random
        let is_secret = ["secret", "codes", "redirect_url"].iter().any(|it| answer.text.contains(&format!("\"{it}\"")));
        let names: Vec<_> = answer.headers.keys().map(ToString::to_string).collect();
        let text = if is_secret { "" } else { &*answer.text };
        let shown = format!(
            "{what}: {} {} {:?} {} {}",
            answer.status,
            answer.header("retry-after"),
            names,
            without_random(answer.header("location")),
            without_random(text)
        );
        self.seen.push(shown);
    }

    pub(super) fn at_site(&mut self, browser: usize, site: usize) -> &mut Browser {
        let browser = &mut self.thief[browser];
        browser.service = self.sites[site].service.clone();
        browser
    }

    /// Performs a step of the thief or of the application.
    pub(super) async fn perform(&mut self, step: &Step) {
        // chance decides between logins that began at the same moment
        self.sites[0].advance(1);
        match step {
            Step::Start { browser, place, name, is_reset } => self.start(*browser, *place, *name, *is_reset).await,
            Step::Login { login, as_another, call } => self.call_login(*login, *as_another, call).await,
            Step::Finish { browser, place } => {
                let (what, target) = match CLIENTS.get(*place) {
                    Some(client) => ("code", format!("/authorize?{}", crate::world::query(client))),
                    None => ("session", "/sign-in/finish".to_owned()),
                };
                let answer = self.at_site(*browser, place.saturating_sub(3)).get(&target).await;
                if answer.redirected("code").is_some() {
                    *self.reached.entry("code".to_owned()).or_default() += 1;
                }
                self.note(what, &answer);
            }
            Step::Account { browser, site, call } => self.call_account(*browser, *site, call).await,
            Step::Invite { site, to } => {
                let address = EmailAddress::parse(ADDRESSES[*to]).unwrap();
                let before = self.sites[0].outbox.messages().len();
                self.sites[*site].service.invite(&tenants()[*site], Invitation::new(address)).await.unwrap();
                self.sites[0].settle().await;
                // an address gets a few messages only
                for message in &self.sites[0].outbox.messages()[before..] {
                    if let Some((_, secret)) = message.link().and_then(|link| link.url().split_once("#invitation=")) {
                        let secret = secret.to_owned();
                        self.links.push(Link { secret, site: *site, is_reset: false, is_used: false });
                    }
                }
            }
            Step::ResetLink { site } => {
                let tenant = &tenants()[*site];
                let thief = Identifier::parse(THIEF).unwrap();
                let account = self.sites[0].users.find(tenant, &thief).await.unwrap();
                if let Some(account) = account {
                    let link = self.sites[*site].service.create_reset_link(tenant, account.id()).await.unwrap();
                    let secret = link.unwrap().split_once("#reset=").unwrap().1.to_owned();
                    self.links.push(Link { secret, site: *site, is_reset: true, is_used: false });
                }
            }
            Step::Owner(_) => {}
            Step::Wait(seconds) => self.sites[0].advance(*seconds),
        }
        self.sites[0].settle().await;
    }
}

/// Replaces ids and secrets.
fn without_random(text: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let (mut shown, mut word) = (String::new(), String::new());
    for letter in text.chars().chain([' ']) {
        if is_part(letter) {
            word.push(letter);
            continue;
        }
        let is_random = word.len() >= 20 && word.contains(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
        shown.push_str(if is_random { "…" } else { &word });
        word.clear();
        shown.push(letter);
    }
    shown
}
