//! The rate limit as a [`Gate`].

use std::{
    fmt, mem,
    pin::Pin,
    sync::{Arc, Mutex, Once, PoisonError},
    task::{Context, Poll},
};

use http::{Request, header};

use super::{
    any_limiter::AnyLimiter,
    decision::{Ask, CallAsk, ChargeRule, Decision, RefusalReason},
    engine::{TenantKey, Undecided},
    headers::{HeaderStyle, IetfPolicy},
    line::Waiting,
    pass::{Extra, RateLimitPass, Settle},
    tracking::settings::TrackingSettings,
};
use crate::{
    event::EventKind,
    gate::{Gate, MaybeReady, Pass},
    http::head::Head,
    reject::{Rejection, RejectionKind},
    tenant::{LimitKey, LimiterCharge, RateLimit, Standing, TenantError, TenantErrorKind, TenantName, TenantSource},
};

type Cost = dyn Fn(Head<'_>) -> u32 + Send + Sync;

/// The gate of a [`RateLimitLayer`](super::RateLimitLayer).
#[derive(Clone)]
pub struct RateLimitGate {
    pub(super) source: Arc<dyn TenantSource>,
    pub(super) limiter: AnyLimiter,
    pub(super) style: HeaderStyle,
    pub(super) cost: Option<Arc<Cost>>,
    pub(super) charge_rule: Option<Arc<ChargeRule>>,
    pub(super) exempt_preflight: bool,
    pub(super) extensions: bool,
    /// Set if the layer knows when calls end.
    pub(super) tracking: Option<Arc<TrackingSettings>>,
    /// Set if refused requests wait.
    pub(super) waiting: Option<Arc<Waiting>>,
    /// The warning about a missing address is logged once: it is missing in all requests or in none.
    pub(super) warned: Arc<Once>,
}

impl Gate for RateLimitGate {
    type Pass = RateLimitPass;
    type Future = RateLimitFuture;

    fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future> {
        let mut extension = None;
        let mut decision = self.check(head, &mut extension);
        if let MaybeReady::Ready(Ok(pass)) = &mut decision {
            pass.keep(extension);
        }
        decision
    }

    #[inline]
    fn enter<B>(&self, request: &mut Request<B>) -> MaybeReady<Self::Future> {
        let mut extension = None;
        let mut decision = self.check(Head::of_request(request), &mut extension);
        if let Some(extension) = extension {
            extension.put_into(request.extensions_mut());
        }
        if self.tracking.is_some()
            && let MaybeReady::Ready(Ok(pass)) = &mut decision
        {
            pass.admit(request.extensions_mut());
        }
        decision
    }
}

impl RateLimitGate {
    pub(crate) fn new(source: impl TenantSource, limiter: impl Into<AnyLimiter>) -> Self {
        Self {
            source: Arc::new(source),
            limiter: limiter.into(),
            style: HeaderStyle::new(),
            cost: None,
            charge_rule: None,
            exempt_preflight: false,
            extensions: true,
            tracking: None,
            waiting: None,
            warned: Arc::new(Once::new()),
        }
    }

    /// Decides on a request. Sets the `extension` that an admitted request gets.
    #[inline]
    fn check(&self, head: Head<'_>, extension: &mut Option<RateLimit>) -> MaybeReady<RateLimitFuture> {
        if self.exempt_preflight && head.is_preflight() {
            return MaybeReady::Ready(Ok(RateLimitPass::UNCHARGED));
        }
        let found = self.source.find(head);
        let name = match &found {
            Ok(Some(name)) => name,
            Ok(None) => return MaybeReady::Ready(Err(self.unusable(&self.source.missing(head)))),
            Err(error) if error.kind() == TenantErrorKind::Pending => {
                return MaybeReady::Pending(self.look_up_and_charge(head));
            }
            Err(error) => return MaybeReady::Ready(Err(self.unusable(error))),
        };
        let cost = self.cost_of(head);
        let outer = head.extensions().get();
        let Some(ask) = self.unpaid(name, cost, outer) else {
            *extension = outer.and_then(|outer| outer.proved_by(name));
            return MaybeReady::Ready(Ok(RateLimitPass::UNCHARGED));
        };
        #[cfg(feature = "redis")]
        if self.limiter.shared.is_some() {
            return match name.to_key() {
                Ok(_) => MaybeReady::Pending(self.charge_later(name, ask)),
                Err(error) => MaybeReady::Ready(Err(self.unusable(&error))),
            };
        }
        match self.charge_in_memory(name, Ask { can_wait: true, ..ask }, extension) {
            Ok(pass) => MaybeReady::Ready(Ok(pass)),
            Err(Unadmitted::Rejected(rejection)) => MaybeReady::Ready(Err(rejection)),
            Err(Unadmitted::MustWait) => MaybeReady::Pending(self.charge_later(name, ask)),
        }
    }

    #[inline]
    pub(super) fn cost_of(&self, head: Head<'_>) -> u32 {
        let estimate = self.tracking.as_ref().and_then(|tracking| tracking.estimate(head));
        estimate.unwrap_or_else(|| self.cost.as_ref().map_or(1, |cost| cost(head)))
    }

    #[cold]
    pub(super) fn unusable(&self, error: &TenantError) -> Rejection {
        let (event, kind) = match error.kind() {
            TenantErrorKind::Unknown => (EventKind::CredentialUnknown, RejectionKind::Unauthenticated),
            TenantErrorKind::Missing => (EventKind::TenantMissing, RejectionKind::Unauthenticated),
            TenantErrorKind::Invalid => (EventKind::TenantMissing, RejectionKind::InvalidRequest),
            TenantErrorKind::Unavailable => (EventKind::TenantLookupFailed, RejectionKind::Unavailable),
            TenantErrorKind::Pending | TenantErrorKind::Internal => (EventKind::TenantMissing, RejectionKind::Internal),
        };
        if kind == RejectionKind::Internal {
            self.warned.call_once(|| {
                crate::util::trace::warning!("requests are answered with a 500: {error}");
            });
        }
        let reason = match error.kind() {
            _ if event != EventKind::TenantMissing => None,
            TenantErrorKind::Missing => Some("missing"),
            TenantErrorKind::Invalid => Some("invalid"),
            _ => Some("internal"),
        };
        self.limiter.local.count_rejection(event, reason);
        let rejection = Rejection::new(kind, error.owned_detail());
        match error.asks_for() {
            Some(challenge) => rejection.header(header::WWW_AUTHENTICATE, challenge),
            None => rejection,
        }
    }

    /// Charges a request under this name.
    pub(crate) fn charge(&self, name: &TenantName<'_>, head: Head<'_>) -> MaybeReady<RateLimitFuture> {
        let cost = self.cost.as_ref().map_or(1, |cost| cost(head));
        // the service answers itself, so it needs no extension
        self.charge_without_plan(name, cost, head.extensions().get(), &mut None)
    }

    /// Charges one unit under this name, unless an outer layer of the same limiter has left its charge in `outer`.
    pub(crate) fn charge_once(&self, name: &TenantName<'_>, outer: Option<&RateLimit>) -> MaybeReady<RateLimitFuture> {
        let mut extension = None;
        let mut decision = self.charge_without_plan(name, 1, outer, &mut extension);
        if let MaybeReady::Ready(Ok(pass)) = &mut decision {
            pass.keep(extension);
        }
        decision
    }

    /// Charges a request that no layer tracks, but only to the rates of the plan. With a limiter in memory, it waits for nothing,
    /// not even for a plan.
    fn charge_without_plan(
        &self,
        name: &TenantName<'_>,
        units: u32,
        outer: Option<&RateLimit>,
        extension: &mut Option<RateLimit>,
    ) -> MaybeReady<RateLimitFuture> {
        let Some(mut ask) = self.unpaid(name, units, outer) else {
            *extension = outer.and_then(|outer| outer.proved_by(name));
            return MaybeReady::Ready(Ok(RateLimitPass::UNCHARGED));
        };
        if ask.call == CallAsk::Untracked {
            ask.call = CallAsk::RatesOnly;
        }
        #[cfg(feature = "redis")]
        if self.limiter.shared.is_some() {
            return MaybeReady::Pending(self.charge_later(name, ask));
        }
        self.limiter.local.load_plan_later(&name.to_known_key());
        MaybeReady::Ready(self.charge_in_memory(name, ask, extension).map_err(Unadmitted::into_rejection))
    }

    /// Returns whether proved requests of this tenant may spend more than others.
    pub(crate) fn has_reserve(&self, tenant: &LimitKey) -> bool {
        self.limiter.local.plans().plan(tenant).has_reserve()
    }

    /// Returns what is still to be charged after an outer layer of the same limiter, or `None` if nothing is.
    #[inline]
    pub(super) fn unpaid(&self, name: &TenantName<'_>, units: u32, outer: Option<&RateLimit>) -> Option<Ask> {
        let outer = outer.filter(|_| self.extensions);
        match outer.and_then(|outer| outer.charged(self.limiter.local.payer_id(self.limiter.local.key(name)))) {
            Some(charged) => {
                let rest = units.saturating_sub(charged.units);
                let call = match (&self.tracking, charged.is_open) {
                    (Some(tracking), true) => {
                        tracking.warn_if_not_metered(charged.is_metered);
                        CallAsk::AlreadyOpen
                    }
                    (None, true) => CallAsk::AlreadyOpen,
                    (Some(tracking), false) => tracking.call(rest),
                    (None, false) => CallAsk::Untracked,
                };
                let ask = self.build_ask(name, if call.is_hold() { rest.max(1) } else { rest }, call);
                (ask.units > 0 || call.opens()).then_some(ask)
            }
            None => Some(self.build_ask(
                name,
                units,
                self.tracking.as_ref().map_or(CallAsk::Untracked, |own| own.call(units)),
            )),
        }
    }

    /// Creates the ask. A tenant that is only claimed counts as anonymous.
    #[inline]
    fn build_ask(&self, name: &TenantName<'_>, units: u32, call: CallAsk) -> Ask {
        Ask { refundable: self.charge_rule.is_some() && !call.is_hold(), call, ..Ask::new(units, name.is_claimed()) }
    }

    #[inline]
    pub(super) fn charge_in_memory(
        &self,
        name: &TenantName<'_>,
        ask: Ask,
        extension: &mut Option<RateLimit>,
    ) -> Result<RateLimitPass, Unadmitted> {
        let key = self.limiter.local.key(name);
        let mut decision = Decision::UNLIMITED;
        match self.limiter.local.check_key(key, ask, &mut decision) {
            Ok(()) => self.pass_or_reject(name, key, ask, &mut decision, extension),
            Err(Undecided::Name(error)) => Err(Unadmitted::Rejected(self.unusable(&error))),
            Err(Undecided::NeedsPlan) => Err(Unadmitted::MustWait),
        }
    }

    /// Creates the pass and the extension, or the rejection of a request.
    #[inline]
    pub(super) fn pass_or_reject(
        &self,
        name: &TenantName<'_>,
        key: TenantKey<'_>,
        ask: Ask,
        decision: &mut Decision,
        extension: &mut Option<RateLimit>,
    ) -> Result<RateLimitPass, Unadmitted> {
        if let Some(reason) = decision.refusal_reason() {
            return Err(self.refuse(&name.to_known_key(), ask, reason, decision));
        }
        if self.extensions {
            let (payer, is_open) = (self.limiter.local.payer_id(key), ask.call.is_tracked());
            let charge = LimiterCharge { payer, units: ask.units, is_open, is_metered: ask.call.is_hold() };
            let standing = decision.standing.unwrap_or(Standing::UNLIMITED);
            let would_refuse = decision.would_refuse();
            *extension = Some(RateLimit::new(name.to_known_key(), name.is_claimed(), standing, charge, would_refuse));
        }
        let values = decision.standing().and_then(|standing| self.style.values(standing));
        let is_plain = self.charge_rule.is_none()
            && decision.shadow.is_none()
            && !self.style.wants_policy()
            && self.tracking.is_none();
        Ok(RateLimitPass { values, extra: (!is_plain).then(|| self.extra(name, ask, decision)) })
    }

    /// Rejects a request, or lets it wait.
    #[cold]
    fn refuse(&self, key: &LimitKey, ask: Ask, reason: RefusalReason, decision: &Decision) -> Unadmitted {
        if ask.can_wait {
            if self.waiting.as_ref().is_some_and(|waiting| waiting.begin(decision).is_some()) {
                return Unadmitted::MustWait;
            }
            self.limiter.local.report(decision, key, ask);
        }
        Unadmitted::Rejected(self.rejection(key, reason, decision.standing()))
    }

    fn rejection(&self, key: &LimitKey, reason: RefusalReason, standing: Option<&Standing>) -> Rejection {
        let (kind, detail) = match reason {
            RefusalReason::Spent if standing.is_some_and(|standing| !standing.is_exact()) => {
                (RejectionKind::RateLimited, "rate limit exceeded while other calls are open")
            }
            RefusalReason::Spent => (RejectionKind::RateLimited, "rate limit exceeded"),
            RefusalReason::Impossible => {
                (RejectionKind::QuotaImpossible, "the request costs more than the quota allows")
            }
            RefusalReason::Denied => (RejectionKind::Forbidden, "this tenant has no access"),
            RefusalReason::Unavailable | RefusalReason::Untracked => {
                (RejectionKind::Unavailable, "rate limits cannot be checked for now")
            }
        };
        if reason == RefusalReason::Untracked {
            self.warned.call_once(|| {
                crate::util::trace::warning!(
                    "requests are refused, because a plan has a quota of concurrent calls and the layer does not track bodies"
                );
            });
        }
        let rejection = Rejection::new(kind, detail).with_limit_key(key.clone());
        match standing {
            Some(standing) => {
                let headers = self.style.refusal(standing, self.policy(key).as_ref());
                rejection.with_standing(*standing, headers, self.style.is_silent())
            }
            None => rejection,
        }
    }

    fn policy(&self, key: &LimitKey) -> Option<IetfPolicy> {
        if !self.style.wants_policy() {
            return None;
        }
        let plan = self.limiter.local.plans().plan(key);
        IetfPolicy::of_key(key, plan.ietf_policies(self.counts_requests()))
    }

    /// Returns whether each request costs one unit.
    fn counts_requests(&self) -> bool {
        self.cost.is_none() && self.tracking.as_ref().is_none_or(|tracking| !tracking.is_metered())
    }

    #[cold]
    fn extra(&self, name: &TenantName<'_>, ask: Ask, decision: &mut Decision) -> Box<Extra> {
        let usage = self.tracking.as_ref().filter(|_| ask.call.opens()).map(|tracking| {
            let hold = self.limiter.local.take_hold(ask, decision);
            tracking.opened(hold, self.charge_rule.as_ref(), self.extensions)
        });
        // a hold is settled when the call ends
        let charge_rule = self.charge_rule.as_ref().filter(|_| !ask.call.is_hold());
        let settle = charge_rule.map(|rule| Settle {
            rule: Arc::clone(rule),
            limiter: self.limiter.clone(),
            spend: mem::take(&mut decision.spend),
        });
        Box::new(Extra {
            extension: None,
            usage,
            style: self.style,
            standing: decision.standing,
            would_refuse: decision.would_refuse(),
            policy: self.policy(&name.to_known_key()),
            settle,
        })
    }
}

crate::util::fmt::debug_fields!(RateLimitGate, |own| limiter: own.limiter.local);

/// Why a request was not admitted.
pub(super) enum Unadmitted {
    Rejected(Rejection),
    /// The plan of its tenant must be looked up first, or units may come back in time.
    MustWait,
}

impl Unadmitted {
    pub(super) fn into_rejection(self) -> Rejection {
        match self {
            Self::Rejected(rejection) => rejection,
            Self::MustWait => no_plan(),
        }
    }
}

pub(super) fn no_plan() -> Rejection {
    Rejection::new(RejectionKind::Unavailable, "the plan of this tenant is unavailable for now")
}

/// The pending decision on a request that waits, for example for a plan or a shared limiter.
///
/// Boxed, because few requests wait, and in a mutex that is never locked, so that it is `Sync`.
pub struct RateLimitFuture(Mutex<Pin<Box<Deciding>>>);

impl RateLimitFuture {
    pub(super) fn new(decided: impl Future<Output = Result<RateLimitPass, Rejection>> + Send + 'static) -> Self {
        Self(Mutex::new(Box::pin(decided)))
    }
}

type Deciding = dyn Future<Output = Result<RateLimitPass, Rejection>> + Send;

impl Future for RateLimitFuture {
    type Output = Result<RateLimitPass, Rejection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(cx)
    }
}

impl fmt::Debug for RateLimitFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitFuture").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use http::{Request, StatusCode};
    use tracing::{Metadata, Subscriber, span};

    use super::*;
    use crate::{
        limit::{limiter::Limiter, plans::table::Plans, quota::Quota},
        tenant::ClientIp,
    };

    /// Counts the warnings of this crate.
    #[derive(Clone, Default)]
    struct Warnings(Arc<AtomicUsize>);

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == tracing::Level::WARN
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Relaxed);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn a18_a_missing_peer_address_is_logged_once() {
        let gate = RateLimitGate::new(ClientIp::peer(), Limiter::memory(Plans::new(Quota::per_minute(600).unwrap())));
        let (warnings, request) = (Warnings::default(), Request::new(()));
        tracing::subscriber::with_default(warnings.clone(), || {
            for gate in [&gate, &gate.clone()] {
                let MaybeReady::Ready(Err(rejection)) = gate.inspect(Head::of_request(&request)) else {
                    panic!("it is admitted")
                };
                assert_eq!(rejection.status(), StatusCode::INTERNAL_SERVER_ERROR);
            }
        });
        assert_eq!(warnings.0.load(Relaxed), 1);
    }
}
