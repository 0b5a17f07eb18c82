//! [`Memory`]: the proofs that this process was shown, within fixed bounds.
//!
//! All proofs live about as long, so they are kept in two generations, and the older one is forgotten as a whole: no proof
//! has a time of its own, and nothing is ever swept. What is full refuses: a proof that can't be remembered is not taken,
//! for dropping another one would let that one in again.
//!
//! A key has its place in one shard of many, at random, and takes at most half of it. So whoever floods with one key locks
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

use super::{
    proof::{MOST_AGE, MOST_AHEAD},
    seen::Mark,
};
use crate::{clock::Moment, secret::Digest};

type HashSet<K> = std::collections::HashSet<K, RandomState>;
type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

const SHARDS: usize = 16;

/// Proofs that a shard takes in a generation. All shards together take half a million, some 7,500 a second; full, they
/// hold less than 100 MB.
const ROOM: usize = 32 * 1024;

/// From a proof that comes as early as one may, to the moment at which it is too old.
const GENERATION: Duration = MOST_AGE.saturating_add(MOST_AHEAD);

pub(super) struct Memory {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    /// Of one generation of one shard.
    room: usize,
}

#[derive(Default)]
struct Shard {
    began: Moment,
    current: Generation,
    previous: Generation,
}

#[derive(Default)]
struct Generation {
    /// Half of a digest: nobody finds a second proof with the same one.
    proofs: HashSet<[u8; 16]>,
    /// How many are of one key.
    keys: HashMap<u64, usize>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self::with_room(ROOM)
    }

    fn with_room(room: usize) -> Self {
        Self { shards: Default::default(), hasher: RandomState::default(), room }
    }

    pub(super) fn mark(&self, thumbprint: &str, digest: &Digest, now: Moment) -> Mark {
        let key = self.hasher.hash_one(thumbprint);
        let Some(shard) = self.shards.get(key as usize % SHARDS) else { return Mark::Unknown };
        let mut proof = [0; 16];
        proof.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
        shard.lock().unwrap_or_else(PoisonError::into_inner).mark(key, proof, now, self.room)
    }
}

impl Shard {
    fn mark(&mut self, key: u64, proof: [u8; 16], now: Moment, room: usize) -> Mark {
        self.turn(now);
        let Generation { proofs, keys } = &mut self.current;
        if self.previous.proofs.contains(&proof) || proofs.contains(&proof) {
            return Mark::Again;
        }
        let is_full = proofs.len() >= room;
        match keys.entry(key) {
            Entry::Occupied(mut of_key) if !is_full && *of_key.get() < room / 2 => *of_key.get_mut() += 1,
            Entry::Vacant(of_key) if !is_full => {
                of_key.insert(1);
            }
            _ => return Mark::Unknown,
        }
        proofs.insert(proof);
        Mark::First
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

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("room", &(self.room * SHARDS)).finish_non_exhaustive()
    }
}
