//! Thousands of random calls with codes and tokens of any age, compared with a model.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*};
use serde_json::json;
use tollgate::{Client, ClientTable, UserId, Verifier, store::Memory};

use crate::{
    confidential_clients::{SHOP, Way, with_confidential},
    consent_pages::{decide, is_question},
    issued_tokens::{EVERYWHERE, IssuedTokens, at_layer, claims, good_at},
    random_runs,
    special_worlds::{client, two_nodes_with},
    token_requests::{Grant, is_no_grant, redemption, set},
    world::{Answer, Browser, ISSUER, NOTES, World, encode, query_of},
};

/// The number of families that the test keeps. All of them are checked after each call.
const MOST_FAMILIES: usize = 4;
const CLIENTS: [&str; 2] = ["web", "mfa"];
/// A client of somebody else, which needs the consent of the user.
const PARTNER: &str = "partner";
/// The clients that users sign in to: a public one, one with a secret, and one of somebody else.
const SIGN_IN_CLIENTS: [&str; 3] = [CLIENTS[0], SHOP, PARTNER];
/// The resources that `web` may request.
const RESOURCES: [&str; 2] = [ISSUER, NOTES];
const OFFLINE: &str = "openid offline_access";
const ACCESS_LIVES: u64 = 600;
const LEEWAY: u64 = 5;
const DAY: u64 = 86_400;

#[derive(Clone, Copy, Debug)]
enum Action {
    /// For these of [`RESOURCES`], as bits. Without any, the tokens are for the issuer.
    SignIn {
        offline: bool,
        /// Of [`SIGN_IN_CLIENTS`].
        client: usize,
        resources: usize,
        /// The answer of the user if the client needs consent.
        allows: bool,
    },
    /// The user withdraws the consent to the client of somebody else.
    WithdrawConsent,
    /// Redeems the code of a family, counted from the newest, with right parameters or with a wrong client, verifier or
    /// URI.
    Redeem {
        family: usize,
        wrong: Option<usize>,
        /// Without the secret of a confidential client.
        unauthenticated: bool,
    },
    /// Uses a refresh token of this age; 0 is the newest.
    Refresh {
        family: usize,
        age: usize,
        other_client: bool,
        unauthenticated: bool,
        resources: usize,
    },
    Revoke {
        family: usize,
        age: usize,
        access: bool,
        other_client: bool,
        unauthenticated: bool,
    },
    LogOut {
        family: usize,
    },
    EndUser,
    Wait(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let family = || prop_oneof![3 => Just(0_usize), 2 => 0..MOST_FAMILIES];
    let age = || prop_oneof![5 => Just(0_usize), 3 => Just(1_usize), 1 => 0..6_usize];
    let rarely = || prop::bool::weighted(0.1);
    let resources = || prop_oneof![2 => Just(0_usize), 1 => 1..4_usize];
    let wait = prop::sample::select(vec![
        0,
        1,
        1,
        2,
        2,
        3,
        5,
        9,
        10,
        11,
        57,
        59,
        60,
        300,
        594,
        599,
        600,
        604,
        605,
        3600,
        DAY - 600,
        DAY,
        30 * DAY - 600,
    ]);
    prop_oneof![
        4 => (prop::bool::weighted(0.4), 0..SIGN_IN_CLIENTS.len(), resources(), prop::bool::weighted(0.7)).prop_map(
            |(offline, client, resources, allows)| Action::SignIn { offline, client, resources, allows }
        ),
        1 => Just(Action::WithdrawConsent),
        5 => (family(), prop::option::weighted(0.2, 0..3_usize), rarely())
            .prop_map(|(family, wrong, unauthenticated)| Action::Redeem { family, wrong, unauthenticated }),
        10 => (family(), age(), rarely(), rarely(), resources()).prop_map(
            |(family, age, other_client, unauthenticated, resources)| {
                Action::Refresh { family, age, other_client, unauthenticated, resources }
            }
        ),
        1 => (family(), age(), any::<bool>(), prop::bool::weighted(0.4), rarely()).prop_map(
            |(family, age, access, other_client, unauthenticated)| {
                Action::Revoke { family, age, access, other_client, unauthenticated }
            }
        ),
        1 => family().prop_map(|family| Action::LogOut { family }),
        // ending everything is rare
        1 => prop::bool::weighted(0.2).prop_map(|ends| if ends { Action::EndUser } else { Action::Wait(1) }),
        8 => wait.prop_map(Action::Wait),
    ]
}

/// An access token and its expiry.
struct Access {
    issued: IssuedTokens,
    ends: u64,
    is_for_issuer: bool,
}

/// All tokens of one login.
struct Family {
    browser: Browser,
    /// The client: a public one, or one with a secret.
    client: &'static str,
    code: Grant,
    offline: bool,
    resources: usize,
    began: u64,
    spent: Option<Spent>,
    /// Whether it was revoked.
    revoked: bool,
    logged_out: bool,
    user_ended: bool,
    /// Each refresh token, and when it was used.
    refresh: Vec<(String, Option<u64>)>,
    access: Vec<Access>,
}

/// Returns the resources that a request for these is granted.
fn granted(resources: usize) -> usize {
    if resources == 0 { 1 } else { resources }
}

fn of_bits(resources: usize) -> impl Iterator<Item = &'static str> {
    RESOURCES.into_iter().enumerate().filter_map(move |(bit, uri)| (resources >> bit & 1 == 1).then_some(uri))
}

/// Returns the parameter that names these resources.
fn parameter(resources: usize) -> String {
    of_bits(resources).map(|uri| format!("&resource={}", encode(uri))).collect()
}

struct Spent {
    at: u64,
    /// When its refresh tokens expire.
    ends: u64,
}

impl Family {
    fn session_over(&self) -> bool {
        self.user_ended || self.logged_out && !self.offline
    }

    fn is_live(&self, now: u64) -> bool {
        !self.revoked && !self.session_over() && self.spent.as_ref().is_some_and(|spent| now < spent.ends)
    }

    fn granted(&self) -> usize {
        granted(self.resources)
    }

    /// Checks that a token is for these resources, or for all that were granted. Returns whether the issuer is one of them.
    fn check_audience(&self, issued: &IssuedTokens, resources: usize) -> Result<bool, TestCaseError> {
        let resources = if resources == 0 { self.granted() } else { resources };
        let names: Vec<&str> = of_bits(resources).collect();
        let expected = if let [only] = &*names { json!(only) } else { json!(names) };
        prop_assert_eq!(&claims(&issued.access)["aud"], &expected);
        Ok(names.contains(&ISSUER))
    }

    /// Returns the last moment at which an access token issued at this time can work.
    fn access_ends(&self, issued: u64) -> u64 {
        self.spent.as_ref().map_or(0, |spent| spent.ends).min(issued + ACCESS_LIVES)
    }
}

/// Lets a client request tokens that outlive the session, and for another resource.
fn offline(client: Client) -> Client {
    client.scopes("openid profile email offline_access").unwrap().resource(NOTES).unwrap()
}

/// Scopes and resources, as the user allows them to the client of somebody else.
#[derive(Clone, Copy)]
struct Allowed {
    offline: bool,
    resources: usize,
}

impl Allowed {
    fn includes(self, other: Self) -> bool {
        self.offline >= other.offline && granted(other.resources) & !granted(self.resources) == 0
    }
}

struct Simulation {
    nodes: [World; 2],
    /// Verifiers that cache earlier results.
    verifiers: [Verifier; 2],
    families: Vec<Family>,
    /// The decisions about the client of somebody else. They don't add up.
    consents: Vec<Allowed>,
    reached: Reached,
    now: u64,
    /// The number of calls. They alternate between the two services.
    calls: usize,
}

impl Simulation {
    async fn new() -> Self {
        let all = with_confidential(offline).iter().map(|client| Client::clone(client)).collect::<Vec<_>>();
        let all = all.into_iter().chain([offline(client(PARTNER)).third_party()]);
        let nodes = two_nodes_with(Memory::new(), ClientTable::new(all).unwrap()).await;
        let verifiers = [nodes[0].service.verifier(), nodes[1].service.verifier()];
        let reached = Reached::default();
        Self { nodes, verifiers, families: Vec::new(), consents: Vec::new(), reached, now: 0, calls: 0 }
    }

    fn at(&self, family: usize) -> Option<usize> {
        self.families.len().checked_sub(1 + family)
    }

    fn browser(&mut self) -> Browser {
        self.calls += 1;
        self.nodes[self.calls % 2].browser()
    }

    async fn act(&mut self, action: Action) -> Result<(), TestCaseError> {
        match action {
            Action::Wait(seconds) => {
                self.nodes[0].advance(seconds);
                self.now += seconds;
            }
            Action::SignIn { offline, client, resources, allows } => {
                self.sign_in(SIGN_IN_CLIENTS[client], Allowed { offline, resources }, allows).await?;
            }
            Action::WithdrawConsent => self.withdraw_consent().await?,
            Action::EndUser => {
                let user = UserId::parse("u-ada").unwrap();
                self.nodes[0].service.end_user(&"acme".parse().unwrap(), &user).await.unwrap();
                for family in &mut self.families {
                    family.user_ended = true;
                }
            }
            Action::Redeem { family, wrong, unauthenticated } => {
                if let Some(at) = self.at(family) {
                    self.redeem(at, wrong, unauthenticated).await?;
                }
            }
            Action::Refresh { family, age, other_client, unauthenticated, resources } => {
                if let Some(at) = self.at(family) {
                    self.refresh((at, age), other_client, unauthenticated, resources).await?;
                }
            }
            Action::Revoke { family, age, access, other_client, unauthenticated } => {
                if let Some(at) = self.at(family) {
                    self.revoke(at, age, access, other_client, unauthenticated).await?;
                }
            }
            Action::LogOut { family } => {
                if let Some(at) = self.at(family) {
                    self.log_out(at).await?;
                }
            }
        }
        self.look().await
    }

    /// Posts a form as a client, which shows its secret if it has one. `more` is the end of the form.
    async fn post(
        &mut self,
        client: &str,
        unauthenticated: bool,
        path: &str,
        (fields, more): (&[(&str, &str)], &str),
    ) -> Answer {
        let mut browser = self.browser();
        let way = if client == SHOP && !unauthenticated { Way::Basic } else { Way::Nothing };
        let (request, form) = way.request(&self.nodes[0], client, path, &set(fields, "client_id", client));
        browser.send(request, form + more).await
    }

    async fn sign_in(&mut self, client: &'static str, asked: Allowed, allows: bool) -> Result<(), TestCaseError> {
        let Allowed { offline, resources } = asked;
        let mut browser = self.browser();
        let (own, verifier) = browser.log_in_with(client, &[("scope", if offline { OFFLINE } else { "openid" })]).await;
        let mut answer = browser.get(&format!("/authorize?{}{}", query_of(&own), parameter(resources))).await;
        let is_allowed = client != PARTNER || self.consents.iter().any(|one| one.includes(asked));
        prop_assert_eq!(is_question(&answer), !is_allowed, "{:?}", answer);
        if !is_allowed {
            answer = decide(&mut browser, &answer, if allows { "allow" } else { "deny" }).await;
            if !allows {
                prop_assert_eq!(answer.redirected("code"), None);
                self.reached.denied += 1;
                return Ok(());
            }
            self.consents.push(asked);
            self.reached.allowed += 1;
        }
        if self.families.len() == MOST_FAMILIES {
            self.families.remove(0);
        }
        let code = Grant { code: answer.redirected("code").unwrap(), verifier };
        self.families.push(Family {
            browser,
            client,
            code,
            offline,
            resources,
            began: self.now,
            spent: None,
            revoked: false,
            logged_out: false,
            user_ended: false,
            refresh: Vec::new(),
            access: Vec::new(),
        });
        Ok(())
    }

    /// All that the client got ends, also a code that it has not redeemed yet.
    async fn withdraw_consent(&mut self) -> Result<(), TestCaseError> {
        let (acme, ada) = ("acme".parse().unwrap(), UserId::parse("u-ada").unwrap());
        let was_there = self.nodes[0].service.withdraw_consent(&acme, &ada, PARTNER).await.unwrap();
        prop_assert_eq!(was_there, !self.consents.is_empty());
        self.consents.clear();
        for family in self.families.iter_mut().filter(|family| family.client == PARTNER) {
            self.reached.withdrawn += usize::from(!family.revoked);
            family.revoked = true;
        }
        Ok(())
    }

    /// Notes new tokens for these resources, or for all that were granted.
    fn issued(&mut self, at: usize, answer: &Answer, resources: usize) -> Result<(), TestCaseError> {
        let issued = IssuedTokens::of(answer);
        let is_for_issuer = self.families[at].check_audience(&issued, resources)?;
        let ends = self.families[at].access_ends(self.now);
        self.families[at].refresh.push((issued.refresh().to_owned(), None));
        self.families[at].access.push(Access { issued, ends, is_for_issuer });
        Ok(())
    }

    async fn redeem(&mut self, at: usize, wrong: Option<usize>, unauthenticated: bool) -> Result<(), TestCaseError> {
        let (code, mut client) = (self.families[at].code.clone(), self.families[at].client);
        let mut fields = redemption(client, &code);
        let other = "x".repeat(43);
        if let Some(wrong) = wrong {
            fields[2 + wrong].1 = [&*other, CLIENTS[1], "https://app.example/other"][wrong];
            client = if wrong == 1 { CLIENTS[1] } else { client };
        }
        let answer = self.post(client, unauthenticated, "/token", (&fields, "")).await;
        if unauthenticated && client == SHOP {
            prop_assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_client"));
            return Ok(());
        }
        let (now, family) = (self.now, &self.families[at]);
        let is_there = match &family.spent {
            None => now < family.began + 60,
            Some(spent) => now < spent.ends,
        };
        let is_right = is_there && wrong.is_none();
        if is_right && family.spent.is_none() && !family.session_over() && !family.revoked {
            let ends = now + if family.offline { 30 * DAY } else { DAY };
            self.families[at].spent = Some(Spent { at: now, ends });
            return self.issued(at, &answer, 0);
        }
        prop_assert!(is_no_grant(&answer), "{:?}", answer);
        if is_right && family.spent.as_ref().is_some_and(|spent| now > spent.at + 2) {
            self.families[at].revoked = true;
        }
        Ok(())
    }

    async fn refresh(
        &mut self,
        (at, age): (usize, usize),
        other_client: bool,
        unauthenticated: bool,
        resources: usize,
    ) -> Result<(), TestCaseError> {
        let family = &self.families[at];
        let Some(place) = family.refresh.len().checked_sub(1 + age) else { return Ok(()) };
        let (token, used) = family.refresh[place].clone();
        let client = if other_client { CLIENTS[1] } else { family.client };
        let fields = [("grant_type", "refresh_token"), ("refresh_token", &*token)];
        let answer = self.post(client, unauthenticated, "/token", (&fields, &parameter(resources))).await;
        let (now, family) = (self.now, &mut self.families[at]);
        let is_too_much = resources & !family.granted() != 0;
        // a used token revokes its family, regardless of the client that presents it
        let is_leak = age > 1 || age == 1 && used.is_some_and(|used| now >= used + 10);
        if unauthenticated && client == SHOP {
            prop_assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_client"));
            family.revoked |= family.is_live(now) && is_leak;
            return Ok(());
        }
        if !family.is_live(now) || other_client {
            let is_refused = is_no_grant(&answer) || is_too_much && answer.error() == "invalid_target";
            prop_assert!(is_refused, "{:?}", answer);
            family.revoked |= family.is_live(now) && is_leak;
            return Ok(());
        }
        if is_too_much && !is_leak {
            // the token is not used up
            prop_assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "invalid_target"));
            return Ok(());
        }
        match (age, used) {
            (0, _) => {
                family.refresh[place].1 = Some(now);
                self.issued(at, &answer, resources)?;
                let tokens = &self.families[at].refresh;
                prop_assert_ne!(&tokens[place].0, &tokens[place + 1].0);
            }
            (1, Some(used)) if now < used + 10 => {
                let issued = IssuedTokens::of(&answer);
                prop_assert_eq!(issued.refresh(), &*family.refresh[place + 1].0, "a second chain of tokens");
                let left = answer.json()["expires_in"].as_u64().unwrap();
                let ends = family.access_ends(used);
                prop_assert_eq!(left, ends - now);
                let is_for_issuer = family.check_audience(&issued, resources)?;
                family.access.push(Access { issued, ends, is_for_issuer });
            }
            _ => {
                prop_assert!(is_no_grant(&answer), "{:?}", answer);
                family.revoked = true;
            }
        }
        Ok(())
    }

    async fn revoke(
        &mut self,
        at: usize,
        age: usize,
        access: bool,
        other: bool,
        unauthenticated: bool,
    ) -> Result<(), TestCaseError> {
        let family = &self.families[at];
        let counts = if access { family.access.len() } else { family.refresh.len() };
        let Some(place) = counts.checked_sub(1 + age) else { return Ok(()) };
        let token = if access { &family.access[place].issued.access } else { &family.refresh[place].0 }.clone();
        let client = if other { CLIENTS[1] } else { family.client };
        let answer = self.post(client, unauthenticated, "/revoke", (&[("token", &token)], "")).await;
        if unauthenticated && client == SHOP {
            prop_assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_client"));
            return Ok(());
        }
        let (now, family) = (self.now, &mut self.families[at]);
        prop_assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, "{}"));
        // revoking an expired access token does nothing
        let is_known = if access { now < family.access[place].ends && family.is_live(now) } else { true };
        family.revoked |= is_known && !other && family.spent.as_ref().is_some_and(|spent| now < spent.ends);
        Ok(())
    }

    async fn log_out(&mut self, at: usize) -> Result<(), TestCaseError> {
        let family = &mut self.families[at];
        let Some(hint) = family.access.last().map(|access| access.issued.id().to_owned()) else { return Ok(()) };
        let answer = family.browser.log_out(family.client, &hint).await;
        prop_assert_eq!(answer.status.as_u16(), 200, "{:?}", answer);
        // the hint ends the session even if it expired after an hour without use
        family.logged_out = true;
        family.browser.cookies.remove("__Host-session_giszrYfB");
        Ok(())
    }

    /// Compares all current and previous tokens with the model, at every place.
    async fn look(&mut self) -> Result<(), TestCaseError> {
        let mut browser = self.browser();
        let verifier = &self.verifiers[self.calls % 2];
        let now = self.now;
        for family in &self.families {
            let places: BTreeSet<_> =
                [0, 1, 4].into_iter().filter_map(|age| family.access.len().checked_sub(1 + age)).collect();
            for place in places {
                let access = &family.access[place];
                // introspecting a leaked token would revoke the family
                let last = family.refresh.len() - 1;
                let at = place.min(last);
                let is_leak = family.refresh[at].1.is_some_and(|used| at + 1 < last || now >= used + 10);
                let refresh = &family.refresh[if is_leak { last } else { at }];
                let issued = IssuedTokens { refresh: Some(refresh.0.clone()), ..access.issued.clone() };
                let good = good_at(&mut browser, verifier, family.client, &issued).await;
                let mut expected = BTreeSet::new();
                if family.is_live(now) {
                    if now < access.ends {
                        expected.extend(&EVERYWHERE[usize::from(!access.is_for_issuer)..2]);
                    }
                    // during its grace, a used token looks like the current one
                    expected.insert(EVERYWHERE[3]);
                }
                if access.is_for_issuer && !family.revoked && !family.session_over() && now < access.ends + LEEWAY {
                    expected.insert(EVERYWHERE[2]);
                }
                prop_assert_eq!(good, expected, "token {} at {}", place, now);
                // a client that does not authenticate learns nothing about it
                let told =
                    browser.form("/introspect", &[("client_id", family.client), ("token", &issued.access)]).await;
                prop_assert_eq!((told.status.as_u16(), &*told.error()), (401, "invalid_client"));
            }
        }
        // a verifier without a cache agrees
        if let Some(access) = self.families.last().and_then(|family| family.access.last()) {
            let fresh = self.nodes[0].service.verifier();
            prop_assert_eq!(
                at_layer(&fresh, &access.issued.access).await,
                at_layer(verifier, &access.issued.access).await
            );
        }
        Ok(())
    }
}

/// How often the user decided about the client of somebody else, and how many of its families a withdrawal has ended.
#[derive(Clone, Copy, Default)]
struct Reached {
    allowed: usize,
    denied: usize,
    withdrawn: usize,
}

fn simulate(actions: Vec<Action>) -> Result<Reached, TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut simulation = Simulation::new().await;
        simulation.act(Action::SignIn { offline: false, client: 0, resources: 0, allows: true }).await?;
        simulation.act(Action::Redeem { family: 0, wrong: None, unauthenticated: false }).await?;
        for action in actions {
            simulation.act(action).await?;
        }
        Ok(simulation.reached)
    })
}

proptest! {
    #![proptest_config(random_runs::config(16, 0x0701_36E5))]
    #[test]
    fn c092_c095_c096_c134_each_token_works_exactly_when_the_model_says_so(actions in vec(action(), 1..50)) {
        simulate(actions)?;
    }
}

/// Makes sure that random calls reach consent and its withdrawal.
#[test]
fn c134_many_random_calls_withdraw_consent_to_clients_that_have_tokens() {
    use proptest::strategy::ValueTree;
    if random_runs::config(16, 0).cases < 10 {
        return; // on purpose, to save time
    }
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let script = vec(action(), 50);
    let all = (0..10).map(|_| simulate(script.new_tree(&mut runner).unwrap().current()).unwrap());
    let sum = all.fold(Reached::default(), |sum, one| Reached {
        allowed: sum.allowed + one.allowed,
        denied: sum.denied + one.denied,
        withdrawn: sum.withdrawn + one.withdrawn,
    });
    let Reached { allowed, denied, withdrawn } = sum;
    assert!(allowed >= 5 && denied >= 2 && withdrawn >= 2, "{allowed} {denied} {withdrawn}");
}
