//! One-time codes: how they are generated, stored and compared.

use zeroize::Zeroizing;

use super::{
    keyed::Keyed,
    limits::LoginLimits,
    subject::{BoundUser, LoginId},
};
use crate::{
    policy::Method,
    util::{clock::UnixTime, secret::SecretDigest},
};

pub(crate) const DIGITS: usize = 6;

/// A random code of six digits. Leading zeros are kept.
pub(crate) struct OneTimeCode(Zeroizing<String>);

impl OneTimeCode {
    /// Generates a code with the operating system's random generator.
    #[expect(clippy::expect_used, reason = "input cannot cause it, and there is no safe way to continue")]
    pub(crate) fn generate() -> Self {
        const CODES: u32 = 10_u32.pow(DIGITS as u32);
        // numbers above the last whole multiple would make some codes more likely than others
        const UNBIASED: u32 = u32::MAX - u32::MAX % CODES;
        loop {
            let mut bytes = [0; 4];
            getrandom::fill(&mut bytes).expect("the operating system provides random bytes");
            let number = u32::from_le_bytes(bytes);
            if number < UNBIASED {
                return Self(Zeroizing::new(format!("{:0DIGITS$}", number % CODES)));
            }
        }
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

crate::util::fmt::opaque_debug!(OneTimeCode);

/// A one-time code that a login waits for.
#[derive(Clone, Debug)]
pub(crate) struct OpenCode {
    pub(crate) method: Method,
    /// Keyed digest of the address that was typed.
    pub(crate) contact: [u8; 32],
    pub(super) code: [u8; 32],
    /// The user with this verified contact. `None` means that nothing was sent and that every guess is wrong.
    pub(crate) owner: Option<BoundUser>,
    pub(super) attempts_left: u8,
    pub(super) expires_at: u64,
}

impl OpenCode {
    pub(crate) fn new(
        (method, contact): (Method, &SecretDigest),
        owner: Option<BoundUser>,
        login: &LoginId,
        code: &OneTimeCode,
        keyed: &Keyed,
        (limits, now): (&LoginLimits, UnixTime),
    ) -> Self {
        let contact = *contact.as_bytes();
        Self {
            method,
            contact,
            code: *digest(login, method, &contact, code.expose(), keyed).as_bytes(),
            owner,
            attempts_left: limits.code_attempts,
            expires_at: (now + limits.code_lifetime).as_nanos(),
        }
    }

    /// Returns whether this is the same code from the same sending.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.code == other.code && self.expires_at == other.expires_at
    }

    /// Returns the code after one more wrong guess, or `None` if that was the last one allowed.
    pub(super) fn after_wrong_guess(&self) -> Option<Self> {
        let attempts_left = self.attempts_left.checked_sub(1).filter(|left| *left > 0)?;
        Some(Self { attempts_left, ..self.clone() })
    }

    /// Compares a guess with the code in constant time.
    pub(super) fn is(&self, guess: &str, login: &LoginId, keyed: &Keyed, now: UnixTime) -> bool {
        let guessed = digest(login, self.method, &self.contact, guess, keyed);
        guessed.matches(&SecretDigest::from_bytes(self.code)) & (now.as_nanos() < self.expires_at)
    }
}

/// Binds a code to one login, method and address.
fn digest(login: &LoginId, method: Method, contact: &[u8; 32], code: &str, keyed: &Keyed) -> SecretDigest {
    keyed.hash("one-time code", [login.to_string().as_bytes(), method.as_str().as_bytes(), contact, code.as_bytes()])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{session::UserId, util::secret::Secret};

    #[test]
    fn c054_codes_have_six_uniform_digits() {
        const CODES: usize = 60_000;
        let mut counts = [[0_usize; 10]; DIGITS];
        for _ in 0..CODES {
            let code = OneTimeCode::generate();
            assert_eq!(code.expose().len(), DIGITS);
            for (place, digit) in code.expose().bytes().enumerate() {
                counts[place][usize::from(digit - b'0')] += 1;
            }
        }
        // chi squared with 9 degrees of freedom exceeds 45 in one of a million runs
        for place in counts {
            let expected = CODES as f64 / 10.0;
            let chi: f64 = place.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
            assert!(chi < 45.0, "{place:?}");
        }
    }

    #[test]
    fn c062_debug_shows_nothing() {
        assert_eq!(format!("{:?}", OneTimeCode::generate()), "OneTimeCode(..)");
    }

    #[test]
    fn c057_a_code_is_void_after_its_last_wrong_guess() {
        let keyed = Keyed::new(&Secret::generate());
        for attempts in 1..=5 {
            let limits = LoginLimits::new().code_attempts(attempts);
            let times = (&limits, UnixTime::from_secs(1_000_000));
            let contact = SecretDigest::of_secret("a contact");
            let id = LoginId::of_digest(&contact);
            let code = OneTimeCode::generate();
            let mut open = Some(OpenCode::new((Method::Sms, &contact), None, &id, &code, &keyed, times));
            for guess in 1..=attempts {
                open = open.and_then(|open| open.after_wrong_guess());
                assert_eq!(open.is_some(), guess < attempts, "{guess} of {attempts}");
            }
        }
    }

    proptest! {
        #[test]
        fn c055_c061_a_code_counts_for_one_login_method_address_and_time(
            other in "[0-9]{6}",
            late in 0_u64..1200,
            minutes in 1_u64..=10,
        ) {
            let keyed = Keyed::new(&Secret::generate());
            let [login, other_login] = [Secret::generate(), Secret::generate()].map(|secret| LoginId::of_digest(&secret.digest()));
            let (now, contact) = (UnixTime::from_secs(1_000_000), SecretDigest::of_secret("an address"));
            let code = OneTimeCode::generate();
            let owner = BoundUser { id: UserId::parse("u-ada").unwrap(), generation: 0 };
            let limits = LoginLimits::new().code_lifetime(Duration::from_secs(60 * minutes));
            let open =
                OpenCode::new((Method::Sms, &contact), Some(owner), &login, &code, &keyed, (&limits, now));
            let is = |open: &OpenCode, login: &LoginId, guess: &str, late| {
                open.is(guess, login, &keyed, now + Duration::from_secs(late))
            };
            let code = code.expose();
            prop_assert_eq!(is(&open, &login, code, late), late < 60 * minutes);
            prop_assert_eq!(is(&open, &login, &other, 0), code == other);
            prop_assert!(!is(&open, &other_login, code, 0));
            let to_another_time = OpenCode { expires_at: open.expires_at + 1, ..open.clone() };
            let another_code = OpenCode { code: [0; 32], ..open.clone() };
            let (mut by_another, mut to_another) = (open.clone(), open.clone());
            by_another.method = Method::Whatsapp;
            to_another.contact = *SecretDigest::of_secret("another address").as_bytes();
            prop_assert!(!is(&by_another, &login, code, 0) && !is(&to_another, &login, code, 0));
            prop_assert!(!open.is(code, &login, &Keyed::new(&Secret::generate()), now));
            prop_assert!(open.is_same(&open.clone()) && !open.is_same(&to_another_time) && !open.is_same(&another_code));
            for guess in [format!(" {code}"), format!("{code} "), format!("{code}0"), code[1..].to_owned()] {
                prop_assert!(!is(&open, &login, &guess, 0));
            }
        }
    }
}
