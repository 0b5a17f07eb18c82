//! [`Ring`]: the signing keys, which of them signs, and when the next one is due. Pure: it has no clock and no store.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{jose::Algorithm, support::seal::Sealed, util::clock::UnixTime};

/// How long a key is kept for hints after it was published: as long as any session can live.
const KEPT_FOR_HINTS: Duration = Duration::from_secs(400 * 24 * 3600);
/// The most keys that are kept for hints. They take at most 40 KiB, which leaves room for the others in one row.
const MOST_FOR_HINTS: usize = 64;
/// A rotation on request adds no key to an algorithm that has this many.
const MOST_ROTATED: usize = 8;

/// When keys come and go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// How long one key signs.
    pub(super) period: Duration,
    /// How long a key is published before it signs: longer than clients keep a copy of the published keys.
    pub(super) lead: Duration,
    /// How long a key is published after its last signature: longer than tokens live.
    pub(super) keep: Duration,
}

/// A key as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    #[serde(with = "crate::util::text")]
    pub(super) algorithm: Algorithm,
    /// When it begins to sign. It stops when a younger key begins.
    from: u64,
    /// Until when it is published, if that is known.
    until: Option<u64>,
    /// The key as PKCS #8, sealed or plain.
    pub(super) secret: Sealed,
}

/// The public half of a key that is not published any more. It verifies nothing but hints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HintKey {
    kid: String,
    /// A JSON Web Key Set with this key alone.
    pub(super) jwks: String,
    /// Until when it was published.
    until: u64,
}

impl HintKey {
    /// Creates one from a key set with this key alone.
    pub(super) fn new(kid: &str, jwks: String) -> Self {
        Self { kid: kid.to_owned(), jwks, until: 0 }
    }
}

/// All keys of one issuer, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ring {
    pub(super) keys: Vec<Row>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    for_hints: Vec<HintKey>,
}

impl Row {
    /// Returns whether the key signs or has signed.
    fn began(&self, now: UnixTime) -> bool {
        self.from <= now.as_nanos()
    }
}

impl Ring {
    /// Returns the key that signs by this algorithm: the youngest one whose time has come. If this node's clock is behind
    /// and no key's time has come, the oldest key signs.
    pub(super) fn signs(&self, algorithm: Algorithm, now: UnixTime) -> Option<&Row> {
        let own = || self.keys.iter().filter(|row| row.algorithm == algorithm);
        own().filter(|row| row.began(now)).max_by_key(|row| row.from).or_else(|| own().min_by_key(|row| row.from))
    }

    /// Returns the algorithms that need a new key, because they have no key or its period is nearly over.
    pub(super) fn due(&self, wanted: &[Algorithm], schedule: Schedule, now: UnixTime) -> Vec<Algorithm> {
        let is_due = |algorithm: &Algorithm| {
            let newest = self.keys.iter().filter(|row| row.algorithm == *algorithm).map(|row| row.from).max();
            newest.is_none_or(|from| UnixTime::from_nanos(from) + schedule.period <= now + schedule.lead)
        };
        wanted.iter().copied().filter(is_due).collect()
    }

    /// Returns whether a rotation on request may add a key. It may not if a key is already waiting to sign, or if many are
    /// published: the published list and the row in the store must stay small.
    pub(super) fn can_rotate(&self, algorithm: Algorithm, now: UnixTime) -> bool {
        let own = || self.keys.iter().filter(|row| row.algorithm == algorithm);
        own().all(|row| row.began(now)) && own().count() < MOST_ROTATED
    }

    /// Returns the key with this id, if it was published less than this long ago.
    pub(super) fn for_hint(&self, kid: &str, lives: Duration, now: UnixTime) -> Option<&HintKey> {
        self.for_hints.iter().find(|key| key.kid == kid && now < UnixTime::from_nanos(key.until) + lives)
    }

    /// Returns whether nothing needs to be written: no key is due, superseded or past its time.
    pub(super) fn is_settled(&self, wanted: &[Algorithm], schedule: Schedule, now: UnixTime) -> bool {
        self.due(wanted, schedule, now).is_empty() && *self == self.clone().retire_keys(wanted, schedule, now, |_| None)
    }

    /// Adds a key. The first key of an algorithm signs at once, because there is no other. A later key signs when clients
    /// have had the time to fetch it.
    pub(super) fn add(&mut self, algorithm: Algorithm, secret: Sealed, schedule: Schedule, now: UnixTime) {
        let is_first = self.signs(algorithm, now).is_none();
        let from = if is_first { now } else { now + schedule.lead };
        self.keys.push(Row { algorithm, from: from.as_nanos(), until: None, secret });
    }

    /// Removes the keys whose time is over, and sets an end for those that will not sign any more. `public` returns the half
    /// of a removed key that is kept.
    pub(super) fn retire_keys(
        self,
        wanted: &[Algorithm],
        schedule: Schedule,
        now: UnixTime,
        public: impl Fn(&Row) -> Option<HintKey>,
    ) -> Self {
        let Self { keys: mut rows, mut for_hints } = self;
        let successors: Vec<Option<u64>> = rows
            .iter()
            .map(|row| {
                let younger = rows.iter().filter(|other| other.algorithm == row.algorithm && other.from > row.from);
                younger.map(|other| other.from).min()
            })
            .collect();
        for (row, successor) in rows.iter_mut().zip(successors) {
            let last = match successor {
                Some(from) => Some(UnixTime::from_nanos(from)),
                None if !wanted.contains(&row.algorithm) => Some(now),
                None => None,
            };
            row.until = match last {
                Some(last) => Some(row.until.unwrap_or((last + schedule.keep).as_nanos())),
                None => None,
            };
        }
        rows.retain(|row| {
            let Some(until) = row.until.filter(|until| *until <= now.as_nanos()) else { return true };
            for_hints.extend(public(row).map(|key| HintKey { until, ..key }));
            false
        });
        for_hints.retain(|key| now < UnixTime::from_nanos(key.until) + KEPT_FOR_HINTS);
        for_hints.drain(..for_hints.len().saturating_sub(MOST_FOR_HINTS));
        Self { keys: rows, for_hints }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const SCHEDULE: Schedule =
        Schedule { period: Duration::from_secs(1000), lead: Duration::from_secs(100), keep: Duration::from_secs(300) };
    const WANTED: &[Algorithm] = &[Algorithm::Es256, Algorithm::Rs256];

    const LONGEST_WAIT: Duration = Duration::from_secs(700);
    const STEP: Duration = Duration::from_secs(20);

    fn key(n: usize) -> Sealed {
        Sealed::plain(&n.to_be_bytes())
    }

    /// Checks the promises to clients that keep a copy of the published keys.
    #[derive(Default)]
    struct Watch {
        /// When each key was created, in order.
        made: Vec<(Algorithm, Sealed, UnixTime)>,
        /// When each key signed for the last time.
        signed: Vec<(Sealed, UnixTime)>,
    }

    impl Watch {
        /// Checks which key would sign at a moment.
        fn look(&mut self, ring: &Ring, at: UnixTime) -> Result<(), TestCaseError> {
            for algorithm in WANTED {
                let signer = ring.signs(*algorithm, at).unwrap();
                prop_assert_eq!(signer.algorithm, *algorithm);
                let mut own = self.made.iter().filter(|(own, ..)| own == algorithm);
                let is_first = own.next().is_some_and(|(_, secret, _)| *secret == signer.secret);
                let (.., made) = self.made.iter().find(|(_, secret, _)| *secret == signer.secret).unwrap();
                prop_assert!(is_first || *made + SCHEDULE.lead <= at, "it signs before all have it");
                let longest = SCHEDULE.lead + SCHEDULE.period + LONGEST_WAIT;
                prop_assert!(at < *made + longest, "it signs for too long");
                match self.signed.iter_mut().find(|(secret, _)| *secret == signer.secret) {
                    Some((_, last)) => *last = at,
                    None => self.signed.push((signer.secret.clone(), at)),
                }
            }
            Ok(())
        }

        fn check(&self, ring: &Ring, now: UnixTime) -> Result<(), TestCaseError> {
            for (secret, last) in &self.signed {
                let is_published = ring.keys.iter().any(|row| row.secret == *secret);
                prop_assert!(is_published || *last + SCHEDULE.keep <= now, "it is gone too soon");
                let is_over = *last + STEP + SCHEDULE.keep + LONGEST_WAIT < now;
                prop_assert!(!(is_published && is_over), "it is there for ever");
            }
            Ok(())
        }
    }

    proptest! {
        /// Looks at random times and rotates at some of them. The promises hold at every moment, also between two looks.
        #[test]
        fn c102_a_key_is_published_before_it_signs_and_until_its_tokens_expire(
            steps in vec((0..=LONGEST_WAIT.as_secs(), prop::sample::select(vec![false, false, false, true])), 1..40),
        ) {
            let (mut ring, mut now, mut watch) = (Ring::default(), UnixTime::from_secs(1_000_000), Watch::default());
            for (wait, rotates) in steps {
                // nodes sign with their copies in between
                let waits = if ring.keys.is_empty() { 0 } else { wait };
                for _ in 0..waits / STEP.as_secs() {
                    watch.look(&ring, now + (STEP - Duration::from_nanos(1)))?;
                    now = now + STEP;
                    watch.look(&ring, now)?;
                    watch.check(&ring, now)?;
                }
                let due = ring.due(WANTED, SCHEDULE, now);
                let needs = |ring: &Ring, own| due.contains(&own) || (rotates && ring.can_rotate(own, now));
                for algorithm in WANTED {
                    if !needs(&ring, *algorithm) {
                        continue;
                    }
                    let secret = key(watch.made.len());
                    watch.made.push((*algorithm, secret.clone(), now));
                    ring.add(*algorithm, secret, SCHEDULE, now);
                }
                ring = ring.retire_keys(WANTED, SCHEDULE, now, |_| None);
                prop_assert!(ring.is_settled(WANTED, SCHEDULE, now));
                watch.look(&ring, now)?;
                watch.check(&ring, now)?;
            }
        }
    }

    #[test]
    fn repeated_rotations_keep_a_ring_small() {
        let (mut ring, start) = (Ring::default(), UnixTime::from_secs(1_000_000));
        for second in 0..2000_u32 {
            let now = start + Duration::from_secs(second.into());
            ring = ring.retire_keys(WANTED, SCHEDULE, now, |_| None);
            let made = second as usize * 2;
            for (algorithm, secret) in WANTED.iter().zip(made..) {
                if ring.can_rotate(*algorithm, now) {
                    ring.add(*algorithm, key(secret), Schedule { lead: Duration::from_secs(10), ..SCHEDULE }, now);
                }
            }
            assert!(ring.keys.len() <= WANTED.len() * MOST_ROTATED, "{}", ring.keys.len());
        }
        // the youngest key is a recent one
        let signs = ring.signs(Algorithm::Es256, start + Duration::from_secs(2000)).unwrap();
        assert!(signs.from > (start + Duration::from_secs(1600)).as_nanos());
    }

    /// Rotates as often as an operator can, and lets each key end.
    #[test]
    fn b21_the_newest_keys_are_kept_for_hints_and_none_for_longer_than_a_session_lives() {
        let public = |row: &Row| Some(HintKey::new(&format!("{:?}", row.from), "x".repeat(512)));
        let (mut ring, start) = (Ring::default(), UnixTime::from_secs(1_000_000));
        for hour in 0..500_u32 {
            let now = start + SCHEDULE.period * hour;
            for algorithm in WANTED {
                ring.add(*algorithm, key(hour as usize), SCHEDULE, now);
            }
            ring = ring.retire_keys(WANTED, SCHEDULE, now, public);
            assert!(ring.for_hints.len() <= MOST_FOR_HINTS);
        }
        assert_eq!(ring.for_hints.len(), MOST_FOR_HINTS);
        let (oldest, newest) = (ring.for_hints[0].clone(), ring.for_hints[MOST_FOR_HINTS - 1].clone());
        let ended = UnixTime::from_nanos(newest.until);
        assert!(oldest.until < newest.until);
        // a key counts as long as the caller allows, and ends with the longest session
        let lives = Duration::from_secs(30);
        let last = ended + (lives - Duration::from_nanos(1));
        assert_eq!(ring.for_hint(&newest.kid, lives, last), Some(&newest));
        assert_eq!(ring.for_hint(&newest.kid, lives, ended + lives), None);
        assert_eq!(ring.for_hint("unknown", lives, start), None);
        let written = serde_json::to_vec(&ring).unwrap().len();
        assert!(written < 48 * 1024, "{written}");
        let much_later = ring.retire_keys(WANTED, SCHEDULE, ended + KEPT_FOR_HINTS, |_| None);
        assert!(much_later.for_hints.is_empty());
    }

    #[test]
    fn keys_of_an_unused_algorithm_are_published_for_a_while() {
        let now = UnixTime::from_secs(1_000_000);
        let mut ring = Ring::default();
        ring.add(Algorithm::Es256, key(1), SCHEDULE, now);
        ring.add(Algorithm::EdDsa, key(2), SCHEDULE, now);
        let only = &[Algorithm::EdDsa][..];
        let ring = ring.retire_keys(only, SCHEDULE, now, |_| None);
        assert_eq!(ring.keys.len(), 2);
        let later = ring.clone().retire_keys(only, SCHEDULE, now + Duration::from_secs(299), |_| None);
        assert_eq!(later.keys.len(), 2, "the end was settled when it was first seen");
        assert_eq!(later.retire_keys(only, SCHEDULE, now + SCHEDULE.keep, |_| None).keys.len(), 1);
        // and if it is wanted again meanwhile, it stays
        let back = ring.retire_keys(WANTED, SCHEDULE, now + Duration::from_secs(10), |_| None);
        assert!(back.keys.iter().any(|row| row.algorithm == Algorithm::Es256 && row.until.is_none()));
    }
}
