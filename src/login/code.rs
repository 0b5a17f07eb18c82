//! [`OneTimeCode`]: six digits that are sent to an address and come back.

use std::fmt;

use zeroize::Zeroizing;

pub(crate) const DIGITS: usize = 6;

/// A code of six digits, each as likely as the other, leading zeros kept.
pub(crate) struct OneTimeCode(Zeroizing<String>);

impl OneTimeCode {
    /// A new code from the random generator of the operating system.
    #[expect(clippy::expect_used, reason = "no input reaches it, and there is no safe way to go on")]
    pub(crate) fn generate() -> Self {
        const CODES: u32 = 10_u32.pow(DIGITS as u32);
        // what is above the last whole multiple would make some codes likelier
        const FAIR: u32 = u32::MAX - u32::MAX % CODES;
        loop {
            let mut bytes = [0; 4];
            getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
            let number = u32::from_le_bytes(bytes);
            if number < FAIR {
                return Self(Zeroizing::new(format!("{:0DIGITS$}", number % CODES)));
            }
        }
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for OneTimeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneTimeCode(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c054_codes_have_six_digits_each_as_likely_as_the_other() {
        const CODES: usize = 60_000;
        let mut counts = [[0_usize; 10]; DIGITS];
        for _ in 0..CODES {
            let code = OneTimeCode::generate();
            assert_eq!(code.expose().len(), DIGITS);
            for (place, digit) in code.expose().bytes().enumerate() {
                counts[place][usize::from(digit - b'0')] += 1;
            }
        }
        // chi squared with 9 degrees of freedom: beyond 45 in one of a million runs
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
}
