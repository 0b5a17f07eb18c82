#![no_main]
//! Parsing any query or form must not panic, and a parsed challenge must be canonical.

use libfuzzer_sys::fuzz_target;
use tollgate::pkce::CodeChallenge;

fuzz_target!(|form: &[u8]| {
    if let Ok(challenge) = CodeChallenge::from_form(form) {
        let again = format!("code_challenge={challenge}&code_challenge_method=S256");
        assert_eq!(CodeChallenge::from_form(again), Ok(challenge));
    }
});
