#![no_main]
//! Whatever a JSON body holds, reading it never panics, and a challenge that
//! comes out is in its canonical form.

use libfuzzer_sys::fuzz_target;
use tollgate::CodeChallenge;

fuzz_target!(|json: &[u8]| {
    if let Ok(challenge) = CodeChallenge::from_json(json) {
        let again = format!(r#"{{"code_challenge":"{challenge}","code_challenge_method":"S256"}}"#);
        assert_eq!(CodeChallenge::from_json(again), Ok(challenge));
    }
});
