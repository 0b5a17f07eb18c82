//! Recovery codes: how they are made, shown, read and stored.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    auth::factors::credentials::credential::{Credential, StoredDigest, Strength, enrolment_mark},
    login::Keyed,
    policy::Method,
    util::public_id::PublicId,
};

/// The number of codes that are handed out together.
pub(crate) const RECOVERY_CODES: usize = 10;
/// Letters and digits that are not confused with each other, as in Crockford's base32.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The letters of a code: 80 bits. A copy of the store can contain the key of the digests, and then guessing costs one hash for
/// each try.
const LEN: usize = 16;
/// The letters that are shown together.
const GROUP: usize = 4;

/// Codes for users who have lost their other authenticators.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecoveryCodes {
    /// A random id, which marks the proofs by these codes.
    #[serde(with = "crate::util::text")]
    pub(crate) enrolment: PublicId,
    /// Keyed digests of the codes that were not used yet.
    pub(crate) unused: Vec<StoredDigest>,
    pub(crate) created_at: u64,
    pub(crate) strength: Strength,
}

/// A recovery code, in the form that is hashed: 16 letters.
pub(crate) struct RecoveryCode(Zeroizing<String>);

impl RecoveryCode {
    #[expect(clippy::expect_used, reason = "input cannot cause it, and there is no safe way to continue")]
    pub(crate) fn generate() -> Self {
        let mut bytes = Zeroizing::new([0; LEN]);
        getrandom::fill(bytes.as_mut_slice()).expect("the operating system provides random bytes");
        // 256 is a multiple of 32, so all letters are equally likely
        let letter = |byte: &u8| LETTERS.get(usize::from(byte % 32)).copied().map_or('0', char::from);
        Self(Zeroizing::new(bytes.iter().map(letter).collect()))
    }

    /// Reads a typed code. Accepts any case, spaces and hyphens anywhere, and `o`, `i` and `l` in place of similar
    /// digits. Returns `None` if it can't be a code.
    pub(crate) fn parse(typed: &str) -> Option<Self> {
        // no longer than a code with a separator after each letter
        if typed.len() > 2 * LEN {
            return None;
        }
        let meant = |character: char| match character.to_ascii_lowercase() {
            'o' => '0',
            'i' | 'l' => '1',
            other => other,
        };
        let code: String = typed.chars().filter(|character| !" -".contains(*character)).map(meant).collect();
        let code = Zeroizing::new(code);
        let is_code = code.len() == LEN && code.bytes().all(|byte| LETTERS.contains(&byte));
        is_code.then_some(Self(code))
    }

    /// Returns the code as the user sees it: four groups of four letters.
    pub(crate) fn to_grouped_text(&self) -> String {
        let mut shown = String::with_capacity(LEN + LEN / GROUP);
        for (place, letter) in self.0.chars().enumerate() {
            if place > 0 && place.is_multiple_of(GROUP) {
                shown.push('-');
            }
            shown.push(letter);
        }
        shown
    }

    /// Returns the form in which the code is stored.
    pub(crate) fn digest(&self, enrolment: &PublicId, keyed: &Keyed) -> StoredDigest {
        StoredDigest(*keyed.hash("recovery code", [enrolment.as_bytes(), self.0.as_bytes()]).as_bytes())
    }
}

impl Credential for RecoveryCodes {
    fn method(&self) -> Method {
        Method::RecoveryCode
    }

    fn mark(&self, keyed: &Keyed) -> [u8; 32] {
        enrolment_mark(&self.enrolment, keyed)
    }

    fn is_usable(&self) -> bool {
        !self.unused.is_empty()
    }
}

crate::util::fmt::opaque_debug!(RecoveryCode);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn c124_codes_differ_and_are_read_however_they_are_typed() {
        let codes: Vec<RecoveryCode> = (0..1000).map(|_| RecoveryCode::generate()).collect();
        let shown: BTreeSet<String> = codes.iter().map(RecoveryCode::to_grouped_text).collect();
        assert_eq!(shown.len(), 1000);
        let letters: BTreeSet<char> = shown.iter().flat_map(|code| code.chars()).collect();
        assert_eq!(letters.len(), 33, "all letters and the hyphen");
        for code in &codes {
            let shown = code.to_grouped_text();
            assert_eq!(shown.len(), 19);
            let look_alike = shown.replace('0', "O").replace('1', "l");
            for typed in [&shown, &shown.to_uppercase(), &shown.replace('-', ""), &shown.replace('-', " "), &look_alike]
            {
                assert_eq!(*RecoveryCode::parse(typed).unwrap().0, *code.0, "{typed}");
            }
        }
        for bad in [
            "",
            "abcd-efgh-jkmn",
            "abcd-efgh-jkmn-pqr",
            "abcd-efgh-jkmn-pqrst",
            "abcd-efgh-jkmn-pqru",
            "abcd_efgh_jkmn_pqrs",
            "äbcd-efgh-jkmn-pqr",
            &" ".repeat(100),
        ] {
            assert!(RecoveryCode::parse(bad).is_none(), "{bad:?}");
        }
        assert_eq!(format!("{:?}", codes[0]), "RecoveryCode(..)");
    }
}
