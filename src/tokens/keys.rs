//! [`Keys`]: the key ring in the store, and this process's copy that signs and verifies.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{sync::Mutex, task::spawn_blocking};

use super::ring::{HintKey, Ring, Row, Schedule};
use crate::{
    jose::{Algorithm, KeySet, Signer},
    store::{
        AnyStore, StoreError, StoreErrorKind,
        table::{Change, Table},
    },
    support::seal::{Seal, Sealed},
    util::clock::{Clock, Moment, UnixTime},
};

/// How long a copy of the ring is used before it is read again. A node learns about changes of others within this time.
const FRESH: Duration = Duration::from_secs(60);
/// The minimum time before a node reads the ring again after a failure or because of an unknown key.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct Keys(Arc<Shared>);

struct Shared {
    table: Table<Ring>,
    clock: Arc<dyn Clock>,
    seal: Seal,
    wanted: Vec<Algorithm>,
    schedule: Schedule,
    copy: RwLock<Option<Arc<Copy>>>,
    /// Held while the store is read.
    reading: Mutex<()>,
}

/// The ring as it was read from the store.
pub(super) struct Copy {
    ring: Ring,
    signers: Vec<Arc<Signer>>,
    /// Keeps its allocation until a key changes, so that cached verifications stay valid.
    pub(super) set: Arc<KeySet>,
    /// When the ring must be read again.
    stale: Moment,
    /// Until when an unknown key does not cause another read.
    settled: Moment,
}

impl Copy {
    /// Returns the key that signs by this algorithm now.
    pub(super) fn signer(&self, algorithm: Algorithm, now: UnixTime) -> Option<Arc<Signer>> {
        let row = self.ring.signs(algorithm, now)?;
        let place = self.ring.keys.iter().position(|other| std::ptr::eq(other, row))?;
        self.signers.get(place).cloned()
    }

    /// Returns a key that was published less than this long ago, and is not any more. It verifies nothing but hints.
    pub(super) fn for_hint(&self, kid: &str, lives: Duration, now: UnixTime) -> Option<KeySet> {
        KeySet::parse(self.ring.for_hint(kid, lives, now)?.jwks.as_bytes())
    }
}

impl Keys {
    pub(super) fn new(
        store: AnyStore,
        clock: Arc<dyn Clock>,
        seal: Seal,
        wanted: Vec<Algorithm>,
        schedule: Schedule,
    ) -> Self {
        let table = Table::new(store, "signing_keys", Arc::clone(&clock));
        let (copy, reading) = (RwLock::new(None), Mutex::new(()));
        Self(Arc::new(Shared { table, clock, seal, wanted, schedule, copy, reading }))
    }

    /// Returns the copy if it is fresh.
    pub(super) fn fresh(&self) -> Option<Arc<Copy>> {
        self.known().filter(|copy| self.0.clock.now() < copy.stale)
    }

    /// Returns the keys. Creates keys if the store has no ring yet, and reads the ring again from time to time. If the store
    /// fails, the copy is used.
    pub(super) async fn current(&self) -> Result<Arc<Copy>, StoreError> {
        match self.fresh() {
            Some(copy) => Ok(copy),
            None => Box::pin(self.reread(|keys, copy| keys.0.clock.now() < copy.stale)).await,
        }
    }

    /// Returns the keys, read again because a token names a key that is not in the set `seen`.
    pub(super) async fn reread_keys(&self, seen: &Arc<KeySet>) -> Result<Arc<Copy>, StoreError> {
        let known = |keys: &Self, copy: &Copy| !Arc::ptr_eq(&copy.set, seen) || keys.0.clock.now() < copy.settled;
        match self.known().filter(|copy| known(self, copy)) {
            Some(copy) => Ok(copy),
            None => self.reread(known).await,
        }
    }

    /// Creates a new key for each algorithm without a waiting key. It is published at once, and signs after all verifiers
    /// have had the time to fetch it.
    pub(super) async fn rotate(&self) -> Result<(), StoreError> {
        let _reading = self.0.reading.lock().await;
        self.read_key_ring(true).await.map(|_| ())
    }

    /// Replaces all keys with new ones, even if the old ones can't be read.
    pub(super) async fn withdraw(&self) -> Result<(), StoreError> {
        let shared = &*self.0;
        let _reading = shared.reading.lock().await;
        let mut made = Vec::new();
        for algorithm in &shared.wanted {
            made.push((*algorithm, self.make(*algorithm).await?));
        }
        let ring = shared
            .table
            .update(None, ID, |_, now| {
                let mut ring = Ring::default();
                for (algorithm, secret) in &made {
                    ring.add(*algorithm, secret.clone(), shared.schedule, now);
                }
                Change::Put(ring.clone(), UnixTime::FOREVER, ring)
            })
            .await?;
        self.adopt_ring(ring).map(|_| ())
    }

    fn known(&self) -> Option<Arc<Copy>> {
        self.0.copy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the store, one caller at a time. Others use the copy meanwhile.
    async fn reread(&self, suffices: impl Fn(&Self, &Copy) -> bool) -> Result<Arc<Copy>, StoreError> {
        let old = self.known();
        let _reading = match (self.0.reading.try_lock(), &old) {
            (Ok(guard), _) => guard,
            (Err(_), Some(old)) => return Ok(Arc::clone(old)),
            (Err(_), None) => self.0.reading.lock().await,
        };
        // another caller may have read it just now
        if let Some(copy) = self.known().filter(|copy| suffices(self, copy)) {
            return Ok(copy);
        }
        match (self.read_key_ring(false).await, old) {
            (Ok(copy), _) => Ok(copy),
            (Err(error), Some(old)) => {
                crate::util::trace::failure!("signing keys could not be read, so the last known keys are used", &error);
                let later = self.0.clock.now() + PATIENCE;
                let (ring, signers, set) = (old.ring.clone(), old.signers.clone(), Arc::clone(&old.set));
                Ok(self.keep_copy(Copy { ring, signers, set, stale: later, settled: later }))
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Reads the ring, and adds the keys that are due. If `rotates` is set, also adds a key for each algorithm that may
    /// have another one.
    async fn read_key_ring(&self, rotates: bool) -> Result<Arc<Copy>, StoreError> {
        let shared = &*self.0;
        let (wanted, schedule) = (&shared.wanted, shared.schedule);
        let found = shared.table.get(None, ID).wait().await?.map(|stored| stored.value).unwrap_or_default();
        let now = shared.table.now();
        if !rotates && found.is_settled(wanted, schedule, now) {
            return self.adopt_ring(found);
        }
        // a node with another seal must not add keys that the others can't read
        self.signers(&found)?;
        let needed = |ring: &Ring, now: UnixTime| {
            let due = ring.due(wanted, schedule, now);
            let needs = |own: &Algorithm| due.contains(own) || (rotates && ring.can_rotate(*own, now));
            wanted.iter().copied().filter(needs).collect::<Vec<_>>()
        };
        let mut made = Vec::new();
        for algorithm in needed(&found, now) {
            made.push((algorithm, self.make(algorithm).await?));
        }
        let ring = shared
            .table
            .update(None, ID, |found, now| {
                let mut ring = found.cloned().unwrap_or_default();
                if self.signers(&ring).is_err() {
                    return Change::Keep(ring);
                }
                // another node may have been faster
                let needed = needed(&ring, now);
                for (algorithm, secret) in &made {
                    if needed.contains(algorithm) {
                        ring.add(*algorithm, secret.clone(), schedule, now);
                    }
                }
                let ring = ring.retire_keys(wanted, schedule, now, |row| self.public(row));
                if found == Some(&ring) {
                    return Change::Keep(ring);
                }
                Change::Put(ring.clone(), UnixTime::FOREVER, ring)
            })
            .await?;
        self.adopt_ring(ring)
    }

    async fn make(&self, algorithm: Algorithm) -> Result<Sealed, StoreError> {
        // an RSA key takes a while
        let made = spawn_blocking(move || Signer::generate_signing_key(algorithm)).await.ok().flatten();
        made.and_then(|pkcs8| self.0.seal.close(algorithm.as_str(), &pkcs8))
            .ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt, "no signing key could be created"))
    }

    /// Makes the signers and the key set of a ring, and keeps them.
    fn adopt_ring(&self, ring: Ring) -> Result<Arc<Copy>, StoreError> {
        let (old, signers) = (self.known(), self.signers(&ring)?);
        let set = KeySet::new(signers.iter().map(|signer| (signer.kid.clone(), signer.public.clone())));
        let set = match old {
            Some(old) if *old.set == set => Arc::clone(&old.set),
            _ => Arc::new(set),
        };
        let now = self.0.clock.now();
        Ok(self.keep_copy(Copy { ring, signers, set, stale: now + FRESH, settled: now + PATIENCE }))
    }

    /// Returns a signer for each key of a ring.
    fn signers(&self, ring: &Ring) -> Result<Vec<Arc<Signer>>, StoreError> {
        if let Some(old) = self.known().filter(|old| old.ring == *ring) {
            return Ok(old.signers.clone());
        }
        ring.keys.iter().map(|row| self.signer(row).map(Arc::new)).collect::<Option<_>>().ok_or_else(|| {
            let text = "a signing key cannot be read: it is sealed with another secret, or this node has no secret";
            StoreError::new(StoreErrorKind::Corrupt, text)
        })
    }

    fn signer(&self, row: &Row) -> Option<Signer> {
        let pkcs8 = self.0.seal.open(row.algorithm.as_str(), &row.secret)?;
        Signer::parse_pkcs8(row.algorithm, &pkcs8)
    }

    /// Returns the public half of a key. The private one is deleted.
    fn public(&self, row: &Row) -> Option<HintKey> {
        let signer = self.signer(row)?;
        let jwks = KeySet::new([(signer.kid.clone(), signer.public.clone())]).to_json();
        Some(HintKey::new(&signer.kid, String::from_utf8(jwks).ok()?))
    }

    fn keep_copy(&self, copy: Copy) -> Arc<Copy> {
        let copy = Arc::new(copy);
        *self.0.copy.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&copy));
        copy
    }
}

const ID: &[u8] = b"ring";

crate::util::fmt::debug_fields!(Keys, |own| store: own.0.table);
crate::util::fmt::debug_fields!(Copy { set });
