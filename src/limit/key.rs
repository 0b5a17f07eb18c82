//! How a tenant's row is found: hashed once in a request, whatever map it stands in.

use std::{
    hash::{BuildHasher, Hash, Hasher},
    sync::LazyLock,
};

use foldhash::fast::RandomState;
use papaya::Equivalent;

use crate::tenant::Tenant;

/// The tenant whose row it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key(pub(super) Tenant);

/// A tenant and its hash, so that it is hashed once in a request.
#[derive(Debug)]
pub(super) struct Lookup<'a> {
    pub(super) hash: u64,
    pub(super) tenant: &'a Tenant,
}

impl<'a> Lookup<'a> {
    pub(super) fn of(tenant: &'a Tenant) -> Self {
        Self { hash: hash(tenant), tenant }
    }

    pub(super) fn owned(&self) -> Key {
        Key(self.tenant.clone())
    }
}

/// Hashes get a seed of this process, for callers choose the names.
pub(super) static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// A number that stands for this tenant in this process.
pub(super) fn hash(tenant: &Tenant) -> u64 {
    SEED.hash_one(tenant)
}

impl Equivalent<Key> for Lookup<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self.tenant == key.0
    }
}

/// Only when a map grows.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(hash(&self.0));
    }
}

impl Hash for Lookup<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Passes on the hash that the key brings.
#[derive(Debug, Default)]
pub(super) struct Ready(u64);

impl Hasher for Ready {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
