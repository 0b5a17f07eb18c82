//! [`Family`]: everything that came of one code. Pure: it has no clock and no store.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::refresh::RefreshToken;
use crate::{
    client::Scopes,
    session::UserId,
    tenant::Tenant,
    user::Identifier,
    util::{clock::UnixTime, handle::Handle, secret::Digest},
};

/// How long after its use a refresh token still gives the successor that it gave then: for a client that asked twice at
/// once, or never got the answer.
const GRACE: Duration = Duration::from_secs(10);

/// Who may do what, through which client, and how they proved who they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Authorized {
    #[serde(with = "crate::util::text")]
    pub(crate) tenant: Tenant,
    #[serde(with = "crate::util::text")]
    pub(crate) user: UserId,
    /// The name that they logged in by, to find the account again.
    pub(crate) identifier: Identifier,
    pub(crate) client_id: String,
    pub(crate) scope: Scopes,
    /// In Unix seconds.
    pub(crate) auth_time: u64,
    pub(crate) acr: Option<String>,
    pub(crate) amr: Vec<String>,
    #[serde(with = "crate::util::text::option")]
    pub(crate) session: Option<Handle>,
    /// The key that all its tokens are bound to.
    pub(crate) jkt: Option<String>,
    /// Claims that are wanted by name in the id_token, and at userinfo.
    pub(crate) id_token: Vec<String>,
    pub(crate) userinfo: Vec<String>,
}

/// As it is stored, under its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Row {
    Live(Box<Family>),
    /// It was ended before its time. Nothing is ever written over it.
    Revoked,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Family {
    pub(crate) authorized: Authorized,
    /// The refresh token that counts, if the client got any.
    current: Option<Current>,
    before: Option<Before>,
    pub(crate) ends: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Current {
    generation: u32,
    #[serde(with = "crate::util::secret::text")]
    digest: Digest,
}

/// The one that was used last, and what it gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Before {
    #[serde(with = "crate::util::secret::text")]
    digest: Digest,
    #[serde(with = "crate::util::secret::text")]
    salt: Digest,
    #[serde(with = "crate::util::text")]
    jti: Handle,
    at: u64,
}

/// What a refresh token gives.
pub(super) enum Refreshed {
    /// This one in its place, and tokens as of that time under that name.
    Next { token: RefreshToken, jti: Handle, at: UnixTime },
    /// Nothing: its time is over, or it never was.
    Refused,
    /// Nothing, and the family is to end: it was used before, so two have it.
    Reused,
}

impl Family {
    pub(super) fn new(authorized: Authorized, first: Option<&RefreshToken>, ends: UnixTime) -> Self {
        let current = first.map(|first| Current { generation: 0, digest: first.digest() });
        Self { authorized, current, before: None, ends: ends.as_nanos() }
    }

    pub(crate) fn ends(&self) -> UnixTime {
        UnixTime::from_nanos(self.ends)
    }

    /// Whether this is the refresh token that can be traded.
    pub(super) fn counts(&self, token: &RefreshToken) -> bool {
        self.current.as_ref().is_some_and(|current| token.digest().matches(&current.digest))
    }

    /// Uses a refresh token. `salt` and `jti` are new, for the successor if it is the first use; `is_ours` tells whether it
    /// was made here, whatever its digest. The family as it is then, if it changes.
    pub(super) fn refresh(
        &self,
        token: &RefreshToken,
        is_ours: bool,
        (salt, jti): (Digest, Handle),
        now: UnixTime,
    ) -> (Option<Self>, Refreshed) {
        let own = token.digest();
        let Some(current) = &self.current else { return (None, Refreshed::Refused) };
        if own.matches(&current.digest) {
            let next = token.next(&salt);
            let row = Self {
                authorized: self.authorized.clone(),
                current: Some(Current { generation: next.generation, digest: next.digest() }),
                before: Some(Before { digest: current.digest, salt, jti, at: now.as_nanos() }),
                ends: self.ends,
            };
            return (Some(row), Refreshed::Next { token: next, jti, at: now });
        }
        if let Some(before) = self.before.as_ref().filter(|before| own.matches(&before.digest)) {
            let at = UnixTime::from_nanos(before.at);
            // and no longer where the clock was set back
            if now < at + GRACE && at < now + GRACE {
                return (None, Refreshed::Next { token: token.next(&before.salt), jti: before.jti, at });
            }
            return (None, Refreshed::Reused);
        }
        if is_ours && token.generation < current.generation {
            return (None, Refreshed::Reused);
        }
        (None, Refreshed::Refused)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn family(first: &RefreshToken) -> Family {
        let authorized = Authorized {
            tenant: "acme".parse().unwrap(),
            user: UserId::parse("u-ada").unwrap(),
            identifier: Identifier::parse("ada").unwrap(),
            client_id: "web".to_owned(),
            scope: Scopes::parse("openid").unwrap(),
            auth_time: 0,
            acr: None,
            amr: Vec::new(),
            session: None,
            jkt: None,
            id_token: Vec::new(),
            userinfo: Vec::new(),
        };
        Family::new(authorized, Some(first), UnixTime::from_secs(1_000_000))
    }

    fn again(token: &RefreshToken) -> RefreshToken {
        // never copied outside of tests
        let keyed = crate::login::Keyed::new(&crate::util::secret::Secret::generate());
        RefreshToken::parse(&token.write(&keyed), &keyed).unwrap().0
    }

    proptest! {
        /// Tokens of any age at any time, against a plain list of what was given out and when it was used.
        #[test]
        fn c095_c096_a_used_token_gives_its_successor_again_for_ten_seconds_and_then_ends_the_family(
            uses in vec((0..15_u64, any::<prop::sample::Index>(), prop::bool::weighted(0.8)), 1..30),
        ) {
            let mut now = UnixTime::from_secs(1000);
            let mut given = vec![RefreshToken::first(Handle::from_bytes([1; 16]))];
            let mut used: Vec<UnixTime> = Vec::new();
            let mut live = family(&given[0]);
            for (n, (wait, place, newest)) in uses.into_iter().enumerate() {
                now = now + Duration::from_secs(wait);
                let place = if newest { given.len() - 1 } else { place.index(given.len()) };
                let fresh = (Digest::from_bytes([n as u8; 32]), Handle::from_bytes([n as u8; 16]));
                let (next, refreshed) = live.refresh(&again(&given[place]), true, fresh, now);
                let last = given.len() - 1;
                match refreshed {
                    Refreshed::Next { token, at, .. } => {
                        prop_assert_eq!(token.generation as usize, place + 1);
                        if place == last {
                            used.push(now);
                            given.push(token);
                        } else {
                            prop_assert!(place + 1 == last && now < used[place] + GRACE);
                            prop_assert!(token.digest().matches(&given[last].digest()), "one successor");
                            prop_assert_eq!(at, used[place]);
                            prop_assert!(next.is_none());
                        }
                    }
                    Refreshed::Reused => {
                        prop_assert!(place + 1 < last || place + 1 == last && now >= used[place] + GRACE);
                        prop_assert!(next.is_none());
                        break;
                    }
                    Refreshed::Refused => prop_assert!(false, "it was given out here"),
                }
                if let Some(next) = next {
                    live = next;
                }
            }
        }
    }

    #[test]
    fn a_clock_that_was_set_back_prolongs_no_grace() {
        let first = RefreshToken::first(Handle::from_bytes([1; 16]));
        let (now, fresh) = (UnixTime::from_secs(1000), (Digest::from_bytes([0; 32]), Handle::from_bytes([0; 16])));
        let live = family(&first).refresh(&again(&first), true, fresh, now).0.unwrap();
        for (at, is_good) in [(991, true), (990, false), (500, false), (1009, true), (1010, false)] {
            let (_, refreshed) = live.refresh(&again(&first), true, fresh, UnixTime::from_secs(at));
            assert_eq!(matches!(refreshed, Refreshed::Next { .. }), is_good, "{at}");
            assert_eq!(matches!(refreshed, Refreshed::Reused), !is_good, "{at}");
        }
    }

    #[test]
    fn a_token_that_was_made_up_ends_nothing() {
        let first = RefreshToken::first(Handle::from_bytes([1; 16]));
        let live = family(&first);
        let other = RefreshToken::first(Handle::from_bytes([1; 16]));
        for is_ours in [false, true] {
            let (row, refreshed) = live.refresh(
                &other,
                is_ours,
                (Digest::from_bytes([0; 32]), Handle::from_bytes([0; 16])),
                UnixTime::from_secs(1),
            );
            assert!(row.is_none() && matches!(refreshed, Refreshed::Refused));
        }
    }
}
