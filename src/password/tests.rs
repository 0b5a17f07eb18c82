//! The cost and the outcome of checks, with the runs of argon2 counted.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};

use super::{
    ForeignHash, Password, PasswordErrorKind, PasswordHash, Passwords, PasswordsBuilder, StoredPassword, Verdict,
    recipe::{Cost, Recipe},
};

/// Hashes by argon2-cffi 25.1.0, which wraps the reference implementation in C. The password is `correct horse battery
/// staple`, the salt `0123456789abcdef`.
const OTHERS: [&str; 6] = [
    "$argon2id$v=19$m=256,t=2,p=2$MDEyMzQ1Njc4OWFiY2RlZg$JQjBk212HvDL280UGt/qmWk+aAY+YlUdSEtxHjQw9Ew",
    "$argon2id$v=16$m=256,t=2,p=2$MDEyMzQ1Njc4OWFiY2RlZg$XgnXBKCXKWpw2q/Y/z2dKnZ1TqEnNw97IAV7Kr5FhPI",
    "$argon2i$v=19$m=256,t=2,p=2$MDEyMzQ1Njc4OWFiY2RlZg$sXwc3Rf6kDgWv5bHcJ5WyjuvYJei1pIw1cAx17a/Z2M",
    "$argon2i$m=256,t=2,p=2$MDEyMzQ1Njc4OWFiY2RlZg$Ww7FAvLn5MmDa1nVDhzrx+Ya2Y2IiK+CKpGFZc1uT6E",
    "$argon2d$v=19$m=256,t=2,p=2$MDEyMzQ1Njc4OWFiY2RlZg$IdVbPK6TIBtDnbWjjviNMikXacCT9sAKuFsz4wU/vqc",
    "$argon2d$v=16$m=256,t=2,p=2$MDEyMzQ1Njc4OWFiY2RlZg$RfZjljHfgcDKIlABqvsHI4Y47qOWMXe+0WEet8r1pC4",
];
const CURRENT: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";
/// The password is `pässword`, with the salt `somesalt`, an output of 24 bytes.
const SHORT: &str = "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$9wBr9w09VghRwIyUmc1EBJM9jdBDn5h0";
const HORSE: &str = "correct horse battery staple";

fn hash(text: &str) -> PasswordHash {
    PasswordHash::parse(text).unwrap()
}

async fn verify(passwords: &Passwords, password: &str, stored: Option<&str>) -> Verdict {
    passwords.verify(Password::new(password), stored.map(hash)).await.unwrap()
}

fn is_right(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Right { .. })
}

/// The runs of argon2: the recipe, the length of the salt, and the length of the output.
type Runs = Arc<Mutex<Vec<(Recipe, usize, usize)>>>;

/// Replaces argon2 with something cheap: the output repeats the first byte of the password.
fn counted(passwords: Passwords) -> (Passwords, Runs) {
    let runs = Runs::default();
    let seen = Arc::clone(&runs);
    let passwords = passwords.with_run(Arc::new(move |recipe, password, salt, output| {
        seen.lock().unwrap().push((*recipe, salt.len(), output.len()));
        output.fill(password.first().copied().unwrap_or_default());
        Some(())
    }));
    (passwords, runs)
}

#[tokio::test]
async fn c048_a_wrong_password_and_a_missing_hash_have_the_same_cost_and_outcome() {
    let (passwords, runs) = counted(Passwords::new());
    let stored = passwords.hash(Password::new("a")).await.unwrap();
    runs.lock().unwrap().clear();
    let current = (Recipe::new(Cost::DEFAULT), 16, 32);
    let long = "b".repeat(Password::MAX_LEN + 1);
    for typed in ["b", "", "bb", &long] {
        for stored in [Some(stored.clone()), None] {
            let verdict = passwords.verify(Password::new(typed), stored).await.unwrap();
            assert!(matches!(verdict, Verdict::Wrong));
            assert_eq!(std::mem::take(&mut *runs.lock().unwrap()), [current]);
        }
    }
    assert!(is_right(&passwords.verify(Password::new("a"), Some(stored)).await.unwrap()));
    assert_eq!(*runs.lock().unwrap(), [current]);
}

#[tokio::test]
async fn c048_without_a_hash_no_password_is_right_even_if_the_outputs_match() {
    // the output always matches that of the decoy
    let decoy = Passwords::new().decoy();
    let expected = decoy.bytes().1;
    let passwords = Passwords::new().with_decoy(decoy.clone()).with_run(Arc::new(move |_, _, _, output: &mut [u8]| {
        output.copy_from_slice(&expected);
        Some(())
    }));
    for typed in ["", "a", HORSE] {
        assert!(matches!(passwords.verify(Password::new(typed), None).await.unwrap(), Verdict::Wrong));
    }
    // with a stored hash, the same output is right
    assert!(is_right(&passwords.verify(Password::new("a"), Some(decoy)).await.unwrap()));
}

#[tokio::test]
async fn c048_a_wrong_password_under_a_weaker_hash_costs_as_much_as_today() {
    let (passwords, runs) = counted(Passwords::new());
    for stored in OTHERS.into_iter().chain([SHORT]) {
        assert!(matches!(verify(&passwords, "b", Some(stored)).await, Verdict::Wrong));
        let runs = std::mem::take(&mut *runs.lock().unwrap());
        let work: u64 = runs.iter().map(|(recipe, ..)| recipe.cost.work()).sum();
        assert_eq!((runs.len(), work), (2, Cost::DEFAULT.work()), "{stored}");
    }
}

#[tokio::test]
async fn c048_a_wrong_password_always_costs_one_foreign_check_and_one_run_of_argon2() {
    let (passwords, runs) = counted(Passwords::new());
    let argon2 = passwords.hash(Password::new("a")).await.unwrap();
    runs.lock().unwrap().clear();
    let foreign = StoredPassword::Foreign(ForeignHash("own".into()));
    let long = "b".repeat(Password::MAX_LEN + 1);
    for (stored, checked) in [(None, "decoy"), (Some(StoredPassword::Argon2(argon2)), "decoy"), (Some(foreign), "own")]
    {
        for typed in ["b", "", &long] {
            let checks = Arc::new(Mutex::new(Vec::new()));
            let seen = Arc::clone(&checks);
            let check = move |hash: &str, password: &str| {
                seen.lock().unwrap().push((hash.to_owned(), password.to_owned()));
                false
            };
            let answer = passwords.verify_either(Password::new(typed), stored.clone(), "decoy".to_owned(), check).await;
            assert!(matches!(answer.unwrap(), Verdict::Wrong));
            // an unusable password is checked as an empty one
            let password = if typed == "b" { "b" } else { "" };
            assert_eq!(*checks.lock().unwrap(), [(checked.to_owned(), password.to_owned())]);
            assert_eq!(std::mem::take(&mut *runs.lock().unwrap()), [(Recipe::new(Cost::DEFAULT), 16, 32)]);
        }
    }
}

#[tokio::test]
async fn c048_a_decoy_is_never_right_in_a_foreign_check() {
    let (passwords, _) = counted(Passwords::new());
    let argon2 = StoredPassword::Argon2(passwords.hash(Password::new("a")).await.unwrap());
    let foreign = StoredPassword::Foreign(ForeignHash("own".into()));
    let right = |typed: &str, stored: Option<&StoredPassword>| {
        passwords.verify_either(Password::new(typed), stored.cloned(), "decoy".to_owned(), |_, _| true)
    };
    assert!(!is_right(&right("b", None).await.unwrap()));
    assert!(!is_right(&right("b", Some(&argon2)).await.unwrap()));
    for unusable in ["", &"b".repeat(Password::MAX_LEN + 1)] {
        assert!(!is_right(&right(unusable, Some(&foreign)).await.unwrap()));
    }
    assert!(is_right(&right("b", Some(&foreign)).await.unwrap()));
}

#[tokio::test]
async fn c050_a_right_password_under_a_foreign_hash_comes_with_an_argon2_hash() {
    let passwords = Passwords::new();
    let foreign = StoredPassword::Foreign(ForeignHash(HORSE.into()));
    let check = |hash: &str, password: &str| hash == password;
    let answer = passwords.verify_either(Password::new(HORSE), Some(foreign), String::new(), check).await.unwrap();
    let Verdict::Right { rehashed: Some(new) } = answer else { panic!("{answer:?}") };
    // the next check does not call the foreign function
    let upgraded = Some(StoredPassword::Argon2(new));
    let not_called = |_: &str, _: &str| -> bool { panic!("called") };
    let again = passwords.verify_either(Password::new(HORSE), upgraded, String::new(), not_called).await.unwrap();
    assert!(matches!(again, Verdict::Right { rehashed: None }));
}

#[tokio::test]
async fn a_foreign_check_that_panics_is_an_error_and_frees_its_turn() {
    let passwords = Passwords::builder().insecure_fast().concurrency(1).waiting(0).build().unwrap();
    for _ in 0..2 {
        let answer = passwords.verify_either(Password::new("a"), None, String::new(), |_, _| panic!("malformed")).await;
        assert_eq!(answer.unwrap_err().kind(), PasswordErrorKind::Failed);
    }
    assert!(passwords.verify(Password::new("a"), None).await.is_ok());
}

#[tokio::test]
async fn c049_a_hash_is_argon2id_at_the_cost_owasp_recommends_with_a_new_salt() {
    let passwords = Passwords::new();
    let one = passwords.hash(Password::new(HORSE)).await.unwrap();
    let two = passwords.hash(Password::new(HORSE)).await.unwrap();
    assert!(one.as_str().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
    let ((salt, output), (other_salt, other_output)) = (one.bytes(), two.bytes());
    assert_eq!((salt.len(), output.len()), (16, 32));
    assert!(salt != other_salt && output != other_output);
    for stored in [one, two] {
        // as read from a store
        assert!(matches!(verify(&passwords, HORSE, Some(stored.as_str())).await, Verdict::Right { rehashed: None }));
    }
    assert!(matches!(verify(&passwords, HORSE, Some(CURRENT)).await, Verdict::Right { rehashed: None }));
}

#[tokio::test]
async fn c049_weaker_settings_are_refused() {
    let fine =
        |set: fn(PasswordsBuilder, u32) -> PasswordsBuilder, value| set(Passwords::builder(), value).build().is_ok();
    for (memory, expected) in [(19_455, false), (19_456, true), (262_144, true), (262_145, false), (u32::MAX, false)] {
        assert_eq!(fine(PasswordsBuilder::memory_kib, memory), expected, "{memory}");
    }
    for (iterations, expected) in [(0, false), (1, false), (2, true), (16, true), (17, false)] {
        assert_eq!(fine(PasswordsBuilder::iterations, iterations), expected, "{iterations}");
    }
    for (lanes, expected) in [(0, false), (1, true), (8, true), (9, false)] {
        assert_eq!(fine(PasswordsBuilder::parallelism, lanes), expected, "{lanes}");
    }
    for (most, expected) in [(0, false), (1, true), (1 << 20, true), (usize::MAX, false)] {
        assert_eq!(Passwords::builder().concurrency(most).build().is_ok(), expected, "{most}");
    }
    let waiting = |most| Passwords::builder().waiting(most).build().is_ok();
    assert!(waiting(0) && !waiting(usize::MAX));
    assert!(Passwords::builder().concurrency(1 << 20).waiting(1 << 20).build().is_ok());
    let error = Passwords::builder().memory_kib(1).build().unwrap_err().to_string();
    assert_eq!(error, "password memory_kib: 1 is not usable: must be 19456 to 262144");
}

#[tokio::test]
async fn hashes_of_another_implementation_are_checked() {
    let passwords = Passwords::insecure_fast();
    for stored in OTHERS {
        assert!(is_right(&verify(&passwords, HORSE, Some(stored)).await), "{stored}");
        for wrong in
            ["correct horse battery stapl", "correct horse battery staple ", "Correct horse battery staple", ""]
        {
            assert!(!is_right(&verify(&passwords, wrong, Some(stored)).await), "{stored} {wrong:?}");
        }
    }
    assert!(is_right(&verify(&passwords, "pässword", Some(SHORT)).await));
}

#[tokio::test]
async fn c050_a_right_password_under_a_weaker_or_older_hash_is_rehashed() {
    let passwords = Passwords::new();
    let others = OTHERS.into_iter().map(|stored| (HORSE, stored)).chain([("pässword", SHORT)]);
    for (password, stored) in others {
        let Verdict::Right { rehashed: Some(new) } = verify(&passwords, password, Some(stored)).await else {
            panic!("{stored}");
        };
        assert!(new.as_str().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        let again = verify(&passwords, password, Some(new.as_str())).await;
        assert!(matches!(again, Verdict::Right { rehashed: None }), "{stored}");
        assert!(!is_right(&verify(&passwords, "wrong", Some(new.as_str())).await));
    }
    // a current hash is weaker than raised parameters, but not than lowered ones
    for stronger in [
        Passwords::builder().memory_kib(19_457),
        Passwords::builder().iterations(3),
        Passwords::builder().parallelism(2),
    ] {
        let verdict = verify(&stronger.build().unwrap(), HORSE, Some(CURRENT)).await;
        assert!(matches!(verdict, Verdict::Right { rehashed: Some(_) }));
    }
    let weaker = Passwords::insecure_fast();
    assert!(matches!(verify(&weaker, HORSE, Some(CURRENT)).await, Verdict::Right { rehashed: None }));
}

#[tokio::test]
async fn c051_a_password_is_compared_exactly_and_whole() {
    let passwords = Passwords::insecure_fast();
    let longest = "x".repeat(Password::MAX_LEN);
    for password in [&longest, " a ", "\0", "a\0b", "é", "e\u{301}", "ß", &"a".repeat(72), &"a".repeat(64), "🦀"] {
        let stored = passwords.hash(Password::new(password)).await.unwrap();
        assert!(is_right(&verify(&passwords, password, Some(stored.as_str())).await), "{password:?}");
        let shorter: String = password.chars().skip(1).collect();
        let others = [format!("{password}a"), format!("{password}\0"), password.to_uppercase(), shorter];
        for other in others.iter().map(String::as_str).chain(["é", "e\u{301}", "a"]).filter(|other| *other != password)
        {
            assert!(!is_right(&verify(&passwords, other, Some(stored.as_str())).await), "{password:?} {other:?}");
        }
    }
}

#[tokio::test]
async fn c051_an_empty_or_too_long_password_is_neither_hashed_nor_right() {
    let passwords = Passwords::insecure_fast();
    for unusable in [String::new(), "x".repeat(Password::MAX_LEN + 1), "x".repeat(1 << 20)] {
        let error = passwords.hash(Password::new(unusable.clone())).await.unwrap_err();
        assert_eq!(error.kind(), PasswordErrorKind::Unusable);
        // even if the outputs match: the empty password is hashed in its place
        let stored = passwords.hash_of_nothing();
        assert!(!is_right(&passwords.verify(Password::new(unusable), Some(stored)).await.unwrap()));
    }
}

#[tokio::test]
async fn c052_a_password_is_never_shown() {
    let password = Password::new("hunter2");
    let passwords = Passwords::insecure_fast();
    let verdict = passwords.verify(Password::new("hunter2"), None).await;
    let errors = [PasswordErrorKind::Busy, PasswordErrorKind::Unusable, PasswordErrorKind::Failed];
    let shown = format!("{password:?} {passwords:?} {verdict:?} {errors:?}");
    assert!(!shown.contains("hunter2") && shown.starts_with("Password(..) Passwords {"), "{shown}");
}

#[test]
fn c052_a_password_is_wiped_on_drop_and_not_copied_before() {
    fn is_wiped_on_drop<T: zeroize::ZeroizeOnDrop>(_: &T) {}
    let typed = String::from("hunter2");
    let place = typed.as_ptr();
    let password = Password::new(typed);
    is_wiped_on_drop(password.inner());
    assert_eq!(password.usable().unwrap().as_ptr(), place);
}

/// Replaces argon2 with a run that blocks until the gate opens.
#[derive(Default)]
struct RunGate {
    open: Mutex<bool>,
    opened: Condvar,
    running: AtomicUsize,
    most: AtomicUsize,
    done: AtomicUsize,
}

impl RunGate {
    fn behind(self: &Arc<Self>, passwords: Passwords) -> Passwords {
        let gate = Arc::clone(self);
        passwords.with_run(Arc::new(move |_, _, _, output| {
            gate.most.fetch_max(gate.running.fetch_add(1, SeqCst) + 1, SeqCst);
            drop(gate.opened.wait_while(gate.open.lock().unwrap(), |open| !*open).unwrap());
            output.fill(1);
            gate.running.fetch_sub(1, SeqCst);
            gate.done.fetch_add(1, SeqCst);
            Some(())
        }))
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// Opens the gate at the end of the test, so that a failing test does not hang.
    fn open_on_drop(self: &Arc<Self>) -> impl Drop + use<> {
        struct OpenOnDrop(Arc<RunGate>);
        impl Drop for OpenOnDrop {
            fn drop(&mut self) {
                self.0.open();
            }
        }
        OpenOnDrop(Arc::clone(self))
    }

    async fn until(&self, counter: &AtomicUsize, count: usize) {
        while counter.load(SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn c049_running_and_waiting_checks_are_bounded_and_stay_off_the_async_threads() {
    let gate = Arc::new(RunGate::default());
    let _opened = gate.open_on_drop();
    let passwords = gate.behind(Passwords::builder().concurrency(2).waiting(3).build().unwrap());
    let check = || {
        let passwords = passwords.clone();
        tokio::spawn(async move { passwords.verify(Password::new("a"), None).await })
    };
    let five: Vec<_> = (0..5).map(|_| check()).collect();
    // a check on this thread would block every future
    gate.until(&gate.running, 2).await;
    let error = check().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), PasswordErrorKind::Busy);
    assert_eq!(gate.running.load(SeqCst), 2);
    gate.open();
    for check in five {
        assert!(matches!(check.await.unwrap(), Ok(Verdict::Wrong)));
    }
    assert_eq!((gate.most.load(SeqCst), gate.done.load(SeqCst)), (2, 5));
    assert!(check().await.unwrap().is_ok(), "there is room again");
}

#[tokio::test]
async fn c049_a_job_keeps_its_turn_when_its_caller_is_dropped_and_frees_it_at_the_end() {
    let gate = Arc::new(RunGate::default());
    let _opened = gate.open_on_drop();
    let passwords = gate.behind(Passwords::builder().concurrency(1).waiting(1).build().unwrap());
    let other = passwords.clone();
    let begun = tokio::spawn(async move { other.verify(Password::new("a"), None).await });
    gate.until(&gate.running, 1).await;
    begun.abort();
    assert!(begun.await.unwrap_err().is_cancelled());
    {
        // its job continues, so the next one waits
        let mut next = pin!(passwords.verify(Password::new("a"), None));
        assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut one_more = pin!(passwords.verify(Password::new("a"), None));
        let refused = match one_more.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(error)) => error.kind() == PasswordErrorKind::Busy,
            _ => false,
        };
        assert!(refused, "its job lost its place");
    }
    // a dropped caller that waited frees its place
    let mut next = pin!(passwords.verify(Password::new("a"), None));
    assert!(matches!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    gate.open();
    assert!(matches!(next.await, Ok(Verdict::Wrong)));
    assert_eq!((gate.most.load(SeqCst), gate.done.load(SeqCst)), (1, 2));
}

#[tokio::test]
async fn a_job_that_panics_is_an_error_and_frees_its_turn() {
    let first = AtomicUsize::new(0);
    let passwords = Passwords::builder().concurrency(1).waiting(0).build().unwrap();
    let passwords = passwords.with_run(Arc::new(move |_, _, _, _| match first.fetch_add(1, SeqCst) {
        0 => panic!("broken"),
        1 => None,
        _ => Some(()),
    }));
    for _ in 0..2 {
        let error = passwords.verify(Password::new("a"), None).await.unwrap_err();
        assert_eq!(error.kind(), PasswordErrorKind::Failed);
    }
    assert!(passwords.verify(Password::new("a"), None).await.is_ok());
}

#[test]
fn a_check_without_a_runtime_is_an_error() {
    let answer = crate::testing::block_on(Passwords::new().verify(Password::new("a"), None));
    assert_eq!(answer.unwrap_err().kind(), PasswordErrorKind::Failed);
}
