//! Thousands of random calls that set up, use and remove second factors, compared with a model.
//!
//! The model knows the password of each user, the app that is set up, and the keys that were begun. The owner and thieves of the
//! password act in the same way, so the facts decide alone: no call may set up an app where one is set up already.

use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};
use tollgate::{Password, Passwords, UserId};

use crate::{
    enrolled::stored,
    first_second_factor::{Half, world},
    own_account::{LONE, acme, call, totp},
    random_runs,
    world::{ADA, ADA_PASSWORD, Answer, World},
};

/// A user with one factor, and one with two.
const USERS: [&str; 2] = [LONE, ADA];
/// Two steps, two steps without self-enrolment, and one step.
const CLIENTS: [&str; 3] = ["mfa", "in-person", "web"];
const MOST: usize = 6;

#[derive(Clone, Copy, Debug)]
enum Action {
    Start {
        user: usize,
        client: usize,
        is_right: bool,
    },
    Begin {
        login: usize,
    },
    /// Sends the code of a key that a login or a session has begun, or a wrong one.
    Confirm {
        login: usize,
        of: Option<usize>,
    },
    Prove {
        login: usize,
        of: usize,
    },
    /// Completes a login, and begins its session.
    Complete {
        login: usize,
    },
    BeginInSession {
        login: usize,
    },
    ConfirmInSession {
        login: usize,
        of: usize,
    },
    Remove {
        login: usize,
    },
    /// Does what comes next in a login, so that some get far.
    Continue {
        login: usize,
    },
    ChangePassword,
    Wait(u64),
}

/// A login, and then the session of its browser.
struct Known {
    half: Half,
    user: usize,
    client: usize,
    proved_at: Option<u64>,
    /// When the app was proved.
    app_at: Option<u64>,
    /// The password that was proved.
    password: usize,
    /// The key that was begun, and when.
    key: Option<(String, u64)>,
    has_session: bool,
    touched: u64,
}

impl Known {
    /// Returns whether the login is one that can still prove something.
    fn lives(&self, now: u64) -> bool {
        !self.has_session && now < self.touched + 600
    }

    fn is_fresh(&self, now: u64) -> bool {
        self.proved_at.is_some_and(|at| now < at + 300)
    }
}

struct Simulation {
    world: World,
    logins: Vec<Known>,
    now: u64,
    /// The key of the app of the user with one factor, and the last step whose code was accepted.
    app: Option<(String, u64)>,
    /// How many apps were set up within logins, and in sessions.
    set_up: [usize; 2],
    password: usize,
}

fn action() -> impl Strategy<Value = Action> {
    let login = || 0..MOST;
    prop_oneof![
        12 => login().prop_map(|login| Action::Continue { login }),
        4 => (0..6_usize, 0..6_usize, 0..8_usize).prop_map(|(user, client, right)| Action::Start {
            user: usize::from(user == 0),
            client: [0, 0, 0, 1, 2, 2][client],
            is_right: right > 0,
        }),
        5 => login().prop_map(|login| Action::Begin { login }),
        6 => (login(), prop::option::weighted(0.9, login())).prop_map(|(login, of)| Action::Confirm { login, of }),
        3 => login().prop_map(|login| Action::Confirm { login, of: Some(login) }),
        3 => (login(), login()).prop_map(|(login, of)| Action::Prove { login, of }),
        4 => login().prop_map(|login| Action::Complete { login }),
        3 => login().prop_map(|login| Action::BeginInSession { login }),
        3 => (login(), login()).prop_map(|(login, of)| Action::ConfirmInSession { login, of }),
        2 => login().prop_map(|login| Action::Remove { login }),
        1 => Just(Action::ChangePassword),
        2 => prop_oneof![Just(30), Just(61), Just(299), Just(301), 0..60_u64].prop_map(Action::Wait),
    ]
}

impl Simulation {
    async fn new() -> Self {
        Self { world: world().await, logins: Vec::new(), now: 0, app: None, set_up: [0; 2], password: 0 }
    }

    /// Returns the current code of a key, and its step.
    fn code(&self, key: &str) -> (String, u64) {
        (totp(key, self.world.time()), self.world.time().as_secs() / 30)
    }

    /// Returns whether the account of a login has no second factor, and its first one was proved freshly and still counts.
    fn may_enrol(&self, known: &Known) -> bool {
        known.user == 0 && self.app.is_none() && known.password == self.password && known.is_fresh(self.now)
    }

    fn next_of(&self, login: usize) -> Action {
        let fresh = Action::Start { user: 0, client: if login.is_multiple_of(2) { 0 } else { 2 }, is_right: true };
        let Some(known) = self.logins.get(login) else { return fresh };
        match (known.has_session, known.client == 2 || known.app_at.is_some(), known.key.is_some()) {
            (false, true, _) => Action::Complete { login },
            _ if known.client == 1 || !known.is_fresh(self.now) => fresh,
            (false, false, false) => Action::Begin { login },
            (false, false, true) => Action::Confirm { login, of: Some(login) },
            (true, _, _) if self.app.is_some() => Action::Remove { login },
            (true, _, false) => Action::BeginInSession { login },
            (true, _, true) => Action::ConfirmInSession { login, of: login },
        }
    }

    async fn act(&mut self, action: Action) -> Result<(), TestCaseError> {
        let action = match action {
            Action::Continue { login } => self.next_of(login),
            action => action,
        };
        match action {
            Action::Continue { .. } => {}
            Action::Wait(seconds) => {
                self.world.advance(seconds);
                self.now += seconds;
            }
            Action::ChangePassword => {
                // the same password under another hash
                let new = Passwords::insecure_fast().hash(Password::new(ADA_PASSWORD)).await.unwrap();
                let lone = UserId::parse("u-lone").unwrap();
                self.world.users.set_password(&acme(), &lone, Some(new)).await.unwrap();
                self.password += 1;
            }
            Action::Start { user, client, is_right } => self.start(user, client, is_right).await?,
            Action::Begin { login }
            | Action::Confirm { login, .. }
            | Action::Prove { login, .. }
            | Action::Complete { login }
            | Action::BeginInSession { login }
            | Action::ConfirmInSession { login, .. }
            | Action::Remove { login } => {
                if login < self.logins.len() {
                    self.call(login, action).await?;
                }
            }
        }
        let row = stored(&self.world, "u-lone").await;
        let is_set_up = row.is_some_and(|row| row["totp"].is_object());
        prop_assert_eq!(is_set_up, self.app.is_some(), "after {:?}", action);
        prop_assert!(stored(&self.world, "u-ada").await.is_none_or(|row| row["totp"].is_null()), "{:?}", action);
        Ok(())
    }

    async fn start(&mut self, user: usize, client: usize, is_right: bool) -> Result<(), TestCaseError> {
        if self.logins.len() == MOST {
            self.logins.remove(0);
        }
        let (mut browser, client_id) = (self.world.browser(), CLIENTS[client]);
        let started = browser
            .post(
                "/authentication/start",
                &crate::world::with(crate::world::parameters(client_id), &[("identifier", USERS[user])]),
            )
            .await;
        if started.status == 429 {
            return Ok(());
        }
        let id = started.json()["session_id"].as_str().unwrap().to_owned();
        let typed = if is_right { ADA_PASSWORD } else { "wrong" };
        let proved = browser.password(client_id, &id, USERS[user], typed).await.status == 200;
        prop_assert!(!proved || is_right);
        self.logins.push(Known {
            half: Half { browser, client: client_id, id },
            user,
            client,
            proved_at: proved.then_some(self.now),
            app_at: None,
            password: self.password,
            key: None,
            has_session: false,
            touched: self.now,
        });
        Ok(())
    }

    async fn call(&mut self, login: usize, action: Action) -> Result<(), TestCaseError> {
        let key_of = |of: usize| self.logins.get(of).and_then(|known| known.key.clone());
        let (key, current) = match action {
            Action::Confirm { of: Some(of), .. } | Action::ConfirmInSession { of, .. } | Action::Prove { of, .. } => {
                let key = key_of(of).map(|key| key.0);
                let code = key.as_ref().map(|key| self.code(key));
                (key, code)
            }
            _ => (None, None),
        };
        let code = current.as_ref().map_or("12345".to_owned(), |code| code.0.clone());
        let (now, step) = (self.now, self.world.time().as_secs() / 30);
        let may = self.may_enrol(&self.logins[login]);
        let is_live = self.logins[login].lives(now);
        let known = &mut self.logins[login];
        // the code of a key that was begun here, and not replaced
        let is_own = known.key.as_ref().is_some_and(|(own, at)| Some(own) == key.as_ref() && now < at + 300);
        let answer: Answer = match action {
            Action::Begin { .. } => known.half.enrol("totp", &[]).await,
            Action::Confirm { .. } => known.half.enrol("totp", &[("code", &code)]).await,
            Action::Prove { .. } => {
                let more = [("method", "totp"), ("code", &*code)];
                known.half.browser.call("authenticate", known.half.client, &known.half.id, &more).await
            }
            Action::Complete { .. } => known.half.browser.complete(known.half.client, &known.half.id).await,
            Action::BeginInSession { .. } => call(&mut known.half.browser, "totp/begin", json!({})).await,
            Action::ConfirmInSession { .. } => call(&mut known.half.browser, "totp", json!({ "code": code })).await,
            _ => call(&mut known.half.browser, "totp/delete", json!({})).await,
        };
        let is_done = answer.status.is_success();
        let is_bare = is_live && known.app_at.is_none();
        let both = known.password == self.password
            && known.is_fresh(now)
            && known.app_at.is_some_and(|at| now < at + 300)
            && known.has_session;
        match action {
            Action::Begin { .. } => {
                prop_assert_eq!(is_done, may && is_bare && known.client == 0, "{:?}", answer);
                if is_done {
                    known.key = Some((answer.json()["secret"].as_str().unwrap().to_owned(), now));
                }
            }
            Action::Confirm { .. } => {
                let expected = may && is_bare && is_own && known.client == 0;
                let is_locked = answer.error_or_none() == "too_many_attempts";
                prop_assert!(is_done == expected || expected && is_locked, "{:?}", answer);
                if is_done {
                    self.app = Some((key.unwrap(), step));
                    (known.key, known.app_at, known.touched) = (None, Some(now), now);
                    self.set_up[0] += 1;
                } else if answer.status == 401 && is_live {
                    known.touched = now;
                }
            }
            Action::Prove { .. } => {
                if is_done {
                    let (app, last) = self.app.as_mut().ok_or_else(|| TestCaseError::fail("no app is set up"))?;
                    prop_assert!(Some(&*app) == key.as_ref() && *last < step && is_bare && known.client != 1);
                    (*last, known.app_at, known.touched) = (step, Some(now), now);
                } else if answer.status == 401 && is_live {
                    known.touched = now;
                }
            }
            Action::Complete { .. } => {
                if is_done && !known.has_session {
                    prop_assert!(known.app_at.is_some() || known.client == 2, "one step is not enough: {:?}", answer);
                    let code = known.half.browser.authorize(known.half.client).await.redirected("code");
                    known.has_session = code.is_some();
                }
            }
            Action::BeginInSession { .. } | Action::ConfirmInSession { .. } => {
                prop_assert!(!is_done || both && self.app.is_some() || may && known.has_session, "{:?}", answer);
                if is_done && matches!(action, Action::BeginInSession { .. }) {
                    known.key = Some((answer.json()["secret"].as_str().unwrap().to_owned(), now));
                } else if is_done {
                    prop_assert!(is_own);
                    self.app = Some((key.unwrap(), step));
                    // it was proved in this session
                    (known.key, known.app_at) = (None, Some(now));
                    self.set_up[1] += 1;
                }
            }
            _ => {
                prop_assert!(!is_done || both, "{:?}", answer);
                if is_done {
                    self.app = None;
                    for known in self.logins.iter_mut().filter(|known| known.user == 0) {
                        known.app_at = known.app_at.filter(|_| false);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Answer {
    /// Returns the error, or nothing for a response without a body.
    fn error_or_none(&self) -> String {
        serde_json::from_str::<Value>(&self.text).map_or(String::new(), |_| self.error())
    }
}

fn run(script: Vec<Action>) -> Result<[usize; 2], TestCaseError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut simulation = Simulation::new().await;
        for action in script {
            simulation.act(action).await?;
        }
        Ok(simulation.set_up)
    })
}

proptest! {
    #![proptest_config(random_runs::config(4, 0x7011_6A80))]
    #[test]
    fn b09_random_calls_set_up_a_second_factor_only_where_there_is_none(script in vec(action(), 1..60)) {
        run(script)?;
    }
}

/// Makes sure that random calls reach what they are about.
#[test]
fn b09_many_random_calls_set_up_second_factors() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let script = vec(action(), 60);
    let all = (0..30).map(|_| run(script.new_tree(&mut runner).unwrap().current()).unwrap());
    let sum = all.fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
    assert!(sum[0] >= 10 && sum[1] >= 5, "{sum:?}");
}
