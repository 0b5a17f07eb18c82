//! Random sequences of sign-ins and of everything that ends them, in two browsers and at two tenants.
//!
//! The model knows all proofs. After each step, every session, code and token must be valid exactly if the model says
//! so.

use std::{collections::BTreeSet, time::Duration};

use http::Request;
use proptest::{collection::vec, prelude::*};
use tollgate::{Session, Tenant};

use crate::{
    five_tenants::{Begun, TENANTS, tenant, user, world_with},
    issued_tokens::{EVERYWHERE, IssuedTokens, good_at},
    random_runs,
    token_requests::{Grant, is_no_grant},
    world::{Answer, Browser, ISSUER, World, encode, form_of, posted},
};

/// The tenant of each user, by number.
const USERS: [usize; 3] = [0, 0, 1];
const ACCESS_LIVES: u64 = 600;
const CODE_LIVES: u64 = 60;
const LEEWAY: u64 = 5;
/// A login ends after this many seconds without a call.
const LOGIN_IDLE: u64 = 600;
/// The next code by e-mail can be requested after this many seconds.
const RESEND: u64 = 31;
/// The number of families that the test keeps. All of them are checked after each step.
const MOST_FAMILIES: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Action {
    SignIn {
        browser: usize,
        user: usize,
        two: bool,
        offline: bool,
    },
    /// Proves the first of two steps. `Finish` does the rest.
    Begin {
        browser: usize,
        user: usize,
    },
    Finish {
        browser: usize,
    },
    StepUp {
        browser: usize,
        tenant: usize,
    },
    Silent {
        browser: usize,
        tenant: usize,
    },
    Redeem {
        code: usize,
    },
    Refresh {
        family: usize,
    },
    Rotate {
        browser: usize,
        tenant: usize,
    },
    /// Opens the logout page and presses its button.
    Button {
        browser: usize,
        tenant: usize,
    },
    /// Calls `/logout` with an id_token of a family, possibly in another browser.
    Hint {
        browser: usize,
        family: usize,
    },
    Revoke {
        session: usize,
        by_service: bool,
    },
    RevokeUser {
        user: usize,
    },
    EndUser {
        user: usize,
    },
    NewPassword {
        user: usize,
        tells: bool,
    },
    NewContact {
        user: usize,
        tells: bool,
    },
    Rename {
        user: usize,
    },
    Wait(u64),
}

fn action() -> impl Strategy<Value = Action> {
    use Action::*;
    let (browser, tenant, user, any_one) = (|| 0..2_usize, || 0..2_usize, || 0..3_usize, || 0..6_usize);
    let (rarely, often) = (|| prop::bool::weighted(0.2), || prop::bool::weighted(0.5));
    let wait = prop::sample::select(vec![0, 1, 20, 59, 60, 61, 300, 599, 601]);
    prop_oneof![
        8 => (browser(), user(), often(), rarely())
            .prop_map(|(browser, user, two, offline)| SignIn { browser, user, two, offline }),
        2 => (browser(), user()).prop_map(|(browser, user)| Begin { browser, user }),
        3 => browser().prop_map(|browser| Finish { browser }),
        5 => (browser(), tenant()).prop_map(|(browser, tenant)| StepUp { browser, tenant }),
        6 => (browser(), tenant()).prop_map(|(browser, tenant)| Silent { browser, tenant }),
        10 => any_one().prop_map(|code| Redeem { code }),
        4 => any_one().prop_map(|family| Refresh { family }),
        2 => (browser(), tenant()).prop_map(|(browser, tenant)| Rotate { browser, tenant }),
        1 => (browser(), tenant()).prop_map(|(browser, tenant)| Button { browser, tenant }),
        2 => (browser(), any_one()).prop_map(|(browser, family)| Hint { browser, family }),
        2 => (any_one(), often()).prop_map(|(session, by_service)| Revoke { session, by_service }),
        1 => user().prop_map(|user| RevokeUser { user }),
        1 => user().prop_map(|user| EndUser { user }),
        2 => (user(), rarely()).prop_map(|(user, tells)| NewPassword { user, tells }),
        2 => (user(), rarely()).prop_map(|(user, tells)| NewContact { user, tells }),
        1 => user().prop_map(|user| Rename { user }),
        4 => wait.prop_map(Wait),
    ]
}

/// A proof, with the version of the password or mailbox.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Proved {
    Password(u32),
    Mailbox(u32),
}

impl Proved {
    fn is_same_method(self, other: &Self) -> bool {
        matches!((self, other), (Self::Password(_), Self::Password(_)) | (Self::Mailbox(_), Self::Mailbox(_)))
    }
}

/// A user, with the number of changes to each property.
#[derive(Clone, Debug, Default)]
struct Person {
    number: usize,
    password: u32,
    contact: u32,
    name: u32,
    generation: u32,
}

impl Person {
    fn tenant(&self) -> Tenant {
        tenant(TENANTS[USERS[self.number]])
    }

    fn id(&self) -> String {
        format!("u-{}", self.number)
    }

    fn name(&self) -> String {
        format!("name{}x{}@example.com", self.number, self.name)
    }

    fn contact(&self) -> String {
        format!("box{}x{}@example.com", self.number, self.contact)
    }

    fn password(&self) -> String {
        format!("password number {} of user {}", self.password, self.number)
    }

    fn counts(&self, proved: &Proved) -> bool {
        match proved {
            Proved::Password(version) => *version == self.password,
            Proved::Mailbox(version) => *version == self.contact,
        }
    }
}

#[derive(Clone, Debug)]
struct Known {
    sid: String,
    user: usize,
    proofs: Vec<Proved>,
    ended: bool,
}

/// The session and proofs that a code came from.
#[derive(Clone, Debug)]
struct Origin {
    session: usize,
    user: usize,
    generation: u32,
    proofs: Vec<Proved>,
    offline: bool,
}

struct Code {
    client: String,
    grant: Grant,
    origin: Origin,
    issued: u64,
}

struct Family {
    client: String,
    issued: IssuedTokens,
    origin: Origin,
    access_ends: u64,
}

/// A login with two steps whose password is already proved.
struct Pending {
    login: Begun,
    user: usize,
    generation: u32,
    password: u32,
    touched: u64,
    /// A logout in this browser ended it.
    ended: bool,
}

struct Simulation {
    world: World,
    browsers: [Browser; 2],
    people: Vec<Person>,
    sessions: Vec<Known>,
    /// The session that each cookie belongs to, by browser and tenant.
    signed_in: [[Option<usize>; 2]; 2],
    codes: Vec<Code>,
    families: Vec<Family>,
    pending: [Option<Pending>; 2],
    now: u64,
}

impl Simulation {
    async fn new() -> Self {
        let world = world_with(|service| service.session_idle(Duration::from_secs(24 * 3600))).await;
        let people: Vec<_> = (0..USERS.len()).map(|number| Person { number, ..Person::default() }).collect();
        for person in &people {
            let (name, contact) = (person.name(), person.contact());
            world.create(&person.tenant(), &person.id(), &name, &contact, &person.password()).await;
        }
        let mut browsers = [world.browser(), world.browser()];
        browsers[1].address = [192, 0, 2, 2].into();
        Self {
            world,
            browsers,
            people,
            sessions: Vec::new(),
            signed_in: [[None; 2]; 2],
            codes: Vec::new(),
            families: Vec::new(),
            pending: [None, None],
            now: 0,
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.world.advance(seconds);
        self.now += seconds;
    }

    /// Returns the session that a browser is signed in with.
    fn live(&self, browser: usize, tenant: usize) -> Option<usize> {
        self.signed_in[browser][tenant].filter(|at| !self.sessions[*at].ended)
    }

    fn end(&mut self, which: impl Fn(&Known) -> bool) -> usize {
        let ended = self.sessions.iter_mut().filter(|session| !session.ended && which(session));
        ended.map(|session| session.ended = true).count()
    }

    /// Models reading the account of a session: proofs that no longer count are dropped, and the session ends with the
    /// last one.
    fn read(&mut self, session: usize) -> Option<usize> {
        let session_of = &mut self.sessions[session];
        let person = &self.people[session_of.user];
        session_of.proofs.retain(|proved| person.counts(proved));
        session_of.ended |= session_of.proofs.is_empty();
        (!session_of.ended).then_some(session)
    }

    fn lives(&self, origin: &Origin) -> bool {
        let person = &self.people[origin.user];
        origin.generation == person.generation
            && origin.proofs.iter().any(|proved| person.counts(proved))
            && (origin.offline || !self.sessions[origin.session].ended)
    }

    fn sid_in(&self, browser: usize, tenant_at: usize) -> String {
        let cookie = &self.browsers[browser].cookies[&self.world.cookie_of(&tenant(TENANTS[tenant_at]))];
        cookie.split_once('.').unwrap().0.to_owned()
    }

    /// A login with new proofs got its code. Returns the session that it begins or renews.
    fn signed_in(&mut self, browser: usize, user: usize, proofs: Vec<Proved>) -> Result<usize, TestCaseError> {
        let place = USERS[user];
        let sid = self.sid_in(browser, place);
        let before = self.signed_in[browser][place];
        if let Some(own) = before.filter(|at| !self.sessions[*at].ended && self.sessions[*at].user == user) {
            prop_assert_eq!(&self.sessions[own].sid, &sid, "the same user keeps the session");
            self.sessions[own].proofs = proofs;
            return Ok(own);
        }
        if let Some(replaced) = before {
            self.sessions[replaced].ended = true;
        }
        prop_assert!(self.sessions.iter().all(|session| session.sid != sid), "a session id was used again");
        self.sessions.push(Known { sid, user, proofs, ended: false });
        self.signed_in[browser][place] = Some(self.sessions.len() - 1);
        Ok(self.sessions.len() - 1)
    }

    fn issued(&mut self, client: String, grant: Grant, origin: Origin) {
        self.codes.push(Code { client, grant, origin, issued: self.now });
    }

    async fn act(&mut self, action: Action) -> Result<(), TestCaseError> {
        match action {
            Action::Wait(seconds) => self.wait(seconds),
            Action::SignIn { browser, user, two, offline } => self.sign_in(browser, user, two, offline).await?,
            Action::Begin { browser, user } => self.begin(browser, user).await,
            Action::Finish { browser } => self.finish(browser).await?,
            Action::StepUp { browser, tenant } => self.step_up(browser, tenant).await?,
            Action::Silent { browser, tenant } => self.silent(browser, tenant).await?,
            Action::Redeem { code } => self.redeem(code).await?,
            Action::Refresh { family } => self.refresh(family).await?,
            Action::Rotate { browser, tenant } => self.rotate(browser, tenant).await?,
            Action::Button { browser, tenant } => self.press(browser, tenant).await?,
            Action::Hint { browser, family } => self.hint(browser, family).await?,
            Action::Revoke { session, by_service } => self.revoke(session, by_service).await?,
            Action::RevokeUser { user } => {
                let (of, id) = self.user(user);
                let count = self.world.sessions.revoke_user(&of, &id).await.unwrap();
                prop_assert_eq!(count, self.end(|session| session.user == user));
            }
            Action::EndUser { user } => {
                let (of, id) = self.user(user);
                let count = self.world.service.end_user(&of, &id).await.unwrap();
                prop_assert_eq!(count, self.end(|session| session.user == user));
                self.people[user].generation += 1;
            }
            Action::NewPassword { user, tells } => {
                self.people[user].password += 1;
                let person = &self.people[user];
                self.world.change_password(&person.tenant(), &person.id(), &person.password()).await;
                self.tell(user, tells).await?;
            }
            Action::NewContact { user, tells } => {
                let old = self.people[user].contact();
                self.people[user].contact += 1;
                let person = &self.people[user];
                self.world.change_contact(&person.tenant(), &person.id(), &old, &person.contact()).await;
                self.tell(user, tells).await?;
            }
            Action::Rename { user } => {
                let old = self.people[user].name();
                self.people[user].name += 1;
                let person = &self.people[user];
                self.world.rename(&person.tenant(), &person.id(), &old, &person.name()).await;
            }
        }
        self.look().await
    }

    fn user(&self, at: usize) -> (Tenant, tollgate::UserId) {
        (self.people[at].tenant(), user(&self.people[at].id()))
    }

    /// Reports a change to the service, as an application may do.
    async fn tell(&mut self, at: usize, tells: bool) -> Result<(), TestCaseError> {
        if !tells {
            return Ok(());
        }
        let (of, id) = self.user(at);
        let count = self.world.service.credential_changed(&of, &id).await.unwrap();
        let live: Vec<_> = (0..self.sessions.len()).filter(|session| !self.sessions[*session].ended).collect();
        let mut ended = 0;
        for session in live.into_iter().filter(|session| self.sessions[*session].user == at).collect::<Vec<_>>() {
            ended += usize::from(self.read(session).is_none());
        }
        prop_assert_eq!(count, ended);
        Ok(())
    }

    async fn sign_in(&mut self, browser: usize, at: usize, two: bool, offline: bool) -> Result<(), TestCaseError> {
        if two {
            self.wait(RESEND);
        }
        let person = self.people[at].clone();
        let client = format!("{}-{}", person.tenant(), if two { "two" } else { "web" });
        let (name, password, contact) = (person.name(), person.password(), person.contact());
        let scope = if offline { "openid offline_access" } else { "openid" };
        let grant = self.browsers[browser]
            .sign_in_as(&self.world, &client, (&name, &password), two.then_some(&*contact), &[("scope", scope)])
            .await;
        let mut proofs = vec![Proved::Password(person.password)];
        proofs.extend(two.then_some(Proved::Mailbox(person.contact)));
        let session = self.signed_in(browser, at, proofs.clone())?;
        self.issued(client, grant, Origin { session, user: at, generation: person.generation, proofs, offline });
        Ok(())
    }

    async fn begin(&mut self, browser: usize, at: usize) {
        let person = self.people[at].clone();
        let client = format!("{}-two", person.tenant());
        if let Some(unfinished) = &self.pending[browser] {
            self.browsers[browser].forget(&unfinished.login);
        }
        let name = person.name();
        let fields = [("identifier", &*name), ("prompt", "login")];
        let login = self.browsers[browser].begin(&client, &fields).await;
        let answer = self.browsers[browser].prove_password(&login, &person.name(), &person.password()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let (generation, password, touched) = (person.generation, person.password, self.now);
        self.pending[browser] = Some(Pending { login, user: at, generation, password, touched, ended: false });
    }

    async fn finish(&mut self, browser: usize) -> Result<(), TestCaseError> {
        let Some(pending) = self.pending[browser].take() else { return Ok(()) };
        self.wait(RESEND);
        let person = self.people[pending.user].clone();
        let is_good = !pending.ended
            && pending.generation == person.generation
            && pending.password == person.password
            && self.now < pending.touched + LOGIN_IDLE;
        self.browsers[browser].prove_mailbox(&self.world, &pending.login, &person.contact()).await;
        let code = self.browsers[browser].finish(&pending.login).await;
        self.browsers[browser].forget(&pending.login);
        prop_assert_eq!(code.is_ok(), is_good, "{:?}", code.err());
        if let Ok(grant) = code {
            let proofs = vec![Proved::Password(person.password), Proved::Mailbox(person.contact)];
            let session = self.signed_in(browser, pending.user, proofs.clone())?;
            let generation = person.generation;
            let origin = Origin { session, user: pending.user, generation, proofs, offline: false };
            self.issued(format!("{}-two", person.tenant()), grant, origin);
        }
        Ok(())
    }

    /// Starts at a client that requires two steps. It continues from the session, if the browser has one.
    async fn step_up(&mut self, browser: usize, place: usize) -> Result<(), TestCaseError> {
        self.wait(RESEND);
        let client = format!("{}-bank", TENANTS[place]);
        let login = self.browsers[browser].begin(&client, &[]).await;
        let session = self.live(browser, place).and_then(|session| self.read(session));
        let Some(session) = session else {
            prop_assert_eq!(&login.started["next_step"], 1, "no step is carried over");
            self.browsers[browser].forget(&login);
            return Ok(());
        };
        let person = self.people[self.sessions[session].user].clone();
        let mut proofs = self.sessions[session].proofs.clone();
        let next = login.started["next_step"].as_u64();
        prop_assert_eq!(next, (proofs.len() < 2).then_some(2));
        let missing = [Proved::Password(person.password), Proved::Mailbox(person.contact)];
        let is_missing = |new: &Proved| proofs.iter().all(|own| !own.is_same_method(new));
        if let Some(proved) = missing.into_iter().find(is_missing) {
            let own = &mut self.browsers[browser];
            let answer = match proved {
                Proved::Password(_) => own.prove_password(&login, &person.name(), &person.password()).await,
                Proved::Mailbox(_) => own.prove_mailbox(&self.world, &login, &person.contact()).await,
            };
            prop_assert_eq!(answer.status.as_u16(), 200, "{:?}", answer);
            proofs.push(proved);
        }
        let code = self.browsers[browser].finish(&login).await;
        prop_assert!(code.is_ok(), "{:?}", code.err());
        prop_assert_eq!(&self.sid_in(browser, place), &self.sessions[session].sid, "a step-up keeps the session");
        self.sessions[session].proofs = proofs.clone();
        let (user, generation) = (person.number, person.generation);
        self.issued(client, code.unwrap(), Origin { session, user, generation, proofs, offline: false });
        Ok(())
    }

    async fn silent(&mut self, browser: usize, place: usize) -> Result<(), TestCaseError> {
        let client = format!("{}-shop", TENANTS[place]);
        let code = self.browsers[browser].silently(&client).await;
        let session = self.live(browser, place).and_then(|session| self.read(session));
        prop_assert_eq!(code.is_ok(), session.is_some(), "{:?}", code.err());
        if let (Ok(grant), Some(session)) = (code, session) {
            let Known { user, proofs, .. } = self.sessions[session].clone();
            let generation = self.people[user].generation;
            self.issued(client, grant, Origin { session, user, generation, proofs, offline: false });
        }
        Ok(())
    }

    /// Exchanges one of the codes, counted from the newest.
    async fn redeem(&mut self, code: usize) -> Result<(), TestCaseError> {
        let Some(at) = self.codes.len().checked_sub(1 + code) else { return Ok(()) };
        let code = self.codes.remove(at);
        let answer = self.world.browser().redeem(&code.client, &code.grant).await;
        if !(self.lives(&code.origin) && self.now < code.issued + CODE_LIVES) {
            prop_assert!(is_no_grant(&answer), "{:?}", answer);
            return Ok(());
        }
        prop_assert_eq!(answer.status.as_u16(), 200, "{:?}", answer);
        if self.families.len() == MOST_FAMILIES {
            self.families.remove(0);
        }
        let (issued, access_ends) = (IssuedTokens::of(&answer), self.now + ACCESS_LIVES);
        self.families.push(Family { client: code.client, issued, origin: code.origin, access_ends });
        Ok(())
    }

    async fn refresh(&mut self, family: usize) -> Result<(), TestCaseError> {
        let Some(at) = self.families.len().checked_sub(1 + family) else { return Ok(()) };
        let family = &self.families[at];
        let answer = self.world.browser().refresh(&family.client, family.issued.refresh()).await;
        if !self.lives(&family.origin) {
            prop_assert!(is_no_grant(&answer), "{:?}", answer);
            return Ok(());
        }
        prop_assert_eq!(answer.status.as_u16(), 200, "{:?}", answer);
        self.families[at].issued = IssuedTokens::of(&answer);
        self.families[at].access_ends = self.now + ACCESS_LIVES;
        Ok(())
    }

    async fn session_of(&self, at: usize) -> Option<Session> {
        let (of, id) = self.user(self.sessions[at].user);
        let all = self.world.sessions.list(&of, &id).await.unwrap();
        all.into_iter().find(|session| session.sid().to_string() == self.sessions[at].sid)
    }

    /// Replaces the secret of a session, as an application may do. The old secret is invalid from then on.
    async fn rotate(&mut self, browser: usize, place: usize) -> Result<(), TestCaseError> {
        let Some(at) = self.live(browser, place) else { return Ok(()) };
        let session = self.session_of(at).await.unwrap();
        let (cookie, _) = self.world.sessions.rotate(&session).await.unwrap().unwrap();
        let header = cookie.header_value().to_str().unwrap().to_owned();
        let (name, value) = header.split(';').next().unwrap().split_once('=').unwrap();
        let old = self.browsers[browser].clone();
        self.browsers[browser].cookies.insert(name.to_owned(), value.to_owned());
        prop_assert_eq!(self.world.seen(Some(&tenant(TENANTS[place])), &old).await, None);
        Ok(())
    }

    async fn press(&mut self, browser: usize, place: usize) -> Result<(), TestCaseError> {
        let client = format!("{}-web", TENANTS[place]);
        let request = posted("/logout").header("sec-fetch-site", "same-origin").header("origin", ISSUER);
        let fields = form_of(&[("client_id", &client), ("confirmed", "yes")]);
        let answer = self.browsers[browser].send(request.header("accept", "text/html"), fields).await;
        prop_assert!(is_done(&answer), "{:?}", answer);
        if let Some(session) = self.signed_in[browser][place].take() {
            self.sessions[session].ended = true;
        }
        self.end_pending(browser, place);
        Ok(())
    }

    fn is_pending(&self, browser: usize, place: usize) -> bool {
        let is_open = |pending: &&Pending| !pending.ended && self.now < pending.touched + LOGIN_IDLE;
        self.pending[browser].as_ref().filter(is_open).is_some_and(|pending| USERS[pending.user] == place)
    }

    /// A logout also ends what was proved in this browser and not used yet.
    fn end_pending(&mut self, browser: usize, place: usize) {
        if let Some(pending) = self.pending[browser].as_mut().filter(|pending| USERS[pending.user] == place) {
            pending.ended = true;
        }
    }

    async fn hint(&mut self, browser: usize, family: usize) -> Result<(), TestCaseError> {
        let Some(at) = self.families.len().checked_sub(1 + family) else { return Ok(()) };
        let family = &self.families[at];
        let place = USERS[family.origin.user];
        let target = format!("/logout?client_id={}&id_token_hint={}", family.client, encode(family.issued.id()));
        let request = Request::get(target).header("accept", "text/html");
        let ends = family.origin.session;
        let was_signed_in = self.live(browser, place).is_some();
        let answer = self.browsers[browser].send(request, "").await;
        self.sessions[ends].ended = true;
        // the page asks while another session remains in this browser, and before it ends only a login in progress
        let is_another = self.live(browser, place).is_some();
        let is_asked = is_another || !was_signed_in && self.is_pending(browser, place);
        prop_assert_eq!(is_done(&answer), !is_asked, "{:?}", answer);
        if !is_asked {
            self.signed_in[browser][place] = None;
            self.end_pending(browser, place);
        }
        Ok(())
    }

    async fn revoke(&mut self, session: usize, by_service: bool) -> Result<(), TestCaseError> {
        let Some(at) = self.sessions.len().checked_sub(1 + session) else { return Ok(()) };
        let Some(session) = self.session_of(at).await else { return Ok(()) };
        let sid = session.sid();
        let ended = match by_service {
            true => self.world.service.end_session(&sid).await.unwrap(),
            false => self.world.sessions.revoke_sid(&sid).await.unwrap(),
        };
        prop_assert!(ended && !self.sessions[at].ended);
        self.sessions[at].ended = true;
        Ok(())
    }

    /// Compares all sessions and tokens with the model, at every place that checks them.
    async fn look(&mut self) -> Result<(), TestCaseError> {
        for person in &self.people {
            let listed = self.world.sessions_of(&person.tenant(), &person.id()).await;
            let listed: BTreeSet<_> = listed.iter().map(|session| session.sid().to_string()).collect();
            let own = self.sessions.iter().filter(|session| !session.ended && session.user == person.number);
            prop_assert_eq!(listed, own.map(|session| session.sid.clone()).collect::<BTreeSet<_>>());
        }
        for (browser, places) in self.signed_in.iter().enumerate() {
            for (place, name) in TENANTS.iter().enumerate().take(places.len()) {
                let seen = self.world.seen(Some(&tenant(name)), &self.browsers[browser]).await;
                let own = self.live(browser, place).map(|at| self.sessions[at].sid.clone());
                prop_assert_eq!(seen, own, "browser {} at {}", browser, name);
            }
        }
        let verifier = self.world.service.verifier();
        for family in &self.families {
            let good = good_at(&mut self.world.browser(), &verifier, &family.client, &family.issued).await;
            let mut expected = BTreeSet::new();
            if self.lives(&family.origin) {
                expected.insert(EVERYWHERE[3]);
                if self.now < family.access_ends {
                    expected.extend(&EVERYWHERE[..3]);
                }
            }
            // a layer accepts tokens a little longer, because clocks differ
            if (family.access_ends..family.access_ends + LEEWAY).contains(&self.now) {
                expected.extend(good.get(EVERYWHERE[2]));
            }
            prop_assert_eq!(good, expected, "{:?} at {}", family.origin, self.now);
        }
        Ok(())
    }
}

fn is_done(answer: &Answer) -> bool {
    answer.status == 200 && answer.text.contains("<h1>You are logged out</h1>")
}

fn simulate(actions: Vec<Action>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut simulation = Simulation::new().await;
        for action in actions {
            simulation.act(action).await?;
        }
        Ok(())
    })
}

proptest! {
    #![proptest_config(random_runs::config(16, 0x11FE_71AE))]
    #[test]
    fn c118_c119_c120_c121_sessions_and_tokens_end_exactly_when_the_rules_say_so_in_any_order(
        actions in vec(action(), 1..40),
    ) {
        simulate(actions)?;
    }
}
