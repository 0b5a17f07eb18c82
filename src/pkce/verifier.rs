use zeroize::Zeroizing;

use super::error::{PkceError, PkceErrorKind};
use crate::util::{scan::is_unreserved, secret::Secret};

/// A code verifier (RFC 7636 §4.1): a secret of 43 to 128 unreserved characters.
///
/// Its `Debug` output shows nothing, it can't be compared with `==`, and its memory is wiped on
/// drop.
pub struct CodeVerifier(Zeroizing<String>);

impl CodeVerifier {
    /// The minimum length.
    pub const MIN_LEN: usize = 43;
    /// The maximum length.
    pub const MAX_LEN: usize = 128;

    /// Generates a verifier with 256 random bits. Clients generate one for each authorization.
    ///
    /// # Panics
    ///
    /// Panics if the random generator of the operating system fails.
    pub fn generate() -> Self {
        Self(Zeroizing::new(Secret::generate().expose().to_owned()))
    }

    /// Parses the verifier that a client presents.
    pub fn parse(text: &str) -> Result<Self, PkceError> {
        if !(Self::MIN_LEN..=Self::MAX_LEN).contains(&text.len()) || !text.bytes().all(is_unreserved) {
            return Err(PkceError::new(PkceErrorKind::InvalidVerifier));
        }
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// Returns the verifier as text, to be sent with the code.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

crate::util::fmt::opaque_debug!(CodeVerifier);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c091_a_verifier_has_43_to_128_characters() {
        for (len, good) in [(0, false), (1, false), (42, false), (43, true), (128, true), (129, false), (10_000, false)]
        {
            assert_eq!(CodeVerifier::parse(&"a".repeat(len)).is_ok(), good, "{len}");
        }
    }

    #[test]
    fn c091_a_verifier_has_only_unreserved_characters() {
        for char in '\0'..'\u{100}' {
            let unreserved = char.is_ascii_alphanumeric() || "-._~".contains(char);
            let parsed = CodeVerifier::parse(&format!("{}{char}", "a".repeat(50)));
            assert_eq!(parsed.is_ok(), unreserved, "{char:?}");
            if let Err(error) = parsed {
                assert_eq!(error.kind(), PkceErrorKind::InvalidVerifier);
            }
        }
    }

    #[test]
    fn generated_verifiers_are_valid_and_different() {
        let (one, other) = (CodeVerifier::generate(), CodeVerifier::generate());
        assert!(CodeVerifier::parse(one.expose()).is_ok());
        assert_ne!(one.expose(), other.expose());
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", CodeVerifier::generate()), "CodeVerifier(..)");
    }
}
