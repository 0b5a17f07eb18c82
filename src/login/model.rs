//! Compares the transition table with a second description of it, written from what a login is meant to do.

use std::{collections::BTreeSet, time::Duration};

use proptest::{collection::vec, prelude::*, test_runner::Config};

use super::{
    keyed::Keyed,
    limits::LoginLimits,
    machine::{LoginCall, LoginError, Proved, transition},
    one_time_code::{OneTimeCode, OpenCode},
    parameters::{Binding, Wanted},
    state::{CarriedProofs, Challenge, Login, LoginPhase, LoginStatus, OpenChallenge, OpenRedirect},
    subject::{BoundUser, Subject},
};
use crate::{
    client::Scopes,
    pkce::{CodeChallenge, CodeVerifier},
    policy::{EnrolledFactors, LoginPlan, Method, MethodSet, Policies, Policy},
    session::{Proof, UserId},
    tenant::Tenant,
    user::Identifier,
    util::{
        clock::UnixTime,
        public_id::PublicId,
        secret::{Secret, SecretDigest},
    },
};

const METHODS: [Method; 7] = [
    Method::Password,
    Method::Sms,
    Method::Whatsapp,
    Method::Email,
    Method::Passkey,
    Method::Totp,
    Method::RecoveryCode,
];
/// The methods that send a code.
const BY_CODE: [Method; 3] = [Method::Sms, Method::Whatsapp, Method::Email];
/// The methods that prove a second factor.
const FACTORS: [Method; 3] = [Method::Passkey, Method::Totp, Method::RecoveryCode];
const USERS: usize = 2;
/// The methods that a session had proved.
const CARRIED: [Method; 2] = [Method::Email, Method::Password];
const BEGAN: u64 = 1_000_000;

/// A user by number, or no user.
type Who = Option<usize>;

#[derive(Clone, Copy, Debug)]
enum Action {
    Wait(u64),
    Attempt(Method),
    /// Ends the oldest attempt in progress.
    Settle(Who),
    Withdraw,
    Open(Method, Who),
    Verify(Guess, Who),
    /// Leaves for a provider.
    Leave,
    /// Comes back from a provider. The text names another one.
    Return(Guess),
    OpenPasskey,
    /// Answers the newest challenge for a passkey, or the one before.
    TakePasskey {
        newest: bool,
    },
    Complete,
    /// Raises the generation of a user, as `end_user` does.
    Raise(usize),
    End,
    Consume,
}

#[derive(Clone, Copy, Debug)]
enum Guess {
    Right,
    /// The code that was sent before the last one.
    Former,
    Text(&'static str),
}

/// The user that a login is for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum For {
    Anyone,
    NoOne,
    /// A user, and the generation when the login was bound.
    User(usize, u64),
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![1 => Just(None), 6 => Just(Some(0)), 1 => Just(Some(1))]
}

fn method() -> impl Strategy<Value = Method> {
    prop::sample::select(&METHODS)
}

/// What a user has enrolled, all of it or a part of it counting for the policy.
fn factors() -> impl Strategy<Value = EnrolledFactors> {
    let some = |of: MethodSet| prop::sample::subsequence(of.iter().collect::<Vec<_>>(), 0..=of.len());
    some(FACTORS.into()).prop_flat_map(move |all| {
        let all = MethodSet::from_iter(all);
        some(all).prop_map(move |counting| EnrolledFactors {
            all,
            counting: counting.into_iter().collect(),
            reset: None,
        })
    })
}

fn action() -> impl Strategy<Value = Action> {
    let wait = prop_oneof![
        4 => 0_u64..120,
        1 => prop::sample::select(vec![299_u64, 300, 301, 599, 600, 601]),
    ];
    let text = prop::sample::select(vec!["wrong", "", "00000", "0000000", "abcdef", "٠٠٠٠٠٠"]).prop_map(Guess::Text);
    let guess = prop_oneof![5 => Just(Guess::Right), 1 => Just(Guess::Former), 5 => text];
    let back = prop_oneof![5 => Just(Guess::Right), 1 => Just(Guess::Former), 1 => Just(Guess::Text(""))];
    prop_oneof![
        30 => wait.prop_map(Action::Wait),
        40 => method().prop_map(Action::Attempt),
        50 => who().prop_map(Action::Settle),
        10 => Just(Action::Withdraw),
        20 => Just(Action::OpenPasskey),
        20 => prop::bool::weighted(0.8).prop_map(|newest| Action::TakePasskey { newest }),
        30 => (prop::sample::select(&BY_CODE), who()).prop_map(|(method, who)| Action::Open(method, who)),
        60 => (guess, who()).prop_map(|(guess, who)| Action::Verify(guess, who)),
        20 => Just(Action::Leave),
        25 => back.prop_map(Action::Return),
        20 => Just(Action::Complete),
        3 => (0..USERS).prop_map(Action::Raise),
        1 => Just(Action::End),
        10 => Just(Action::Consume),
    ]
}

/// The intended state of a login. Times are seconds.
#[derive(Clone, Debug)]
struct Model {
    /// The steps that the policy needs.
    steps: usize,
    /// What each user has enrolled.
    factors: [EnrolledFactors; USERS],
    demand: Demand,
    proved: Vec<Method>,
    user: For,
    status: LoginStatus,
    open: Option<Open>,
    /// The state with which the user left for a provider, and when.
    away: Option<(String, u64)>,
    /// When the challenge for a passkey was opened.
    passkey: Option<u64>,
    failures: u32,
    sends: u32,
    last_call: u64,
    completed_at: Option<u64>,
    over: bool,
    /// The current generation of each user.
    generations: [u64; USERS],
}

/// Whether the login needs a second factor that its user has enrolled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Demand {
    Nothing,
    /// One of these, in one of the steps of the policy.
    Within(MethodSet),
    /// One of these, in one step more.
    OneMore(MethodSet),
}

#[derive(Clone, Debug)]
struct Open {
    method: Method,
    /// The user whom the code was sent to, and the generation at that time.
    owner: Option<(usize, u64)>,
    code: String,
    attempts: u32,
    sent_at: u64,
}

impl Model {
    fn start_model(steps: usize, carried: usize, user: For, factors: [EnrolledFactors; USERS]) -> Self {
        Self {
            steps,
            factors,
            demand: Demand::Nothing,
            proved: CARRIED[..carried].to_vec(),
            user,
            status: if carried > 0 { LoginStatus::Success } else { LoginStatus::Pending },
            open: None,
            away: None,
            passkey: None,
            failures: 0,
            sends: 0,
            last_call: 0,
            completed_at: None,
            over: false,
            generations: [0; USERS],
        }
    }

    fn required(&self) -> usize {
        self.steps + usize::from(matches!(self.demand, Demand::OneMore(_)))
    }

    fn remaining(&self) -> usize {
        self.required() - self.proved.len()
    }

    fn has_proved_factor(&self) -> bool {
        self.proved.iter().any(|method| FACTORS.contains(method))
    }

    fn is_over(&self, now: u64) -> bool {
        let window = match self.completed_at {
            Some(at) => now >= at + 300,
            None => now >= self.last_call + 600,
        };
        self.over || window || now >= 1800
    }

    fn expected_status(&self, now: u64) -> LoginStatus {
        match self.has_failed(now) {
            _ if self.is_over(now) => LoginStatus::Expired,
            true => LoginStatus::Failed,
            false => self.status,
        }
    }

    /// Returns whether the login failed. Attempts whose end was never stored count as failures after half a minute.
    fn has_failed(&self, now: u64) -> bool {
        let is_unsettled = self.failures == 15 && self.remaining() > 0;
        self.status == LoginStatus::Failed || (is_unsettled && now >= self.last_call + 30)
    }

    fn expects(&self, method: Method) -> Result<(), LoginError> {
        if self.remaining() == 0 {
            return Err(LoginError::NoStepRemaining);
        }
        // codes of an authenticator come after another step
        let too_early = self.proved.is_empty() && matches!(method, Method::Totp | Method::RecoveryCode);
        let used = self.proved.iter().any(|proved| proved.class() == method.class());
        // the last free step is for the factor
        let is_proved = |factors: MethodSet| self.proved.iter().any(|method| factors.contains(*method));
        let is_free = match self.demand {
            Demand::Nothing => true,
            Demand::Within(factors) => {
                let left = factors.iter().any(|factor| factor.class() != method.class());
                is_proved(factors) || factors.contains(method) || self.remaining() > 1 && left
            }
            Demand::OneMore(factors) if FACTORS.contains(&method) => factors.contains(method) && !is_proved(factors),
            Demand::OneMore(factors) => is_proved(factors) || self.remaining() > 1,
        };
        if used || too_early || !is_free { Err(LoginError::MethodNotAllowed) } else { Ok(()) }
    }

    fn fail(&mut self, method: Method) -> LoginError {
        if self.failures < 15 {
            return LoginError::WrongSecret(method);
        }
        (self.status, self.open, self.away, self.passkey) = (LoginStatus::Failed, None, None, None);
        LoginError::TooManyFailures
    }

    fn end(&mut self) -> Result<(), LoginError> {
        (self.over, self.open, self.away, self.passkey) = (true, None, None, None);
        Err(LoginError::Expired)
    }

    /// Applies a right secret of this user, who had this generation when the secret was sent.
    fn succeed(&mut self, method: Method, user: usize, sent_to: Option<u64>) -> Result<(), LoginError> {
        let current = self.generations[user];
        let bound = match self.user {
            For::User(_, bound) => bound,
            For::Anyone | For::NoOne => current,
        };
        if bound.min(sent_to.unwrap_or(current)) != current {
            return self.end();
        }
        self.proved.push(method);
        let EnrolledFactors { all, counting, .. } = self.factors[user];
        if self.demand == Demand::Nothing && !all.is_empty() && !self.has_proved_factor() {
            let fits = self.proved.len() < self.steps && !counting.is_empty();
            self.demand = if fits { Demand::Within(counting) } else { Demand::OneMore(all) };
        }
        (self.user, self.status) = (For::User(user, current), LoginStatus::Success);
        (self.open, self.away, self.passkey) = (None, None, None);
        Ok(())
    }

    /// Returns the user if this login can be theirs.
    fn accepted(&self, who: Who) -> Who {
        who.filter(|who| match self.user {
            For::Anyone => true,
            For::NoOne => false,
            For::User(own, _) => own == *who,
        })
    }

    /// Applies the intended effect of a call. `guess` is the typed code.
    fn call(&mut self, action: Action, settled: Method, guess: &str, sent: &str, now: u64) -> Result<(), LoginError> {
        if self.is_over(now) {
            return Err(LoginError::Expired);
        }
        if self.has_failed(now) {
            return Err(LoginError::TooManyFailures);
        }
        let before = self.last_call;
        self.last_call = now;
        let answer = self.act(action, settled, guess, sent, now);
        // refused calls and repeated confirmations do not count as activity
        let stays = match (&answer, action) {
            (Err(LoginError::WrongSecret(_)), Action::Settle(_)) => true,
            (Err(LoginError::WrongSecret(_) | LoginError::TooManyFailures), _) => false,
            (Err(_), _) => true,
            (Ok(()), Action::Complete) => self.completed_at != Some(now),
            (Ok(()), _) => false,
        };
        if stays {
            self.last_call = before;
        }
        answer
    }

    fn act(&mut self, action: Action, settled: Method, guess: &str, sent: &str, now: u64) -> Result<(), LoginError> {
        match action {
            Action::Wait(_) | Action::Raise(_) => {}
            Action::Attempt(method) => {
                self.expects(method)?;
                if self.failures == 15 {
                    return Err(LoginError::AttemptsUnderWay);
                }
                self.failures += 1;
            }
            Action::Settle(who) => {
                let user = self.accepted(who);
                // a right secret is not a failure, even if it arrives second
                self.failures -= u32::from(user.is_some());
                self.expects(settled)?;
                let Some(user) = user else { return Err(self.fail(settled)) };
                self.succeed(settled, user, None)?;
            }
            Action::Withdraw => {
                if self.remaining() == 0 {
                    return Err(LoginError::NoStepRemaining);
                }
                self.failures -= 1;
            }
            Action::Open(method, owner) => {
                self.expects(method)?;
                if self.failures == 15 {
                    return Err(LoginError::AttemptsUnderWay);
                }
                if self.sends == 5 {
                    return Err(LoginError::NoSendsLeft(Duration::ZERO));
                }
                self.sends += 1;
                self.status = LoginStatus::Pending;
                let (code, owner) = (sent.to_owned(), owner.map(|owner| (owner, self.generations[owner])));
                self.open = Some(Open { method, owner, code, attempts: 0, sent_at: now });
                self.away = None;
            }
            Action::Leave => {
                self.expects(Method::Sso)?;
                if self.failures == 15 {
                    return Err(LoginError::AttemptsUnderWay);
                }
                (self.status, self.open) = (LoginStatus::Pending, None);
                self.away = Some((sent.to_owned(), now));
            }
            Action::Return(_) => {
                if !self.away.as_ref().is_some_and(|(state, left)| state == guess && now < left + 600) {
                    return Err(LoginError::NoPendingChallenge);
                }
                if self.failures == 15 {
                    return Err(LoginError::AttemptsUnderWay);
                }
                self.failures += 1;
                self.away = None;
            }
            Action::Verify(_, who) => {
                let Some(open) = &mut self.open else { return Err(LoginError::NoPendingChallenge) };
                if self.failures == 15 {
                    return Err(LoginError::AttemptsUnderWay);
                }
                let (method, owner) = (open.method, open.owner);
                let is_code = open.code == guess && now < open.sent_at + 300 && owner.map(|owner| owner.0) == who;
                open.attempts += 1;
                let spent = open.attempts == 5;
                match self.accepted(who).filter(|_| is_code) {
                    Some(user) => self.succeed(method, user, owner.map(|owner| owner.1))?,
                    None => {
                        self.failures += 1;
                        self.open = self.open.take().filter(|_| !spent);
                        return Err(self.fail(method));
                    }
                }
            }
            Action::OpenPasskey => {
                self.expects(Method::Passkey)?;
                if self.failures == 15 {
                    return Err(LoginError::AttemptsUnderWay);
                }
                (self.status, self.passkey) = (LoginStatus::Pending, Some(now));
            }
            Action::TakePasskey { newest } => {
                self.expects(Method::Passkey)?;
                if !newest || self.passkey.is_none_or(|opened| now >= opened + 300) {
                    return Err(LoginError::NoPendingChallenge);
                }
                if self.failures == 15 {
                    return Err(LoginError::AttemptsUnderWay);
                }
                self.passkey = None;
                self.failures += 1;
            }
            Action::Complete if self.remaining() > 0 => return Err(LoginError::StepsRemaining),
            Action::Complete => {
                self.completed_at.get_or_insert(now);
                self.status = LoginStatus::Completed;
            }
            Action::End => self.end()?,
            Action::Consume if self.completed_at.is_none() => return Err(LoginError::NotCompleted),
            Action::Consume => self.over = true,
        }
        Ok(())
    }
}

fn plan(steps: usize) -> LoginPlan {
    let enabled: MethodSet = METHODS.into_iter().chain([Method::Sso]).collect();
    Policies::new(Policy::any(steps).unwrap()).plan(&tenant(), None, None, enabled).unwrap()
}

fn tenant() -> Tenant {
    Tenant::parse("acme").unwrap()
}

fn bound((at, generation): (usize, u64)) -> BoundUser {
    BoundUser { id: UserId::parse(["u-ada", "u-grace"][at % USERS]).unwrap(), generation }
}

fn subject(user: For) -> Subject {
    match user {
        For::Anyone => Subject::Unbound,
        For::NoOne => Subject::Unknown,
        For::User(user, generation) => Subject::User(bound((user, generation))),
    }
}

fn login_with_steps(steps: usize, carried: usize, user: For) -> Login {
    let verifier = CodeVerifier::parse("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk").unwrap();
    let binding = Binding {
        client_id: "web".to_owned(),
        redirect_uri: "https://app.example/callback".to_owned(),
        scope: Scopes::parse("openid").unwrap(),
        code_challenge: CodeChallenge::from_verifier(&verifier),
    };
    let (limits, now) = (LoginLimits::new(), UnixTime::from_secs(BEGAN));
    let parameters = (binding, Wanted::default());
    let login = Login::begin_login(&Secret::generate(), tenant(), parameters, plan(steps), (&limits, now));
    let login = match user {
        For::Anyone => login,
        user => login.identified(Identifier::parse("ada").unwrap(), subject(user)),
    };
    if carried == 0 {
        return login;
    }
    let proofs = (1..).zip(&CARRIED[..carried]).map(|(at, method)| Proof {
        method: method.as_str().into(),
        at: (BEGAN - 1000 + at) * 1_000_000_000,
        mark: None,
        elsewhere: None,
    });
    let session = PublicId::of_digest(&SecretDigest::of_secret("a session"));
    login.carrying(CarriedProofs { session, user: bound((0, 0)), proofs: proofs.collect() })
}

proptest! {
    #![proptest_config(Config::with_cases(3_000))]
    #[test]
    fn b08_c043_c044_c046_c047_c057_c087_c105_c106_c116_c119_c131_the_table_agrees_with_its_model(
        steps in 1_usize..=4,
        carried in prop_oneof![2 => Just(0_usize), 1 => 1_usize..=2],
        user in prop_oneof![2 => Just(For::Anyone), 1 => Just(For::NoOne), 3 => Just(For::User(0, 0))],
        factors in [factors(), factors()],
        actions in vec(action(), 1..80),
    ) {
        let keyed = Keyed::new(&Secret::generate());
        let (contact, limits) = (SecretDigest::of_secret("an address"), LoginLimits::new());
        let carried = carried.min(steps);
        let user = if carried > 0 { For::User(0, 0) } else { user };
        let mut login = login_with_steps(steps, carried, user);
        let mut model = Model::start_model(steps, carried, user, factors);
        let (mut seconds, mut under_way, mut codes) = (0, Vec::new(), Vec::<String>::new());
        let mut states: Vec<Secret> = Vec::new();
        let challenge = |now, seconds| OpenChallenge::new(Secret::generate().digest(), now + Duration::from_secs(seconds));
        let mut challenges: Vec<OpenChallenge> = (0..2).map(|_| challenge(UnixTime::from_secs(BEGAN), 300)).collect();
        for action in &actions {
            match action {
                Action::Wait(wait) => {
                    seconds += wait;
                    let shown = login.to_login_view(UnixTime::from_secs(BEGAN + seconds)).status;
                    prop_assert_eq!(shown, model.expected_status(seconds));
                    continue;
                }
                Action::Raise(user) => {
                    model.generations[*user] += 1;
                    continue;
                }
                _ => {}
            }
            let now = UnixTime::from_secs(BEGAN + seconds);
            let settled = match action {
                Action::Settle(_) | Action::Withdraw if under_way.is_empty() => continue,
                Action::Settle(_) | Action::Withdraw => under_way.remove(0),
                _ => Method::Password,
            };
            let (sent, leaving) = (OneTimeCode::generate(), Secret::generate());
            let guess = match action {
                Action::Verify(Guess::Right, _) => codes.last().cloned().unwrap_or_default(),
                Action::Verify(Guess::Former, _) => codes.iter().rev().nth(1).cloned().unwrap_or_default(),
                Action::Verify(Guess::Text(text), _) => (*text).to_owned(),
                Action::Return(Guess::Right) => states.last().map(Secret::expose).unwrap_or_default().to_owned(),
                Action::Return(Guess::Former) => {
                    states.iter().rev().nth(1).map(Secret::expose).unwrap_or_default().to_owned()
                }
                _ => String::new(),
            };
            let who = match action {
                Action::Settle(who) | Action::Open(_, who) | Action::Verify(_, who) => {
                    who.map(|user| bound((user, model.generations[user])))
                }
                _ => None,
            };
            let enrolled = match action {
                Action::Settle(Some(user)) | Action::Verify(_, Some(user)) => factors[*user],
                _ => EnrolledFactors::default(),
            };
            let open = match action {
                Action::Open(method, _) => {
                    let to = (*method, &contact);
                    let code = OpenCode::new(to, who.clone(), &login.id, &sent, &keyed, (&limits, now));
                    Some(Challenge::Code(code))
                }
                Action::Leave => {
                    let state = OpenChallenge::new(leaving.digest(), now + Duration::from_secs(600));
                    Some(Challenge::Redirect(OpenRedirect { provider: "idp".to_owned(), state, query: String::new() }))
                },
                _ => None,
            };
            let opened = challenge(now, 300);
            let [.., former, newest] = &challenges[..] else { unreachable!() };
            let (provider, state) = match action {
                Action::Return(Guess::Text(_)) => ("other", states.last().map(Secret::digest)),
                _ => ("idp", Secret::parse(&guess).map(|state| state.digest())),
            };
            let state = state.unwrap_or(SecretDigest::of_secret("no state"));
            let call = match (action, &open) {
                (Action::OpenPasskey, _) => LoginCall::OpenPasskey(&opened),
                (Action::TakePasskey { newest: true }, _) => LoginCall::TakePasskey(newest),
                (Action::TakePasskey { newest: false }, _) => LoginCall::TakePasskey(former),
                (Action::Attempt(method), _) => LoginCall::Attempt(*method),
                (Action::Settle(_), _) => {
                    let proved = |user| Proved { user, mark: None, elsewhere: None, factors: enrolled };
                    LoginCall::Settle(settled, who.as_ref().map(proved))
                }
                (Action::Withdraw, _) => LoginCall::Withdraw,
                (Action::Open(..) | Action::Leave, Some(open)) => LoginCall::Open(open),
                (Action::Return(_), _) => LoginCall::Redeem { provider, state: &state },
                (Action::Verify(..), _) => {
                    let of = login.open.as_ref().and_then(Challenge::code);
                    LoginCall::Verify { of, guess: &guess, keyed: &keyed, owner: who.as_ref(), factors: enrolled }
                }
                (Action::Complete, _) => LoginCall::Complete,
                (Action::End, _) => LoginCall::End,
                _ => LoginCall::Consume(&login.id),
            };
            let before = login.clone();
            let was = model.clone();
            let taken = transition(&login, &call, now);
            let text = if matches!(action, Action::Leave) { leaving.expose() } else { sent.expose() };
            let meant = model.call(*action, settled, &guess, text, seconds);
            match (&taken.answer, &meant) {
                // the wait is the rest of the login, which the model below checks
                (Err(LoginError::NoSendsLeft(wait)), Err(LoginError::NoSendsLeft(_))) => {
                    let ends = UnixTime::from_secs(BEGAN + seconds) + *wait;
                    prop_assert!(login.has_ended(ends) && !login.has_ended(now));
                }
                (Err(error), Err(meant)) => prop_assert_eq!(error, meant),
                (answer, meant) => prop_assert_eq!(answer.is_ok(), meant.is_ok(), "{:?} for {:?}", answer, meant),
            }
            if let Some(next) = &taken.next {
                login = next.clone();
            }
            if meant.is_ok() {
                match action {
                    Action::Attempt(method) => under_way.push(*method),
                    Action::Open(..) => codes.push(sent.expose().to_owned()),
                    Action::Leave => states.push(leaving),
                    Action::Return(_) => under_way.push(Method::Sso),
                    Action::OpenPasskey => challenges.push(opened),
                    Action::TakePasskey { .. } => under_way.push(Method::Passkey),
                    _ => {}
                }
            }

            // the login agrees with the model
            let view = login.to_login_view(now);
            prop_assert_eq!(view.status, model.expected_status(seconds));
            prop_assert_eq!((view.completed, view.remaining), (model.proved.len(), model.remaining()));
            prop_assert_eq!(u32::from(login.failures), model.failures);
            prop_assert_eq!(u32::from(login.sends), model.sends);
            let is_away = matches!(login.open, Some(Challenge::Redirect(_)));
            prop_assert_eq!(is_away, model.away.is_some());
            prop_assert_eq!(login.open.is_some() && !is_away, model.open.is_some());
            prop_assert_eq!(login.passkey.is_some(), model.passkey.is_some());
            let is_completed = model.status == LoginStatus::Completed && !model.is_over(seconds);
            prop_assert_eq!(login.is_completed(now), is_completed);
            prop_assert_eq!(&login.subject, &subject(model.user));
            if let Ok(shown) = taken.answer {
                prop_assert_eq!(shown, view);
            }

            // and it keeps the rules of every login
            prop_assert_eq!((login.carried, login.is_all_carried()), (carried, login.proofs.len() == carried));
            let required = model.required();
            prop_assert_eq!(view.completed + view.remaining, required);
            prop_assert_eq!(view.next(), (view.completed < required).then_some(view.completed + 1));
            let is_new = login.proofs.len() > carried;
            if let (For::User(user, _), 0, true) = (model.user, view.remaining, is_new) {
                let left_out = !factors[user].all.is_empty() && !model.has_proved_factor();
                prop_assert!(!left_out, "a login is complete without the factor of its user");
            }
            prop_assert!(login.proofs.starts_with(&before.proofs), "a proof was undone");
            prop_assert!(login.proofs.len() <= before.proofs.len() + 1);
            let classes: BTreeSet<_> = login.proved().iter().map(Method::class).collect();
            prop_assert_eq!(classes.len(), login.proofs.len());
            let is_first = before.subject == Subject::Unbound && login.proofs.len() == 1;
            prop_assert!(before.subject == login.subject || is_first, "another user");
            let authentication = login.authentication(None);
            prop_assert_eq!(authentication.is_some(), !login.proofs.is_empty());
            prop_assert_eq!(authentication.map(|it| it.user), login.subject.user().filter(|_| !login.proofs.is_empty()).map(|it| it.id.clone()));
            if let (Some(user), true) = (login.subject.user(), login.proofs.len() > before.proofs.len()) {
                let at = usize::from(user.id.as_str() == "u-grace");
                prop_assert_eq!(user.generation, model.generations[at], "a user of an older generation proved a step");
            }
            prop_assert!(!was.is_over(seconds) || taken.next.is_none(), "a login changed after its end");
            if meant.is_err() && !matches!(login.phase, LoginPhase::Failed | LoginPhase::Ended) {
                prop_assert_eq!(login.phase, before.phase, "a failure changed the status");
            }
        }
    }

    #[test]
    fn logins_are_in_the_order_of_their_last_changes(one in 0_u64..3, other in 0_u64..3) {
        let touched = |touched| Login { touched, ..login_with_steps(1, 0, For::Anyone) };
        let (one, other) = (touched(one), touched(other));
        prop_assert!(!one.was_touched_before(&one));
        prop_assert!(one.was_touched_before(&other) != other.was_touched_before(&one));
        if one.touched != other.touched {
            prop_assert_eq!(one.was_touched_before(&other), one.touched < other.touched);
        }
    }

    #[test]
    fn c105_a_login_ends_without_progress_and_at_the_time_that_was_set_when_it_began(
        more in 0_u64..1800,
        at in 0_u64..3000,
    ) {
        let idle = 600;
        let limits = LoginLimits::new().absolute_timeout(Duration::from_secs(idle + more));
        let binding = login_with_steps(1, 0, For::Anyone).binding;
        let now = UnixTime::from_secs(BEGAN);
        let parameters = (binding, Wanted::default());
        let login = Login::begin_login(&Secret::generate(), tenant(), parameters, plan(1), (&limits, now));
        prop_assert_eq!(login.has_ended(UnixTime::from_secs(BEGAN + at)), at >= idle);
        // make progress as late as possible
        let last = UnixTime::from_secs(BEGAN + idle - 1);
        let login = transition(&login, &LoginCall::Attempt(Method::Password), last).next.unwrap();
        prop_assert_eq!(login.has_ended(UnixTime::from_secs(BEGAN + at)), at >= (2 * idle - 1).min(idle + more));
    }
}

#[test]
fn attempts_that_were_never_settled_fail_a_login_unless_all_steps_are_proved() {
    let at = |seconds| UnixTime::from_secs(BEGAN + seconds);
    let unsettled = Login { failures: 15, ..login_with_steps(1, 0, For::User(0, 0)) };
    assert!(!unsettled.has_failed(at(29)) && unsettled.has_failed(at(30)));
    let proof = Proof { method: "password".into(), at: at(0).as_nanos(), mark: None, elsewhere: None };
    let proved = Login { proofs: vec![proof], ..unsettled };
    assert_eq!((proved.remaining(), proved.has_failed(at(30))), (0, false));
}

#[test]
fn a_proof_of_unknown_age_is_as_young_as_the_provider_was_asked_for() {
    let now = UnixTime::from_secs(BEGAN + 1);
    let proof = Proof { method: "sso".into(), at: now.as_nanos(), mark: None, elsewhere: Some(0) };
    let login = Login { proofs: vec![proof], max_age: Some(60), ..login_with_steps(1, 0, For::User(0, 0)) };
    let is_within = |seconds| login.was_proved_within(Duration::from_secs(seconds), now);
    assert_eq!([59, 60, 61].map(is_within), [false, true, true]);
}
