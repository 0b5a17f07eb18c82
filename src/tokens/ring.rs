//! [`Ring`]: which keys there are, which of them signs, and when the next one is due. Pure: it has no clock and no store.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{clock::UnixTime, jose::Algorithm};

/// When keys come and go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// How long one key signs.
    pub(super) period: Duration,
    /// How long a key is published before it signs: longer than anybody keeps a copy of the published keys.
    pub(super) lead: Duration,
    /// How long a key is published after it has signed for the last time: longer than what it signed lives.
    pub(super) keep: Duration,
}

/// A key as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    #[serde(with = "crate::text")]
    pub(super) algorithm: Algorithm,
    /// It signs from then on, until a younger one does.
    from: u64,
    /// It is published until then, where that is settled.
    until: Option<u64>,
    /// Its PKCS #8, sealed or plain.
    pub(super) secret: super::seal::Stored,
}

/// All keys of one issuer, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ring {
    pub(super) keys: Vec<Row>,
}

impl Row {
    /// Whether it signs, or did.
    fn began(&self, now: UnixTime) -> bool {
        self.from <= now.as_nanos()
    }
}

impl Ring {
    /// The key that signs by this algorithm: the youngest whose time has come. On a node whose clock is behind that may
    /// be none; the first one signs then.
    pub(super) fn signs(&self, algorithm: Algorithm, now: UnixTime) -> Option<&Row> {
        let own = || self.keys.iter().filter(|row| row.algorithm == algorithm);
        own().filter(|row| row.began(now)).max_by_key(|row| row.from).or_else(|| own().min_by_key(|row| row.from))
    }

    /// The algorithms that need a key: they have none, or the time of theirs is nearly over.
    pub(super) fn due(&self, wanted: &[Algorithm], schedule: Schedule, now: UnixTime) -> Vec<Algorithm> {
        let is_due = |algorithm: &Algorithm| {
            let newest = self.keys.iter().filter(|row| row.algorithm == *algorithm).map(|row| row.from).max();
            newest.is_none_or(|from| UnixTime::from_nanos(from) + schedule.period <= now + schedule.lead)
        };
        wanted.iter().copied().filter(is_due).collect()
    }

    /// Whether something is to be written: a key is due, superseded or past its time.
    pub(super) fn is_settled(&self, wanted: &[Algorithm], schedule: Schedule, now: UnixTime) -> bool {
        self.due(wanted, schedule, now).is_empty() && *self == self.clone().settled(wanted, schedule, now)
    }

    /// Adds a key. The first of its algorithm signs at once, for there is nobody who could have a copy without it; any
    /// other when all who keep copies have had the time to fetch it.
    pub(super) fn add(&mut self, algorithm: Algorithm, secret: super::seal::Stored, schedule: Schedule, now: UnixTime) {
        let is_first = self.signs(algorithm, now).is_none();
        let from = if is_first { now } else { now + schedule.lead };
        self.keys.push(Row { algorithm, from: from.as_nanos(), until: None, secret });
    }

    /// Without the keys whose time is over, and with an end for those that will sign no more.
    pub(super) fn settled(mut self, wanted: &[Algorithm], schedule: Schedule, now: UnixTime) -> Self {
        let mut rows = std::mem::take(&mut self.keys);
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
        rows.retain(|row| row.until.is_none_or(|until| now.as_nanos() < until));
        Self { keys: rows }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::tokens::seal::Stored;

    const SCHEDULE: Schedule =
        Schedule { period: Duration::from_secs(1000), lead: Duration::from_secs(100), keep: Duration::from_secs(300) };
    const WANTED: &[Algorithm] = &[Algorithm::Es256, Algorithm::Rs256];

    fn key(n: u8) -> Stored {
        Stored::plain(&[n])
    }

    proptest! {
        /// Whoever looks at times of his choice, and rotates when he likes: what is promised of published keys holds.
        #[test]
        fn c102_a_key_is_published_before_it_signs_and_until_nothing_of_it_lives(
            steps in vec((0..700_u64, prop::bool::weighted(0.1)), 1..60),
        ) {
            let (mut ring, mut now, mut n) = (Ring::default(), UnixTime::from_secs(1_000_000), 0);
            // when each key was first published, and when it last signed
            let mut published: Vec<(Stored, UnixTime, Option<UnixTime>)> = Vec::new();
            for (wait, rotates) in steps {
                now = now + Duration::from_secs(wait);
                let mut due = ring.due(WANTED, SCHEDULE, now);
                if rotates && !due.contains(&Algorithm::Es256) {
                    due.push(Algorithm::Es256);
                }
                for algorithm in due {
                    n += 1;
                    ring.add(algorithm, key(n), SCHEDULE, now);
                }
                ring = ring.settled(WANTED, SCHEDULE, now);
                prop_assert!(ring.is_settled(WANTED, SCHEDULE, now));
                for row in &ring.keys {
                    if !published.iter().any(|(secret, ..)| *secret == row.secret) {
                        published.push((row.secret.clone(), now, None));
                    }
                }
                for algorithm in WANTED {
                    let signs = ring.signs(*algorithm, now).unwrap();
                    prop_assert_eq!(signs.algorithm, *algorithm);
                    let first = published.iter().position(|(secret, ..)| *secret == signs.secret).unwrap();
                    let is_first = !published[..first].iter().any(|(_, _, signed)| signed.is_some());
                    let (_, since, signed) = &mut published[first];
                    let early = now < *since + SCHEDULE.lead && signed.is_none() && !is_first;
                    // the very first of an algorithm signs at once
                    prop_assert!(!early || *since == UnixTime::from_secs(1_000_000) || n <= 2);
                    *signed = Some(now);
                }
                for (secret, _, signed) in &published {
                    let gone = !ring.keys.iter().any(|row| row.secret == *secret);
                    prop_assert!(!(gone && signed.is_some_and(|signed| now < signed + SCHEDULE.keep)));
                }
            }
        }
    }

    #[test]
    fn an_algorithm_that_is_not_wanted_any_more_is_published_a_while() {
        let now = UnixTime::from_secs(1_000_000);
        let mut ring = Ring::default();
        ring.add(Algorithm::Es256, key(1), SCHEDULE, now);
        ring.add(Algorithm::EdDsa, key(2), SCHEDULE, now);
        let only = &[Algorithm::EdDsa][..];
        let ring = ring.settled(only, SCHEDULE, now);
        assert_eq!(ring.keys.len(), 2);
        let later = ring.clone().settled(only, SCHEDULE, now + Duration::from_secs(299));
        assert_eq!(later.keys.len(), 2, "the end was settled when it was first seen");
        assert_eq!(later.settled(only, SCHEDULE, now + SCHEDULE.keep).keys.len(), 1);
        // and if it is wanted again meanwhile, it stays
        let back = ring.settled(WANTED, SCHEDULE, now + Duration::from_secs(10));
        assert!(back.keys.iter().any(|row| row.algorithm == Algorithm::Es256 && row.until.is_none()));
    }
}
