//! The table against a model of it, written a second time from what a login is meant to be.

use std::{collections::BTreeSet, time::Duration};

use proptest::{collection::vec, prelude::*, test_runner::Config};

use super::{
    keyed::Keyed,
    machine::{Call, Denied, Proof, step},
    parameters::Binding,
    state::{Carried, Challenge, Login, OpenCode, Phase, Status},
};
use crate::{
    client::Scopes,
    pkce::{CodeChallenge, CodeVerifier},
    policy::{LoginPlan, Method, MethodSet, Policies, Policy},
    session::UserId,
    tenant::Tenant,
    user::Identifier,
    util::{
        clock::UnixTime,
        handle::Handle,
        secret::{Digest, Secret},
    },
};

const METHODS: [Method; 4] = [Method::Password, Method::Sms, Method::Whatsapp, Method::Email];
const USERS: usize = 2;

/// Who is meant: nobody, or one of the users.
type Who = Option<usize>;

#[derive(Clone, Debug)]
enum Action {
    Wait(u64),
    Try(Method),
    /// The oldest try that is under way ends so.
    Settle(Who),
    TakeBack,
    Open(Method, Who),
    Verify(Guess, Who),
    Complete,
    Consume,
}

#[derive(Clone, Copy, Debug)]
enum Guess {
    Right,
    /// The code that was sent before the last one.
    Former,
    Text(&'static str),
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![1 => Just(None), 6 => Just(Some(0)), 1 => Just(Some(1))]
}

fn method() -> impl Strategy<Value = Method> {
    prop::sample::select(&METHODS)
}

fn action() -> impl Strategy<Value = Action> {
    let wait = prop_oneof![
        4 => 0_u64..120,
        1 => prop::sample::select(vec![299_u64, 300, 301, 599, 600, 601]),
    ];
    let text = prop::sample::select(vec!["999999", "", "00000", "0000000", "abcdef", "٠٠٠٠٠٠"]).prop_map(Guess::Text);
    let guess = prop_oneof![5 => Just(Guess::Right), 1 => Just(Guess::Former), 5 => text];
    prop_oneof![
        3 => wait.prop_map(Action::Wait),
        4 => method().prop_map(Action::Try),
        5 => who().prop_map(Action::Settle),
        1 => Just(Action::TakeBack),
        3 => (method(), who()).prop_map(|(method, who)| Action::Open(method, who)),
        6 => (guess, who()).prop_map(|(guess, who)| Action::Verify(guess, who)),
        2 => Just(Action::Complete),
        1 => Just(Action::Consume),
    ]
}

/// What a login is meant to be. Times are seconds.
#[derive(Clone, Debug)]
struct Model {
    required: usize,
    proved: Vec<Method>,
    user: Who,
    status: Status,
    open: Option<Open>,
    failures: u32,
    sends: u32,
    last_call: u64,
    completed_at: Option<u64>,
    consumed: bool,
}

#[derive(Clone, Debug)]
struct Open {
    method: Method,
    owner: Who,
    code: String,
    tries: u32,
    sent_at: u64,
}

impl Model {
    fn begun(required: usize, carried: usize) -> Self {
        Self {
            required,
            proved: CARRIED[..carried].to_vec(),
            user: (carried > 0).then_some(0),
            status: if carried > 0 { Status::Success } else { Status::Pending },
            open: None,
            failures: 0,
            sends: 0,
            last_call: 0,
            completed_at: None,
            consumed: false,
        }
    }

    fn remaining(&self) -> usize {
        self.required - self.proved.len()
    }

    fn is_over(&self, now: u64) -> bool {
        let window = match self.completed_at {
            Some(at) => now >= at + 300,
            None => now >= self.last_call + 600,
        };
        self.consumed || window || now >= 1800
    }

    fn shown(&self, now: u64) -> Status {
        match self.has_failed(now) {
            _ if self.is_over(now) => Status::Expired,
            true => Status::Failed,
            false => self.status,
        }
    }

    /// Too many failures; or so many tries that nobody learned the end of, half a minute ago.
    fn has_failed(&self, now: u64) -> bool {
        let is_unsettled = self.failures == 15 && self.remaining() > 0;
        self.status == Status::Failed || (is_unsettled && now >= self.last_call + 30)
    }

    /// Why no method of this kind can be asked for.
    fn no_step_by(&self, method: Method) -> Option<Denied> {
        if self.remaining() == 0 {
            return Some(Denied::NoStepRemaining);
        }
        let used = self.proved.iter().any(|proved| proved.class() == method.class());
        used.then_some(Denied::MethodNotAllowed)
    }

    fn fail(&mut self, method: Method) -> Denied {
        if self.failures < 15 {
            return Denied::Wrong(method);
        }
        (self.status, self.open) = (Status::Failed, None);
        Denied::SessionFailed
    }

    fn succeed(&mut self, method: Method, user: usize) {
        self.proved.push(method);
        (self.user, self.status, self.open) = (Some(user), Status::Success, None);
    }

    fn may_be(&self, who: Who) -> Option<usize> {
        who.filter(|who| self.user.is_none_or(|own| own == *who))
    }

    /// What is meant to happen; the guess is the text that it stands for.
    fn call(&mut self, action: &Action, settled: Method, guess: &str, sent: &str, now: u64) -> Result<(), Denied> {
        if self.is_over(now) {
            return Err(Denied::Expired);
        }
        if self.has_failed(now) {
            return Err(Denied::SessionFailed);
        }
        let before = self.last_call;
        self.last_call = now;
        let answer = self.act(action, settled, guess, sent, now);
        // a call that was refused, and one that only says again what is known, do not count as activity
        let stays = match (&answer, action) {
            (Err(Denied::Wrong(_)), Action::Settle(_)) => true,
            (Err(Denied::Wrong(_) | Denied::SessionFailed), _) => false,
            (Err(_), _) => true,
            (Ok(()), Action::Complete) => self.completed_at != Some(now),
            (Ok(()), _) => false,
        };
        if stays {
            self.last_call = before;
        }
        answer
    }

    fn act(&mut self, action: &Action, settled: Method, guess: &str, sent: &str, now: u64) -> Result<(), Denied> {
        match action {
            Action::Wait(_) => {}
            Action::Try(method) => {
                self.no_step_by(*method).map_or(Ok(()), Err)?;
                if self.failures == 15 {
                    return Err(Denied::LastTries);
                }
                self.failures += 1;
            }
            Action::Settle(who) => {
                let user = self.may_be(*who);
                // right, if not the first to be: no failure
                self.failures -= u32::from(user.is_some());
                self.no_step_by(settled).map_or(Ok(()), Err)?;
                let Some(user) = user else { return Err(self.fail(settled)) };
                self.succeed(settled, user);
            }
            Action::TakeBack => {
                if self.remaining() == 0 {
                    return Err(Denied::NoStepRemaining);
                }
                self.failures -= 1;
            }
            Action::Open(method, owner) => {
                self.no_step_by(*method).map_or(Ok(()), Err)?;
                if self.failures == 15 {
                    return Err(Denied::LastTries);
                }
                if self.sends == 5 {
                    return Err(Denied::SendsSpent(Duration::ZERO));
                }
                self.sends += 1;
                self.status = Status::Pending;
                let code = sent.to_owned();
                self.open = Some(Open { method: *method, owner: *owner, code, tries: 0, sent_at: now });
            }
            Action::Verify(_, who) => {
                let Some(open) = &mut self.open else { return Err(Denied::NoPendingChallenge) };
                if self.failures == 15 {
                    return Err(Denied::LastTries);
                }
                let method = open.method;
                let is_code = open.code == guess && now < open.sent_at + 300 && open.owner == *who;
                open.tries += 1;
                let spent = open.tries == 5;
                match self.may_be(*who).filter(|_| is_code) {
                    Some(user) => self.succeed(method, user),
                    None => {
                        self.failures += 1;
                        self.open = self.open.take().filter(|_| !spent);
                        return Err(self.fail(method));
                    }
                }
            }
            Action::Complete if self.remaining() > 0 => return Err(Denied::StepsRemaining),
            Action::Complete => {
                self.completed_at.get_or_insert(now);
                self.status = Status::Completed;
            }
            Action::Consume if self.completed_at.is_none() => return Err(Denied::NotCompleted),
            Action::Consume => self.consumed = true,
        }
        Ok(())
    }
}

fn plan(steps: usize) -> LoginPlan {
    let enabled: MethodSet = METHODS.into_iter().collect();
    Policies::new(Policy::any(steps).unwrap()).plan(&tenant(), None, None, enabled).unwrap()
}

fn tenant() -> Tenant {
    Tenant::parse("acme").unwrap()
}

fn user(at: usize) -> UserId {
    UserId::parse(["u-ada", "u-grace"][at % USERS]).unwrap()
}

/// What a session had proved before.
const CARRIED: [Method; 2] = [Method::Email, Method::Password];
const BEGAN: u64 = 1_000_000;

fn begun(steps: usize, carried: usize) -> Login {
    let verifier = CodeVerifier::parse("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk").unwrap();
    let binding = Binding {
        client_id: "web".to_owned(),
        redirect_uri: "https://app.example/callback".to_owned(),
        scope: Scopes::parse("openid").unwrap(),
        code_challenge: CodeChallenge::of(&verifier),
    };
    let identifier = Identifier::parse("ada").unwrap();
    let now = UnixTime::from_secs(BEGAN);
    let login = Login::begin(&Secret::generate(), tenant(), binding, identifier, plan(steps), now);
    if carried == 0 {
        return login;
    }
    let proved = (1..).zip(&CARRIED[..carried]).map(|(at, method)| (*method, (BEGAN - 1000 + at) * 1_000_000_000));
    let session = Handle::of(&Digest::of("a session"));
    login.carrying(Carried { session, user: user(0), proved: proved.collect(), marks: Vec::new() })
}

proptest! {
    #![proptest_config(Config::with_cases(3_000))]
    #[test]
    fn c043_c044_c046_c047_c057_c087_c105_c106_the_table_does_what_its_model_says(
        steps in 1_usize..=3,
        carried in prop_oneof![2 => Just(0_usize), 1 => 1_usize..=2],
        actions in vec(action(), 1..80),
    ) {
        let keyed = Keyed::new(&Secret::generate());
        let address = Digest::of("an address");
        let carried = carried.min(steps);
        let mut login = begun(steps, carried);
        let mut model = Model::begun(steps, carried);
        let (mut seconds, mut under_way, mut codes) = (0, Vec::new(), Vec::<String>::new());
        for action in &actions {
            if let Action::Wait(wait) = action {
                seconds += wait;
                prop_assert_eq!(login.view(UnixTime::from_secs(BEGAN + seconds)).status, model.shown(seconds));
                continue;
            }
            let now = UnixTime::from_secs(BEGAN + seconds);
            let settled = match action {
                Action::Settle(_) | Action::TakeBack if under_way.is_empty() => continue,
                Action::Settle(_) | Action::TakeBack => under_way.remove(0),
                _ => Method::Password,
            };
            let sent = format!("{:06}", codes.len());
            let guess = match action {
                Action::Verify(Guess::Right, _) => codes.last().cloned().unwrap_or_default(),
                Action::Verify(Guess::Former, _) => codes.iter().rev().nth(1).cloned().unwrap_or_default(),
                Action::Verify(Guess::Text(text), _) => (*text).to_owned(),
                _ => String::new(),
            };
            let who = match action {
                Action::Settle(who) | Action::Open(_, who) | Action::Verify(_, who) => who.map(user),
                _ => None,
            };
            let (open, digest) = match action {
                Action::Open(method, _) => {
                    let code = OpenCode::new(*method, &address, who.clone(), &login.id, &sent, &keyed, now);
                    (Some(Challenge::Code(code)), None)
                }
                _ => (None, Some(Digest::of(&sent))),
            };
            let call = match (action, &open, &digest) {
                (Action::Try(method), ..) => Call::Try(*method),
                (Action::Settle(_), ..) => Call::Settle(settled, who.as_ref().map(|user| Proof { user, marks: &[] })),
                (Action::TakeBack, ..) => Call::TakeBack,
                (Action::Open(..), Some(open), _) => Call::Open(open),
                (Action::Verify(..), ..) => {
                    let of = login.open.as_ref().map(|Challenge::Code(code)| code);
                    Call::Verify { of, guess: &guess, keyed: &keyed, owner: who.as_ref() }
                }
                (Action::Complete, ..) => Call::Complete,
                (_, _, Some(digest)) => Call::Consume(digest),
                _ => continue,
            };
            let before = login.clone();
            let was = model.clone();
            let taken = step(&login, &call, now);
            let meant = model.call(action, settled, &guess, &sent, seconds);
            match (&taken.answer, &meant) {
                // as long as the login lasts, which is held against the model below
                (Err(Denied::SendsSpent(wait)), Err(Denied::SendsSpent(_))) => {
                    let ends = UnixTime::from_secs(BEGAN + seconds) + *wait;
                    prop_assert!(login.has_ended(ends) && !login.has_ended(now));
                }
                (Err(denied), Err(meant)) => prop_assert_eq!(denied, meant),
                (answer, meant) => prop_assert_eq!(answer.is_ok(), meant.is_ok(), "{:?} for {:?}", answer, meant),
            }
            if let Some(next) = &taken.next {
                login = next.clone();
            }
            if meant.is_ok() {
                match action {
                    Action::Try(method) => under_way.push(*method),
                    Action::Open(..) => codes.push(sent),
                    _ => {}
                }
            }

            // as the model has it
            let view = login.view(now);
            prop_assert_eq!(view.status, model.shown(seconds));
            prop_assert_eq!((view.completed, view.remaining), (model.proved.len(), model.remaining()));
            prop_assert_eq!(u32::from(login.failures), model.failures);
            prop_assert_eq!(u32::from(login.sends), model.sends);
            prop_assert_eq!(login.open.is_some(), model.open.is_some());
            prop_assert_eq!(&login.user, &model.user.map(user));
            if let Ok(shown) = taken.answer {
                prop_assert_eq!(shown, view);
            }

            // and as no login may be, whatever the model says
            prop_assert_eq!((login.carried, login.is_all_carried()), (carried, login.proved.len() == carried));
            prop_assert_eq!(view.completed + view.remaining, steps);
            prop_assert_eq!(view.next(), (view.completed < steps).then_some(view.completed + 1));
            prop_assert!(login.proved.starts_with(&before.proved), "a proof was undone");
            prop_assert!(login.proved.len() <= before.proved.len() + 1);
            let classes: BTreeSet<_> = login.proved.iter().map(|(method, _)| method.class()).collect();
            prop_assert_eq!(classes.len(), login.proved.len());
            prop_assert!(before.user.is_none() || before.user == login.user, "another user");
            prop_assert!(!was.is_over(seconds) || taken.next.is_none(), "what is over moved");
            if meant.is_err() && login.phase != Phase::Failed {
                prop_assert_eq!(login.phase, before.phase, "a failure changed the status");
            }
        }
    }

    #[test]
    fn c055_c061_a_code_is_right_for_its_login_method_address_and_time_alone(
        code in "[0-9]{6}",
        other in "[0-9]{6}",
        late in 0_u64..600,
    ) {
        let keyed = Keyed::new(&Secret::generate());
        let (login, stranger) = (begun(1, 0), begun(1, 0));
        let (now, address) = (UnixTime::from_secs(BEGAN), Digest::of("an address"));
        let open = OpenCode::new(Method::Sms, &address, Some(user(0)), &login.id, &code, &keyed, now);
        let is = |open: &OpenCode, login: &Login, guess: &str, late| {
            open.is(guess, &login.id, &keyed, now + Duration::from_secs(late))
        };
        prop_assert_eq!(is(&open, &login, &code, late), late < 300);
        prop_assert_eq!(is(&open, &login, &other, 0), code == other);
        prop_assert!(!is(&open, &stranger, &code, 0));
        let (mut by_another, mut to_another) = (open.clone(), open.clone());
        by_another.method = Method::Whatsapp;
        to_another.address = *Digest::of("another address").as_bytes();
        prop_assert!(!is(&by_another, &login, &code, 0) && !is(&to_another, &login, &code, 0));
        prop_assert!(!open.is(&code, &login.id, &Keyed::new(&Secret::generate()), now));
        for guess in [format!(" {code}"), format!("{code} "), format!("{code}0"), code[1..].to_owned()] {
            prop_assert!(!is(&open, &login, &guess, 0));
        }
    }
}
