//! Charges the server for what the fallback has admitted, in the background.

use std::{
    sync::{Arc, Weak, atomic::Ordering::SeqCst},
    time::Duration,
};

use tokio::task::JoinSet;

use super::{mirror::Debt, server::Server};
use crate::{
    limit::{
        decision::Ask,
        plan::{Plan, PlanKind},
    },
    redis::FailureKind,
};

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(250);
/// At most this many debts are charged at the same time.
const AT_ONCE: usize = 64;

impl Server {
    /// Starts to charge debts, unless that is under way.
    pub(super) fn settle_later(self: &Arc<Self>) {
        if !self.is_settling.swap(true, SeqCst) {
            self.link.spawn(settle_debts(Arc::downgrade(self)));
        }
    }

    /// Charges all debts of now, if the server answers.
    pub(super) async fn settle_now(self: &Arc<Self>) {
        // two at once would charge the same debts twice
        let _turn = self.settling.lock().await;
        if !self.breaker.may_allow(self.watcher.reports().clock.now()) {
            return;
        }
        let (mut calls, mut has_answered) = (JoinSet::new(), false);
        for debt in self.mirror.debts() {
            let plan = self.local.plans().plan(&debt.tenant);
            let counting = match plan.kind() {
                PlanKind::Limited { .. } => self.mirror.counting(&debt, &plan),
                // they count again if the tenant gets a limit again
                _ if self.local.knows(&debt.tenant) => continue,
                PlanKind::Unlimited { .. } | PlanKind::Denied { .. } => Vec::new(),
            };
            if counting.iter().all(|units| *units == 0) {
                self.mirror.paid(&debt.tenant, debt.is_anonymous, debt.units);
                continue;
            }
            let server = Arc::clone(self);
            let call = async move { server.charge_debt(&debt, &plan, &counting).await };
            if has_answered {
                calls.spawn(call);
                if calls.len() >= AT_ONCE && !matches!(calls.join_next().await, Some(Ok(true))) {
                    break;
                }
            } else if call.await {
                has_answered = true;
            } else {
                // one that is charged without a reply is charged again, so nothing is sent to a server that may not reply
                return;
            }
        }
        while calls.join_next().await.is_some() {}
    }

    /// Charges a debt. Returns whether the server answers.
    async fn charge_debt(&self, debt: &Debt, plan: &Plan, counting: &[u32]) -> bool {
        let units: Vec<String> = counting.iter().map(u32::to_string).collect();
        let units: Vec<&[u8]> = units.iter().map(String::as_bytes).collect();
        let ask = Ask::new(0, debt.is_anonymous);
        if !self.breaker.allows(self.watcher.reports().clock.now()) {
            return false;
        }
        match self.try_call("debit", &debt.tenant, plan, ask, &units).await {
            Ok(_) => {
                self.mirror.paid(&debt.tenant, debt.is_anonymous, debt.units);
                true
            }
            // what is wrong with one key says nothing about others
            Err(kind) => kind == FailureKind::Corrupt,
        }
    }
}

/// Runs until there are no debts.
async fn settle_debts(server: Weak<Server>) {
    loop {
        let Some(server) = server.upgrade() else { return };
        server.settle_now().await;
        if !server.mirror.has_debts() {
            server.is_settling.store(false, SeqCst);
            // another one may have come just before, and relied on this task
            if !server.mirror.has_debts() || server.is_settling.swap(true, SeqCst) {
                return;
            }
        }
        drop(server);
        tokio::time::sleep(PAUSE).await;
    }
}
