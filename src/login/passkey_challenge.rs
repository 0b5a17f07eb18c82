//! The challenge that a passkey signs to prove a step.

use std::time::Duration;

use crate::util::{clock::UnixTime, secret::Digest};

/// A challenge that a login waits for. It is independent of an open one-time code.
#[derive(Clone, Debug)]
pub(crate) struct PasskeyChallenge {
    pub(super) digest: Digest,
    pub(super) expires_at: u64,
}

impl PasskeyChallenge {
    /// How long a challenge can be answered.
    pub(crate) const LIFETIME: Duration = Duration::from_secs(300);

    /// Generates a challenge of 32 random bytes, and returns it with its bytes for the browser.
    #[expect(clippy::expect_used, reason = "input cannot cause it, and there is no safe way to continue")]
    pub(crate) fn generate(now: UnixTime) -> (Self, [u8; 32]) {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the operating system provides random bytes");
        (Self { digest: Digest::of(bytes), expires_at: (now + Self::LIFETIME).as_nanos() }, bytes)
    }

    /// Returns whether these are the bytes of the challenge.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        self.digest.matches(&Digest::of(bytes))
    }

    pub(crate) fn has_expired(&self, now: UnixTime) -> bool {
        now.as_nanos() >= self.expires_at
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.digest.matches(&other.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c067_a_challenge_has_32_random_bytes_and_lives_five_minutes() {
        let now = UnixTime::from_secs(1_000_000);
        let (challenge, bytes) = PasskeyChallenge::generate(now);
        let (other, other_bytes) = PasskeyChallenge::generate(now);
        assert_ne!(bytes, other_bytes);
        assert!(challenge.is(&bytes) && !challenge.is(&other_bytes) && !challenge.is(&bytes[..31]));
        assert!(challenge.is_same(&challenge.clone()) && !challenge.is_same(&other));
        assert!(!challenge.has_expired(UnixTime::from_secs(1_000_299)));
        assert!(challenge.has_expired(UnixTime::from_secs(1_000_300)));
    }
}
