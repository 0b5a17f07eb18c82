#![no_main]
//! Whatever a query or a form holds, reading it never panics, and a challenge
//! that comes out is in its canonical form.

use libfuzzer_sys::fuzz_target;
use tollgate::CodeChallenge;

fuzz_target!(|form: &[u8]| {
    if let Ok(challenge) = CodeChallenge::from_form(form) {
        let again = format!("code_challenge={challenge}&code_challenge_method=S256");
        assert_eq!(CodeChallenge::from_form(again), Ok(challenge));
    }
});
