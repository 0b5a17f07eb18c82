use http::Extensions;
use subtle::ConstantTimeEq;

use super::{
    error::{PkceError, PkceErrorKind},
    verifier::CodeVerifier,
};
use crate::util::{
    encoding::{LEN_OF_32, base64url_of_32, base64url_to_32},
    form::Form,
    secret::SecretDigest,
};

const CHALLENGE: &str = "code_challenge";
const METHOD: &str = "code_challenge_method";

/// A code challenge (RFC 7636 §4.2): the SHA-256 of a [`CodeVerifier`], as 43 characters of
/// base64url.
///
/// It does not reveal the verifier and may be shown and stored.
///
/// ```
/// use tollgate::pkce::{CodeChallenge, CodeVerifier};
///
/// let verifier = CodeVerifier::generate();
/// let challenge = CodeChallenge::parse(CodeChallenge::from_verifier(&verifier).as_str())?;
/// assert!(challenge.verify(&verifier));
/// assert!(!challenge.verify(&CodeVerifier::generate()));
/// # Ok::<(), tollgate::pkce::PkceError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodeChallenge([u8; LEN_OF_32]);

impl CodeChallenge {
    /// Computes the S256 challenge of a verifier.
    pub fn from_verifier(verifier: &CodeVerifier) -> Self {
        Self(base64url_of_32(SecretDigest::of_secret(verifier.expose()).as_bytes()))
    }

    /// Parses a challenge. Accepts only the 43 characters of a SHA-256: padding, the standard
    /// alphabet and stray trailing bits are rejected.
    pub fn parse(text: &str) -> Result<Self, PkceError> {
        let invalid = PkceError::new(PkceErrorKind::InvalidChallenge);
        base64url_to_32(text.as_bytes()).ok_or(invalid)?;
        Ok(Self(text.as_bytes().try_into().map_err(|_| invalid)?))
    }

    /// Reads a challenge from `code_challenge` and `code_challenge_method`. The method must be
    /// `S256`: a missing or empty method means `plain` and is rejected.
    pub fn from_members(challenge: Option<&str>, method: Option<&str>) -> Result<Self, PkceError> {
        let given = |member: Option<&str>| member.is_some_and(|text| !text.is_empty());
        let Some(challenge) = challenge.filter(|_| given(challenge)) else {
            return Err(PkceError::new(PkceErrorKind::ChallengeRequired));
        };
        if method != Some("S256") {
            return Err(PkceError::new(PkceErrorKind::UnsupportedMethod));
        }
        Self::parse(challenge)
    }

    /// Reads a challenge from a query or a form (`application/x-www-form-urlencoded`). Repeated
    /// parameters are rejected (RFC 6749 §3.1).
    pub fn from_form(form: impl AsRef<[u8]>) -> Result<Self, PkceError> {
        let form = Form::parse(form.as_ref())?;
        if form.has_duplicates() {
            return Err(PkceError::new(PkceErrorKind::Duplicate));
        }
        Self::from_members(form.value(CHALLENGE), form.value(METHOD))
    }

    /// Returns the challenge of a request that passed a [`PkceLayer`](super::PkceLayer).
    pub fn from_extensions(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// Checks a verifier against this challenge in constant time.
    pub fn verify(&self, verifier: &CodeVerifier) -> bool {
        self.0.ct_eq(&Self::from_verifier(verifier).0).into()
    }

    /// Returns the challenge as text.
    pub fn as_str(&self) -> &str {
        // the default is never used: base64url is ASCII
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

crate::util::fmt::display!(CodeChallenge, |own| own.as_str());

crate::util::fmt::debug_text!(CodeChallenge, |own| own.as_str());

crate::util::fmt::from_str!(CodeChallenge, PkceError);

#[cfg(feature = "axum")]
crate::http::missing_layer::extract_from_extensions!(CodeChallenge, "no PkceLayer protects this route");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const APPENDIX_B: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    fn kind<T: std::fmt::Debug>(result: Result<T, PkceError>) -> PkceErrorKind {
        result.unwrap_err().kind()
    }

    #[test]
    fn c091_the_test_vector_of_rfc_7636_appendix_b() {
        let verifier = CodeVerifier::parse(VERIFIER).unwrap();
        assert_eq!(CodeChallenge::from_verifier(&verifier).as_str(), APPENDIX_B);
        assert!(CodeChallenge::parse(APPENDIX_B).unwrap().verify(&verifier));
    }

    #[test]
    fn c091_other_verifiers_are_rejected() {
        let challenge = CodeChallenge::parse(APPENDIX_B).unwrap();
        for at in 0..VERIFIER.len() {
            let mut other = VERIFIER.to_owned().into_bytes();
            other[at] = if other[at] == b'~' { b'.' } else { b'~' };
            let other = CodeVerifier::parse(std::str::from_utf8(&other).unwrap()).unwrap();
            assert!(!challenge.verify(&other), "{at}");
        }
        // nor for another challenge, wherever the two differ
        let verifier = CodeVerifier::parse(VERIFIER).unwrap();
        for at in 0..APPENDIX_B.len() {
            let mut other = APPENDIX_B.to_owned().into_bytes();
            other[at] = if other[at] == b'A' { b'E' } else { b'A' };
            let other = CodeChallenge::parse(std::str::from_utf8(&other).unwrap()).unwrap();
            assert!(!other.verify(&verifier), "{at}");
        }
        // as `plain` would accept
        assert!(!challenge.verify(&CodeVerifier::parse(APPENDIX_B).unwrap()));
    }

    #[test]
    fn c014_a_challenge_is_43_characters_of_base64url() {
        assert!(CodeChallenge::parse(APPENDIX_B).is_ok());
        for bad in [
            "",
            &APPENDIX_B[1..],
            &format!("{APPENDIX_B}A"),
            &format!("{APPENDIX_B}="),
            &format!("{}=", &APPENDIX_B[1..]),
            &APPENDIX_B.replace('-', "+"),
            &APPENDIX_B.replace('-', "/"),
            &APPENDIX_B.replace('-', "~"),
            &APPENDIX_B.replace('-', "."),
            &APPENDIX_B.replace('-', " "),
            &APPENDIX_B.replace('-', "\0"),
            &APPENDIX_B.replace("-c", "é"),
            // stray trailing bits, which no digest has
            &APPENDIX_B.replace("cM", "cN"),
            // allowed by the grammar of §4.2, but not an S256
            &"a".repeat(128),
        ] {
            assert_eq!(kind(CodeChallenge::parse(bad)), PkceErrorKind::InvalidChallenge, "{bad:?}");
        }
    }

    #[test]
    fn c012_a_challenge_is_required() {
        for query in
            ["", "code_challenge_method=S256", "code_challenge=&code_challenge_method=S256", "Code_Challenge=x"]
        {
            assert_eq!(kind(CodeChallenge::from_form(query)), PkceErrorKind::ChallengeRequired, "{query}");
        }
    }

    #[test]
    fn c013_only_s256_is_accepted() {
        let challenge = Some(APPENDIX_B);
        assert!(CodeChallenge::from_members(challenge, Some("S256")).is_ok());
        for method in [None, Some(""), Some("plain"), Some("s256"), Some("S256 "), Some("S512"), Some("S2566")] {
            let refused = CodeChallenge::from_members(challenge, method);
            assert_eq!(kind(refused), PkceErrorKind::UnsupportedMethod, "{method:?}");
        }
    }

    #[test]
    fn c010_repeated_parameters_are_rejected() {
        let good = format!("code_challenge={APPENDIX_B}&code_challenge_method=S256");
        assert!(CodeChallenge::from_form(&good).is_ok());
        for more in [
            format!("code_challenge={APPENDIX_B}"),
            String::from("code_challenge="),
            String::from("code%5Fchallenge"),
            String::from("code_challenge_method=S256"),
            String::from("code_challenge_method=plain"),
            String::from("state=1&state=1"),
        ] {
            assert_eq!(kind(CodeChallenge::from_form(format!("{good}&{more}"))), PkceErrorKind::Duplicate, "{more}");
            assert_eq!(kind(CodeChallenge::from_form(format!("{more}&{good}"))), PkceErrorKind::Duplicate, "{more}");
        }
    }

    #[test]
    fn malformed_forms_are_rejected() {
        for query in ["a=%", "a=%ff"] {
            assert_eq!(kind(CodeChallenge::from_form(query)), PkceErrorKind::Malformed, "{query}");
        }
    }

    proptest! {
        #[test]
        fn a_verifier_matches_only_its_own_challenge(one in "[A-Za-z0-9._~-]{43,128}", other in "[A-Za-z0-9._~-]{43,128}") {
            let parsed = CodeVerifier::parse(&one).unwrap();
            prop_assert_eq!(parsed.expose(), &one);
            let challenge = CodeChallenge::from_verifier(&parsed);
            prop_assert_eq!(CodeChallenge::parse(challenge.as_str()).unwrap(), challenge);
            prop_assert_eq!(CodeChallenge::from_form(format!("code_challenge={challenge}&code_challenge_method=S256")), Ok(challenge));
            prop_assert!(challenge.verify(&parsed));
            prop_assert_eq!(challenge.verify(&CodeVerifier::parse(&other).unwrap()), one == other);
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), text: String) {
            let _ = CodeChallenge::from_form(&bytes);
            let _ = (CodeChallenge::parse(&text), CodeVerifier::parse(&text));
        }
    }
}
