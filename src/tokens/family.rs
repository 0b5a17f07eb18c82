//! [`Family`]: all tokens issued from one authorization code. Pure: it has no clock and no store.

use std::{sync::Arc, time::Duration};

use super::{grant::Grant, refresh_token::RefreshToken};
use crate::util::{clock::UnixTime, public_id::PublicId, secret::SecretDigest};

/// Redeeming a code again within this time counts as a repeated request, not as a stolen code.
const REPEATED: Duration = Duration::from_secs(2);

/// All tokens issued from one authorization code. The row is deleted when the family is revoked.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    pub(crate) grant: Arc<Grant>,
    /// The refresh token that can be used, if the client gets refresh tokens at all.
    pub(super) current: Option<Current>,
    pub(super) used: Option<Used>,
    /// When the code was redeemed, in Unix nanoseconds.
    pub(super) born: u64,
    pub(super) ends: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Current {
    pub(super) generation: u32,
    pub(super) digest: SecretDigest,
}

/// The refresh token that was used last, and how its successor was made.
#[derive(Clone, Debug)]
pub(super) struct Used {
    pub(super) digest: SecretDigest,
    pub(super) salt: SecretDigest,
    pub(super) at: u64,
}

/// The standing of a presented refresh token.
enum Standing<'a> {
    /// It can be used for the first time.
    Current(&'a Current),
    /// It was just used, and returns its successor again.
    Repeated(&'a Used),
    /// It was used before.
    Reused,
    Unknown,
}

/// The result of a valid refresh token: its successor, and access tokens issued at `at` with ids derived from `jti`.
pub(super) struct Next {
    pub(super) token: RefreshToken,
    pub(super) jti: PublicId,
    pub(super) at: UnixTime,
}

/// Returns the id of the family that a code begins. It reveals nothing about the code.
pub(crate) fn family_of_code(code: &SecretDigest) -> PublicId {
    PublicId::of_digest(&SecretDigest::of_secret([b"tollgate family of a code:", &code.as_bytes()[..]].concat()))
}

impl Family {
    pub(super) fn new(grant: Grant, first: Option<&RefreshToken>, born: UnixTime, ends: UnixTime) -> Self {
        let current = first.map(|first| Current { generation: 0, digest: *first.digest() });
        Self { grant: Arc::new(grant), current, used: None, born: born.as_nanos(), ends: ends.as_nanos() }
    }

    pub(crate) fn ends(&self) -> UnixTime {
        UnixTime::from_nanos(self.ends)
    }

    /// Returns whether redeeming the code again means that two parties have it.
    pub(super) fn is_replay(&self, now: UnixTime) -> bool {
        now > UnixTime::from_nanos(self.born) + REPEATED
    }

    /// Returns whether this is the refresh token that can be used for the first time.
    pub(super) fn is_current(&self, token: &RefreshToken) -> bool {
        self.current.as_ref().is_some_and(|current| token.digest().matches(&current.digest))
    }

    /// Returns whether this refresh token gives tokens now: it is current, or was used within the grace.
    pub(super) fn is_usable(&self, token: &RefreshToken, is_ours: bool, grace: Duration, now: UnixTime) -> bool {
        matches!(self.standing(token, is_ours, grace, now), Standing::Current(_) | Standing::Repeated(_))
    }

    /// Returns whether this refresh token was used before, and longer ago than the grace allows.
    pub(super) fn is_reused(&self, token: &RefreshToken, is_ours: bool, grace: Duration, now: UnixTime) -> bool {
        matches!(self.standing(token, is_ours, grace, now), Standing::Reused)
    }

    /// Uses a refresh token. `salt` makes its successor if this is the first use. `is_ours` tells whether its mark
    /// shows that this service made it, even if its digest is no longer stored. Returns the changed family, if it changes, and
    /// what a valid token yields.
    pub(super) fn refresh(
        &self,
        token: &RefreshToken,
        is_ours: bool,
        salt: SecretDigest,
        grace: Duration,
        now: UnixTime,
    ) -> (Option<Self>, Option<Next>) {
        match self.standing(token, is_ours, grace, now) {
            Standing::Current(current) => {
                let next = token.next(&salt);
                let row = Self {
                    current: Some(Current { generation: next.generation, digest: *next.digest() }),
                    used: Some(Used { digest: current.digest, salt, at: now.as_nanos() }),
                    ..self.clone()
                };
                (Some(row), Some(Next { token: next, jti: jti_of(&salt), at: now }))
            }
            Standing::Repeated(Used { salt, at, .. }) => {
                let (token, at) = (token.next(salt), UnixTime::from_nanos(*at));
                (None, Some(Next { token, jti: jti_of(salt), at }))
            }
            Standing::Reused | Standing::Unknown => (None, None),
        }
    }

    fn standing(&self, token: &RefreshToken, is_ours: bool, grace: Duration, now: UnixTime) -> Standing<'_> {
        let Some(current) = &self.current else { return Standing::Unknown };
        let own = token.digest();
        if own.matches(&current.digest) {
            return Standing::Current(current);
        }
        if let Some(used) = self.used.as_ref().filter(|used| own.matches(&used.digest)) {
            let at = UnixTime::from_nanos(used.at);
            // a clock that was set back must not extend the grace
            let is_within = now < at + grace && at < now + grace;
            return if is_within { Standing::Repeated(used) } else { Standing::Reused };
        }
        if is_ours && token.generation < current.generation {
            return Standing::Reused;
        }
        Standing::Unknown
    }
}

/// Derives the `jti` of an exchange from the salt of its refresh token. A repeated request gets the same one.
fn jti_of(salt: &SecretDigest) -> PublicId {
    PublicId::of_digest(salt)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        client::Scopes,
        login::{Binding, Keyed},
        pkce::CodeChallenge,
        session::{Authentication, UserId},
        util::secret::Secret,
    };

    const GRACE: Duration = Duration::from_secs(10);

    fn family(first: &RefreshToken) -> Family {
        let who = Authentication {
            tenant: "acme".parse().unwrap(),
            user: UserId::parse("u-ada").unwrap(),
            generation: 0,
            proofs: Vec::new(),
            acr: None,
        };
        let binding = Binding {
            client_id: "web".to_owned(),
            redirect_uri: "https://app.example/callback".to_owned(),
            scope: Scopes::parse("openid").unwrap(),
            code_challenge: CodeChallenge::parse("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM").unwrap(),
        };
        let session = PublicId::from_bytes([1; 16]);
        let (id_token, userinfo, resources) = (Vec::new(), Vec::new(), Vec::new());
        let grant = Grant { who, session, binding, jkt: None, id_token, userinfo, resources };
        Family::new(grant, Some(first), UnixTime::from_secs(1000), UnixTime::from_secs(1_000_000))
    }

    fn again(token: &RefreshToken) -> RefreshToken {
        // tokens are never copied outside of tests
        let keyed = Keyed::new(&Secret::generate());
        RefreshToken::parse(&token.to_token_text(&keyed), &keyed).unwrap().0
    }

    proptest! {
        /// Presents tokens of any age at any time, and compares with a plain list of those that were issued and used.
        #[test]
        fn c095_c096_a_used_token_returns_its_successor_again_for_ten_seconds_and_then_revokes_the_family(
            uses in vec((0..15_u64, any::<prop::sample::Index>(), prop::bool::weighted(0.8)), 1..30),
        ) {
            let mut now = UnixTime::from_secs(1000);
            let mut given = vec![RefreshToken::first(PublicId::from_bytes([1; 16]))];
            let mut used: Vec<UnixTime> = Vec::new();
            let mut live = family(&given[0]);
            for (n, (wait, place, newest)) in uses.into_iter().enumerate() {
                now = now + Duration::from_secs(wait);
                let place = if newest { given.len() - 1 } else { place.index(given.len()) };
                let salt = SecretDigest::from_bytes([n as u8; 32]);
                let (next, refreshed) = live.refresh(&again(&given[place]), true, salt, GRACE, now);
                let last = given.len() - 1;
                match refreshed {
                    Some(Next { token, at, .. }) => {
                        prop_assert_eq!(token.generation as usize, place + 1);
                        if place == last {
                            used.push(now);
                            given.push(token);
                        } else {
                            prop_assert!(place + 1 == last && now < used[place] + GRACE);
                            prop_assert!(token.digest().matches(given[last].digest()), "one successor");
                            prop_assert_eq!(at, used[place]);
                            prop_assert!(next.is_none());
                        }
                    }
                    None => {
                        prop_assert!(live.is_reused(&again(&given[place]), true, GRACE, now), "the token was issued here");
                        prop_assert!(place + 1 < last || place + 1 == last && now >= used[place] + GRACE);
                        prop_assert!(next.is_none());
                        break;
                    }
                }
                if let Some(next) = next {
                    live = next;
                }
            }
        }
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_extend_the_grace() {
        let first = RefreshToken::first(PublicId::from_bytes([1; 16]));
        let (now, salt) = (UnixTime::from_secs(1000), SecretDigest::from_bytes([0; 32]));
        let live = family(&first).refresh(&again(&first), true, salt, GRACE, now).0.unwrap();
        for (at, is_good) in [(991, true), (990, false), (500, false), (1009, true), (1010, false)] {
            let now = UnixTime::from_secs(at);
            let (_, refreshed) = live.refresh(&again(&first), true, salt, GRACE, now);
            assert_eq!(refreshed.is_some(), is_good, "{at}");
            assert_eq!(live.is_reused(&again(&first), true, GRACE, now), !is_good, "{at}");
        }
    }

    #[test]
    fn a_made_up_token_does_not_revoke_the_family() {
        let first = RefreshToken::first(PublicId::from_bytes([1; 16]));
        let live = family(&first);
        let other = RefreshToken::first(PublicId::from_bytes([1; 16]));
        for is_ours in [false, true] {
            let salt = SecretDigest::from_bytes([0; 32]);
            let (row, refreshed) = live.refresh(&other, is_ours, salt, GRACE, UnixTime::from_secs(1));
            assert!(row.is_none() && refreshed.is_none());
            assert!(!live.is_reused(&other, is_ours, GRACE, UnixTime::from_secs(1)));
        }
    }

    #[test]
    fn c092_a_family_id_is_derived_only_from_its_code_and_a_replay_counts_after_two_seconds() {
        let (code, other) = (SecretDigest::of_secret("code"), SecretDigest::of_secret("other"));
        assert_eq!(family_of_code(&code), family_of_code(&code));
        assert_ne!(family_of_code(&code), family_of_code(&other));
        assert_ne!(family_of_code(&code), PublicId::of_digest(&code));
        let family = family(&RefreshToken::first(PublicId::from_bytes([1; 16])));
        let after = |nanos| family.is_replay(UnixTime::from_secs(1000) + Duration::from_nanos(nanos));
        assert_eq!([0, 2_000_000_000, 2_000_000_001].map(after), [false, false, true]);
    }
}
