//! The rules for new passwords.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::time::timeout;

use super::password::Password;
use crate::store::BoxFuture;

/// The minimum length of a password that is enough to sign in.
const LEAST_ALONE: usize = 15;
/// The minimum length of a password next to another factor.
const LEAST: usize = 8;
/// The maximum number of bytes of a new password.
const MOST_BYTES: usize = 256;
/// Shorter names are part of too many words.
const SHORTEST_NAME: usize = 3;
/// How long a service of breached passwords may take.
const DEADLINE: Duration = Duration::from_secs(3);

const COMMON: &str = include_str!("common.txt");

/// The rules for passwords that users choose.
///
/// A new password needs at least 15 characters if the policy of its tenant accepts a password alone, even for users who have a
/// second factor, and at least 8 if it asks everybody for more. It has at most 256 bytes. The 10,000 most common passwords are refused, even with a number at the end, and so are passwords
/// with fewer than 8 characters left without the names of the user or without repetitions. There are no rules about
/// kinds of characters. All this follows NIST SP 800-63B-4.
///
/// Passwords that your application sets by itself are not checked, and neither are passwords at a login.
///
/// ```
/// use tollgate::{Password, password::{PasswordFault, PasswordRules}};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let rules = PasswordRules::new();
/// let check = async |text: &str| rules.check(&Password::new(text), true, &["ada"]).await;
/// assert_eq!(check("purple clouds eat gravel").await, Ok(()));
/// assert_eq!(check("purple clouds").await, Err(PasswordFault::TooShort(15)));
/// assert_eq!(check("passwordpassword").await, Err(PasswordFault::Common));
/// # });
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct PasswordRules {
    breached: Option<Arc<dyn IsBreached>>,
}

/// Why a new password is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PasswordFault {
    /// It has fewer characters than this.
    TooShort(usize),
    /// It has more than 256 bytes.
    TooLong,
    /// It is one of the 10,000 most common passwords, perhaps with a number at the end, or made of one repeated text.
    Common,
    /// It consists mostly of names of the user.
    OwnName,
    /// It is known from a data breach.
    Breached,
}

impl PasswordFault {
    /// Returns the name that is used in responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooShort(_) => "too_short",
            Self::TooLong => "too_long",
            Self::Common => "common",
            Self::OwnName => "own_name",
            Self::Breached => "breached",
        }
    }
}

impl fmt::Display for PasswordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort(least) => write!(f, "the password must have at least {least} characters"),
            Self::TooLong => write!(f, "the password must have at most {MOST_BYTES} bytes"),
            Self::Common => f.write_str("the password is easy to guess, because many people use it"),
            Self::OwnName => f.write_str("the password consists mostly of names of its user"),
            Self::Breached => f.write_str("the password was published in a data breach"),
        }
    }
}

impl std::error::Error for PasswordFault {}

/// A service that knows passwords from data breaches.
///
/// Don't send whole passwords elsewhere: such services accept the beginning of a hash, and return all known hashes that
/// begin with it.
pub trait BreachedPasswords: Send + Sync + 'static {
    /// The error if the service can't answer.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Returns whether the password is known.
    fn is_breached(&self, password: &Password) -> impl Future<Output = Result<bool, Self::Error>> + Send;
}

trait IsBreached: Send + Sync {
    fn is_breached<'a>(&'a self, password: &'a Password) -> BoxFuture<'a, bool>;
}

impl<S: BreachedPasswords> IsBreached for S {
    fn is_breached<'a>(&'a self, password: &'a Password) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            match timeout(DEADLINE, BreachedPasswords::is_breached(self, password)).await {
                Ok(Ok(is_breached)) => return is_breached,
                Ok(Err(error)) => {
                    let error = crate::util::error::with_sources(&error);
                    crate::util::trace::warning!("breached passwords can't be looked up: {error}");
                }
                Err(_) => crate::util::trace::warning!("breached passwords can't be looked up: no answer in time"),
            }
            false
        })
    }
}

impl PasswordRules {
    /// Creates the rules without a service of breached passwords.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks this service about each password that meets the other rules. If it fails or takes more than three seconds, the
    /// password is accepted, and a warning is logged.
    pub fn breached(mut self, service: impl BreachedPasswords) -> Self {
        self.breached = Some(Arc::new(service));
        self
    }

    /// Returns the minimum number of characters, which are Unicode scalar values. `is_enough` is whether a password alone is
    /// enough to sign in.
    pub const fn least(&self, is_enough: bool) -> usize {
        if is_enough { LEAST_ALONE } else { LEAST }
    }

    /// Checks a new password of a user with these names, such as a user name, an address and the name of the site.
    ///
    /// # Errors
    ///
    /// Returns the first rule that the password breaks.
    pub async fn check(&self, password: &Password, is_enough: bool, names: &[&str]) -> Result<(), PasswordFault> {
        check_text(password.expose(), self.least(is_enough), names)?;
        match &self.breached {
            Some(service) if service.is_breached(password).await => Err(PasswordFault::Breached),
            _ => Ok(()),
        }
    }
}

crate::util::fmt::debug_fields!(PasswordRules, |own| has_breached: own.breached.is_some());

fn check_text(text: &str, least: usize, names: &[&str]) -> Result<(), PasswordFault> {
    if text.len() > MOST_BYTES {
        return Err(PasswordFault::TooLong);
    }
    if text.chars().count() < least {
        return Err(PasswordFault::TooShort(least));
    }
    let folded = text.to_lowercase();
    let once = repeated_text(&folded);
    let is_short = |text: &str| text.chars().count() < LEAST;
    let without_number = folded.trim_end_matches(|c: char| c.is_ascii_digit());
    if [&*folded, once, without_number].into_iter().any(is_common) || is_short(once) {
        return Err(PasswordFault::Common);
    }
    if is_short(&without_names(folded, names)) {
        return Err(PasswordFault::OwnName);
    }
    Ok(())
}

fn is_common(folded: &str) -> bool {
    COMMON.lines().any(|line| line == folded)
}

/// Returns the shortest text whose repetition is this text. The last repetition can be a part of it.
fn repeated_text(text: &str) -> &str {
    let starts = text.char_indices().map(|(at, _)| at).skip(1);
    let mut splits = starts.filter_map(|at| text.split_at_checked(at));
    splits.find(|(_, rest)| text.starts_with(rest)).map_or(text, |(once, _)| once)
}

/// Removes the names and their parts, such as the words of `ada.lovelace@example.com`.
fn without_names(mut folded: String, names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
    let words = names.iter().flat_map(|name| name.split(|c: char| !c.is_alphanumeric()));
    let mut all: Vec<&str> = names.iter().map(String::as_str).chain(words).collect();
    all.retain(|name| name.chars().count() >= SHORTEST_NAME);
    // the longest first, because others can be parts of it
    all.sort_unstable_by_key(|name| std::cmp::Reverse(name.len()));
    for name in all {
        folded = folded.replace(name, "");
    }
    folded
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
    };

    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, is_enough: bool) -> Result<(), PasswordFault> {
        check_text(text, PasswordRules::new().least(is_enough), &["ada.lovelace@example.com", "Countess", "u1"])
    }

    #[test]
    fn a_password_has_8_characters_and_15_if_it_is_all_that_a_login_needs() {
        for (text, alone, with_another) in [
            ("gravel7", Err(PasswordFault::TooShort(15)), Err(PasswordFault::TooShort(8))),
            ("gravel7u", Err(PasswordFault::TooShort(15)), Ok(())),
            ("gravel and moo", Err(PasswordFault::TooShort(15)), Ok(())),
            ("gravel and moon", Ok(()), Ok(())),
            // characters, not bytes
            ("äöüßéèñ", Err(PasswordFault::TooShort(15)), Err(PasswordFault::TooShort(8))),
            ("äöüßéèñç", Err(PasswordFault::TooShort(15)), Ok(())),
            ("", Err(PasswordFault::TooShort(15)), Err(PasswordFault::TooShort(8))),
        ] {
            assert_eq!((check(text, true), check(text, false)), (alone, with_another), "{text}");
        }
        let longest: String = (0..64).map(|number| format!("{number:04}")).collect();
        assert_eq!((longest.len(), check(&longest, true)), (256, Ok(())));
        assert_eq!(check(&format!("{longest}x"), false), Err(PasswordFault::TooLong));
    }

    #[test]
    fn common_and_repeated_passwords_are_refused_in_any_case() {
        let common = Err(PasswordFault::Common);
        for text in ["password1", "PassWord1", "qwertyuiop", "baseball", "sunshine", "1qaz2wsx", "11111111"] {
            assert_eq!(check(text, false), common, "{text}");
        }
        for text in [
            "aaaaaaaaaaaaaaaa",
            "abcabcabcabcabcab",
            "passwordpassword",
            "Baseballbaseball",
            "gravel7gravel7gr",
            "Password1234567",
        ] {
            assert_eq!(check(text, true), common, "{text}");
        }
        // no rules about kinds of characters
        for text in ["gravel and moonlight", "8392746150283746", "................. moonlight"] {
            assert_eq!(check(text, true), Ok(()), "{text}");
        }
    }

    #[test]
    fn the_list_has_10000_passwords_that_the_other_rules_accept() {
        let listed: Vec<&str> = COMMON.lines().filter(|line| !line.starts_with("# ") && *line != "#").collect();
        assert_eq!(listed.len(), 10_000);
        assert!(listed.is_sorted_by(|one, next| one < next));
        for text in listed {
            assert!(text.chars().count() >= LEAST && text.to_lowercase() == text, "{text}");
        }
    }

    #[test]
    fn names_of_the_user_are_no_password() {
        for text in ["ada.lovelace@example.com", "Lovelace1815", "countess-ada-1", "adaexamplecountess1815"] {
            assert_eq!(check(text, false), Err(PasswordFault::OwnName), "{text}");
        }
        for text in ["countess of gravel", "u1 gravel", "ada and gravel"] {
            assert_eq!(check(text, false), Ok(()), "{text}");
        }
    }

    /// Knows one password, or fails, or never answers.
    enum Service {
        Knows(&'static str, AtomicUsize),
        Fails,
        Hangs,
    }

    impl BreachedPasswords for Arc<Service> {
        type Error = io::Error;

        async fn is_breached(&self, password: &Password) -> Result<bool, io::Error> {
            match &**self {
                Service::Knows(known, asked) => {
                    asked.fetch_add(1, SeqCst);
                    Ok(password.expose() == *known)
                }
                Service::Fails => Err(io::Error::other("no network")),
                Service::Hangs => std::future::pending().await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_is_asked_last_and_its_failure_refuses_nothing() {
        let service = Arc::new(Service::Knows("gravel and moonlight", AtomicUsize::new(0)));
        let rules = PasswordRules::new().breached(Arc::clone(&service));
        let check = async |rules: &PasswordRules, text: &str| rules.check(&Password::new(text), true, &[]).await;
        assert_eq!(check(&rules, "passwordpassword").await, Err(PasswordFault::Common));
        assert_eq!(check(&rules, "gravel and moonlight").await, Err(PasswordFault::Breached));
        assert_eq!(check(&rules, "gravel and sunlight").await, Ok(()));
        assert!(matches!(&*service, Service::Knows(_, asked) if asked.load(SeqCst) == 2));
        for service in [Service::Fails, Service::Hangs] {
            let rules = PasswordRules::new().breached(Arc::new(service));
            assert_eq!(check(&rules, "gravel and moonlight").await, Ok(()));
        }
    }

    proptest! {
        #[test]
        fn a_text_is_made_of_its_repeated_part(text in "[abä]{1,12}", times in 1_usize..4) {
            let whole = text.repeat(times);
            let once = repeated_text(&whole);
            prop_assert!(once.len() <= text.len());
            prop_assert!(once.repeat(whole.len()).starts_with(&whole));
        }

        #[test]
        fn any_text_is_checked(text in any::<String>(), name in any::<String>()) {
            let _ = check_text(&text, LEAST, &[&name]);
        }
    }
}
