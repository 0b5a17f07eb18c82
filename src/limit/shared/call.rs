//! Calls that are open on the server.
//!
//! A node renews the slots of its calls. It opens no call of a key before those that it has open there are counted, so a node that
//! was paused or cut off admits nothing until the server knows its calls again.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use super::server::Server;
use crate::{
    limit::decision::{CallEnd, CallInMemory},
    tenant::LimitKey,
    util::{
        clock::{Clock, Moment, UnixTime},
        lock::lock,
    },
};

/// How long the server counts a slot that is not renewed.
pub(super) const SLOT: Duration = Duration::from_secs(10);
/// How often slots are renewed, and how long after a failure.
const RENEWAL: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(250);
/// A node relies on a renewal for this long. With the time that the reply of the next call may take, it is shorter than a slot,
/// even if a clock is slower than the server's by a hundredth.
const TRUSTED: Duration = Duration::from_secs(8);
const LONGEST_REPLY: Duration = Duration::from_secs(1);
/// At most this many keys are renewed at the same time.
const AT_ONCE: usize = 64;

pub(super) type CallId = [u8; 8];

/// A time by the steady clock, which stops while a machine is suspended, and by the wall clock, which does not.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentAt(Moment, UnixTime);

impl SentAt {
    pub(super) fn now(clock: &dyn Clock) -> Self {
        let (now, unix) = clock.read();
        Self(now, unix)
    }

    fn elapsed(self, clock: &dyn Clock) -> Duration {
        let (now, unix) = clock.read();
        now.since(self.0).max(Duration::from_nanos(unix.as_nanos().saturating_sub(self.1.as_nanos())))
    }

    /// Returns whether a reply comes so late that the slot may have ended meanwhile.
    pub(super) fn is_late(self, clock: &dyn Clock) -> bool {
        self.elapsed(clock) > LONGEST_REPLY
    }
}

/// The calls that this node has open on the server.
#[derive(Default)]
pub(super) struct OpenCalls {
    keys: Mutex<HashMap<LimitKey, OfKey, foldhash::fast::RandomState>>,
    is_renewing: AtomicBool,
}

struct OfKey {
    /// Each call, and whether it is anonymous.
    calls: HashMap<CallId, bool, foldhash::fast::RandomState>,
    /// All of them were counted at this time or later.
    counted_at: SentAt,
}

impl OpenCalls {
    /// Returns an id that no other call has.
    pub(super) fn next_id() -> CallId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        static FIRST: OnceLock<u64> = OnceLock::new();
        // each process has its own numbers
        let first = FIRST.get_or_init(|| getrandom::u64().unwrap_or_else(|_| std::process::id().into()));
        first.wrapping_add(NEXT.fetch_add(1, SeqCst)).to_be_bytes()
    }

    fn insert(&self, key: &LimitKey, id: CallId, is_anonymous: bool, sent_at: SentAt) {
        let mut keys = lock(&self.keys);
        let of_key =
            keys.entry(key.clone()).or_insert_with(|| OfKey { calls: HashMap::default(), counted_at: sent_at });
        of_key.calls.insert(id, is_anonymous);
    }

    fn remove(&self, key: &LimitKey, id: CallId) {
        let mut keys = lock(&self.keys);
        if let Some(of_key) = keys.get_mut(key) {
            of_key.calls.remove(&id);
            if of_key.calls.is_empty() {
                keys.remove(key);
            }
        }
    }

    fn is_empty(&self) -> bool {
        lock(&self.keys).is_empty()
    }

    /// Returns whether the server may not count all calls of this key any more.
    fn may_be_uncounted(&self, key: &LimitKey, clock: &dyn Clock) -> bool {
        lock(&self.keys).get(key).is_some_and(|of_key| of_key.counted_at.elapsed(clock) > TRUSTED)
    }

    /// Returns the ids of a key as the script reads them.
    fn ids(&self, key: &LimitKey) -> Vec<(CallId, bool)> {
        lock(&self.keys)
            .get(key)
            .map_or_else(Vec::new, |of_key| of_key.calls.iter().map(|(id, own)| (*id, *own)).collect())
    }

    fn counted(&self, key: &LimitKey, sent_at: SentAt) {
        if let Some(of_key) = lock(&self.keys).get_mut(key) {
            of_key.counted_at = sent_at;
        }
    }
}

impl Server {
    /// Makes sure that the server counts all calls that this node has open under a key. Returns whether it does.
    pub(super) async fn count_open_calls(&self, key: &LimitKey) -> bool {
        let reports = self.watcher.reports();
        if !self.calls.may_be_uncounted(key, &*reports.clock) {
            return true;
        }
        self.breaker.may_allow(reports.clock.now()) && self.renew_slots_of(key).await
    }

    /// Renews the slots of a key. Returns whether the server has done so.
    async fn renew_slots_of(&self, key: &LimitKey) -> bool {
        let sent_at = SentAt::now(&*self.watcher.reports().clock);
        let ids = self.calls.ids(key);
        if ids.is_empty() {
            return true;
        }
        let slot = SLOT.as_micros().to_string();
        let mut more = vec![slot.as_bytes()];
        more.extend(ids.iter().flat_map(|(id, is_anonymous)| [&id[..], if *is_anonymous { b"1" } else { b"0" }]));
        let is_done = self.change_calls("", "renew", key, &more).await.is_ok();
        if is_done {
            self.calls.counted(key, sent_at);
        }
        is_done
    }

    /// Renews all slots. Returns whether the server has done so.
    async fn renew_slots(self: &Arc<Self>) -> bool {
        let keys: Vec<LimitKey> = lock(&self.calls.keys).keys().cloned().collect();
        let (mut renewals, mut are_done) = (JoinSet::new(), true);
        for key in keys {
            let server = Arc::clone(self);
            renewals.spawn(async move { server.renew_slots_of(&key).await });
            if renewals.len() >= AT_ONCE {
                are_done &= matches!(renewals.join_next().await, Some(Ok(true)));
            }
        }
        while let Some(is_done) = renewals.join_next().await {
            are_done &= matches!(is_done, Ok(true));
        }
        are_done
    }

    /// Removes a call from the server, and charges what it has used.
    pub(super) async fn end_call(&self, key: &LimitKey, id: CallId, end: CallEnd) {
        let used = match end {
            CallEnd::Commit(units) => units.to_string(),
            CallEnd::Estimate => String::new(),
        };
        // a server that does not answer charges the estimate when it expires
        _ = self.change_calls("", "commit", key, &[&id, used.as_bytes()]).await;
    }
}

/// A call that the server is asked to open. Dropping it ends the call in the background, without a charge: the reply was lost or is
/// of no use, or its request was dropped.
pub(super) struct UnusedCall<'a>(Option<(&'a Arc<Server>, &'a LimitKey)>, pub(super) CallId);

impl<'a> UnusedCall<'a> {
    pub(super) fn new(server: &'a Arc<Server>, key: &'a LimitKey) -> Self {
        Self(Some((server, key)), OpenCalls::next_id())
    }

    /// Keeps the call.
    pub(super) fn keep(mut self) -> CallId {
        self.0 = None;
        self.1
    }
}

impl Drop for UnusedCall<'_> {
    fn drop(&mut self) {
        if let Some((server, key)) = self.0
            && server.breaker.may_allow(server.watcher.reports().clock.now())
        {
            let (server, key, id) = (Arc::clone(server), key.clone(), self.1);
            server.link.clone().spawn(async move { server.end_call(&key, id, CallEnd::Commit(0)).await });
        }
    }
}

async fn renew_until_closed(server: Weak<Server>) {
    let mut pause = RENEWAL;
    loop {
        tokio::time::sleep(pause).await;
        let Some(server) = server.upgrade() else { return };
        pause = if server.renew_slots().await { RENEWAL } else { RETRY };
        if server.calls.is_empty() {
            server.calls.is_renewing.store(false, SeqCst);
            // another call may have been opened just before, and relied on this task
            if server.calls.is_empty() || server.calls.is_renewing.swap(true, SeqCst) {
                return;
            }
        }
    }
}

/// An open call on the server. Dropping it ends the call with its estimate.
pub(in crate::limit) struct SharedCall(Option<Open>);

struct Open {
    server: Arc<Server>,
    key: LimitKey,
    id: CallId,
    /// The same call in the memory of this node, for its fallback.
    mirrored: Option<CallInMemory>,
}

impl SharedCall {
    /// Takes over a call that the server has opened, and keeps its slots until it ends.
    pub(super) fn new(
        server: &Arc<Server>,
        key: &LimitKey,
        id: CallId,
        (is_anonymous, sent_at): (bool, SentAt),
        mirrored: Option<CallInMemory>,
    ) -> Self {
        server.calls.insert(key, id, is_anonymous, sent_at);
        if !server.calls.is_renewing.swap(true, SeqCst) {
            server.link.spawn(renew_until_closed(Arc::downgrade(server)));
        }
        Self(Some(Open { server: Arc::clone(server), key: key.clone(), id, mirrored }))
    }

    /// Ends the call in the background.
    pub(in crate::limit) fn end(mut self, end: CallEnd) {
        self.finish(end);
    }

    fn finish(&mut self, end: CallEnd) {
        let Some(Open { server, key, id, mirrored }) = mem::take(&mut self.0) else { return };
        // first, so that no renewal adds it again
        server.calls.remove(&key, id);
        if let Some(call) = mirrored {
            server.local.end_call(&call, end);
        }
        let link = server.link.clone();
        link.spawn(async move { server.end_call(&key, id, end).await });
    }
}

impl Drop for SharedCall {
    fn drop(&mut self) {
        self.finish(CallEnd::Estimate);
    }
}

crate::util::fmt::opaque_debug!(SharedCall);
