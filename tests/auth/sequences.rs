//! Thousands of random calls from several browsers, compared with a model.
//!
//! The model knows the facts: the password, the passkey and the people at identity providers of each account, and the code sent for
//! each login. It learns everything else from the responses, by checking every login with its own cookie.

use std::collections::{BTreeMap, BTreeSet};

use http::Request;
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};
use tollgate::{UserId, auth::Passkeys, delivery::NoticeKind, policy::FactorClass};

use crate::enrolled;
use crate::random_provider::{self, Linking, Links, PEOPLE, PROVIDERS, Visit};
use crate::random_runs;
use crate::soft_passkey::{RP_ID, SoftPasskey, text};
use crate::world::{
    ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, GRACE, GRACE_PASSWORD, GRACE_PHONE, NOBODY, World, parameters,
    query_of, with,
};

const SESSION: &str = "__Host-session_giszrYfB";
const BROWSERS: usize = 3;
/// The number of logins that the test keeps. All of them are checked after each call.
const MOST_LOGINS: usize = 8;
/// Names, and the accounts that they belong to.
const NAMES: [(&str, Option<&str>); 5] = [
    ("ada", Some("u-ada")),
    (ADA, Some("u-ada")),
    (GRACE, Some("u-grace")),
    (NOBODY, None),
    ("grace", Some("u-grace")),
];
const PASSWORDS: [(&str, Option<&str>); 3] =
    [(ADA_PASSWORD, Some("u-ada")), (GRACE_PASSWORD, Some("u-grace")), ("wrong", None)];
const ADDRESSES: [(&str, &str, Option<&str>); 6] = [
    ("sms", ADA_PHONE, Some("u-ada")),
    ("whatsapp", ADA_PHONE, Some("u-ada")),
    ("email", ADA, Some("u-ada")),
    ("sms", GRACE_PHONE, Some("u-grace")),
    ("email", GRACE, Some("u-grace")),
    ("sms", "+15555550777", None),
];

/// The place after the names: a login without a name.
const UNNAMED: usize = NAMES.len();

#[derive(Clone, Copy, Debug)]
enum Action {
    Start {
        browser: usize,
        mfa: bool,
        /// The place of the name, or `UNNAMED`.
        name: usize,
        tab: usize,
    },
    Password {
        browser: usize,
        login: usize,
        name: usize,
        password: usize,
    },
    Ask {
        browser: usize,
        login: usize,
        address: usize,
    },
    /// Sends the newest code of this login, a code of another login, or a wrong one.
    Verify {
        browser: usize,
        login: usize,
        code_of: Option<usize>,
    },
    /// Sends the code that the app of ada shows this many steps after the one before the current step.
    Totp {
        browser: usize,
        login: usize,
        late: usize,
    },
    /// Asks for a challenge for a passkey.
    Options {
        browser: usize,
        login: usize,
    },
    /// Signs the newest challenge of a login with the passkey of ada or grace. Names that challenge, or the one of the login
    /// that the response is sent for.
    Passkey {
        browser: usize,
        login: usize,
        user: usize,
        signed: usize,
        is_named: bool,
    },
    /// Sends the newest response of a login again. It may be sent to another login.
    Replay {
        browser: usize,
        login: usize,
        of: usize,
    },
    /// Asks to be sent to a provider.
    Leave {
        browser: usize,
        login: usize,
        provider: usize,
    },
    /// Comes back to a login with a code that this person got on the newest visit of a login.
    Return {
        browser: usize,
        login: usize,
        of: usize,
        person: usize,
        how: Return,
    },
    Complete {
        browser: usize,
        login: usize,
        own: bool,
    },
    Authorize {
        browser: usize,
        mfa: bool,
        tab: usize,
    },
    /// Continues the newest login of this browser, so that some logins get far. `slip` decides what goes wrong at a provider.
    Continue {
        browser: usize,
        pick: usize,
        slip: usize,
    },
    /// Copies all cookies of one browser to another.
    Steal {
        from: usize,
        to: usize,
    },
    /// Sends the secret of one login under the name of another.
    Rename {
        browser: usize,
        secret: usize,
        name: usize,
    },
    Wait(u64),
}

/// The ways in which a browser comes back from a provider.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Return {
    Plain,
    /// With the state of the visit before.
    WithEarlierState,
    /// With the state of the visit that the code belongs to, under the id of the login.
    WithOtherState,
    /// With the code of another login.
    WithOtherCode,
    /// To the callback of the other provider.
    ToOtherProvider,
    /// The user has canceled.
    Denied,
    /// With a parameter given twice.
    Twice,
    ByHead,
}

/// The number of slips. Some make another person come back from the provider, some change how, and the rest change nothing.
const SLIPS: usize = 30;
const LISTED: [(usize, Return); 7] = [
    (16, Return::WithEarlierState),
    (17, Return::WithOtherState),
    (18, Return::ToOtherProvider),
    (19, Return::Denied),
    (20, Return::Twice),
    (21, Return::ByHead),
    (22, Return::WithOtherCode),
];

/// The picks of a call that continues a login. The last two send users to providers.
const PICKS: usize = if cfg!(feature = "external-providers") { 14 } else { 12 };

fn likely() -> impl Strategy<Value = Action> {
    (0..BROWSERS, 0..PICKS, 0..SLIPS).prop_map(|(browser, pick, slip)| Action::Continue { browser, pick, slip })
}

fn unlikely() -> impl Strategy<Value = Action> {
    let browser = || 0..BROWSERS;
    let login = || 0..6_usize;
    let wait = prop_oneof![4 => 0..60_u64, 1 => Just(299), 1 => Just(301), 1 => Just(600), 1 => Just(1801)];
    prop_oneof![
        (browser(), any::<bool>(), 0..=UNNAMED, 0..2_usize).prop_map(|(browser, mfa, name, tab)| Action::Start {
            browser,
            mfa,
            name,
            tab
        }),
        (browser(), login(), 0..NAMES.len(), 0..PASSWORDS.len())
            .prop_map(|(browser, login, name, password)| Action::Password { browser, login, name, password }),
        (browser(), login(), 0..ADDRESSES.len()).prop_map(|(browser, login, address)| Action::Ask {
            browser,
            login,
            address
        }),
        (browser(), login(), prop::option::of(login())).prop_map(|(browser, login, code_of)| Action::Verify {
            browser,
            login,
            code_of
        }),
        (browser(), login(), 0..5_usize).prop_map(|(browser, login, late)| Action::Totp { browser, login, late }),
        (browser(), login()).prop_map(|(browser, login)| Action::Options { browser, login }),
        (browser(), login(), 0..2_usize, login(), any::<bool>()).prop_map(
            |(browser, login, user, signed, is_named)| Action::Passkey { browser, login, user, signed, is_named }
        ),
        (browser(), login(), login()).prop_map(|(browser, login, of)| Action::Replay { browser, login, of }),
        at_providers(),
        (browser(), login(), any::<bool>()).prop_map(|(browser, login, own)| Action::Complete { browser, login, own }),
        (browser(), any::<bool>(), 0..2_usize).prop_map(|(browser, mfa, tab)| Action::Authorize { browser, mfa, tab }),
        (browser(), browser()).prop_map(|(from, to)| Action::Steal { from, to }),
        (browser(), login(), login()).prop_map(|(browser, secret, name)| Action::Rename { browser, secret, name }),
        wait.prop_map(Action::Wait),
    ]
}

/// The calls about identity providers. They come as often as two other calls.
fn at_providers() -> BoxedStrategy<Action> {
    let (browser, login, wait) = (|| 0..BROWSERS, || 0..6_usize, Just(Action::Wait(1)));
    let how = prop_oneof![
        6 => Just(Return::Plain),
        1 => Just(Return::WithEarlierState),
        2 => Just(Return::WithOtherState),
        1 => Just(Return::ToOtherProvider),
        1 => Just(Return::Denied),
        1 => Just(Return::Twice),
        1 => Just(Return::ByHead),
    ];
    let leave = (browser(), login(), 0..PROVIDERS.len()).prop_map(|(browser, login, provider)| Action::Leave {
        browser,
        login,
        provider,
    });
    let back = (browser(), login(), login(), 0..PEOPLE.len(), how)
        .prop_map(|(browser, login, of, person, how)| Action::Return { browser, login, of, person, how });
    if cfg!(feature = "external-providers") { prop_oneof![1 => leave, 2 => back].boxed() } else { wait.boxed() }
}

fn client(mfa: bool) -> &'static str {
    if mfa { "mfa" } else { "web" }
}

fn challenge(tab: usize) -> String {
    format!("{tab:A<43}")
}

/// A login in the model.
#[derive(Debug)]
struct Known {
    id: String,
    home: usize,
    cookie: (String, String),
    mfa: bool,
    tab: usize,
    /// The account of the name that it began with, or of the first proof if it began without a name.
    account: Option<&'static str>,
    /// Whether the first proof decides on the account.
    is_unbound: bool,
    proved: Vec<FactorClass>,
    /// Whether the accounts have enrolled what [`factors_of`] lists.
    has_factors: bool,
    /// The newest code sent for it, its factor class, its time and its owner, until it is used or replaced.
    code: Option<(String, FactorClass, u64, &'static str)>,
    /// The newest challenge for a passkey.
    options: Value,
    /// When that challenge was opened, until it is answered or a step is proved.
    opened: Option<u64>,
    /// The newest response to a challenge that was sent for it.
    sent: Option<Signed>,
    /// The newest visit to a provider, and the one before.
    visits: [Option<Visit>; 2],
    /// When the newest visit began, until its user is back, or a step is proved, or a code is sent.
    left: Option<u64>,
    /// When its steps were confirmed.
    completed_at: Option<u64>,
    began: u64,
    touched: u64,
    has_code: bool,
    /// The session that this login was used for.
    sid: Option<String>,
    /// The status and number of completed steps at the last check.
    seen: (String, u64),
}

/// The second factors that a user has enrolled.
fn factors_of(user: &str) -> &'static [FactorClass] {
    match user {
        "u-ada" => &[FactorClass::Key, FactorClass::Authenticator],
        _ => &[FactorClass::Key],
    }
}

/// A response of a passkey, as it is sent.
#[derive(Clone, Debug)]
struct Signed {
    user: &'static str,
    challenge: Value,
    members: Value,
}

impl Signed {
    /// Returns whether it answers the newest challenge of a login that accepts the user.
    fn answers(&self, known: &Known) -> bool {
        let newest = &known.options["challenge"];
        self.challenge == *newest
            && self.members["challenge"] == *newest
            && known.accepts(self.user)
            && known.has_factors
    }
}

impl Known {
    fn accepts(&self, user: &str) -> bool {
        self.is_unbound || self.account == Some(user)
    }

    /// Notes a proof of this user, which closes all challenges.
    fn prove(&mut self, user: &'static str, class: FactorClass) {
        (self.account, self.is_unbound) = (Some(user), false);
        self.proved.push(class);
        (self.code, self.opened, self.left) = (None, None, None);
    }

    /// Returns why it expects no proof of this class, or nothing.
    fn refuses(&self, class: FactorClass) -> &'static str {
        match self.proved.len() {
            _ if self.seen.0 == "failed" => "session_failed",
            proved if proved == self.required() => "no_step_remaining",
            _ if self.proved.contains(&class) => "method_not_allowed",
            0 => "",
            _ if self.lacks_factor() && !self.factors().contains(&class) => "method_not_allowed",
            _ => "",
        }
    }

    /// The number of steps of the policy.
    fn steps(&self) -> usize {
        if self.mfa { 2 } else { 1 }
    }

    /// The number of steps: a user with a second factor needs one more than the policy, unless an open step can prove it.
    fn required(&self) -> usize {
        if self.lacks_factor() || self.proved.len() > 1 { 2 } else { self.steps() }
    }

    fn factors(&self) -> &'static [FactorClass] {
        self.account.filter(|_| self.has_factors).map_or(&[], factors_of)
    }

    /// Returns whether a step was proved, but no second factor that the account has.
    fn lacks_factor(&self) -> bool {
        let has_factor = self.proved.iter().any(|class| self.factors().contains(class));
        !self.proved.is_empty() && !self.factors().is_empty() && !has_factor
    }

    fn is_in(&self, browser: &Browser) -> bool {
        browser.cookies.get(&self.cookie.0) == Some(&self.cookie.1)
    }

    /// Returns whether it must have timed out.
    fn is_over(&self, now: u64) -> bool {
        self.has_code || now >= self.began + 1800 || now >= self.completed_at.map_or(self.touched + 600, |at| at + 300)
    }
}

struct Simulation {
    world: World,
    browsers: Vec<Browser>,
    logins: Vec<Known>,
    now: u64,
    messages: usize,
    /// The time step of the last code that the app of ada was used with.
    app_used: usize,
    passkeys: [(&'static str, SoftPasskey); 2],
    has_factors: bool,
    links: Links,
    codes: BTreeSet<String>,
    /// How many codes were issued for logins with a proof of this class.
    codes_by: BTreeMap<FactorClass, usize>,
    /// The users of all active sessions, by the secrets in the cookies.
    sessions: BTreeMap<String, &'static str>,
}

/// Returns the login that a call is about, counted from the newest.
fn at(logins: &[Known], login: usize) -> Option<usize> {
    logins.len().checked_sub(1 + login)
}

/// Returns the public part of a session cookie.
fn sid_of(cookie: &str) -> String {
    cookie.split('.').next().unwrap().to_owned()
}

impl Simulation {
    async fn new(has_factors: bool) -> Self {
        let world = enrolled::world(|service| random_provider::both(service.passkeys(Passkeys::new(RP_ID)))).await;
        random_provider::more_contacts(&world).await;
        let passkeys = ["u-ada", "u-grace"].map(|user| (user, SoftPasskey::new()));
        for (user, passkey) in &passkeys {
            let links = random_provider::enrolled(user);
            let mut row = json!({ "handle": text(&passkey.handle), "links": links });
            if has_factors {
                row["passkeys"] = json!([passkey.stored(2)]);
            }
            if has_factors && *user == "u-ada" {
                row["totp"] = enrolled::app(2);
            }
            enrolled::enrol(&world, user, row).await;
        }
        let mut browsers: Vec<_> = (0..BROWSERS).map(|_| world.browser()).collect();
        for (number, browser) in (1..).zip(&mut browsers) {
            browser.address = [192, 0, 2, number].into();
        }
        Self {
            world,
            browsers,
            logins: Vec::new(),
            now: 0,
            messages: 0,
            app_used: 0,
            passkeys,
            has_factors,
            links: Links::new(),
            codes: BTreeSet::new(),
            codes_by: BTreeMap::new(),
            sessions: BTreeMap::new(),
        }
    }

    /// Returns the call that continues a login.
    fn next_of(&self, browser: usize, pick: usize, slip: usize) -> Action {
        let newest = self.logins.iter().rposition(|login| login.home == browser);
        let name = (pick / 2).min(UNNAMED);
        let fresh = Action::Start { browser, mfa: pick.is_multiple_of(2), name, tab: pick % 3 / 2 };
        let Some(place) = newest.filter(|place| !self.logins[*place].is_over(self.now) && pick != 11) else {
            return fresh;
        };
        let (known, login) = (&self.logins[place], self.logins.len() - 1 - place);
        let is_grace = known.account == Some("u-grace");
        if known.seen.0 == "failed" {
            return fresh;
        }
        if known.completed_at.is_some() {
            return Action::Authorize { browser, mfa: known.mfa, tab: known.tab };
        }
        if known.proved.len() == known.required() {
            return Action::Complete { browser, login, own: true };
        }
        if known.code.is_some() {
            return Action::Verify { browser, login, code_of: Some(login) };
        }
        let is_other = if known.is_unbound { pick % 2 == 1 } else { is_grace };
        if let Some(visit) = &known.visits[0]
            // some users come back although nothing waits for them
            && (known.left.is_some_and(|at| self.now < at + 600) || slip % 6 == 5)
        {
            let how = LISTED.iter().find(|(listed, _)| *listed == slip).map_or(Return::Plain, |(_, how)| *how);
            let of = if [Return::WithOtherState, Return::WithOtherCode].contains(&how) { login + 1 } else { login };
            let people = random_provider::users_of(visit.provider);
            let person = match slip {
                0..16 => people.start + slip % people.len(),
                _ => random_provider::likely(visit.provider, is_other, pick / 2),
            };
            return Action::Return { browser, login, of, person, how };
        }
        if known.lacks_factor() && pick < 10 {
            return match (known.opened.is_some_and(|at| self.now < at + 300), is_grace || pick.is_multiple_of(2)) {
                (false, true) => Action::Options { browser, login },
                (true, true) => {
                    Action::Passkey { browser, login, user: usize::from(is_grace), signed: login, is_named: true }
                }
                (_, false) => Action::Totp { browser, login, late: 1 + pick % 3 / 2 },
            };
        }
        let can_leave = cfg!(feature = "external-providers") && !known.proved.contains(&FactorClass::Federated);
        if can_leave && (pick >= 12 || slip < 10 && !known.proved.is_empty()) {
            return Action::Leave { browser, login, provider: usize::from(pick % 4 == 3 || pick == 13) };
        }
        if [6, 7].contains(&pick) && !known.proved.contains(&FactorClass::Key) {
            if known.opened.is_none_or(|at| self.now >= at + 300) {
                return Action::Options { browser, login };
            }
            return Action::Passkey { browser, login, user: usize::from(is_other), signed: login, is_named: true };
        }
        if pick < 6 && !known.proved.contains(&FactorClass::Knowledge) {
            let name = if is_grace { 2 } else { 0 };
            return Action::Password { browser, login, name, password: usize::from(is_grace) };
        }
        if pick >= 8 && !known.proved.is_empty() && !is_grace {
            return Action::Totp { browser, login, late: 1 + pick % 2 };
        }
        let is_mail = pick == 10 && !known.proved.contains(&FactorClass::Mailbox);
        let by_phone = !is_mail && !known.proved.contains(&FactorClass::Phone);
        let address = [[2, pick % 2], [4, 3]][usize::from(is_grace)][usize::from(by_phone)];
        Action::Ask { browser, login, address }
    }

    async fn act(&mut self, action: Action) -> Result<(), TestCaseError> {
        let action = match action {
            Action::Continue { browser, pick, slip } => self.next_of(browser, pick, slip),
            action => action,
        };
        let target = match action {
            Action::Continue { .. } => None,
            Action::Wait(seconds) => {
                self.world.advance(seconds);
                self.now += seconds;
                None
            }
            Action::Steal { from, to } => {
                let stolen = self.browsers[from].cookies.clone();
                self.browsers[to].cookies.extend(stolen);
                None
            }
            Action::Rename { browser, secret, name } => {
                if let (Some(secret), Some(name)) = (at(&self.logins, secret), at(&self.logins, name)) {
                    let (secret, name) = (self.logins[secret].cookie.1.clone(), self.logins[name].cookie.0.clone());
                    self.browsers[browser].cookies.insert(name, secret);
                }
                None
            }
            Action::Start { browser, mfa, name, tab } => {
                self.start(browser, mfa, name, tab).await?;
                None
            }
            Action::Authorize { browser, mfa, tab } => self.authorize(browser, mfa, tab).await?,
            Action::Return { browser, login, of, person, how } => match at(&self.logins, login) {
                Some(login) => {
                    self.come_back(browser, login, of, (person, how)).await?;
                    Some(login)
                }
                None => None,
            },
            Action::Password { browser, login, .. }
            | Action::Ask { browser, login, .. }
            | Action::Verify { browser, login, .. }
            | Action::Totp { browser, login, .. }
            | Action::Options { browser, login }
            | Action::Passkey { browser, login, .. }
            | Action::Replay { browser, login, .. }
            | Action::Leave { browser, login, .. }
            | Action::Complete { browser, login, .. } => match at(&self.logins, login) {
                Some(login) => {
                    self.call(browser, login, action).await?;
                    Some(login)
                }
                None => None,
            },
        };
        self.look(target).await
    }

    async fn start(&mut self, home: usize, mfa: bool, name: usize, tab: usize) -> Result<(), TestCaseError> {
        if self.logins.len() == MOST_LOGINS {
            return Ok(());
        }
        let browser = &mut self.browsers[home];
        let before = browser.cookies.clone();
        let mut body = with(parameters(client(mfa)), &[("code_challenge", &challenge(tab))]);
        if let Some((name, _)) = NAMES.get(name) {
            body["identifier"] = json!(name);
        }
        let answer = browser.post("/authentication/start", &body).await;
        if answer.status == 429 {
            return Ok(());
        }
        prop_assert_eq!(answer.status.as_u16(), 200, "{:?}", answer);
        let id = answer.json()["session_id"].as_str().unwrap().to_owned();
        let cookie = format!("__Host-auth_session_{}", &id[..8]);
        let secret = browser.cookies[&cookie].clone();
        prop_assert!(!before.values().any(|value| *value == secret), "a login used the secret of a caller");
        let (account, is_unbound) = (NAMES.get(name).and_then(|name| name.1), name == UNNAMED);
        let options = answer.json()["challenges"]["passkey"].clone();
        let (began, touched, seen) = (self.now, self.now, ("pending".to_owned(), 0));
        self.logins.push(Known {
            id,
            home,
            cookie: (cookie, secret),
            mfa,
            tab,
            account,
            is_unbound,
            proved: Vec::new(),
            has_factors: self.has_factors,
            code: None,
            options,
            opened: Some(self.now),
            sent: None,
            visits: [None, None],
            left: None,
            completed_at: None,
            began,
            touched,
            has_code: false,
            sid: None,
            seen,
        });
        Ok(())
    }

    /// Returns the response of a passkey that a call sends. For other calls and without a response to replay, `None`.
    fn signed(&self, login: usize, action: Action) -> Option<Signed> {
        match action {
            Action::Passkey { user, signed, is_named, .. } => {
                let signed = &self.logins[at(&self.logins, signed).unwrap_or(login)].options;
                let named = if is_named { signed } else { &self.logins[login].options };
                let (user, passkey) = &self.passkeys[user];
                let members = json!({ "challenge": named["challenge"], "response": passkey.get(signed) });
                Some(Signed { user, challenge: signed["challenge"].clone(), members })
            }
            Action::Replay { of, .. } => at(&self.logins, of).and_then(|of| self.logins[of].sent.clone()),
            _ => None,
        }
    }

    async fn call(&mut self, browser: usize, login: usize, action: Action) -> Result<(), TestCaseError> {
        let codes: Vec<_> = self.logins.iter().map(|login| login.code.as_ref().map(|code| code.0.clone())).collect();
        let count = self.logins.len();
        let signed = self.signed(login, action);
        // the clock began in the step 1, and codes are known for the first steps only
        let step = usize::try_from(self.now / 30).unwrap() + 1;
        let known = &mut self.logins[login];
        let browser = &mut self.browsers[browser];
        let (tab, wrong_tab) = (challenge(known.tab), challenge(known.tab + 5));
        let mut more = vec![("session_id", known.id.as_str()), ("code_challenge", tab.as_str())];
        let guess;
        let endpoint = match action {
            Action::Password { name, password, .. } => {
                more.extend([("method", "password"), ("username", NAMES[name].0), ("password", PASSWORDS[password].0)]);
                "authenticate"
            }
            Action::Ask { address, .. } => {
                let (method, to, _) = ADDRESSES[address];
                more.extend([("method", method), (if method == "email" { "email" } else { "phone_number" }, to)]);
                "authenticate"
            }
            Action::Verify { code_of, .. } => {
                let other =
                    code_of.and_then(|other| count.checked_sub(1 + other)).and_then(|other| codes[other].clone());
                guess = other.unwrap_or_else(|| "wrong".to_owned());
                more.push(("otp", &guess));
                "verify-otp"
            }
            Action::Totp { late, .. } => {
                let shown = enrolled::CODES.get(step - 1 + late).unwrap_or(&"wrong");
                more.extend([("method", "totp"), ("code", shown)]);
                "authenticate"
            }
            Action::Options { .. } => {
                more.push(("method", "passkey"));
                "authenticate"
            }
            Action::Leave { provider, .. } => {
                more.extend([("method", "sso"), ("provider", PROVIDERS[provider])]);
                "authenticate"
            }
            Action::Passkey { .. } | Action::Replay { .. } if signed.is_some() => {
                more.push(("method", "passkey"));
                "authenticate"
            }
            Action::Complete { own, .. } => {
                if !own {
                    more[1].1 = &wrong_tab;
                }
                "complete"
            }
            _ => return Ok(()),
        };
        let mut body = with(parameters(client(known.mfa)), &more);
        for (name, member) in signed.iter().filter_map(|signed| signed.members.as_object()).flatten() {
            body[name] = member.clone();
        }
        let answer = browser.post(&format!("/authentication/{endpoint}"), &body).await;
        let is_right = answer.status == 200;
        if !known.is_in(browser) {
            prop_assert_eq!(answer.error(), "invalid_session");
            return Ok(());
        }
        if known.is_over(self.now) {
            // ended logins are remembered for an hour
            let is_forgotten = answer.error() == "invalid_session" && self.now >= known.began + 3600;
            prop_assert!(is_forgotten || answer.error() == "session_expired", "{:?}", answer);
            return Ok(());
        }
        // attempts that are refused unchecked do not count as activity
        let has_failed = answer.error() == "session_failed" && known.seen.0 != "failed";
        if has_failed || [200, 401].contains(&answer.status.as_u16()) {
            known.touched = self.now;
        }
        match action {
            Action::Password { name, password, .. } => {
                let owner = NAMES[name].1.filter(|owner| PASSWORDS[password].1 == Some(*owner));
                let proves = owner.filter(|owner| known.accepts(owner));
                if is_right {
                    prop_assert_eq!(known.refuses(FactorClass::Knowledge), "");
                    prop_assert!(proves.is_some(), "a wrong password was accepted: {:?}", answer);
                    known.prove(proves.unwrap(), FactorClass::Knowledge);
                } else if proves.is_some() {
                    prop_assert_ne!(answer.error(), "invalid_credentials");
                }
            }
            Action::Ask { address, .. } => {
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                let (method, to, owner) = ADDRESSES[address];
                let mut messages = self.world.outbox.messages();
                messages.retain(|message| message.notice().is_none());
                let new = &messages[self.messages.min(messages.len())..];
                self.messages = messages.len();
                if is_right {
                    let class = match method {
                        "email" => FactorClass::Mailbox,
                        _ => FactorClass::Phone,
                    };
                    known.left = None;
                    known.code = new
                        .first()
                        .zip(owner)
                        .map(|(message, owner)| (message.code().to_owned(), class, self.now, owner));
                }
                prop_assert!(new.len() <= usize::from(is_right));
                for message in new {
                    prop_assert_eq!(message.to(), to);
                    prop_assert!(owner.is_some_and(|owner| known.accepts(owner)), "a code proved another user");
                }
            }
            Action::Verify { .. } => {
                let code = known.code.clone().filter(|code| more.contains(&("otp", &code.0)));
                let proves = code.filter(|(_, _, sent, _)| self.now < sent + 300);
                match proves {
                    Some((_, class, _, owner)) if is_right => {
                        prop_assert_eq!(known.refuses(class), "");
                        known.prove(owner, class);
                    }
                    None => prop_assert!(!is_right, "a wrong code was accepted: {:?}", answer),
                    Some(_) => {}
                }
            }
            Action::Totp { late, .. } => {
                let used = step - 1 + late;
                let is_shown = used < enrolled::CODES.len() && late < 3 && used > self.app_used;
                let is_theirs = known.account == Some("u-ada") && known.has_factors;
                let proves = is_shown && is_theirs && !known.proved.is_empty();
                if is_right {
                    prop_assert_eq!(known.refuses(FactorClass::Authenticator), "");
                    prop_assert!(proves, "a wrong or used code of an app was accepted: {:?}", answer);
                    known.prove("u-ada", FactorClass::Authenticator);
                    self.app_used = used;
                } else if proves {
                    prop_assert_ne!(answer.error(), "invalid_otp");
                }
            }
            Action::Options { .. } => {
                prop_assert_eq!(answer.error(), known.refuses(FactorClass::Key), "{:?}", answer);
                if is_right {
                    known.options = answer.json()["challenges"]["passkey"].clone();
                    known.opened = Some(self.now);
                }
            }
            Action::Leave { provider, .. } => {
                prop_assert_eq!(answer.error(), known.refuses(FactorClass::Federated), "{:?}", answer);
                if is_right {
                    let visit = Visit::of(provider, answer.json()["redirect_url"].as_str().unwrap());
                    known.visits.swap(0, 1);
                    known.visits[0] = Some(visit);
                    (known.left, known.code) = (Some(self.now), None);
                }
            }
            Action::Passkey { .. } | Action::Replay { .. } => {
                let Some(signed) = signed else { return Ok(()) };
                let is_open = known.opened.is_some_and(|at| self.now < at + 300);
                let expected = match known.refuses(FactorClass::Key) {
                    "" if !is_open => "no_pending_challenge",
                    "" if !signed.answers(known) => "invalid_assertion",
                    refused => refused,
                };
                let error = answer.error();
                // too many failures, before this one or with it
                let too_many = match expected {
                    "" => error == "too_many_attempts",
                    "invalid_assertion" => error == "too_many_attempts" || has_failed,
                    _ => false,
                };
                prop_assert!(error == expected || too_many, "not {}: {:?} {:?}", expected, answer, known);
                if is_right {
                    known.prove(signed.user, FactorClass::Key);
                } else if error == "invalid_assertion" {
                    known.opened = None;
                }
                known.sent = Some(signed);
            }
            _ => {
                let own = matches!(action, Action::Complete { own: true, .. });
                let is_done = known.proved.len() == known.required() && own;
                prop_assert_eq!(is_right, is_done, "{:?}", answer);
                if is_right {
                    known.completed_at.get_or_insert(self.now);
                }
            }
        }
        counters(&answer, known.required())
    }

    /// Comes back to a login from a provider. The code belongs to the newest visit of the login `of`.
    async fn come_back(
        &mut self,
        browser: usize,
        login: usize,
        of: usize,
        (person, how): (usize, Return),
    ) -> Result<(), TestCaseError> {
        let newest = |login: usize| self.logins[login].visits[0].clone();
        let Some(visit) = newest(login) else { return Ok(()) };
        let signed_in = at(&self.logins, of).and_then(newest).unwrap_or_else(|| visit.clone());
        let known = &mut self.logins[login];
        let state = match (how, &known.visits[1]) {
            (Return::WithEarlierState, Some(earlier)) => earlier.state().to_owned(),
            (Return::WithOtherState, _) => signed_in.state_of(&known.id),
            _ => visit.state().to_owned(),
        };
        let provider = if how == Return::ToOtherProvider { 1 - visit.provider } else { visit.provider };
        let code = signed_in.code(person);
        let mut fields = vec![("state", &*state), ("code", &*code)];
        match how {
            Return::Denied => fields[1] = ("error", "access_denied"),
            Return::Twice => fields.push(("code", &code)),
            _ => {}
        }
        let target = visit.callback(provider, &fields);
        let browser = &mut self.browsers[browser];
        let answer = match how {
            Return::ByHead => browser.send(Request::head(&target), "").await,
            _ => browser.get(&target).await,
        };

        let is_open = known.left.is_some_and(|at| self.now < at + 600) && known.seen.0 != "failed";
        let is_own = state == visit.state() && provider == visit.provider;
        let is_wanted = is_open && is_own && known.is_in(browser) && !known.is_over(self.now);
        if !is_wanted || [Return::Twice, Return::ByHead].contains(&how) {
            let has_expired = known.left.is_some_and(|at| self.now >= at + 600 || known.is_over(self.now));
            let is_late = has_expired && is_own && known.is_in(browser);
            // a late return leads to a new sign-in, as long as the login is known
            if is_late && answer.status == 303 && answer.header("location").ends_with("#sso=expired") {
                return Ok(());
            }
            let expected = if how == Return::Twice { 400 } else { 401 };
            prop_assert_eq!(answer.status.as_u16(), expected, "nothing waits for it: {:?} {:?}", answer, known);
            return Ok(());
        }
        (known.left, known.touched) = (None, self.now);
        let links = self.links.len();
        let (account, is_unbound, required) = (known.account, known.is_unbound, known.steps());
        let facts = Linking { account, is_unbound, proved: &known.proved, required };
        // the provider refuses codes of other visits
        let is_signed_in = signed_in == visit && PEOPLE[person].provider == provider;
        let proves = match how {
            Return::Denied => None,
            _ if is_signed_in => self.links.proves(person, facts),
            _ => None,
        };
        let outcome = match proves {
            Some(_) => "ok",
            None if how == Return::Denied => "denied",
            None => "failed",
        };
        let location = answer.header("location");
        let is_expected = answer.status == 303
            && location.split_once("#sso=").is_some_and(|(_, end)| end.split('&').next() == Some(outcome));
        prop_assert!(is_expected, "not {}: {:?} {:?} {:?}", outcome, answer, known, self.links);
        if let Some(user) = proves {
            known.prove(user, FactorClass::Federated);
        }
        self.check_links(self.links.len() - links).await
    }

    /// Checks that exactly the expected people are linked, and that users were told of each new link.
    async fn check_links(&self, new: usize) -> Result<(), TestCaseError> {
        for user in ["u-ada", "u-grace"] {
            prop_assert_eq!(random_provider::stored(&self.world, user).await, self.links.of(user), "{}", user);
        }
        if new > 0 {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            let messages = self.world.outbox.messages();
            let told = messages.iter().filter_map(|message| message.notice());
            let told = told.filter(|notice| notice.kind() == NoticeKind::LinkAdded).count();
            prop_assert_eq!(told, self.links.len() - Links::new().len(), "a user was not told of a link");
        }
        Ok(())
    }

    /// Returns the login that was used up.
    async fn authorize(&mut self, browser: usize, mfa: bool, tab: usize) -> Result<Option<usize>, TestCaseError> {
        let meant = self.logins.iter().rposition(|login| {
            login.is_in(&self.browsers[browser])
                && (login.mfa, login.tab) == (mfa, tab)
                && login.completed_at.is_some()
                && !login.is_over(self.now)
        });
        let asked = query_of(&with(parameters(client(mfa)), &[("code_challenge", &challenge(tab))]));
        let replaced = self.browsers[browser].cookies.get(SESSION).cloned();
        let carried: Vec<_> = self.logins.iter().filter(|login| login.is_in(&self.browsers[browser])).collect();
        let others: Vec<_> =
            carried.into_iter().filter_map(|login| Some((login.account?, login.sid.clone()?))).collect();
        let answer = self.browsers[browser].get(&format!("/authorize?{asked}")).await;
        prop_assert_eq!(answer.status.as_u16(), 302, "{:?}", answer);
        let code = answer.redirected("code");
        let Some(meant) = meant else {
            prop_assert_eq!(code, None, "a code without a completed login");
            return self.check_sessions().await.map(|()| None);
        };
        let code = code.ok_or_else(|| TestCaseError::fail(format!("no code: {answer:?}")))?;
        prop_assert!(self.codes.insert(code), "the same code was issued twice");
        // if several began at the same moment, any of them counts as the newest
        let moment = self.logins[meant].began;
        let candidates: Vec<_> = (0..self.logins.len())
            .filter(|at| {
                let login = &self.logins[*at];
                login.began == moment && (login.mfa, login.tab) == (mfa, tab) && login.completed_at.is_some()
            })
            .collect();
        let mut spent = None;
        for at in candidates {
            if !self.logins[at].has_code && self.peek(at).await.0 == "expired" && !self.logins[at].is_over(self.now) {
                prop_assert!(spent.is_none(), "two logins were used up");
                spent = Some(at);
            }
        }
        let spent = spent.ok_or_else(|| TestCaseError::fail("no login was used up"))?;
        let login = &mut self.logins[spent];
        login.has_code = true;
        let classes: BTreeSet<_> = login.proved.iter().collect();
        prop_assert!(classes.len() >= login.required(), "a code without the required proofs");
        prop_assert!(!login.lacks_factor(), "a code without the factor that the user has enrolled");
        for class in classes {
            *self.codes_by.entry(*class).or_default() += 1;
        }
        // the user who proved their identity replaces the user who was signed in before
        let account = login.account.ok_or_else(|| TestCaseError::fail("an unknown user got a code"))?;
        if let Some(replaced) = replaced {
            self.sessions.remove(&replaced);
        }
        let cookie = self.browsers[browser].cookies[SESSION].clone();
        let sid = sid_of(&cookie);
        // another login of this browser may have begun the session, or one of another user, which ends
        let ended: Vec<_> = others.into_iter().filter(|(owner, _)| *owner != account).map(|(_, sid)| sid).collect();
        self.sessions.retain(|known, _| sid_of(known) != sid && !ended.contains(&sid_of(known)));
        self.logins[spent].sid = Some(sid);
        self.sessions.insert(cookie, account);
        self.check_sessions().await?;
        Ok(Some(spent))
    }

    /// Checks that exactly the expected users are signed in.
    async fn check_sessions(&self) -> Result<(), TestCaseError> {
        let acme = "acme".parse().unwrap();
        for user in ["u-ada", "u-grace"] {
            let live = self.world.sessions.list(&acme, &UserId::parse(user).unwrap()).await.unwrap().len();
            // sessions that are idle for an hour have ended
            let meant = self.sessions.values().filter(|owner| **owner == user).count();
            prop_assert!(if self.now < 3600 { live == meant } else { live <= meant }, "{} of {}", live, meant);
        }
        Ok(())
    }

    /// Returns the state of a login as its browser sees it.
    async fn peek(&self, login: usize) -> (String, u64) {
        let known = &self.logins[login];
        let mut own = self.world.browser();
        own.cookies.insert(known.cookie.0.clone(), known.cookie.1.clone());
        let shown = own.status(&known.id).await;
        if shown.status != 200 {
            return ("gone".to_owned(), 0);
        }
        let shown = shown.json();
        (shown["status"].as_str().unwrap().to_owned(), shown["completed_steps"].as_u64().unwrap())
    }

    /// Checks all logins after a call to one of them.
    async fn look(&mut self, called: Option<usize>) -> Result<(), TestCaseError> {
        for at in 0..self.logins.len() {
            let now = self.peek(at).await;
            let known = &mut self.logins[at];
            let is_over = ["expired", "gone"].contains(&&*now.0);
            if known.is_over(self.now) {
                prop_assert!(is_over, "it ended too early and shows {:?}: {:?}", now, known);
            }
            if ["expired", "gone"].contains(&&*known.seen.0) {
                prop_assert!(is_over, "an ended login works again: {:?}", known);
            } else if called != Some(at) && !is_over {
                prop_assert_eq!(&now, &known.seen, "it changed without a call: {:?}", known);
            }
            if known.seen.0 == "failed" {
                prop_assert!(is_over || now.0 == "failed");
            }
            if now.0 != "gone" {
                prop_assert_eq!(now.1 as usize, known.proved.len(), "{:?}", known);
            }
            let has_all = known.proved.len() == known.required();
            match &*now.0 {
                "completed" => prop_assert!(has_all && known.completed_at.is_some()),
                "success" => prop_assert!(!known.proved.is_empty() && known.completed_at.is_none()),
                "pending" => prop_assert!(!has_all),
                _ => {}
            }
            known.seen = now;
        }
        Ok(())
    }
}

/// Checks that the counters in a response are consistent.
fn counters(answer: &Answer, required: usize) -> Result<(), TestCaseError> {
    let shown = answer.json();
    if let Some(completed) = shown["completed_steps"].as_u64() {
        let (remaining, next) = (shown["remaining_steps"].as_u64().unwrap(), shown["next_step"].as_u64());
        prop_assert_eq!((completed + remaining) as usize, required);
        prop_assert_eq!(next, (remaining > 0).then_some(completed + 1));
    }
    Ok(())
}

/// How far a run came.
#[derive(Default)]
struct Reached {
    codes: usize,
    by_passkey: usize,
    by_provider: usize,
    new_links: usize,
}

fn run(has_factors: bool, script: Vec<Action>) -> Result<Reached, TestCaseError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut simulation = Simulation::new(has_factors).await;
        for action in script {
            simulation.act(action).await?;
        }
        let by = |class| simulation.codes_by.get(&class).copied().unwrap_or_default();
        Ok(Reached {
            codes: simulation.codes.len(),
            by_passkey: by(FactorClass::Key),
            by_provider: by(FactorClass::Federated),
            new_links: simulation.links.len() - Links::new().len(),
        })
    })
}

proptest! {
    #![proptest_config(random_runs::config(2, 0x7011_6A7E))]
    #[test]
    fn b08_c021_c023_c034_c037_c044_c046_c047_c061_c131_random_calls_yield_codes_only_to_users_who_proved_who_they_are(
        has_factors: bool,
        script in vec(prop_oneof![2 => likely(), 1 => unlikely()], 1..60),
    ) {
        run(has_factors, script)?;
    }
}

/// Makes sure that random logins reach their end.
#[test]
fn many_random_logins_end_with_a_code() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let script = vec(prop_oneof![2 => likely(), 1 => unlikely()], 60);
    let all = (0..60).map(|at| run(at % 2 == 0, script.new_tree(&mut runner).unwrap().current()).unwrap());
    let mut sum = Reached::default();
    for one in all {
        sum.codes += one.codes;
        sum.by_passkey += one.by_passkey;
        sum.by_provider += one.by_provider;
        sum.new_links += one.new_links;
    }
    let Reached { codes, by_passkey, by_provider, new_links } = sum;
    assert!(codes >= 20 && by_passkey >= 5, "{codes} {by_passkey}");
    assert!(
        cfg!(not(feature = "external-providers")) || by_provider >= 10 && new_links >= 5,
        "{by_provider} {new_links}"
    );
}
