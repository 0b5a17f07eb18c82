//! The proofs that this process has seen, within fixed limits.
//!
//! All proofs have about the same lifetime, so they are kept in two generations, and the older
//! generation is dropped as a whole. Proofs have no individual expiry, and nothing needs sweeping.
//! A full shard rejects new proofs, because dropping an old one would allow it to be replayed.
//!
//! Each key is assigned to a shard at random and can use at most half of it. A caller that floods
//! with one key therefore blocks only itself; with two keys that share a shard, it blocks the keys
//! in that shard. To block everyone, it has to send as many valid proofs as there is room in total,
//! each with a signature that was verified first.

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
use crate::util::{clock::Moment, secret::SecretDigest};

type HashSet<K> = std::collections::HashSet<K, RandomState>;
type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

const SHARDS: usize = 8;

/// The capacity of a generation of a shard: what a hash table with 2^17 buckets holds before it
/// grows. All shards together accept 917,504 proofs, about 13,000 per second; one key can use
/// 57,344, about 800 per second. If every proof has a different key, a full table takes 55 MB.
const ROOM: usize = 7 << 14;

/// The time from the earliest acceptance of a proof until it is too old.
const GENERATION: Duration = MOST_AGE.saturating_add(MOST_AHEAD);

pub(super) struct RecentProofs {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    /// The capacity of one generation of one shard.
    room: usize,
}

/// Whether a proof was seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sighting {
    First,
    Again,
    /// Unknown, because there is no room or the store is unavailable.
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
    /// Prefixes of digests. They are long enough to distinguish proofs, and a caller gains nothing
    /// from a collision, because only one of the two proofs is accepted.
    proofs: HashSet<[u8; 8]>,
    /// The number of proofs per key.
    keys: HashMap<u64, usize>,
}

impl RecentProofs {
    pub(super) fn new() -> Self {
        Self::with_room(ROOM)
    }

    fn with_room(room: usize) -> Self {
        Self { shards: Default::default(), hasher: RandomState::default(), room }
    }

    pub(super) fn mark(&self, thumbprint: &str, digest: &SecretDigest, now: Moment) -> Sighting {
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

    /// Starts a new generation if needed. Proofs in `current` were seen since `began`, those in
    /// `previous` less than two generations ago.
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
        let digest = SecretDigest::of_secret(format!("{key} {proof}"));
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
    fn c100_a_flooding_key_is_rejected_and_blocks_no_other() {
        let memory = RecentProofs::with_room(ROOM);
        let taken = |key: usize| (0..1000).filter(|proof| mark(&memory, key, *proof, 0) == Sighting::First).count();
        assert_eq!(taken(0), ROOM / 2);
        assert_eq!(mark(&memory, 0, 0, 0), Sighting::Again, "used proofs are still recognized");
        assert_eq!(mark(&memory, 0, 999, 0), Sighting::Unknown);
        for key in 1..100 {
            // alone in its shard, or together with the flooding key
            let memory = RecentProofs::with_room(ROOM);
            let flood = (0..1000).filter(|proof| mark(&memory, 0, *proof, 0) == Sighting::First).count();
            assert_eq!((flood, mark(&memory, key, 0, 0)), (ROOM / 2, Sighting::First));
        }
    }

    #[test]
    fn c100_one_key_can_send_800_proofs_per_second() {
        let memory = RecentProofs::new();
        let all = 800 * GENERATION.as_secs() as usize;
        assert!((0..all).all(|proof| mark(&memory, 0, proof, 0) == Sighting::First));
    }

    #[test]
    fn c100_a_full_shard_rejects_and_forgets_nothing_too_early() {
        let memory = RecentProofs::with_room(ROOM);
        let all: Vec<_> = (0..1000).map(|key| mark(&memory, key, 0, 0)).collect();
        assert_eq!(all.iter().filter(|mark| **mark == Sighting::First).count(), SHARDS * ROOM);
        assert!(all.iter().all(|mark| *mark != Sighting::Again));
        for seconds in [0, 69, 70, 139] {
            for (key, first) in all.iter().enumerate().filter(|(_, first)| **first == Sighting::First) {
                assert_eq!(mark(&memory, key, 0, seconds), Sighting::Again, "{first:?} at {seconds} s");
            }
        }
        // one generation later, there is room again
        let next = (0..1000).filter(|key| mark(&memory, *key, 1, 139) == Sighting::First).count();
        assert_eq!(next, SHARDS * ROOM);
        assert_eq!(len(&memory), 2 * SHARDS * ROOM, "never more than two generations");
        assert_eq!(mark(&memory, 0, 0, 140), Sighting::First);
        // two generations later, nothing is left
        let all = (0..1000).filter(|key| mark(&memory, *key, 2, 1000) == Sighting::First).count();
        assert_eq!((all, len(&memory)), (SHARDS * ROOM, SHARDS * ROOM));
    }

    #[test]
    fn a_proof_is_remembered_for_its_lifetime_wherever_it_falls_in_a_generation() {
        for at in 0..300 {
            for later in 0..=70 {
                let memory = RecentProofs::with_room(ROOM);
                // a shard changes generations whenever it is used
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
    fn a_clock_that_goes_backwards_is_harmless() {
        let memory = RecentProofs::with_room(ROOM);
        assert_eq!(mark(&memory, 1, 0, 1000), Sighting::First);
        assert_eq!(mark(&memory, 1, 1, 5), Sighting::First);
        assert_eq!(mark(&memory, 1, 0, 5), Sighting::Again);
        assert_eq!(mark(&memory, 1, 1, 1001), Sighting::Again);
    }
}
