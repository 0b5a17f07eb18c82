//! [`Leasing`]: sends the calls and returns of leases.

use std::{
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use tokio::task::JoinSet;

use super::{
    lease::{Admission, ClockReading, LeaseCall, LeaseReply, LeaseRequest, LeaseReturn, LeaseSlots, LeaseStep},
    mirror::Knowledge,
    script::{self, Answer},
    server::Server,
};
use crate::{
    limit::{
        decision::{Ask, Marks, UNCHARGED},
        plan::Plan,
        quota::Rule,
    },
    tenant::{LimitKey, Standing},
    util::{clock::Moment, lock::lock},
};

/// How long a lease can be used. A longer one would save calls for tenants with few requests, and delay what other nodes
/// see.
const LIFETIME: Duration = Duration::from_secs(1);
/// The server grants no lease that is shorter.
const SHORTEST: Duration = Duration::from_millis(1);
/// The maximum number of units in a lease.
const LARGEST: u32 = 1_000;
/// The slots are spread over this many locks.
const SHARDS: usize = 64;
/// A node holds leases of at most this many tenants. Requests of others are checked one by one.
const MOST_TENANTS: usize = 1 << 16;
/// At most this many returns are under way together.
const RETURNS: usize = 64;

/// The leases of a node.
pub(super) struct Leasing {
    server: Arc<Server>,
    shards: Box<[Mutex<Slots>]>,
    hasher: RandomState,
}

type Slots = LeaseSlots<Holder, Arc<LeaseTerms>>;

/// The key of a lease. Requests that have proved their tenant and others have different ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub(super) tenant: LimitKey,
    pub(super) is_anonymous: bool,
}

/// The terms of a reply of the server.
#[derive(Debug)]
pub(super) struct LeaseTerms {
    plan: Plan,
    pub(super) quotas: Bytes,
    standing: Option<Standing>,
    pub(super) generation: u64,
    pub(super) marks: Marks,
    /// What the server knew when the lease was asked for.
    pub(super) knowledge: Knowledge,
}

impl LeaseTerms {
    /// Returns the standing of the tenant if this many units of the lease are left.
    pub(super) fn standing(&self, left: u32, now: Moment) -> Option<Standing> {
        self.standing.map(|standing| standing.read_at(now).with_more(left))
    }
}

impl Leasing {
    /// Starts a node without leases, and its background task, which ends when the node is dropped.
    pub(super) fn start(server: Arc<Server>) -> Arc<Self> {
        let slots = || Mutex::new(LeaseSlots::new(LARGEST, LIFETIME, MOST_TENANTS / SHARDS));
        let shards = (0..SHARDS).map(|_| slots()).collect();
        let leasing = Arc::new(Self { server, shards, hasher: RandomState::default() });
        leasing.server.link.spawn(sweep(Arc::downgrade(&leasing), LIFETIME / 4));
        leasing
    }

    /// Decides on a request. Waits for calls of other requests and for its own one, at most the deadline for each of the two.
    /// Returns `None` if the server does not answer, and no lease in hand has enough units.
    pub(super) async fn spend(
        self: &Arc<Self>,
        tenant: &LimitKey,
        plan: &Plan,
        ask: Ask,
    ) -> Option<LeaseStep<Arc<LeaseTerms>>> {
        // zero units only look, and a shadow quota is checked for each request
        if ask.units == 0 || plan.limits().iter().any(|limited| limited.quota.is_shadow()) {
            return Some(LeaseStep::Plain);
        }
        let lifetime = Self::lifetime(plan);
        if lifetime < SHORTEST {
            return Some(LeaseStep::Plain);
        }
        let holder = Holder { tenant: tenant.clone(), is_anonymous: ask.is_anonymous };
        let request = LeaseRequest { units: ask.units, plan: plan.id(), lifetime };
        let mut step = self.step(&holder, request);
        if let LeaseStep::Wait(_) = step {
            step = self.wait_for_others(&holder, request, step).await?;
        }
        if let LeaseStep::Call(call) = step {
            // others wait for it, so it ends even if this request does not wait any more
            let sent = Arc::clone(self).send(holder, plan.clone(), call);
            step = self.server.link.spawn(sent).await.ok().flatten()?;
        }
        Some(step)
    }

    /// Waits while other requests have a call under way. Returns `None` if the server does not answer.
    async fn wait_for_others(
        self: &Arc<Self>,
        holder: &Holder,
        request: LeaseRequest,
        mut step: LeaseStep<Arc<LeaseTerms>>,
    ) -> Option<LeaseStep<Arc<LeaseTerms>>> {
        let mut has_answered = false;
        let waited = self.server.link.within_deadline(async {
            while let LeaseStep::Wait(end) = step {
                if !end.wait_for_reply().await {
                    return None;
                }
                has_answered = true;
                step = self.step(holder, request);
            }
            Some(step)
        });
        // near the limit, a lease has so few units that many requests need many calls, one after the other
        waited.await.unwrap_or_else(|| has_answered.then_some(LeaseStep::Plain))
    }

    fn step(self: &Arc<Self>, holder: &Holder, request: LeaseRequest) -> LeaseStep<Arc<LeaseTerms>> {
        let mut slots = self.shard(holder);
        let step = slots.request(holder, request, self.now());
        self.give_back(slots.take_returns());
        step
    }

    /// Sends a call and takes its reply.
    async fn send(self: Arc<Self>, holder: Holder, plan: Plan, call: LeaseCall) -> Option<LeaseStep<Arc<LeaseTerms>>> {
        let ask = Ask::new(call.needed, holder.is_anonymous);
        let [most, lifetime] = [call.most.to_string(), call.lifetime.as_micros().to_string()];
        let more = [most.as_bytes(), lifetime.as_bytes()];
        let reply = match self.server.call("lease", &holder.tenant, &plan, ask, &more).await {
            Some(answer) => reply(answer, plan),
            None => LeaseReply::Failed,
        };
        let mut slots = self.shard(&holder);
        let step = slots.replied(&holder, &call, reply);
        self.give_back(slots.take_returns());
        step
    }

    /// Puts the units of a request back into its lease. Returns the standing, or `None` if the lease is not in hand any more.
    pub(super) fn refund(&self, holder: &Holder, lease: u64, units: u32) -> Option<Option<Standing>> {
        let Admission { left, terms, .. } = self.shard(holder).refund(holder, lease, units)?;
        Some(terms.standing(left, self.server.local.reports().clock.now()))
    }

    /// Notes that units of the tenant have come back at the server.
    pub(super) fn ask_again(&self, holder: &Holder) {
        self.shard(holder).ask_again(holder);
    }

    /// Drops the leases of a tenant.
    pub(super) fn forget(self: &Arc<Self>, tenant: &LimitKey) {
        for is_anonymous in [false, true] {
            let holder = Holder { tenant: tenant.clone(), is_anonymous };
            let mut slots = self.shard(&holder);
            slots.forget(&holder);
            self.give_back(slots.take_returns());
        }
    }

    /// Returns the units that this node can admit without a call.
    pub(super) fn left(&self, holder: &Holder) -> u32 {
        self.shard(holder).left(holder, self.now())
    }

    /// Returns all unused units to the server. Later requests are checked one by one.
    pub(super) async fn close(&self) {
        let mut returns = Vec::new();
        for shard in &self.shards {
            let mut slots = lock(shard);
            slots.close();
            returns.append(&mut slots.take_returns());
        }
        // an error means that the runtime has ended
        _ = self.server.link.spawn(send_back(Arc::clone(&self.server), returns)).await;
    }

    fn give_back(&self, returns: Vec<LeaseReturn<Holder, Arc<LeaseTerms>>>) {
        if !returns.is_empty() {
            self.server.spawn(send_back(Arc::clone(&self.server), returns));
        }
    }

    /// Returns how long a lease of this plan lasts. Its units count from its end, so a tenant of a short window would get too
    /// little if a lease was long.
    fn lifetime(plan: &Plan) -> Duration {
        let has_window = |rule| !matches!(rule, Rule::Fixed | Rule::Concurrent);
        let limits = plan.limits().iter().filter(|limited| has_window(limited.quota.rule()));
        limits.map(|limited| limited.quota.window() / 8).fold(LIFETIME, Duration::min)
    }

    fn now(&self) -> ClockReading {
        ClockReading::now(&*self.server.local.reports().clock)
    }

    fn shard(&self, holder: &Holder) -> MutexGuard<'_, Slots> {
        let hash = self.hasher.hash_one(holder);
        #[expect(clippy::indexing_slicing, reason = "there are as many shards")]
        let shard = &self.shards[hash as usize % SHARDS];
        lock(shard)
    }
}

fn reply(answer: Answer, plan: Plan) -> LeaseReply<Arc<LeaseTerms>> {
    let Answer { decision, generation, marks, granted, lifetime, knowledge, .. } = answer;
    let (standing, is_admitted) = (decision.standing, decision.is_admitted());
    let quotas = script::packed(&plan);
    let terms = Arc::new(LeaseTerms { plan, quotas, standing, generation, marks, knowledge });
    match is_admitted {
        true => LeaseReply::Granted { granted, lifetime, terms },
        false => LeaseReply::Refused {
            wait: standing.map(|standing| standing.time_until_reset()).unwrap_or_default(),
            terms,
        },
    }
}

/// Returns the arguments that identify a spend or a lease.
pub(super) fn identity(generation: u64, quotas: &Bytes, marks: &Marks) -> Vec<Bytes> {
    let digits = |number: u64| Bytes::from(number.to_string());
    let mark = |mark: &Moment| if *mark == UNCHARGED { Bytes::new() } else { digits(mark.as_nanos()) };
    [digits(generation), quotas.clone()].into_iter().chain(marks.iter().map(mark)).collect()
}

/// Sends returns. One that fails is lost, and its units come back with the window.
async fn send_back(server: Arc<Server>, returns: Vec<LeaseReturn<Holder, Arc<LeaseTerms>>>) {
    let mut calls = JoinSet::new();
    for LeaseReturn { key, units, terms } in returns {
        if calls.len() >= RETURNS {
            _ = calls.join_next().await;
        }
        let server = Arc::clone(&server);
        calls.spawn(async move {
            let more = identity(terms.generation, &terms.quotas, &terms.marks);
            let more: Vec<&[u8]> = more.iter().map(AsRef::as_ref).collect();
            let ask = Ask::new(units, key.is_anonymous);
            _ = server.call("return", &key.tenant, &terms.plan, ask, &more).await;
        });
    }
    while calls.join_next().await.is_some() {}
}

/// Returns what has expired, as long as the node lives.
async fn sweep(leasing: Weak<Leasing>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(leasing) = leasing.upgrade() else { return };
        for shard in &leasing.shards {
            let mut slots = lock(shard);
            slots.sweep(leasing.now());
            leasing.give_back(slots.take_returns());
        }
    }
}
