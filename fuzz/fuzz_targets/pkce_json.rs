#![no_main]
//! Parsing any JSON body must not panic, and a parsed challenge must be canonical.

use libfuzzer_sys::fuzz_target;
use tollgate::pkce::CodeChallenge;

fuzz_target!(|json: &[u8]| {
    if let Ok(challenge) = CodeChallenge::from_json(json) {
        let again = format!(r#"{{"code_challenge":"{challenge}","code_challenge_method":"S256"}}"#);
        assert_eq!(CodeChallenge::from_json(again), Ok(challenge));
    }
});
