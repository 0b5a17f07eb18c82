//! Calls that are open on the server.
//!
//! A node renews the slots of its calls. It opens no call of a key before those that it has open there are counted, so a node that
//! was paused or cut off admits nothing until the server knows its calls again.

use std::{
    sync::{Arc, Weak, atomic::Ordering::SeqCst},
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use super::{
    open_calls::{CallId, CallTerms, OpenCalls, SLOT, SentAt},
    server::Server,
    shared_limiter::SharedLimiter,
};
use crate::{
    limit::{
        decision::{Ask, CallAsk, CallEnd, CallInMemory, Decision, EndCall, OpenCall},
        plan::Plan,
    },
    tenant::LimitKey,
};

/// How often slots are renewed, and how long after a failure those of a key are tried again.
const RENEWAL: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(250);
/// How often the end of a call is sent again, with pauses like those between renewals.
const END_RETRIES: usize = 3;
/// At most this many keys are renewed at the same time.
const AT_ONCE: usize = 64;

impl SharedLimiter {
    /// Opens a call at the server, with one call and without a lease. No fallback decides instead.
    pub(super) async fn open_call(&self, payer: &LimitKey, plan: &Plan, ask: Ask) -> Decision {
        let server = &self.0.server;
        let clock = &*server.watcher.reports().clock;
        // before the node relies on what the server counts
        let sent_at = SentAt::now(clock);
        if !server.count_open_calls(payer).await {
            return Decision::UNAVAILABLE;
        }
        let Some(id) = OpenCalls::random_id() else { return Decision::UNAVAILABLE };
        let call = UnusedCall(Some((server, payer)), id);
        let (most, millis) = match ask.call {
            CallAsk::Hold { at_most, millis } => (at_most, millis),
            CallAsk::Untracked | CallAsk::AlreadyOpen | CallAsk::Slot => (0, 0),
        };
        let times = [SLOT.as_micros().to_string(), most.to_string(), (u64::from(millis) * 1000).to_string()];
        let [slot, at_most, lifetime] = times.each_ref().map(String::as_bytes);
        let Some(mut answer) = server.call("hold", payer, plan, ask, &[&id, slot, at_most, lifetime]).await else {
            return Decision::UNAVAILABLE;
        };
        let (is_opened, mirrored) = (answer.decision.is_admitted(), answer.mirrored_call.take());
        // refunded if the answer is of no use
        let mut decision = self.with_spend(answer, payer, plan, Ask { refundable: true, ..ask });
        if !decision.is_admitted() {
            if !is_opened {
                // there is nothing to end
                _ = call.keep();
            }
            return decision;
        }
        if sent_at.is_late(clock) {
            server.mirror.forget_call(mirrored);
            self.refund_later(decision.into_spend());
            return Decision::UNAVAILABLE;
        }
        let mirrored = match mirrored.map(|call| *call) {
            Some(OpenCall::Memory(call)) => Some(call),
            Some(OpenCall::Shared(_)) | None => None,
        };
        let terms = CallTerms { is_anonymous: ask.is_anonymous, estimate: ask.estimate(), at_most: most };
        let open = Open { server: Arc::clone(server), key: payer.clone(), id: call.keep(), mirrored };
        server.calls.insert(payer, id, terms, sent_at);
        // keeps its slots until it ends
        if !server.calls.is_renewing.swap(true, SeqCst) {
            server.link.spawn(renew_until_closed(Arc::downgrade(server)));
        }
        decision.call = Some(Box::new(OpenCall::Shared(Box::new(SharedCall(Some(open))))));
        decision
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
        let calls = self.calls.calls_of_key(key);
        if calls.is_empty() {
            return true;
        }
        let mut more = vec![SLOT.as_micros().to_string().into_bytes()];
        more.extend(calls.iter().flat_map(|(id, terms)| renewal_of(*id, *terms)));
        let more: Vec<&[u8]> = more.iter().map(Vec::as_slice).collect();
        let is_done = self.change_calls("", "renew", key, &more).await.is_ok();
        if is_done {
            self.calls.note_renewal(key, sent_at);
        }
        is_done
    }

    /// Renews the slots of these keys. Returns the keys for which the server has not done so, as far as it is known: the
    /// server may renew slots and answer too late.
    async fn renew_slots(self: &Arc<Self>, keys: Vec<LimitKey>) -> Vec<LimitKey> {
        let (mut renewals, mut failed) = (JoinSet::new(), Vec::new());
        for key in keys {
            let server = Arc::clone(self);
            renewals.spawn(async move { (!server.renew_slots_of(&key).await).then_some(key) });
            if renewals.len() >= AT_ONCE {
                failed.extend(renewals.join_next().await.and_then(Result::ok).flatten());
            }
        }
        while let Some(renewal) = renewals.join_next().await {
            failed.extend(renewal.ok().flatten());
        }
        failed
    }

    /// Removes a call from the server, and charges what it has used.
    pub(super) async fn end_call(&self, key: &LimitKey, id: CallId, end: CallEnd) {
        let used = match end {
            CallEnd::Commit(units) => units.to_string(),
            CallEnd::Estimate => String::new(),
        };
        // it has an effect once. A server that does not answer in the end charges the estimate when it expires
        for _ in 0..=END_RETRIES {
            if self.change_calls("", "commit", key, &[&id, used.as_bytes()]).await.is_ok() {
                return;
            }
            tokio::time::sleep(RENEWAL).await;
        }
    }
}

/// Returns a call as the script reads it to renew its slot.
fn renewal_of(id: CallId, terms: CallTerms) -> [Vec<u8>; 4] {
    let CallTerms { is_anonymous, estimate, at_most } = terms;
    [id.to_vec(), vec![b'0' + u8::from(is_anonymous)], estimate.to_string().into(), at_most.to_string().into()]
}

/// A call that the server is asked to open. Dropping it ends the call in the background, without a charge: the reply was lost or is
/// of no use, or its request was dropped.
struct UnusedCall<'a>(Option<(&'a Arc<Server>, &'a LimitKey)>, CallId);

impl UnusedCall<'_> {
    /// Keeps the call.
    fn keep(mut self) -> CallId {
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
    let (mut failed, mut all_at) = (Vec::new(), Instant::now() + RENEWAL);
    loop {
        let retry_at = if failed.is_empty() { all_at } else { all_at.min(Instant::now() + RETRY) };
        tokio::time::sleep_until(retry_at).await;
        let Some(server) = server.upgrade() else { return };
        if Instant::now() >= all_at {
            // also while the breaker is open, because a slow server still keeps slots
            failed = server.renew_slots(server.calls.keys()).await;
            all_at = Instant::now() + RENEWAL;
        } else if server.breaker.may_allow(server.watcher.reports().clock.now()) {
            failed = server.renew_slots(failed).await;
        }
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
pub(super) struct SharedCall(Option<Open>);

struct Open {
    server: Arc<Server>,
    key: LimitKey,
    id: CallId,
    /// The call in the memory of this node, for its fallback.
    mirrored: Option<CallInMemory>,
}

impl SharedCall {
    fn finish(&mut self, end: CallEnd) {
        let Some(Open { server, key, id, mirrored }) = self.0.take() else { return };
        // first, so that no renewal adds it again
        server.calls.remove(&key, id);
        if let Some(call) = mirrored {
            server.local.end_call(&call, end);
        }
        let link = server.link.clone();
        link.spawn(async move { server.end_call(&key, id, end).await });
    }
}

impl EndCall for SharedCall {
    fn end(mut self: Box<Self>, end: CallEnd) {
        self.finish(end);
    }
}

impl Drop for SharedCall {
    fn drop(&mut self) {
        self.finish(CallEnd::Estimate);
    }
}

crate::util::fmt::opaque_debug!(SharedCall);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limit::{limiter::Limiter, plans::table::Plans, quota::Quota, shared::model::redis_server::RedisServer},
        redis::RedisConfig,
    };

    #[tokio::test]
    async fn a_key_that_cannot_be_renewed_is_tried_again_alone() {
        let Some(redis) = RedisServer::start(&[]) else { return };
        let config = RedisConfig::new(&redis.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
        let plans = Plans::new(Quota::concurrent(2).unwrap());
        let shared = Limiter::redis(config, plans).connect().await.unwrap();
        let [acme, globex] = ["acme", "globex"].map(|name| LimitKey::parse(name).unwrap());
        let slot = Ask { call: CallAsk::Slot, ..Ask::new(1, false) };
        let open = [shared.check_in_plan(&acme, slot).await, shared.check_in_plan(&globex, slot).await];
        assert!(open.iter().all(Decision::is_admitted));
        let server = &shared.0.server;
        assert_eq!(server.renew_slots(server.calls.keys()).await, []);
        // something else has written to the key
        redis.cli(&["del", "tollgate:limit:{acme}"]);
        redis.cli(&["lpush", "tollgate:limit:{acme}", "something else"]);
        assert_eq!(server.renew_slots(server.calls.keys()).await, std::slice::from_ref(&acme));
        // a server that answers too late still gets renewals, or the slots would end on it
        let now = server.watcher.reports().clock.now();
        while !server.breaker.failed(now, now) {}
        assert_eq!(server.renew_slots(server.calls.keys()).await, [acme]);
    }
}
