//! Epochs: since when has the server lost nothing?
//!
//! Keys are spread over partitions, so that those of one partition live on one server of a cluster. Each partition has
//! an epoch on the server: the second in which it began, and the id of the server process. The id changes with a restart
//! and with a failover, and both may lose acknowledged writes. A flush removes the epoch itself.
//!
//! Every call compares the epoch with the one that this process knows. The id is compared after each new connection,
//! after each failed call, and every [`CHECKED_EVERY`]. A cluster takes longer than that to replace a failed server, so
//! no replacement goes unnoticed.
//!
//! All partitions of a server begin their epochs together, with the first call that finds one of them changed. Otherwise
//! each of them would refuse everything that was signed once more when it is first used. Each epoch has a later second
//! than those that the process knew before, even if two begin within one second: a signature may carry the second in
//! which an epoch began.

use std::{
    ops::Range,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;

use crate::{
    redis::{Delivery, Link, RedisFailure, Reply, Script, unexpected},
    util::{
        clock::{Clock, Moment, SystemClock, UnixTime},
        lock::lock,
    },
};

/// The number of partitions. Part of the format: other partitions would hide all entries.
const PARTITIONS: usize = 64;

const CHECKED_EVERY: Duration = Duration::from_secs(5);

/// Returns the epochs of partitions. Begins a new one if the server is not the one that it began on, or if there is a second
/// argument. The first one is a second that a new epoch has to be later than. An epoch has its second, the microseconds of
/// its beginning, which make it another one than those before, and the id of the server.
static CHECK: Script = Script::new(
    "local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if not server then return redis.error_reply('INFO has no run_id') end
local now, epochs = redis.call('TIME'), {}
local second = math.max(now[1], tonumber(ARGV[1])) + 1
for i, key in ipairs(KEYS) do
local epoch = redis.call('GET', key)
if ARGV[2] ~= '' or not epoch or string.match(epoch, ':(%x*)$') ~= server then
epoch = second .. ':' .. now[2] .. ':' .. server
redis.call('SET', key, epoch)
end
epochs[i] = epoch
end
return epochs",
);

pub(super) struct Epochs {
    partitions: Box<[Partition]>,
    is_cluster: bool,
    /// In seconds. Rises with each changed epoch.
    complete_since: AtomicU64,
    /// Held while epochs are kept.
    noting: Mutex<()>,
    clock: SystemClock,
}

struct Partition {
    key: Vec<u8>,
    known: Mutex<Option<Known>>,
}

struct Known {
    epoch: Bytes,
    /// On which connection the epoch was checked, and when the check was sent.
    checked: (u64, Moment),
    /// Whether the next call has to check it.
    is_doubtful: bool,
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
    pub(super) async fn load_epochs(link: &Link, prefix: &str, is_cluster: bool) -> Result<Self, RedisFailure> {
        let partition = |part| Partition { key: format!("{prefix}:{{{part}}}").into_bytes(), known: Mutex::default() };
        let epochs = Self {
            partitions: (0..PARTITIONS).map(partition).collect(),
            is_cluster,
            complete_since: AtomicU64::new(0),
            noting: Mutex::default(),
            clock: SystemClock::new(),
        };
        epochs.check_all(link, b"").await?;
        Ok(epochs)
    }

    /// Returns the key of the epoch of a partition.
    pub(super) fn key(&self, part: usize) -> &[u8] {
        self.partitions.get(part).map_or(&[], |partition| &partition.key)
    }

    /// Returns the epoch of a partition, and checks it with the server if that is due.
    pub(super) async fn current_epoch(&self, link: &Link, part: usize) -> Result<Bytes, RedisFailure> {
        let (connection, now) = (link.number(), self.clock.now());
        let is_fresh = |known: &&Known| {
            let (number, at) = known.checked;
            !known.is_doubtful && number == connection && now.since(at) < CHECKED_EVERY
        };
        if let Some(known) = self.lock(part)?.as_ref().filter(is_fresh) {
            return Ok(known.epoch.clone());
        }
        if !self.is_cluster {
            self.check_all(link, b"").await?;
            return self.last(part)?.ok_or_else(unexpected);
        }
        let epoch = self.fetch_epochs(link, part..part + 1, b"").await?.pop().ok_or_else(unexpected)?;
        if self.last(part)?.as_ref() != Some(&epoch) {
            // its server was replaced: no other partition of that server may begin later. Those of servers that do not
            // answer are checked when they are used
            _ = self.check_all(link, b"").await;
        }
        self.record_epochs(vec![(part, epoch.clone())], connection, now)?;
        Ok(epoch)
    }

    /// Checks all partitions: with one call on a server, with one call each, sent together, on a cluster.
    pub(super) async fn check_all(&self, link: &Link, begins: &'static [u8]) -> Result<(), RedisFailure> {
        let (connection, now) = (link.number(), self.clock.now());
        if !self.is_cluster {
            let epochs = self.fetch_epochs(link, 0..PARTITIONS, begins).await?;
            return self.record_epochs(epochs.into_iter().enumerate().collect(), connection, now);
        }
        let second = self.second();
        let check = |part| {
            let (own, key, second) = (link.clone(), self.key(part).to_vec(), second.clone());
            link.spawn(async move { own.run(&CHECK, &[&key], &[second.as_bytes(), begins], Delivery::Resent).await })
        };
        let checks: Vec<_> = (0..PARTITIONS).map(check).collect();
        let (mut epochs, mut failed) = (Vec::with_capacity(PARTITIONS), None);
        for (part, check) in checks.into_iter().enumerate() {
            match check.await.map_err(|_| unexpected()).flatten().and_then(|reply| epochs_of(reply, 1)) {
                Ok(own) => epochs.extend(own.into_iter().map(|epoch| (part, epoch))),
                Err(failure) => failed = Some(failure),
            }
        }
        self.record_epochs(epochs, connection, now)?;
        failed.map_or(Ok(()), Err)
    }

    /// Asks a server for the epochs of these partitions with one call.
    async fn fetch_epochs(&self, link: &Link, parts: Range<usize>, begins: &[u8]) -> Result<Vec<Bytes>, RedisFailure> {
        let keys: Vec<&[u8]> = parts.map(|part| self.key(part)).collect();
        let reply = link.run(&CHECK, &keys, &[self.second().as_bytes(), begins], Delivery::Resent).await?;
        epochs_of(reply, keys.len())
    }

    /// Keeps these epochs, except those that were read before the known ones: their server may have been replaced since.
    fn record_epochs(&self, mut epochs: Vec<(usize, Bytes)>, connection: u64, now: Moment) -> Result<(), RedisFailure> {
        let _turn = lock(&self.noting);
        let checked = (connection, now);
        let is_newer = |known: &Option<Known>| known.as_ref().is_none_or(|known| known.checked <= checked);
        epochs.retain(|(part, _)| self.lock(*part).is_ok_and(|known| is_newer(&known)));
        let mut began = None;
        for (part, epoch) in &epochs {
            if self.last(*part)?.as_ref() != Some(epoch) {
                began = began.max(Some(beginning(epoch).ok_or_else(unexpected)?));
            }
        }
        // before the epochs are known, so that nobody relies on them too early. It rises with each change, even if another
        // process has begun the epoch that knew less, because others notice the change by it
        if let Some(began) = began {
            let since = self.complete_since.load(SeqCst);
            self.complete_since.store(began.max(since.saturating_add(1)), SeqCst);
        }
        for (part, epoch) in epochs {
            *self.lock(part)? = Some(Known { epoch, checked, is_doubtful: false });
        }
        Ok(())
    }

    /// Returns the epoch of a partition that was read last.
    fn last(&self, part: usize) -> Result<Option<Bytes>, RedisFailure> {
        Ok(self.lock(part)?.as_ref().map(|known| known.epoch.clone()))
    }

    /// Lets the next call check the epoch of a partition.
    pub(super) fn forget_epoch(&self, part: usize) {
        if let Ok(mut known) = self.lock(part)
            && let Some(known) = known.as_mut()
        {
            known.is_doubtful = true;
        }
    }

    /// Returns since when no partition has lost an entry, as far as calls until now have shown.
    pub(super) fn complete_since(&self) -> UnixTime {
        UnixTime::from_secs(self.complete_since.load(SeqCst))
    }

    /// Returns the newest second of the known epochs, in digits.
    fn second(&self) -> String {
        self.complete_since.load(SeqCst).to_string()
    }

    fn lock(&self, part: usize) -> Result<MutexGuard<'_, Option<Known>>, RedisFailure> {
        let partition = self.partitions.get(part).ok_or_else(unexpected)?;
        Ok(lock(&partition.known))
    }
}

fn epochs_of(reply: Reply, count: usize) -> Result<Vec<Bytes>, RedisFailure> {
    let Reply::List(epochs) = reply else { return Err(unexpected()) };
    let epoch = |reply| match reply {
        Reply::Bytes(epoch) => Ok(epoch),
        _ => Err(unexpected()),
    };
    let epochs: Vec<Bytes> = epochs.into_iter().map(epoch).collect::<Result<_, _>>()?;
    if epochs.len() == count { Ok(epochs) } else { Err(unexpected()) }
}

/// Returns the second of an epoch.
fn beginning(epoch: &[u8]) -> Option<u64> {
    std::str::from_utf8(epoch).ok()?.split_once(':')?.0.parse().ok()
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

    fn epochs() -> Epochs {
        let partition = |_| Partition { key: Vec::new(), known: Mutex::default() };
        Epochs {
            partitions: (0..PARTITIONS).map(partition).collect(),
            is_cluster: false,
            complete_since: AtomicU64::new(0),
            noting: Mutex::default(),
            clock: SystemClock::new(),
        }
    }

    fn all(second: u64) -> Vec<(usize, Bytes)> {
        (0..PARTITIONS).map(|part| (part, Bytes::from(format!("{second}:0:a")))).collect()
    }

    #[test]
    fn b36_one_epoch_that_many_calls_report_is_one_change() {
        for second in 1..300 {
            let (epochs, now, start) = (epochs(), Moment::from_nanos(7), std::sync::Barrier::new(4));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        start.wait();
                        epochs.record_epochs(all(second), 1, now).unwrap();
                    });
                }
            });
            assert_eq!(epochs.complete_since(), UnixTime::from_secs(second));
        }
    }

    #[test]
    fn b36_a_late_reply_of_an_older_connection_changes_nothing() {
        let (epochs, at) = (epochs(), |nanos| Moment::from_nanos(nanos));
        for (second, connection, sent, known) in
            [(10, 1, 1, 10), (20, 2, 5, 20), (10, 1, 9, 20), (10, 2, 4, 20), (30, 2, 5, 30)]
        {
            epochs.record_epochs(all(second), connection, at(sent)).unwrap();
            assert_eq!(epochs.complete_since(), UnixTime::from_secs(known));
            assert_eq!(epochs.last(3).unwrap().unwrap(), format!("{known}:0:a"));
        }
    }

    const PINNED: [usize; 3] = [50, 30, 47];
}
