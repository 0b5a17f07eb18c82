//! [`Server`]: the calls of the script on a shared server.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::{Mutex, RwLock};

use super::{
    breaker::Breaker,
    mirror::Mirror,
    newcomers::{Newcomers, shared_name},
    open_calls::OpenCalls,
    script::{self, Answer, SCRIPT},
};
use crate::{
    limit::{decision::Ask, limiter::Limiter, plan::Plan},
    redis::{Delivery, FailureKind, Link, RedisFailure, Reply, unexpected},
    tenant::LimitKey,
    util::clock::Moment,
};

/// The shared server, and what is needed to call it.
pub(super) struct Server {
    /// Has the plans, the clock and the reports.
    pub(super) local: Limiter,
    pub(super) mirror: Mirror,
    /// Whether debts are being charged.
    pub(super) is_settling: AtomicBool,
    /// Held while debts are charged.
    pub(super) settling: Mutex<()>,
    pub(super) newcomers: Newcomers,
    pub(super) calls: OpenCalls,
    pub(super) link: Link,
    /// Read by what runs in the background and must end before the node stops.
    pub(super) unfinished: Arc<RwLock<()>>,
    pub(super) prefix: String,
    /// The part of the keys that names the kind of budget.
    pub(super) space: &'static str,
    /// The name of the limiter, which is a part of its keys unless it is empty.
    name: String,
    pub(super) breaker: Breaker,
    /// Has the clock of the breaker, and reports its changes.
    pub(super) watcher: Limiter,
    /// The number of breakers of this connection that are open. They are reported as one.
    pub(super) open_breakers: Arc<AtomicUsize>,
}

/// The space of the budgets of tenants.
const TENANTS: &str = "limit";

/// How long a debit waits for its reply, because one without a reply is charged again.
const DEBIT: Duration = Duration::from_secs(5);

impl Server {
    /// Creates the server of the budgets of tenants.
    pub(super) fn new(local: Limiter, link: Link, prefix: String, name: String, new_names: u32) -> Self {
        Self {
            mirror: Mirror::new(local.clone()),
            is_settling: AtomicBool::new(false),
            settling: Mutex::default(),
            newcomers: Newcomers::new(new_names),
            calls: OpenCalls::default(),
            link,
            unfinished: Arc::default(),
            prefix,
            space: TENANTS,
            name,
            breaker: Breaker::default(),
            watcher: local.clone(),
            open_breakers: Arc::default(),
            local,
        }
    }

    /// Creates the server of something else, with keys and a breaker of its own, and the connection of this one.
    pub(super) fn beside(&self, space: &'static str, local: Limiter) -> Self {
        Self {
            space,
            watcher: self.watcher.clone(),
            open_breakers: Arc::clone(&self.open_breakers),
            ..Self::new(local, self.link.clone(), self.prefix.clone(), self.name.clone(), self.newcomers.most)
        }
    }

    /// Runs work in the background that must end before the node stops.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let unfinished = Arc::clone(&self.unfinished).try_read_owned();
        self.link.spawn(async move {
            work.await;
            drop(unfinished);
        });
    }

    /// Returns the name that is charged: the tenant itself, unless there are too many new names. If it counts as a new one, also
    /// returns when its minute ends.
    pub(super) fn payer<'a>(&self, tenant: &'a LimitKey, plan: &Plan, ask: Ask) -> (Cow<'a, LimitKey>, Option<Moment>) {
        let Self { local, newcomers, space, .. } = self;
        // addresses prove nothing
        let is_proved = *space == TENANTS && !ask.is_anonymous;
        if is_proved || local.knows(tenant) || local.plans().is_named(tenant) {
            return (Cow::Borrowed(tenant), None);
        }
        let shared = shared_name(tenant);
        if local.plans().plan(&shared) != *plan {
            return (Cow::Borrowed(tenant), None);
        }
        let is_used = ask.units > 0 || ask.call.opens_under(plan.limits());
        match newcomers.room(is_used, local.reports().clock.now()) {
            Some(ends) => (Cow::Borrowed(tenant), is_used.then_some(ends)),
            None => (Cow::Owned(shared), None),
        }
    }

    /// Runs the script. Returns `None` if the server does not answer, or if there is nothing to refund.
    ///
    /// Admissions by `spend` and `hold` are charged to the mirror, too.
    pub(super) async fn call(
        &self,
        operation: &str,
        tenant: &LimitKey,
        plan: &Plan,
        ask: Ask,
        more: &[&[u8]],
    ) -> Option<Answer> {
        if !self.breaker.allows(self.watcher.reports().clock.now()) {
            return None;
        }
        self.try_call(operation, tenant, plan, ask, more).await.ok().flatten()
    }

    /// Like [`call`](Self::call), after the breaker has let the call through, and with the reason why there is no answer.
    pub(super) async fn try_call(
        &self,
        operation: &str,
        tenant: &LimitKey,
        plan: &Plan,
        ask: Ask,
        more: &[&[u8]],
    ) -> Result<Option<Answer>, FailureKind> {
        let reports = self.watcher.reports();
        let began = reports.clock.now();
        let is_spend = matches!(operation, "spend" | "hold");
        let under_way =
            self.mirror.start_server_call(tenant, if is_spend || operation == "lease" { ask.units } else { 0 });
        match self.call_at("", operation, tenant, plan, ask, more).await {
            Ok(answer) => {
                // a debit waits longer than requests do
                let is_slow = operation == "debit" && reports.clock.now().since(began) > self.link.patience();
                if !is_slow {
                    self.note_answer();
                }
                let Some(mut answer) = answer else { return Ok(None) };
                under_way.learn(plan, answer.counts);
                answer.knowledge = under_way.knowledge;
                if is_spend && (ask.units > 0 || ask.call.opens()) && answer.decision.is_admitted() {
                    answer.mirrored = self.mirror.admit(tenant, ask, under_way.knowledge);
                }
                Ok(Some(answer))
            }
            Err(failure) => {
                let now = reports.clock.now();
                if failure.kind == FailureKind::Corrupt {
                    // the server answers, and what is wrong with one key says nothing about others
                    self.note_answer();
                } else if self.breaker.failed(began, now) && self.open_breakers.fetch_add(1, SeqCst) == 0 {
                    reports.fallback_began(&failure, now);
                }
                Err(failure.kind)
            }
        }
    }

    fn note_answer(&self) {
        if self.breaker.succeeded() && self.open_breakers.fetch_sub(1, SeqCst) == 1 {
            let reports = self.watcher.reports();
            reports.fallback_ended(reports.clock.now());
        }
    }

    /// Runs the script at a time that is only given in tests. Returns `None` if there is nothing to refund.
    pub(super) async fn call_at(
        &self,
        time: &str,
        operation: &str,
        tenant: &LimitKey,
        plan: &Plan,
        ask: Ask,
        more: &[&[u8]],
    ) -> Result<Option<Answer>, RedisFailure> {
        match self.run_script(time, operation, tenant, plan, ask, more).await? {
            Reply::Nothing if matches!(operation, "refund" | "return") => Ok(None),
            Reply::Nothing => Err(unexpected()),
            reply => Answer::from_script_reply(reply, plan, self.local.reports().clock.now()).map(Some),
        }
    }

    /// Runs an operation on open calls, at a time that is only given in tests. Returns whether there was something to do.
    pub(super) async fn change_calls(
        &self,
        time: &str,
        operation: &str,
        tenant: &LimitKey,
        more: &[&[u8]],
    ) -> Result<bool, RedisFailure> {
        let plan = self.local.plans().plan(tenant);
        match self.run_script(time, operation, tenant, &plan, Ask::new(0, false), more).await? {
            Reply::Number(number) => Ok(number > 0),
            _ => Err(unexpected()),
        }
    }

    async fn run_script(
        &self,
        time: &str,
        operation: &str,
        tenant: &LimitKey,
        plan: &Plan,
        ask: Ask,
        more: &[&[u8]],
    ) -> Result<Reply, RedisFailure> {
        let (quotas, units) = (script::packed(plan), ask.units.to_string());
        let anonymous = if ask.is_anonymous { "1" } else { "0" };
        let usual = [operation.as_bytes(), time.as_bytes(), &quotas, units.as_bytes(), anonymous.as_bytes()];
        let arguments: Vec<&[u8]> = usual.iter().chain(more).copied().collect();
        let (longest, delivery) = match operation {
            "debit" => (DEBIT, Delivery::Once),
            // units that came back twice would be admitted twice, and an end must say that it is sent again
            "refund" | "return" | "reset" | "commit" => (self.link.patience(), Delivery::Once),
            _ => (self.link.patience(), Delivery::Retried),
        };
        self.link.run_within(longest, &SCRIPT, &[&self.key(tenant)], &arguments, delivery).await
    }

    /// Returns the key of a tenant, which is its hash tag. Braces in a name would end the tag early, but the rest of the key
    /// follows: no two tenants share a key. A prefix and a name have no colon and no brace, so no key of another application, of a
    /// store or of a limiter with another name is equal.
    pub(super) fn key(&self, tenant: &LimitKey) -> Vec<u8> {
        let separator: &[u8] = if self.name.is_empty() { b"" } else { b":" };
        let scope = [self.prefix.as_bytes(), b":", self.space.as_bytes(), separator, self.name.as_bytes()].concat();
        [&scope, &b":{"[..], tenant.as_bytes(), b"}"].concat()
    }
}
