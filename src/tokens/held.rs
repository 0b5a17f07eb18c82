//! [`Held`]: which families a user has at a client. Each pair has a bounded number, or one who is signed in could fill the
//! store for everybody.

use serde::{Deserialize, Serialize};

use super::{Tokens, family::Authorized, revoked::Name};
use crate::{
    clock::UnixTime,
    handle::Handle,
    secret::Digest,
    store::{StoreError, StoreErrorKind, table::Change},
};

/// The most at once.
const MOST: usize = 100;
/// How often room is made again because others take it.
const ROUNDS: usize = 64;

/// The families of a user at a client, which to end first comes first. What lives is in it, always; it may also name what
/// has ended, or never began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Held(Vec<Listed>);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Listed {
    #[serde(with = "crate::text")]
    family: Handle,
    /// The code that it came of, which is remembered as long as the family is.
    #[serde(with = "crate::secret::text")]
    code: Digest,
    ends: u64,
}

impl Held {
    /// With one more, and what has to end before.
    fn with(mut self, new: Listed, now: UnixTime) -> Result<Self, Listed> {
        self.0.retain(|listed| now.as_nanos() < listed.ends);
        match self.0.first().filter(|_| self.0.len() >= MOST) {
            Some(doomed) => Err(doomed.clone()),
            None => {
                self.0.push(new);
                Ok(self)
            }
        }
    }

    fn without(mut self, family: &Handle) -> Self {
        self.0.retain(|listed| listed.family != *family);
        self
    }

    /// With this one, which has ended, as the first to go; `None` if it is not in it, or first already.
    fn with_ended(mut self, family: &Handle) -> Option<Self> {
        let place = self.0.iter().position(|listed| listed.family == *family).filter(|place| *place > 0)?;
        let listed = self.0.remove(place);
        self.0.insert(0, listed);
        Some(self)
    }

    fn ends(&self) -> UnixTime {
        UnixTime::from_nanos(self.0.iter().map(|listed| listed.ends).max().unwrap_or_default())
    }
}

impl Tokens {
    /// Makes room for a family that is about to begin, and lists it. What ended for that is forgotten, and the codes that
    /// it came of are told: they can be forgotten, too.
    pub(crate) async fn make_room(
        &self,
        (family, ends): (&Handle, UnixTime),
        who: &Authorized,
        code: &Digest,
    ) -> Result<Vec<Digest>, StoreError> {
        let new = Listed { family: *family, code: *code, ends: ends.as_nanos() };
        let mut gone: Vec<Listed> = Vec::new();
        for _ in 0..ROUNDS {
            let step = |held: Option<&Held>, now: UnixTime| {
                let held = held.cloned().unwrap_or_default();
                let held = gone.iter().fold(held, |held, gone| held.without(&gone.family));
                match held.with(new.clone(), now) {
                    Ok(held) => {
                        let ends = held.ends();
                        Change::Put(held, ends, None)
                    }
                    Err(doomed) => Change::Keep(Some(doomed)),
                }
            };
            let Some(doomed) = self.held().update(Some(&who.tenant), &id(who), step).await? else {
                return Ok(gone.into_iter().map(|gone| gone.code).collect());
            };
            // access tokens first: what fails in between is listed still
            self.mark(Name::Family(&doomed.family)).await?;
            self.families().remove(None, doomed.family.as_bytes()).await?;
            gone.push(doomed);
        }
        Err(StoreErrorKind::Busy.into())
    }

    /// Lets a family that has ended be the first to go.
    pub(super) async fn note_ended(&self, who: &Authorized, family: &Handle) -> Result<(), StoreError> {
        let step = |held: Option<&Held>, _: UnixTime| match held.cloned().and_then(|held| held.with_ended(family)) {
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
    use std::time::Duration;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn listed(number: u8, ends: UnixTime) -> Listed {
        Listed {
            family: Handle::from_bytes([number; 16]),
            code: Digest::from_bytes([number; 32]),
            ends: ends.as_nanos(),
        }
    }

    proptest! {
        /// Families begin and end in any order, against a plain list of those that live and those that have ended.
        #[test]
        fn there_are_never_more_than_a_hundred_and_what_has_ended_goes_before_what_lives(
            steps in vec((any::<prop::sample::Index>(), 0..4_u8), 1..250),
        ) {
            let now = UnixTime::from_secs(1000);
            let (mut held, mut living, mut ended) = (Held::default(), Vec::new(), Vec::new());
            for (number, (place, what)) in (0..).zip(steps) {
                if what == 0 && !living.is_empty() {
                    let family = living.remove(place.index(living.len()));
                    ended.push(family);
                    held = held.clone().with_ended(&Handle::from_bytes([family; 16])).unwrap_or(held);
                    continue;
                }
                let new = listed(number, now + Duration::from_secs(1));
                match held.clone().with(new.clone(), now) {
                    Ok(next) => held = next,
                    Err(doomed) => {
                        prop_assert_eq!(living.len() + ended.len(), MOST);
                        let [number, ..] = *doomed.family.as_bytes();
                        if ended.is_empty() {
                            prop_assert_eq!(living.remove(0), number, "the oldest");
                        } else {
                            ended.retain(|family| *family != number);
                            prop_assert!(!living.contains(&number));
                        }
                        held = held.without(&doomed.family).with(new, now).unwrap();
                    }
                }
                living.push(number);
                prop_assert!(held.0.len() <= MOST && held.0.len() == living.len() + ended.len());
            }
            // time makes room, too
            let later = held.with(listed(251, now + Duration::from_secs(9)), now + Duration::from_secs(1)).unwrap();
            prop_assert_eq!(later.0.len(), 1);
        }
    }

    #[test]
    fn a_full_list_is_read_back_and_small_enough_for_a_store() {
        let ends = UnixTime::from_nanos(u64::MAX);
        let held =
            (0..MOST).fold(Held::default(), |held, n| held.with(listed(n as u8, ends), ends_before(ends)).unwrap());
        let bytes = serde_json::to_vec(&held).unwrap();
        assert!(bytes.len() < 16 * 1024, "{}", bytes.len());
        let read: Held = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(serde_json::to_vec(&read).unwrap(), bytes);
    }

    fn ends_before(ends: UnixTime) -> UnixTime {
        UnixTime::from_nanos(ends.as_nanos() - 1)
    }
}
