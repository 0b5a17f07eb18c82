//! [`Held`]: which families a user has at a client. Each pair has a bounded number, or one who is signed in could fill the
//! store for everybody.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Tokens,
    family::{Authorized, Row},
    revoked::Name,
};
use crate::{
    store::{StoreError, table::Change},
    util::{clock::UnixTime, handle::Handle, secret::Digest},
};

/// The most at once.
const MOST: usize = 100;
/// So many of one session make room among themselves: who lures a browser to a login without a word, again and again, ends
/// nothing that the user has elsewhere.
const MOST_OF_A_SESSION: usize = 20;
/// How long it is remembered that a family made room: longer than one takes to be born.
const REMEMBERED: Duration = Duration::from_secs(15 * 60);

/// The families of a user at a client, the oldest first. What lives is in it, always; it may also name what never began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Held(Vec<Listed>);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Listed {
    #[serde(with = "crate::util::text")]
    pub(crate) family: Handle,
    /// The code that it came of, which is remembered as long as the family is.
    #[serde(with = "crate::util::secret::text")]
    pub(crate) code: Digest,
    #[serde(with = "crate::util::text::option")]
    session: Option<Handle>,
    ends: u64,
    /// It was given back, or ended for a misuse.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_over: bool,
}

impl Listed {
    pub(crate) fn new(family: Handle, code: Digest, who: &Authorized, ends: UnixTime) -> Self {
        Self { family, code, session: who.session, ends: ends.as_nanos(), is_over: false }
    }

    pub(crate) fn ends(&self) -> UnixTime {
        UnixTime::from_nanos(self.ends)
    }
}

impl Held {
    /// With one more, or what has to end before.
    fn with(mut self, new: Listed, now: UnixTime) -> Result<Self, Listed> {
        self.0.retain(|listed| now.as_nanos() < listed.ends);
        if self.0.len() < MOST {
            self.0.push(new);
            return Ok(self);
        }
        let mut of_session = self.0.iter().filter(|listed| new.session.is_some() && listed.session == new.session);
        let crowded = of_session.clone().count() >= MOST_OF_A_SESSION;
        let over = self.0.iter().find(|listed| listed.is_over);
        let doomed = over.or_else(|| of_session.next().filter(|_| crowded)).or(self.0.first());
        doomed.cloned().map_or(Ok(self), Err)
    }

    fn without(mut self, family: &Handle) -> Self {
        self.0.retain(|listed| listed.family != *family);
        self
    }

    /// With this one as one that is over; `None` if it is not in it, or over already.
    fn with_over(mut self, family: &Handle) -> Option<Self> {
        self.0.iter_mut().find(|listed| listed.family == *family && !listed.is_over)?.is_over = true;
        Some(self)
    }

    fn ends(&self) -> UnixTime {
        UnixTime::from_nanos(self.0.iter().map(|listed| listed.ends).max().unwrap_or_default())
    }
}

impl Tokens {
    /// Lists a family that is about to begin, in the place of what made room for it. What has to make room before, where
    /// there is none.
    pub(crate) async fn list(
        &self,
        new: &Listed,
        who: &Authorized,
        made_room: &[Listed],
    ) -> Result<Option<Listed>, StoreError> {
        let step = |held: Option<&Held>, now: UnixTime| {
            let held = held.cloned().unwrap_or_default();
            match made_room.iter().fold(held, |held, gone| held.without(&gone.family)).with(new.clone(), now) {
                Ok(held) => {
                    let ends = held.ends();
                    Change::Put(held, ends, None)
                }
                Err(doomed) => Change::Keep(Some(doomed)),
            }
        };
        self.held().update(Some(&who.tenant), &id(who), step).await
    }

    /// Ends a family and forgets it, to make room. It is listed still, so what fails in between is done again.
    pub(crate) async fn make_room(&self, doomed: &Listed) -> Result<(), StoreError> {
        self.mark(Name::Family(&doomed.family)).await?;
        // it may be about to be born
        let forget = |_: Option<&Row>, now: UnixTime| Change::Put(Row::Revoked, now + REMEMBERED, ());
        self.families().update(None, doomed.family.as_bytes(), forget).await
    }

    /// Lets a family that has ended be among the first to make room.
    pub(super) async fn note_over(&self, who: &Authorized, family: &Handle) -> Result<(), StoreError> {
        let step = |held: Option<&Held>, _: UnixTime| match held.cloned().and_then(|held| held.with_over(family)) {
            Some(held) => {
                let ends = held.ends();
                Change::Put(held, ends, ())
            }
            None => Change::Keep(()),
        };
        self.held().update(Some(&who.tenant), &id(who), step).await
    }
}

/// By the user and the client, whose names could make any key too long.
fn id(who: &Authorized) -> Vec<u8> {
    let (user, client) = (Digest::of(who.user.as_str()), Digest::of(&who.client_id));
    [&user.as_bytes()[..], client.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn listed(number: u8, session: u8, ends: UnixTime) -> Listed {
        Listed {
            family: Handle::from_bytes([number; 16]),
            code: Digest::from_bytes([number; 32]),
            session: Some(Handle::from_bytes([session; 16])),
            ends: ends.as_nanos(),
            is_over: false,
        }
    }

    proptest! {
        /// Families begin and end in any order, against a plain list of those that live, with their sessions, and of those
        /// that are over.
        #[test]
        fn there_are_never_more_than_a_hundred_and_who_makes_room_is_over_or_of_a_crowded_session_or_the_oldest(
            steps in vec((any::<prop::sample::Index>(), 0..10_u8, prop::sample::select(vec![1_u8, 1, 2, 2, 3, 4, 5, 6, 7])), 1..250),
        ) {
            let now = UnixTime::from_secs(1000);
            let (mut held, mut living, mut over) = (Held::default(), Vec::new(), Vec::new());
            for (number, (place, what, session)) in (0..).zip(steps) {
                if what == 0 && !living.is_empty() {
                    let (family, _) = living.remove(place.index(living.len()));
                    over.push(family);
                    held = held.with_over(&Handle::from_bytes([family; 16])).unwrap();
                    continue;
                }
                let new = listed(number, session, now + Duration::from_secs(1));
                match held.clone().with(new.clone(), now) {
                    Ok(next) => held = next,
                    Err(doomed) => {
                        prop_assert_eq!(living.len() + over.len(), MOST);
                        let [gone, ..] = *doomed.family.as_bytes();
                        let crowded = living.iter().filter(|(_, own)| *own == session).count() >= MOST_OF_A_SESSION;
                        if over.contains(&gone) {
                            over.retain(|family| *family != gone);
                        } else {
                            prop_assert!(over.is_empty());
                            let first = living.iter().position(|(_, own)| !crowded || *own == session).unwrap();
                            prop_assert_eq!(living.remove(first).0, gone);
                        }
                        held = held.without(&doomed.family).with(new, now).unwrap();
                    }
                }
                living.push((number, session));
                prop_assert!(held.0.len() <= MOST && held.0.len() == living.len() + over.len());
            }
            // time makes room, too
            let later = held.with(listed(251, 1, now + Duration::from_secs(9)), now + Duration::from_secs(1)).unwrap();
            prop_assert_eq!(later.0.len(), 1);
        }
    }

    #[test]
    fn a_full_list_is_read_back_and_small_enough_for_a_store() {
        let ends = UnixTime::from_nanos(u64::MAX);
        let held = (0..MOST as u8)
            .fold(Held::default(), |held, n| held.with(listed(n, n, ends), UnixTime::default()).unwrap());
        let held = held.with_over(&Handle::from_bytes([7; 16])).unwrap();
        let bytes = serde_json::to_vec(&held).unwrap();
        assert!(bytes.len() < 24 * 1024, "{}", bytes.len());
        let read: Held = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(serde_json::to_vec(&read).unwrap(), bytes);
    }
}
