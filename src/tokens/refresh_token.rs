//! [`RefreshToken`]: the token that a client exchanges for the next tokens.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use blake2::{
    Blake2bMac,
    digest::{KeyInit, Mac, consts::U32},
};
use zeroize::Zeroizing;

use crate::{
    login::Keyed,
    util::{
        public_id::PublicId,
        secret::{Secret, SecretDigest},
    },
};

const FAMILY: usize = 16;
const GENERATION: usize = 4;
const SECRET: usize = 32;
const MARK: usize = 16;
const LEN: usize = FAMILY + GENERATION + SECRET + MARK;

/// The secret of one generation of a family. The store has only its digest.
///
/// The next token is derived from this one and a salt. A client that presents a token twice gets the same successor, and
/// a copy of the store alone yields no token.
pub(super) struct RefreshToken {
    pub(super) family: PublicId,
    pub(super) generation: u32,
    secret: Zeroizing<[u8; SECRET]>,
    digest: SecretDigest,
}

impl RefreshToken {
    fn new(family: PublicId, generation: u32, secret: Zeroizing<[u8; SECRET]>) -> Self {
        let digest = SecretDigest::of_secret(&secret[..]);
        Self { family, generation, secret, digest }
    }

    /// Creates the first token of a family.
    pub(super) fn first(family: PublicId) -> Self {
        Self::new(family, 0, Zeroizing::new(*random_digest().as_bytes()))
    }

    /// Returns the successor for this salt.
    #[expect(clippy::expect_used, reason = "BLAKE2b takes keys of up to 64 bytes, and a secret has 32")]
    pub(super) fn next(&self, salt: &SecretDigest) -> Self {
        let mut mac = Blake2bMac::<U32>::new_from_slice(&self.secret[..]).expect("the key is short enough");
        mac.update(b"tollgate next refresh token:");
        mac.update(salt.as_bytes());
        let secret: [u8; SECRET] = mac.finalize().into_bytes().into();
        Self::new(self.family, self.generation.saturating_add(1), Zeroizing::new(secret))
    }

    pub(super) fn digest(&self) -> &SecretDigest {
        &self.digest
    }

    /// Returns the text that is sent to the client. Its mark proves later that this service made the token, even after the
    /// store has dropped the digest, so that a made-up token can't revoke a family.
    pub(super) fn to_token_text(&self, keyed: &Keyed) -> String {
        let mark = self.mark(keyed);
        let secret = Zeroizing::new(
            [&self.family.as_bytes()[..], &self.generation.to_be_bytes(), &self.secret[..], &mark].concat(),
        );
        BASE64URL.encode(&secret[..])
    }

    /// Parses a token. Also returns whether this service made it. Returns `None` if the text is not a refresh token.
    pub(super) fn parse(text: &str, keyed: &Keyed) -> Option<(Self, bool)> {
        if text.len() != LEN.div_ceil(3) * 4 - 1 {
            return None;
        }
        let bytes = Zeroizing::new(BASE64URL.decode(text).ok()?);
        let (family, rest) = bytes.split_first_chunk::<FAMILY>()?;
        let (generation, rest) = rest.split_first_chunk::<GENERATION>()?;
        let (secret, mark) = rest.split_first_chunk::<SECRET>()?;
        let (family, generation) = (PublicId::from_bytes(*family), u32::from_be_bytes(*generation));
        let token = Self::new(family, generation, Zeroizing::new(*secret));
        let is_ours = bool::from(subtle::ConstantTimeEq::ct_eq(&token.mark(keyed)[..], mark));
        Some((token, is_ours))
    }

    fn mark(&self, keyed: &Keyed) -> [u8; MARK] {
        let parts = [&self.family.as_bytes()[..], &self.generation.to_be_bytes(), &self.secret[..]];
        // the default is never used, because a digest has 32 bytes
        keyed.hash("refresh token", parts).as_bytes().first_chunk().copied().unwrap_or_default()
    }
}

pub(super) fn random_digest() -> SecretDigest {
    Secret::generate().digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_token_can_be_parsed_and_its_mark_shows_which_service_made_it() {
        let keyed = Keyed::new(&Secret::generate());
        let first = RefreshToken::first(PublicId::from_bytes([7; 16]));
        let text = first.to_token_text(&keyed);
        let (read, is_ours) = RefreshToken::parse(&text, &keyed).unwrap();
        assert!(is_ours && read.digest().matches(first.digest()) && read.family == first.family);
        assert!(!RefreshToken::parse(&text, &Keyed::new(&Secret::generate())).unwrap().1);
        // every character counts
        for place in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[place] = if other[place] == b'A' { b'B' } else { b'A' };
            let other = String::from_utf8(other).unwrap();
            assert!(RefreshToken::parse(&other, &keyed).is_none_or(|(_, is_ours)| !is_ours), "{place}");
        }
        for bad in ["", "A", &text[1..], &format!("{text}A"), &"=".repeat(text.len())] {
            assert!(RefreshToken::parse(bad, &keyed).is_none());
        }
    }

    #[test]
    fn the_successor_depends_on_the_salt() {
        let first = RefreshToken::first(PublicId::from_bytes([7; 16]));
        let next = first.next(&SecretDigest::from_bytes([1; 32]));
        assert_eq!(next.generation, 1);
        assert!(next.digest().matches(first.next(&SecretDigest::from_bytes([1; 32])).digest()));
        assert!(!next.digest().matches(first.next(&SecretDigest::from_bytes([2; 32])).digest()));
        assert!(!next.digest().matches(first.digest()));
    }
}
