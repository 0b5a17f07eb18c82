//! Calls that are open on the server.
//!
//! A node renews the slots of its calls. It opens no call of a key before those that it has open there are counted, so a node that
//! was paused or cut off admits nothing until the server knows its calls again.

use std::{
    mem,
    sync::{Arc, Weak, atomic::Ordering::SeqCst},
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::{
    lease::ClockReading,
    open_calls::{CallId, CallTerms, CallToEnd, OpenCalls, SLOT},
    server::Server,
    shared_limiter::SharedLimiter,
};
use crate::{
    limit::{
        decision::{Ask, CallAsk, CallEnd, CallInMemory, Decision, EndCall, OpenCall},
        plan::Plan,
    },
    redis::RedisFailure,
    tenant::LimitKey,
};

/// How often slots are renewed, and how long after a failure those of a key are tried again.
const RENEWAL: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(250);
/// How long a node that stops waits for what it has in the background.
const CLOSING: Duration = Duration::from_secs(5);
/// At most this many keys are renewed at the same time.
const AT_ONCE: usize = 1024;

impl SharedLimiter {
    /// Opens a call at the server, with one call and without a lease. No fallback decides instead.
    pub(super) async fn open_call(&self, payer: &LimitKey, plan: &Plan, ask: Ask) -> Decision {
        let server = &self.0.server;
        let clock = &*server.watcher.reports().clock;
        // before the node relies on what the server counts
        let sent_at = ClockReading::now(clock);
        if !server.count_open_calls(payer).await {
            return Decision::UNAVAILABLE;
        }
        let Some(id) = OpenCalls::random_id() else { return Decision::UNAVAILABLE };
        if !server.breaker.allows(clock.now()) {
            return Decision::UNAVAILABLE;
        }
        let (most, millis) = match ask.call {
            CallAsk::Hold { at_most, millis } => (at_most, millis),
            CallAsk::Untracked | CallAsk::RatesOnly | CallAsk::AlreadyOpen | CallAsk::Slot => (0, 0),
        };
        let mut call = SharedCall {
            server: Arc::clone(server),
            key: payer.clone(),
            id,
            // the server may open it as late as its reply may arrive
            expires: expires_after(millis) + server.link.patience(),
            mirrored: None,
            unused: Some(UNDO),
            is_over: false,
        };
        let times = [SLOT.as_micros().to_string(), most.to_string(), (u64::from(millis) * 1000).to_string()];
        let [slot, at_most, lifetime] = times.each_ref().map(String::as_bytes);
        let more = [&id, slot, at_most, lifetime];
        let Ok(Some(mut answer)) = server.try_call("hold", payer, plan, ask, &more).await else {
            return Decision::UNAVAILABLE;
        };
        // its marks are known now, so a refund is a call of its own
        call.unused = Some("0");
        let is_opened = answer.decision.is_admitted();
        let mirrored = answer.mirrored.as_mut().ok().and_then(|(call, _)| call.take());
        // refunded if the answer is of no use
        let mut decision = self.with_spend(answer, payer, plan, Ask { refundable: true, ..ask });
        if !decision.is_admitted() {
            // there may be nothing to end
            call.is_over = !is_opened;
            return decision;
        }
        let terms = CallTerms { is_anonymous: ask.is_anonymous, estimate: ask.estimate(), at_most: most };
        // before the last look at the clock: a node that is paused after it renews this call, too
        server.calls.insert(payer, id, terms, sent_at);
        if sent_at.is_late(clock) {
            server.mirror.forget_call(mirrored);
            self.refund_later(decision.into_spend());
            return Decision::UNAVAILABLE;
        }
        call.mirrored = match mirrored.map(|call| *call) {
            Some(OpenCall::Memory(call)) => Some(call),
            Some(OpenCall::Shared(_)) | None => None,
        };
        (call.expires, call.unused) = (expires_after(millis), None);
        // keeps its slots until it ends
        server.renew_later();
        decision.call = Some(Box::new(OpenCall::Shared(Box::new(call))));
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
        self.breaker.may_allow(reports.clock.now())
            && self.renew_slots_of(key, || self.calls.may_be_uncounted(key, &*reports.clock)).await
    }

    /// Renews the slots of a key, if they still need it when no other task does so. Returns whether the server has done so.
    async fn renew_slots_of(&self, key: &LimitKey, is_needed: impl Fn() -> bool) -> bool {
        let (began, Some(turn)) = (Instant::now(), self.calls.turn_of_key(key)) else { return true };
        let mut failed_at = turn.lock().await;
        if !is_needed() {
            return true;
        }
        if failed_at.is_some_and(|failed_at| failed_at >= began) {
            return false;
        }
        let sent_at = ClockReading::now(&*self.watcher.reports().clock);
        let calls = self.calls.calls_of_key(key);
        if calls.is_empty() {
            return true;
        }
        let mut more = vec![SLOT.as_micros().to_string().into_bytes()];
        more.extend(calls.iter().flat_map(|(id, terms)| renewal_of(*id, *terms)));
        let more: Vec<&[u8]> = more.iter().map(Vec::as_slice).collect();
        let is_done = self.change_calls("", "renew", key, &more).await.is_ok();
        if is_done {
            self.calls.note_renewal(key, calls.iter().map(|(id, _)| *id), sent_at);
        } else {
            *failed_at = Some(Instant::now());
        }
        is_done
    }

    /// Sends the ends of calls of a key again. Returns whether the server has answered all.
    async fn send_ends_of(&self, key: &LimitKey) -> bool {
        for call in self.calls.ends_of_key(key) {
            match self.send_end(key, &call, true).await {
                Ok(true) => self.calls.forget_end(key, call.id),
                Ok(false) => self.calls.await_late_request(key, call.id),
                Err(_) => return false,
            }
        }
        true
    }

    /// Renews the slots of these keys, and then sends the ends of calls again until the next round must begin: a key may have many.
    /// Returns the keys for which the server has not done so, as far as it is known: it may renew slots and answer too late.
    async fn renew_slots(self: &Arc<Self>, keys: Vec<LimitKey>, next_round: Instant) -> Vec<LimitKey> {
        let (mut renewals, mut failed) = (JoinSet::new(), Vec::new());
        for key in keys {
            let server = Arc::clone(self);
            renewals.spawn(async move {
                let is_done = server.renew_slots_of(&key, || true).await
                    && timeout_at(next_round, server.send_ends_of(&key)).await == Ok(true);
                (!is_done).then_some(key)
            });
            if renewals.len() >= AT_ONCE {
                failed.extend(renewals.join_next().await.and_then(Result::ok).flatten());
            }
        }
        while let Some(renewal) = renewals.join_next().await {
            failed.extend(renewal.ok().flatten());
        }
        failed
    }

    /// Removes a call from the server, and charges what it has used. If the server does not answer, the end is sent again as long as it
    /// can have an effect.
    async fn end_call(self: &Arc<Self>, key: &LimitKey, call: CallToEnd) {
        let mut sent = self.send_end(key, &call, false).await;
        if sent.is_err() {
            // the connection may just have been lost
            sent = self.send_end(key, &call, true).await;
        }
        let id = call.id;
        if !matches!(sent, Ok(true)) {
            self.calls.keep_end(key, call);
            self.renew_later();
        }
        if matches!(sent, Ok(false)) {
            self.calls.await_late_request(key, id);
        }
    }

    /// Waits for what runs in the background, and sends the ends of calls again that had no reply.
    pub(super) async fn finish(self: &Arc<Self>) {
        let finished = async {
            drop(self.unfinished.write().await);
            self.renew_slots(self.calls.keys(), Instant::now() + CLOSING).await
        };
        _ = timeout(CLOSING, finished).await;
    }

    /// Returns whether the end is final. An undo that finds no call is not: the request that opens the call may be on its way on
    /// another connection.
    async fn send_end(&self, key: &LimitKey, call: &CallToEnd, is_sent_before: bool) -> Result<bool, RedisFailure> {
        let again: &[u8] = if is_sent_before { b"1" } else { b"0" };
        let has_ended = self.change_calls("", "commit", key, &[&call.id, call.used.as_bytes(), again]).await?;
        Ok(has_ended || call.used != UNDO)
    }

    /// Starts to renew slots and to send ends again, unless that is under way.
    fn renew_later(self: &Arc<Self>) {
        if !self.calls.is_renewing.swap(true, SeqCst) {
            self.link.spawn(renew_until_closed(Arc::downgrade(self)));
        }
    }
}

/// Returns when an estimate expires that begins now. A call without one has none.
fn expires_after(millis: u32) -> Instant {
    Instant::now() + Duration::from_millis(millis.into())
}

/// Returns a call as the script reads it to renew its slot.
pub(super) fn renewal_of(id: CallId, terms: CallTerms) -> [Vec<u8>; 4] {
    let CallTerms { is_anonymous, estimate, at_most } = terms;
    [id.to_vec(), vec![b'0' + u8::from(is_anonymous)], estimate.to_string().into(), at_most.to_string().into()]
}

/// Ends a call that was opened in vain, and gives back what was charged for it.
const UNDO: &str = "undo";

async fn renew_until_closed(server: Weak<Server>) {
    let (mut failed, mut all_at) = (Vec::new(), Instant::now() + RENEWAL);
    loop {
        let retry_at = if failed.is_empty() { all_at } else { all_at.min(Instant::now() + RETRY) };
        tokio::time::sleep_until(retry_at).await;
        let Some(server) = server.upgrade() else { return };
        if Instant::now() >= all_at {
            // counted from the start of this round, however long it takes
            all_at = Instant::now() + RENEWAL;
            // also while the breaker is open, because a slow server still keeps slots
            failed = server.renew_slots(server.calls.keys(), all_at).await;
        } else if server.breaker.may_allow(server.watcher.reports().clock.now()) {
            // the next round has these keys, too
            failed = timeout_at(all_at, server.renew_slots(failed, all_at)).await.unwrap_or_default();
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

/// A call that is open on the server, or that the server is asked to open. Dropping it ends the call in the background: with its
/// estimate, or without a charge if the reply was lost or is of no use, or if its request was dropped. This does not ask the
/// breaker, because a slow server has opened the call, and only calls that the breaker has let through end in this way.
pub(super) struct SharedCall {
    server: Arc<Server>,
    key: LimitKey,
    id: CallId,
    /// When its estimate has expired.
    expires: Instant,
    /// The call in the memory of this node, for its fallback.
    mirrored: Option<CallInMemory>,
    /// The argument of `commit` until the call is used.
    unused: Option<&'static str>,
    is_over: bool,
}

impl SharedCall {
    fn finish(&mut self, end: CallEnd) {
        if mem::replace(&mut self.is_over, true) {
            return;
        }
        let (server, key, id) = (Arc::clone(&self.server), self.key.clone(), self.id);
        // first, so that no renewal adds it again
        server.calls.remove(&key, id);
        if let Some(call) = self.mirrored.take() {
            server.local.end_call(&call, end);
        }
        let used = match (self.unused, end) {
            (Some(unused), _) => unused.to_owned(),
            (None, CallEnd::Commit(units)) => units.to_string(),
            (None, CallEnd::Estimate) => String::new(),
        };
        let call = CallToEnd::new(id, used, self.expires);
        let ending = Arc::clone(&server);
        server.spawn(async move { ending.end_call(&key, call).await });
    }
}

impl EndCall for SharedCall {
    fn end(mut self: Box<Self>, end: CallEnd) {
        self.finish(end);
    }

    fn refuse_untracked(&self) -> bool {
        self.server.local.refuse_untracked(&self.key)
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
    async fn a_call_without_a_reply_ends_and_gives_its_units_back_while_the_breaker_is_open() {
        let rates = [
            Quota::per_hour(100).unwrap(),
            Quota::fixed(100, Duration::from_secs(86_400)).unwrap(),
            #[cfg(feature = "smooth")]
            Quota::smooth(100, Duration::from_secs(3_600), 100).unwrap(),
        ];
        for rate in rates {
            let Some(redis) = RedisServer::start(&[]) else { return };
            let config = RedisConfig::new(&redis.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
            let plan = Plan::new([Quota::concurrent(5).unwrap(), rate]).unwrap();
            let shared = Limiter::redis(config, Plans::new(plan.clone())).connect().await.unwrap();
            let (server, acme) = (&shared.0.server, LimitKey::parse("acme").unwrap());
            let run = async |operation, ask, more: &[&[u8]]| {
                let answer = server.call_at("", operation, &acme, &plan, ask, more).await.unwrap().unwrap();
                let standing = answer.decision.standing.unwrap();
                (answer.decision.refused.is_none(), standing.remaining(), standing.is_exact())
            };
            let slot = Ask { call: CallAsk::Slot, ..Ask::new(7, false) };
            let hold = Ask::hold(9, 9, Duration::from_secs(60), false);
            assert!(run("spend", Ask::new(1, false), &[]).await.0);
            let now = server.watcher.reports().clock.now();
            while !server.breaker.failed(now, now) {}
            for (ask, [at_most, lifetime], left) in [(slot, ["0", "0"], 92), (hold, ["9", "60000000"], 90)] {
                let id = OpenCalls::random_id().unwrap();
                let more = [&id[..], b"10000000", at_most.as_bytes(), lifetime.as_bytes()];
                assert_eq!(run("hold", ask, &more).await, (true, left, ask.estimate() == 0));
                drop(SharedCall {
                    server: Arc::clone(server),
                    key: acme.clone(),
                    id,
                    expires: expires_after(60_000),
                    mirrored: None,
                    unused: Some(UNDO),
                    is_over: false,
                });
                let began = Instant::now();
                while run("spend", Ask::new(0, false), &[]).await != (true, 99, true) {
                    assert!(began.elapsed() < Duration::from_secs(2), "{ask:?} is open or charged");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }

    #[tokio::test]
    async fn a_request_for_a_slot_that_is_sent_twice_can_be_refunded() {
        let Some(redis) = RedisServer::start(&[]) else { return };
        let config = RedisConfig::new(&redis.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
        let rates = [
            Quota::per_hour(100).unwrap(),
            Quota::fixed(100, Duration::from_secs(86_400)).unwrap(),
            #[cfg(feature = "smooth")]
            Quota::smooth(100, Duration::from_secs(3_600), 100).unwrap(),
        ];
        for (number, rate) in rates.into_iter().enumerate() {
            let plan = Plan::new([Quota::concurrent(5).unwrap(), rate]).unwrap();
            let shared = Limiter::redis(config.clone(), Plans::new(plan.clone())).connect().await.unwrap();
            let (server, key) = (&shared.0.server, LimitKey::parse(format!("t{number}")).unwrap());
            let ask = Ask { call: CallAsk::Slot, refundable: true, ..Ask::new(7, false) };
            let id = OpenCalls::random_id().unwrap();
            let more: [&[u8]; 4] = [&id, b"10000000", b"0", b"0"];
            let open = || server.call_at("", "hold", &key, &plan, ask, &more);
            let [first, again] = [open().await.unwrap().unwrap(), open().await.unwrap().unwrap()];
            assert_eq!(
                (first.marks, first.granted, first.counts.used),
                (again.marks, again.granted, again.counts.used)
            );
            let decision = shared.with_spend(again, &key, &plan, ask);
            assert_eq!(decision.standing().unwrap().remaining(), 93, "it is charged once");
            assert_eq!(shared.refund(decision.into_spend()).await.unwrap().remaining(), 100);
            // a reset forgets the charge
            assert_eq!(open().await.unwrap().unwrap().granted, 7);
            shared.reset(&key).await.unwrap();
            assert_eq!(open().await.unwrap().unwrap().granted, 0);
        }
    }

    #[tokio::test]
    async fn a_call_that_is_opened_after_its_undo_ends_nevertheless() {
        let Some(redis) = RedisServer::start(&[]) else { return };
        let config = RedisConfig::new(&redis.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
        let plan = Plan::new([Quota::concurrent(5).unwrap(), Quota::per_hour(100).unwrap()]).unwrap();
        let shared = Limiter::redis(config, Plans::new(plan.clone())).connect().await.unwrap();
        let (server, acme) = (&shared.0.server, LimitKey::parse("acme").unwrap());
        let hold = Ask::hold(9, 9, Duration::from_secs(60), false);
        for number in 0..2 {
            let run = async |operation, ask, more: &[&[u8]]| {
                let answer = server.call_at("", operation, &acme, &plan, ask, more).await.unwrap().unwrap();
                answer.decision.standing.unwrap().remaining()
            };
            let (id, before) = (OpenCalls::random_id().unwrap(), 100 - number);
            assert_eq!(run("spend", Ask::new(0, false), &[]).await, before);
            // its request is still on its way
            server.end_call(&acme, CallToEnd::new(id, UNDO.to_owned(), expires_after(60_000))).await;
            if number == 1 {
                assert_eq!(server.renew_slots(server.calls.keys(), expires_after(60_000)).await, []);
            }
            assert_eq!(run("hold", hold, &[&id, b"10000000", b"9", b"60000000"]).await, before - 9);
            assert_eq!(server.renew_slots(server.calls.keys(), expires_after(60_000)).await, []);
            assert_eq!(run("spend", Ask::new(1, false), &[]).await, before - 1);
            assert!(server.calls.is_empty());
        }
        // any other end is final: another node, or this one before, has ended the call
        server.end_call(&acme, CallToEnd::new([1; 8], String::new(), expires_after(60_000))).await;
        assert!(server.calls.is_empty());
    }

    #[tokio::test]
    async fn an_end_is_sent_again_until_the_server_answers_or_it_has_no_effect() {
        let Some(mut redis) = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
        let config = RedisConfig::new(&redis.url()).unwrap().deadline(Duration::from_millis(200)).unwrap();
        let shared = Limiter::redis(config, Plans::new(Quota::per_hour(1_000).unwrap())).connect().await.unwrap();
        let (server, acme) = (&shared.0.server, LimitKey::parse("acme").unwrap());
        let call = shared.hold(&acme, 10, 500, Duration::from_secs(600)).await.unwrap();
        redis.kill();
        call.commit(500);
        let is_kept = async {
            while server.calls.ends_of_key(&acme).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), is_kept).await.unwrap();
        // it fails often, and is kept
        for _ in 0..10 {
            assert_eq!(
                server.renew_slots(server.calls.keys(), expires_after(60_000)).await,
                std::slice::from_ref(&acme)
            );
        }
        redis.restart();
        // slots are more urgent
        assert_eq!(server.renew_slots(server.calls.keys(), Instant::now()).await, std::slice::from_ref(&acme));
        let is_charged = async {
            while !server.renew_slots(server.calls.keys(), expires_after(60_000)).await.is_empty() {}
            assert!(server.calls.is_empty());
            // the breaker is open for a moment
            while shared.peek(&acme).await.map(|standing| standing.remaining()) != Some(500) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), is_charged).await.unwrap();
        // a node that stops sends it once more
        let call = shared.hold(&acme, 10, 500, Duration::from_secs(600)).await.unwrap();
        redis.kill();
        call.commit(100);
        timeout(Duration::from_secs(20), async {
            while server.calls.ends_of_key(&acme).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            redis.restart();
            while server.change_calls("", "commit", &acme, &[b"unknown!", b"", b"1"]).await.is_err() {}
        })
        .await
        .unwrap();
        assert!(!server.calls.is_empty());
        shared.close().await;
        assert!(server.calls.is_empty());
    }

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
        assert_eq!(server.renew_slots(server.calls.keys(), expires_after(60_000)).await, []);
        // something else has written to the key
        redis.cli(&["del", "tollgate:limit:{acme}"]);
        redis.cli(&["lpush", "tollgate:limit:{acme}", "something else"]);
        assert_eq!(server.renew_slots(server.calls.keys(), expires_after(60_000)).await, std::slice::from_ref(&acme));
        // a server that answers too late still gets renewals, or the slots would end on it
        let now = server.watcher.reports().clock.now();
        while !server.breaker.failed(now, now) {}
        assert_eq!(server.renew_slots(server.calls.keys(), expires_after(60_000)).await, [acme]);
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_holds_up_hundreds_of_renewals_together() {
        let Some(redis) = RedisServer::start(&[]) else { return };
        let config = RedisConfig::new(&redis.url()).unwrap().deadline(Duration::from_millis(500)).unwrap();
        let shared = Limiter::redis(config, Plans::new(Quota::concurrent(2).unwrap())).connect().await.unwrap();
        let server = &shared.0.server;
        let terms = CallTerms { is_anonymous: false, estimate: 0, at_most: 0 };
        for number in 0..640_u64 {
            let key = LimitKey::parse(format!("t{number}")).unwrap();
            server.calls.insert(&key, number.to_be_bytes(), terms, ClockReading::now(&*server.watcher.reports().clock));
        }
        redis.cli(&["client", "pause", "20000"]);
        let began = Instant::now();
        assert_eq!(server.renew_slots(server.calls.keys(), expires_after(60_000)).await.len(), 640);
        assert!(began.elapsed() < RENEWAL, "it took {:?}", began.elapsed());
    }
}
