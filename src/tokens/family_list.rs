//! [`FamilyList`]: the families of one user at one client, which are bounded so that a signed-in user can't fill the
//! store. Pure: it has no clock and no store.

use super::grant::Grant;
use crate::{
    session::UserId,
    store::compact::{row_struct, stored_row},
    util::{clock::UnixTime, public_id::PublicId, secret::SecretDigest},
};

/// The maximum number of families of a user at a client.
const MOST: usize = 100;
/// The maximum number of families of one session. Luring a browser to silent logins again and again ends only tokens of
/// that browser.
const MOST_OF_A_SESSION: usize = 20;

/// The active families of a user at a client, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct FamilyList(Vec<ListedFamily>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedFamily {
    pub(super) id: PublicId,
    pub(super) session: PublicId,
    /// When the family ends, in Unix nanoseconds.
    pub(super) ends: u64,
}

impl FamilyList {
    /// Returns the key of the row. It is a digest, because names of users and clients could make a plain key too long.
    pub(super) fn id(grant: &Grant) -> Vec<u8> {
        Self::id_of(&grant.who.user, grant.client_id())
    }

    /// Returns the key of the row of this user and this client.
    pub(super) fn id_of(user: &UserId, client_id: &str) -> Vec<u8> {
        let (user, client) = (SecretDigest::of_secret(user.as_str()), SecretDigest::of_secret(client_id));
        [&user.as_bytes()[..], client.as_bytes()].concat()
    }

    /// Returns the families.
    pub(super) fn ids(&self) -> impl Iterator<Item = PublicId> {
        self.0.iter().map(|listed| listed.id)
    }

    /// Adds a family, unless it is listed already. Also returns the family that had to make room, if any: the oldest of
    /// the same session if the session is at its maximum, or else the oldest of all.
    pub(super) fn with(mut self, new: ListedFamily, now: UnixTime) -> (Self, Option<ListedFamily>) {
        self.0.retain(|listed| now.as_nanos() < listed.ends);
        // requests that redeem the same code at once list the same family
        if self.0.iter().any(|listed| listed.id == new.id) {
            return (self, None);
        }
        let of_session = |listed: &ListedFamily| listed.session == new.session;
        let evicted = if self.0.iter().filter(|listed| of_session(listed)).count() >= MOST_OF_A_SESSION {
            self.0.iter().position(of_session)
        } else {
            (self.0.len() >= MOST).then_some(0)
        };
        let evicted = evicted.map(|place| self.0.remove(place));
        self.0.push(new);
        (self, evicted)
    }

    /// Removes a family. Returns `None` if it is not listed.
    pub(super) fn without(mut self, id: &PublicId) -> Option<Self> {
        let place = self.0.iter().position(|listed| listed.id == *id)?;
        self.0.remove(place);
        Some(self)
    }

    /// Returns when the last family ends.
    pub(super) fn ends(&self) -> UnixTime {
        UnixTime::from_nanos(self.0.iter().map(|listed| listed.ends).max().unwrap_or_default())
    }
}

stored_row!(FamilyList, 1, "not a list of families");
row_struct!(FamilyList(families));
row_struct!(ListedFamily { id, session, ends });

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, time::Duration};

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{client::Scopes, login::Binding, pkce::CodeChallenge, session::Authentication, store::table::Value};

    fn listed(number: u8, session: u8, ends: UnixTime) -> ListedFamily {
        let (id, session) = (PublicId::from_bytes([number; 16]), PublicId::from_bytes([session; 16]));
        ListedFamily { id, session, ends: ends.as_nanos() }
    }

    proptest! {
        /// Begins and ends families in any order, and compares with a plain list of active families and their sessions.
        #[test]
        fn a_list_stays_within_both_maxima_and_a_full_session_evicts_its_own_oldest_family(
            steps in vec((any::<prop::sample::Index>(), 0..10_u8, prop::sample::select(vec![1_u8, 1, 2, 2, 3, 4, 5, 6, 7])), 1..250),
        ) {
            let now = UnixTime::from_secs(1000);
            let (mut list, mut living) = (FamilyList::default(), Vec::<(u8, u8)>::new());
            for (number, (place, what, session)) in (0..).zip(steps) {
                if what == 0 && !living.is_empty() {
                    let (family, _) = living.remove(place.index(living.len()));
                    list = list.without(&PublicId::from_bytes([family; 16])).unwrap();
                    prop_assert!(list.clone().without(&PublicId::from_bytes([family; 16])).is_none());
                    continue;
                }
                let (next, evicted) = list.with(listed(number, session, now + Duration::from_secs(1)), now);
                let crowded = living.iter().filter(|(_, own)| *own == session).count() == MOST_OF_A_SESSION;
                let expected = (crowded || living.len() == MOST).then(|| {
                    let first = living.iter().position(|(_, own)| !crowded || *own == session).unwrap();
                    living.remove(first).0
                });
                prop_assert_eq!(evicted.map(|gone| gone.id), expected.map(|gone| PublicId::from_bytes([gone; 16])));
                living.push((number, session));
                list = next;
                // listing a family again changes nothing
                let (again, evicted) = list.clone().with(listed(number, session, now + Duration::from_secs(1)), now);
                prop_assert_eq!((again.0.len(), evicted.is_none()), (list.0.len(), true));
                prop_assert_eq!(list.0.len(), living.len());
                prop_assert!(list.0.len() <= MOST);
                let most = living.iter().filter(|(_, own)| *own == session).count();
                prop_assert!(most <= MOST_OF_A_SESSION);
            }
            // families that have ended need no room
            let (later, evicted) = list.with(listed(251, 1, now + Duration::from_secs(9)), now + Duration::from_secs(1));
            prop_assert_eq!((later.0.len(), evicted.is_none()), (1, true));
        }
    }

    #[test]
    fn each_user_has_a_list_of_their_own_at_each_client() {
        let list_of = |user: &str, client: &str| {
            let who = Authentication {
                tenant: "acme".parse().unwrap(),
                user: UserId::parse(user).unwrap(),
                generation: 0,
                proofs: Vec::new(),
                acr: None,
            };
            let binding = Binding {
                client_id: client.to_owned(),
                redirect_uri: "https://app.example/callback".to_owned(),
                scope: Scopes::parse("openid").unwrap(),
                code_challenge: CodeChallenge::parse("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM").unwrap(),
            };
            let session = PublicId::from_bytes([1; 16]);
            let (id_token, userinfo, resources) = (Vec::new(), Vec::new(), Vec::new());
            FamilyList::id(&Grant { who, session, binding, jkt: None, id_token, userinfo, resources })
        };
        let ids = [("u", "web"), ("u", "app"), ("v", "web"), ("web", "u")].map(|(user, client)| list_of(user, client));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        assert_eq!(list_of("u", "web"), ids[0]);
        assert!(list_of(&"u".repeat(255), &"c".repeat(128)).len() <= 64);
    }

    #[test]
    fn a_full_list_is_read_back_and_small_enough_for_a_store() {
        let ends = UnixTime::from_nanos(u64::MAX);
        let list =
            (0..MOST as u8).fold(FamilyList::default(), |list, n| list.with(listed(n, n, ends), UnixTime::default()).0);
        assert_eq!(list.0.len(), MOST);
        let bytes = list.encode_row().unwrap();
        assert!(bytes.len() < 5 * 1024, "{}", bytes.len());
        assert_eq!(FamilyList::decode_row(&bytes).unwrap().0, list.0);
        assert!(
            FamilyList::decode_row(&bytes[1..]).is_err() && FamilyList::decode_row(&bytes[..bytes.len() - 1]).is_err()
        );
    }
}
