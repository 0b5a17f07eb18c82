//! Charges the server for what the fallback has admitted, in the background.

use std::{
    sync::{Arc, Weak, atomic::Ordering::SeqCst},
    time::Duration,
};

use tokio::task::JoinSet;

use super::{mirror::Debt, server::Server};
use crate::limit::{decision::Ask, plan::PlanKind};

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(250);
/// At most this many debts are charged at the same time.
const AT_ONCE: usize = 64;

impl Server {
    /// Starts to charge debts, unless that is under way.
    pub(super) fn settle_later(self: &Arc<Self>) {
        if !self.is_settling.swap(true, SeqCst) {
            self.link.spawn(settle(Arc::downgrade(self)));
        }
    }

    /// Charges all debts of now, if the server answers.
    pub(super) async fn settle_now(self: &Arc<Self>) {
        let debts = self.mirror.debts();
        let Some(first) = debts.first() else { return };
        // one that is charged without a reply is charged again, so nothing is sent to a server that may not reply
        let plan = self.local.quotas().plan(&first.tenant);
        if self.call("spend", &first.tenant, &plan, Ask::new(0, false), &[]).await.is_none() {
            return;
        }
        let mut calls = JoinSet::new();
        for debt in debts {
            if calls.len() >= AT_ONCE {
                _ = calls.join_next().await;
            }
            let server = Arc::clone(self);
            calls.spawn(async move { server.settle(debt).await });
        }
        while calls.join_next().await.is_some() {}
    }

    async fn settle(&self, debt: Debt) {
        let plan = self.local.quotas().plan(&debt.tenant);
        let counting = match plan.kind() {
            PlanKind::Limited { .. } => self.mirror.counting(&debt, &plan),
            PlanKind::Unlimited { .. } | PlanKind::Denied { .. } => Vec::new(),
        };
        let is_paid = counting.iter().all(|units| *units == 0) || self.debit(&debt, &plan, &counting).await;
        if is_paid {
            self.mirror.paid(&debt.tenant, debt.is_anonymous, debt.units);
        }
    }
}

/// Runs until there are no debts.
async fn settle(server: Weak<Server>) {
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
