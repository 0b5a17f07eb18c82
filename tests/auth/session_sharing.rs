//! Random calls at clients that share sessions. The model knows all proofs: their user, browser and time. No code may
//! be based on fewer proofs than its client requires.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*};
use tollgate::UserId;

use crate::{
    random_runs, sso,
    world::{
        ADA, ADA_PASSWORD, ADA_PHONE, Browser, GRACE, GRACE_PASSWORD, GRACE_PHONE, World, parameters, query, with,
    },
};

const CLIENTS: [&str; 5] = ["web", "mfa", "shop", "bank", "native"];
const USERS: [(&str, &str, &str, &str); 2] =
    [("u-ada", ADA, ADA_PASSWORD, ADA_PHONE), ("u-grace", GRACE, GRACE_PASSWORD, GRACE_PHONE)];

#[derive(Clone, Copy, Debug)]
enum Action {
    /// Starts with the name of a user, or without a name.
    Start {
        browser: usize,
        client: usize,
        user: Option<usize>,
        fresh: bool,
    },
    Prove {
        login: usize,
        by: usize,
        user: usize,
    },
    Complete {
        login: usize,
    },
    Authorize {
        browser: usize,
        client: usize,
        wish: usize,
    },
    Revoke {
        user: usize,
    },
    Wait(u64),
    /// Completes a login with one step.
    SignIn {
        browser: usize,
        user: usize,
    },
}

/// Optional parameters of a request, and how old a proof may be under them.
const WISHES: [(&str, Option<u64>); 5] =
    [("", None), ("&prompt=none", None), ("&max_age=60", Some(60)), ("&prompt=login", None), ("&max_age=0", None)];

fn action() -> impl Strategy<Value = Action> {
    let (browser, client, user, login) = (0..2_usize, 0..CLIENTS.len(), 0..2_usize, 0..3_usize);
    prop_oneof![
        3 => (browser.clone(), client.clone(), prop::option::of(user.clone()), prop::bool::weighted(0.2))
            .prop_map(|(browser, client, user, fresh)| Action::Start { browser, client, user, fresh }),
        4 => (login.clone(), 0..3_usize, prop_oneof![4 => Just(0), 1 => Just(1_usize)])
            .prop_map(|(login, by, user)| Action::Prove { login, by, user }),
        3 => login.prop_map(|login| Action::Complete { login }),
        5 => (browser.clone(), client, 0..WISHES.len())
            .prop_map(|(browser, client, wish)| Action::Authorize { browser, client, wish }),
        1 => user.clone().prop_map(|user| Action::Revoke { user }),
        2 => (0..100_u64).prop_map(Action::Wait),
        2 => (browser, user).prop_map(|(browser, user)| Action::SignIn { browser, user }),
    ]
}

/// A proof, with its login and its factor class.
#[derive(Debug)]
struct Fact {
    user: usize,
    class: usize,
    at: u64,
    login: usize,
}

#[derive(Debug)]
struct Login {
    id: String,
    browser: usize,
    client: usize,
    /// Whether the login was used up for a code, so that only a session has its proofs.
    spent: bool,
    completed: bool,
}

struct Simulation {
    world: World,
    browsers: Vec<Browser>,
    logins: Vec<Login>,
    facts: Vec<Fact>,
    now: u64,
    codes: usize,
    silent: usize,
}

impl Simulation {
    fn newest(&self, login: usize) -> Option<usize> {
        self.logins.len().checked_sub(1 + login)
    }

    async fn start(&mut self, browser: usize, client: usize, user: Option<usize>, fresh: bool) -> Option<usize> {
        let mut body = parameters(CLIENTS[client]);
        if let Some(user) = user {
            body = with(body, &[("identifier", USERS[user].1)]);
        }
        if fresh {
            body = with(body, &[("prompt", "login")]);
        }
        let answer = self.browsers[browser].post("/authentication/start", &body).await;
        let id = answer.json()["session_id"].as_str()?.to_owned();
        self.logins.push(Login { id, browser, client, spent: false, completed: false });
        Some(self.logins.len() - 1)
    }

    async fn prove(&mut self, login: usize, by: usize, user: usize) {
        let Login { id, browser, client, .. } = &self.logins[login];
        let (client, (_, name, password, phone)) = (CLIENTS[*client], USERS[user]);
        let browser = &mut self.browsers[*browser];
        let answer = if by == 0 {
            browser.password(client, id, name, password).await
        } else {
            let (method, to) = if by == 1 { ("sms", phone) } else { ("email", name) };
            let before = self.world.outbox.messages().len();
            browser.ask(client, id, method, to).await;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            let messages = self.world.outbox.messages();
            let Some(message) = messages.get(before) else { return };
            browser.verify(client, id, message.code()).await
        };
        if answer.status == 200 {
            self.facts.push(Fact { user, class: by, at: self.now, login });
        }
    }

    async fn complete(&mut self, login: usize) {
        let Login { id, browser, client, .. } = &self.logins[login];
        let answer = self.browsers[*browser].complete(CLIENTS[*client], id).await;
        self.logins[login].completed |= answer.status == 200;
    }

    async fn authorize(&mut self, browser: usize, client: usize, wish: usize) -> Result<(), TestCaseError> {
        let (more, max_age) = WISHES[wish];
        let answer = self.browsers[browser].get(&format!("/authorize?{}{more}", query(CLIENTS[client]))).await;
        if answer.redirected("code").is_none() {
            return Ok(());
        }
        self.codes += 1;
        let is_fresh = wish >= 3;
        let is_open =
            |login: &Login| login.browser == browser && login.client == client && login.completed && !login.spent;
        let own = self.logins.iter().rposition(is_open);
        self.silent += usize::from(own.is_none());
        let shares = client >= 2;
        prop_assert!(own.is_some() || shares, "a code without a login, at a client without single sign-on");
        prop_assert!(
            own.is_some() || (CLIENTS[client] != "native" && !is_fresh),
            "a code without a page where one is required"
        );
        let counts = |fact: &&Fact| {
            let is_young = max_age.is_none_or(|age| fact.at + age >= self.now);
            let is_own = !is_fresh || self.logins[fact.login].client == client && !self.logins[fact.login].spent;
            self.logins[fact.login].browser == browser && is_own && (is_young || own == Some(fact.login))
        };
        let required = if ["mfa", "bank"].contains(&CLIENTS[client]) { 2 } else { 1 };
        let most = (0..USERS.len()).map(|user| {
            let own = self.facts.iter().filter(counts).filter(|fact| fact.user == user);
            own.map(|fact| fact.class).collect::<BTreeSet<_>>().len()
        });
        prop_assert!(most.max().unwrap() >= required, "a code without the required proofs: {:?}", self.facts);
        if let Some(own) = own {
            self.logins[own].spent = true;
        }
        Ok(())
    }

    async fn act(&mut self, action: Action) -> Result<(), TestCaseError> {
        match action {
            Action::Start { browser, client, user, fresh } => drop(self.start(browser, client, user, fresh).await),
            Action::Prove { login, by, user } => {
                if let Some(login) = self.newest(login) {
                    self.prove(login, by, user).await;
                }
            }
            Action::Complete { login } => {
                if let Some(login) = self.newest(login) {
                    self.complete(login).await;
                }
            }
            Action::Authorize { browser, client, wish } => self.authorize(browser, client, wish).await?,
            Action::SignIn { browser, user } => {
                if let Some(login) = self.start(browser, 0, Some(user), true).await {
                    self.prove(login, 0, user).await;
                    self.complete(login).await;
                    self.authorize(browser, 0, 0).await?;
                }
            }
            Action::Revoke { user } => {
                let who = UserId::parse(USERS[user].0).unwrap();
                self.world.sessions.revoke_user(&"acme".parse().unwrap(), &who).await.unwrap();
                let logins = &self.logins;
                self.facts.retain(|fact| fact.user != user || !logins[fact.login].spent);
            }
            Action::Wait(seconds) => {
                self.world.advance(seconds);
                self.now += seconds;
            }
        }
        Ok(())
    }
}

fn run(script: Vec<Action>) -> Result<(usize, usize), TestCaseError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let world = sso::world().await;
        let browsers = vec![world.browser(), world.browser()];
        let (logins, facts) = (Vec::new(), Vec::new());
        let mut simulation = Simulation { world, browsers, logins, facts, now: 1000, codes: 0, silent: 0 };
        for action in script {
            simulation.act(action).await?;
        }
        Ok((simulation.codes, simulation.silent))
    })
}

proptest! {
    #![proptest_config(random_runs::config(4, 0x5A_4169))]
    #[test]
    fn c021_c025_c109_no_code_is_based_on_fewer_proofs_than_its_client_requires(script in vec(action(), 1..50)) {
        run(script)?;
    }
}

/// Makes sure that the random calls above reach codes.
#[test]
fn many_random_calls_end_with_a_code_and_some_without_a_page() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let script = vec(action(), 50);
    let (codes, silent) = (0..30).fold((0, 0), |(codes, silent), _| {
        let (more, still) = run(script.new_tree(&mut runner).unwrap().current()).unwrap();
        (codes + more, silent + still)
    });
    assert!(codes >= 60 && silent >= 10, "{codes} {silent}");
}
