//! Nonces that proofs must contain, so that they can't be made in advance (RFC 9449 §8, §9).

use aws_lc_rs::hmac;

use crate::util::{
    clock::UnixTime,
    encoding::{base64url_of_32, base64url_to_32},
    secret::Secret,
};

/// How long the same nonce is issued. It is accepted for the same time again.
const PERIOD_SECONDS: u64 = 180;

/// Nonces are not stored: each is a MAC of its period, with a key that all nodes share.
pub(crate) struct Nonces(hmac::Key);

impl Nonces {
    pub(crate) fn new(key: &Secret) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.expose().as_bytes()))
    }

    /// Returns the current nonce.
    pub(super) fn current(&self, now: UnixTime) -> String {
        let tag = hmac::sign(&self.0, &message(period(now)));
        // the default is never used: HMAC-SHA256 has 32 bytes
        let text = base64url_of_32(tag.as_ref().try_into().unwrap_or(&[0; 32]));
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Returns whether the nonce was issued in this period or the previous one.
    pub(super) fn accepts(&self, nonce: &str, now: UnixTime) -> bool {
        let Some(tag) = base64url_to_32(nonce.as_bytes()) else { return false };
        let this = period(now);
        [Some(this), this.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|period| hmac::verify(&self.0, &message(period), tag.as_slice()).is_ok())
    }
}

fn period(now: UnixTime) -> u64 {
    now.as_secs() / PERIOD_SECONDS
}

/// Prefixed, because the key may have other uses.
fn message(period: u64) -> Vec<u8> {
    [&b"dpop nonce"[..], &period.to_be_bytes()].concat()
}

crate::util::fmt::opaque_debug!(Nonces);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c100_a_nonce_is_valid_for_two_periods_with_its_own_key_only() {
        let key = Secret::generate();
        let nonces = Nonces::new(&key);
        let start = UnixTime::from_secs(1_000 * PERIOD_SECONDS);
        let after = |seconds: u64| UnixTime::from_secs(start.as_secs() + seconds);
        let nonce = nonces.current(start);
        assert_eq!(nonces.current(after(PERIOD_SECONDS - 1)), nonce);
        assert_ne!(nonces.current(after(PERIOD_SECONDS)), nonce);
        assert!(nonces.accepts(&nonce, start));
        assert!(nonces.accepts(&nonce, after(2 * PERIOD_SECONDS - 1)));
        assert!(!nonces.accepts(&nonce, after(2 * PERIOD_SECONDS)));
        assert!(!nonces.accepts(&nonces.current(after(PERIOD_SECONDS)), start), "from a future period");
        assert!(Nonces::new(&key).accepts(&nonce, start), "another node with the key");
        assert!(!Nonces::new(&Secret::generate()).accepts(&nonce, start));
        for bad in ["", "a", &nonce[1..], &format!("{nonce}="), &"A".repeat(43)] {
            assert!(!nonces.accepts(bad, start), "{bad}");
        }
        assert!(nonces.accepts(&nonces.current(UnixTime::from_secs(0)), UnixTime::from_secs(0)));
        // the key has other uses, so the MAC covers its purpose
        let tag = hmac::sign(&nonces.0, b"dpop nonce\0\0\0\0\0\0\x03\xe8");
        assert_eq!(base64url_to_32(nonce.as_bytes()).unwrap().as_slice(), tag.as_ref());
        assert_eq!(format!("{nonces:?}"), "Nonces(..)");
    }
}
