//! [`RecentProofs`]: the proofs that this process was shown, within fixed bounds.
//!
//! All proofs live about as long, so they are kept in two generations, and the older one is forgotten as a whole: no proof
//! has a time of its own, and nothing is ever swept. What is full refuses: a proof that can't be remembered is not taken,
//! for dropping another one would let that one in again.
//!
//! A key has its place in one shard of several, at random, and takes at most half of it. So whoever floods with one key locks
//! out nobody but himself; with two keys that happen to share a shard, those whose keys are in it; and everybody only with
//! as many good proofs as there is room in all, each of them a signature that was verified before.

use std::{
    collections::hash_map::Entry,
    fmt,
    hash::BuildHasher,
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use foldhash::fast::RandomState;

use super::proof::{MOST_AGE, MOST_AHEAD};
use crate::util::{clock::Moment, secret::Digest};

type HashSet<K> = std::collections::HashSet<K, RandomState>;
type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

const SHARDS: usize = 8;

/// Proofs that a shard takes in a generation: as many as a table of 2^17 places holds before it grows. All shards together
/// take 917,504, some 13,000 a second, and of one key 57,344, some 800 a second. Full, each proof of another key, they hold
/// 55 MB.
const ROOM: usize = 7 << 14;

/// From a proof that comes as early as one may, to the moment at which it is too old.
const GENERATION: Duration = MOST_AGE.saturating_add(MOST_AHEAD);

pub(super) struct RecentProofs {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    /// Of one generation of one shard.
    room: usize,
}

/// What became of a proof that was to be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sighting {
    First,
    Again,
    /// Nothing can be said: there is no room, or the store is away.
    Unknown,
}

#[derive(Default)]
struct Shard {
    began: Moment,
    current: Generation,
    previous: Generation,
}

#[derive(Default)]
struct Generation {
    /// The beginning of a digest: enough to tell proofs apart, and who finds two with the same one can use only one.
    proofs: HashSet<[u8; 8]>,
    /// How many are of one key.
    keys: HashMap<u64, usize>,
}

impl RecentProofs {
    pub(super) fn new() -> Self {
        Self::with_room(ROOM)
    }

    fn with_room(room: usize) -> Self {
        Self { shards: Default::default(), hasher: RandomState::default(), room }
    }

    pub(super) fn mark(&self, thumbprint: &str, digest: &Digest, now: Moment) -> Sighting {
        let key = self.hasher.hash_one(thumbprint);
        let Some(shard) = self.shards.get(key as usize % SHARDS) else { return Sighting::Unknown };
        let mut proof = [0; 8];
        proof.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
        shard.lock().unwrap_or_else(PoisonError::into_inner).mark(key, proof, now, self.room)
    }
}

impl Shard {
    fn mark(&mut self, key: u64, proof: [u8; 8], now: Moment, room: usize) -> Sighting {
        self.turn(now);
        let Generation { proofs, keys } = &mut self.current;
        if self.previous.proofs.contains(&proof) || proofs.contains(&proof) {
            return Sighting::Again;
        }
        let is_full = proofs.len() >= room;
        match keys.entry(key) {
            Entry::Occupied(mut of_key) if !is_full && *of_key.get() < room / 2 => *of_key.get_mut() += 1,
            Entry::Vacant(of_key) if !is_full => {
                of_key.insert(1);
            }
            _ => return Sighting::Unknown,
        }
        proofs.insert(proof);
        Sighting::First
    }

    /// Whatever is in `current` was shown since `began`, whatever is in `previous` less than two generations ago.
    fn turn(&mut self, now: Moment) {
        let passed = now.since(self.began);
        if passed < GENERATION {
            return;
        }
        self.previous = if passed < GENERATION * 2 { mem::take(&mut self.current) } else { Generation::default() };
        self.current = Generation::default();
        self.began = now;
    }
}

impl fmt::Debug for RecentProofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("room", &(self.room * SHARDS)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 8;

    fn mark(memory: &RecentProofs, key: usize, proof: usize, seconds: u64) -> Sighting {
        let digest = Digest::of(format!("{key} {proof}"));
        memory.mark(&key.to_string(), &digest, Moment::default() + Duration::from_secs(seconds))
    }

    fn len(memory: &RecentProofs) -> usize {
        let held = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap();
            shard.current.proofs.len() + shard.previous.proofs.len()
        };
        memory.shards.iter().map(held).sum()
    }

    #[test]
    fn c100_a_key_that_floods_is_refused_and_locks_out_no_other() {
        let memory = RecentProofs::with_room(ROOM);
        let taken = |key: usize| (0..1000).filter(|proof| mark(&memory, key, *proof, 0) == Sighting::First).count();
        assert_eq!(taken(0), ROOM / 2);
        assert_eq!(mark(&memory, 0, 0, 0), Sighting::Again, "what was shown before is known all the same");
        assert_eq!(mark(&memory, 0, 999, 0), Sighting::Unknown);
        for key in 1..100 {
            // one alone in its shard, or beside the one that floods
            let memory = RecentProofs::with_room(ROOM);
            let flood = (0..1000).filter(|proof| mark(&memory, 0, *proof, 0) == Sighting::First).count();
            assert_eq!((flood, mark(&memory, key, 0, 0)), (ROOM / 2, Sighting::First));
        }
    }

    #[test]
    fn c100_one_key_may_send_eight_hundred_proofs_a_second() {
        let memory = RecentProofs::new();
        let all = 800 * GENERATION.as_secs() as usize;
        assert!((0..all).all(|proof| mark(&memory, 0, proof, 0) == Sighting::First));
    }

    #[test]
    fn c100_what_is_full_refuses_and_forgets_nothing_that_lives() {
        let memory = RecentProofs::with_room(ROOM);
        let all: Vec<_> = (0..1000).map(|key| mark(&memory, key, 0, 0)).collect();
        assert_eq!(all.iter().filter(|mark| **mark == Sighting::First).count(), SHARDS * ROOM);
        assert!(all.iter().all(|mark| *mark != Sighting::Again));
        for seconds in [0, 69, 70, 139] {
            for (key, first) in all.iter().enumerate().filter(|(_, first)| **first == Sighting::First) {
                assert_eq!(mark(&memory, key, 0, seconds), Sighting::Again, "{first:?} at {seconds} s");
            }
        }
        // a generation on, there is room again
        let next = (0..1000).filter(|key| mark(&memory, *key, 1, 139) == Sighting::First).count();
        assert_eq!(next, SHARDS * ROOM);
        assert_eq!(len(&memory), 2 * SHARDS * ROOM, "and never more than two generations");
        assert_eq!(mark(&memory, 0, 0, 140), Sighting::First);
        // two generations on, nothing of them is left
        let all = (0..1000).filter(|key| mark(&memory, *key, 2, 1000) == Sighting::First).count();
        assert_eq!((all, len(&memory)), (SHARDS * ROOM, SHARDS * ROOM));
    }

    #[test]
    fn a_generation_lives_for_as_long_as_a_proof_wherever_in_it_one_comes() {
        for at in 0..300 {
            for later in 0..=70 {
                let memory = RecentProofs::with_room(ROOM);
                // the shard turns whenever it is asked
                for before in (0..at).step_by(37) {
                    let _turned = mark(&memory, 1, before as usize, before);
                }
                assert_eq!(mark(&memory, 1, 1000, at), Sighting::First);
                let _turned = mark(&memory, 1, 1001, at + later / 2);
                assert_eq!(mark(&memory, 1, 1000, at + later), Sighting::Again, "{at} and {later}");
            }
        }
    }

    #[test]
    fn a_clock_that_goes_back_does_no_harm() {
        let memory = RecentProofs::with_room(ROOM);
        assert_eq!(mark(&memory, 1, 0, 1000), Sighting::First);
        assert_eq!(mark(&memory, 1, 1, 5), Sighting::First);
        assert_eq!(mark(&memory, 1, 0, 5), Sighting::Again);
        assert_eq!(mark(&memory, 1, 1, 1001), Sighting::Again);
    }
}
