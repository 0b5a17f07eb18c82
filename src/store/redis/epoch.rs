//! Epochs: since when has the server lost nothing?
//!
//! Keys are spread over partitions, so that those of one partition live on one server of a cluster. Each partition has
//! an epoch on the server: the second in which it began, and the id of the server process. The id changes with a restart
//! and with a failover, and both may lose acknowledged writes. A flush removes the epoch itself.
//!
//! Every call compares the epoch with the one that this process knows. The id is compared after each new connection,
//! after each failed call, and every [`CHECKED_EVERY`]. A cluster takes longer than that to replace a failed server, so
//! no replacement goes unnoticed.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;

use crate::{
    redis::{Link, RedisFailure, Reply, Script, unexpected},
    util::clock::{Clock, Moment, SystemClock, UnixTime},
};

/// The number of partitions. Part of the format: other partitions would hide all entries.
const PARTITIONS: usize = 64;

const CHECKED_EVERY: Duration = Duration::from_secs(5);

/// Returns the epoch of a partition, and begins a new one if the server is not the one that it began on.
static CHECK: Script = Script::new(
    "local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if not server then return redis.error_reply('INFO has no run_id') end
local epoch = redis.call('GET', KEYS[1])
if epoch and string.match(epoch, ':(%x*)$') == server then return epoch end
epoch = (redis.call('TIME')[1] + 1) .. ':' .. server
redis.call('SET', KEYS[1], epoch)
return epoch",
);

pub(super) struct Epochs {
    partitions: Box<[Partition]>,
    /// In seconds.
    complete_since: AtomicU64,
    clock: SystemClock,
}

struct Partition {
    key: Vec<u8>,
    known: Mutex<Option<Known>>,
}

struct Known {
    epoch: Bytes,
    checked_at: Moment,
    connection: u64,
}

/// Returns the partition of a key.
pub(super) fn partition(key: &[u8]) -> usize {
    // FNV-1a, which is the same in every process, and one more step, because the last bytes of a key reach few bits of it
    let hash = key
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (hash >> 32) as usize % PARTITIONS
}

impl Epochs {
    /// Reads the epochs of all partitions, and begins those that are missing.
    pub(super) async fn begin(link: &Link, prefix: &str) -> Result<Self, RedisFailure> {
        let partition = |part| Partition { key: format!("{prefix}:{{{part}}}").into_bytes(), known: Mutex::default() };
        let epochs = Self {
            partitions: (0..PARTITIONS).map(partition).collect(),
            complete_since: AtomicU64::new(0),
            clock: SystemClock::new(),
        };
        for part in 0..PARTITIONS {
            epochs.known(link, part).await?;
        }
        // tokens that are issued from now on are newer than the epoch
        let ahead = epochs.complete_since().as_nanos().saturating_sub(link.time().await?.as_nanos());
        tokio::time::sleep(Duration::from_nanos(ahead)).await;
        Ok(epochs)
    }

    /// Returns the key of the epoch of a partition.
    pub(super) fn key(&self, part: usize) -> &[u8] {
        self.partitions.get(part).map_or(&[], |partition| &partition.key)
    }

    /// Returns the epoch of a partition, and checks it with the server if that is due.
    pub(super) async fn known(&self, link: &Link, part: usize) -> Result<Bytes, RedisFailure> {
        let connection = link.number();
        let now = self.clock.now();
        let is_fresh = |known: &&Known| known.connection == connection && now.since(known.checked_at) < CHECKED_EVERY;
        if let Some(known) = self.lock(part)?.as_ref().filter(is_fresh) {
            return Ok(known.epoch.clone());
        }
        let Reply::Bytes(epoch) = link.run(&CHECK, &[self.key(part)], &[]).await? else { return Err(unexpected()) };
        let begins = std::str::from_utf8(&epoch).ok().and_then(|text| text.split_once(':')?.0.parse().ok());
        self.complete_since.fetch_max(begins.ok_or_else(unexpected)?, SeqCst);
        *self.lock(part)? = Some(Known { epoch: epoch.clone(), checked_at: now, connection });
        Ok(epoch)
    }

    /// Lets the next call check the epoch of a partition.
    pub(super) fn forget(&self, part: usize) {
        if let Ok(mut known) = self.lock(part) {
            *known = None;
        }
    }

    /// Returns since when no partition has lost an entry, as far as calls until now have shown.
    pub(super) fn complete_since(&self) -> UnixTime {
        UnixTime::from_secs(self.complete_since.load(SeqCst))
    }

    fn lock(&self, part: usize) -> Result<MutexGuard<'_, Option<Known>>, RedisFailure> {
        let partition = self.partitions.get(part).ok_or_else(unexpected)?;
        Ok(partition.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_part_of_the_format_and_even() {
        assert_eq!([&b""[..], b"a", b"\x05codes\x04acmebc"].map(partition), PINNED);
        let mut counts = [0; PARTITIONS];
        for number in 0..64_000_u32 {
            counts[partition(&number.to_be_bytes())] += 1;
        }
        assert!(counts.iter().all(|count| (500..2000).contains(count)), "{counts:?}");
    }

    const PINNED: [usize; 3] = [50, 30, 47];
}
