use std::sync::{
    Arc, Mutex, Once,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use http::{HeaderMap, StatusCode};

use crate::{
    limit::{decision::ChargeRule, hold::Hold},
    util::lock::lock,
};

/// The handle of an open call, in the extensions of its request. Clones are the same handle.
///
/// In a [metered](super::TrackingLayer::metered) layer it counts what the call uses. The layer charges that when the
/// response body ends. If nothing was counted, it charges the estimate.
///
/// An upgraded connection stays a call until the last clone is dropped, so move one into the task that serves it. If the handler
/// keeps none where a quota of [concurrent](crate::Quota::concurrent) calls applies, the upgrade is refused with a 503, and the
/// event [`CallUntracked`](crate::event::EventKind::CallUntracked) is recorded:
///
/// ```
/// use http::Request;
/// use tollgate::limit::Usage;
///
/// fn upgrade<B>(request: &Request<B>) {
///     let usage = Usage::from_extensions(request.extensions()).cloned();
///     // tokio::spawn(async move { … serve the connection …; drop(usage) })
/// #   let _ = usage;
/// }
/// ```
///
/// If several limiters surround a handler, it gets the handle of the innermost. Units that it counts there count for all of
/// them.
#[derive(Clone, Debug)]
pub struct Usage {
    own: Arc<UsageState>,
    /// The handle of the layer around this one.
    outer: Option<Arc<Usage>>,
}

struct UsageState {
    counted: AtomicU64,
    /// Taken when the call ends.
    hold: Mutex<Option<Hold>>,
    /// Reads the chunks of the body.
    read: Option<Arc<ReadUsage>>,
    /// The warning about an upgraded connection that nothing tracks is logged once.
    warned: Arc<Once>,
    /// Decides whether a metered call is charged.
    charge_rule: Option<Arc<ChargeRule>>,
}

/// Reads a chunk of a response body.
pub(super) type ReadUsage = dyn Fn(&[u8], &Usage) + Send + Sync;

/// Nothing was counted.
const UNKNOWN: u64 = u64::MAX;

/// The response is not charged, even if units are counted.
const FREE: u64 = u64::MAX - 1;

/// Ends a call when it is dropped.
#[derive(Debug)]
pub(super) struct CallGuard(Option<Arc<UsageState>>);

impl CallGuard {
    pub(super) fn new(usage: &Usage) -> Self {
        Self(Some(Arc::clone(&usage.own)))
    }

    /// Counts what a chunk of the body contains.
    pub(super) fn read_usage(&self, chunk: &[u8]) {
        if let Some(state) = &self.0
            && let Some(read) = &state.read
        {
            read(chunk, &Usage { own: Arc::clone(state), outer: None });
        }
    }

    /// Frees a metered call if its response is not charged.
    pub(super) fn apply_charge_rule(&self, status: StatusCode, headers: &HeaderMap) {
        if let Some(state) = &self.0
            && state.charge_rule.as_ref().is_some_and(|rule| !rule(status, headers))
        {
            state.counted.store(FREE, Relaxed);
        }
    }

    /// Returns whether an upgrade must be refused: a quota of concurrent calls counts it, and its handler has kept no handle.
    pub(super) fn refuses_upgrade(&self) -> bool {
        let Some(state) = self.0.as_ref().filter(|state| Arc::strong_count(state) == 1) else { return false };
        let hold = lock(&state.hold);
        let Some(hold) = hold.as_ref().filter(|hold| hold.is_counted()) else { return false };
        let is_refused = hold.refuse_untracked();
        state.warned.call_once(|| match is_refused {
            true => crate::util::trace::warning!(
                "upgrades are refused, because a plan has a quota of concurrent calls and their handler keeps no `Usage`"
            ),
            false => crate::util::trace::warning!(
                "a connection was upgraded and its handler has kept no `Usage`: its call ends with the response"
            ),
        });
        is_refused
    }

    /// Leaves the end of the call to the handles that the handler has kept.
    pub(super) fn leave_to_handler(mut self) {
        self.0 = None;
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if let Some(state) = &self.0 {
            state.end();
        }
    }
}

/// A call that the gate has opened, in the extensions of a request on its way to the service that ends it.
#[derive(Clone, Debug)]
pub(in crate::limit) struct OpenedUsage {
    pub(super) usage: Usage,
    /// Whether the handler gets the handle.
    pub(super) is_visible: bool,
}

impl OpenedUsage {
    pub(super) fn new(
        hold: Hold,
        (read, charge_rule): (Option<Arc<ReadUsage>>, Option<Arc<ChargeRule>>),
        warned: &Arc<Once>,
        is_visible: bool,
    ) -> Self {
        let (counted, hold, warned) = (AtomicU64::new(UNKNOWN), Mutex::new(Some(hold)), Arc::clone(warned));
        let own = UsageState { counted, hold, read, warned, charge_rule };
        Self { usage: Usage { own: Arc::new(own), outer: None }, is_visible }
    }
}

impl Usage {
    /// Returns the handle of this request, if a layer tracks it. With axum, use it as an extractor instead.
    pub fn from_extensions(extensions: &http::Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// Counts more units.
    pub fn add(&self, units: u32) {
        self.count(|before| u64::from(before).saturating_add(units.into()));
    }

    /// Sets the units that the call has used.
    pub fn set(&self, units: u32) {
        self.count(|_| units.into());
    }

    /// Returns the units that were counted, or `None` if none were.
    pub fn used(&self) -> Option<u32> {
        match self.own.counted.load(Relaxed) {
            UNKNOWN => None,
            FREE => Some(0),
            counted => Some(u32::try_from(counted).unwrap_or(u32::MAX)),
        }
    }

    fn count(&self, count: impl Fn(u32) -> u64 + Copy) {
        _ = self.own.counted.fetch_update(Relaxed, Relaxed, |counted| match counted {
            FREE => None,
            UNKNOWN => Some(count(0)),
            counted => Some(count(u32::try_from(counted).unwrap_or(u32::MAX)).min(u32::MAX.into())),
        });
        if let Some(outer) = &self.outer {
            outer.count(count);
        }
    }

    pub(super) fn inside(self, outer: Option<Self>) -> Self {
        Self { outer: outer.map(Arc::new), ..self }
    }
}

impl UsageState {
    /// Ends the call.
    pub(super) fn end(&self) {
        let hold = lock(&self.hold).take();
        match (hold, self.counted.load(Relaxed)) {
            (Some(hold), FREE) => hold.commit(0),
            (Some(hold), counted) if counted != UNKNOWN => hold.commit(u32::try_from(counted).unwrap_or(u32::MAX)),
            (hold, _) => drop(hold),
        }
    }
}

crate::util::fmt::debug_fields!(UsageState { counted });

impl Drop for UsageState {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(feature = "axum")]
crate::http::missing_layer::extract_from_extensions!(
    Usage,
    "no layer with tracked bodies covers this route, or its extensions are disabled"
);
