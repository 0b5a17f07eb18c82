use std::sync::{
    Arc, Mutex, Once,
    atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
};

use http::{Extensions, HeaderMap, StatusCode};

use crate::{
    limit::{decision::ChargeRule, hold::Hold},
    util::lock::lock,
};

/// The handle of an open call, in the extensions of its request. Clones are the same handle.
///
/// In a [metered](super::TrackingLayer::metered) layer it counts what the call uses. The layer charges that when the
/// response body ends. If nothing was counted, it charges the estimate.
///
/// An upgraded connection stays a call until the last clone is dropped, so take one before the response is returned, and move it
/// into the task that serves the connection. The request itself and copies of its extensions do not keep the call open. If the
/// handler keeps no clone where a quota of [concurrent](crate::Quota::concurrent) calls applies, the upgrade is refused with a 503,
/// and the event [`CallUntracked`](crate::event::EventKind::CallUntracked) is recorded:
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
#[derive(Debug)]
pub struct Usage {
    own: Arc<UsageState>,
    /// Whether the call of an upgraded connection stays open until this is dropped.
    is_kept: bool,
    /// The handle of the layer around this one.
    outer: Option<Box<Usage>>,
}

/// The handle in the extensions of a request. A handler may drop the request at any time, and a layer may keep a copy of its
/// extensions, so it keeps no call open.
#[derive(Debug)]
struct UsageOfRequest(Usage);

impl Clone for UsageOfRequest {
    fn clone(&self) -> Self {
        Self(self.0.copy(false))
    }
}

struct UsageState {
    counted: AtomicU64,
    /// The number of handles that keep the call open, and one for the response.
    kept: AtomicUsize,
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
    /// Counts what a chunk of the body contains.
    pub(super) fn read_usage(&self, chunk: &[u8]) {
        if let Some(state) = &self.0
            && let Some(read) = &state.read
        {
            read(chunk, &Usage { own: Arc::clone(state), is_kept: false, outer: None });
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
        let Some(state) = self.0.as_ref().filter(|state| state.kept.load(SeqCst) == 1) else { return false };
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
        if let Some(state) = self.0.take() {
            state.release();
        }
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
    own: Arc<UsageState>,
    /// Whether the handler gets the handle.
    is_visible: bool,
}

impl OpenedUsage {
    pub(super) fn new(
        hold: Hold,
        (read, charge_rule): (Option<Arc<ReadUsage>>, Option<Arc<ChargeRule>>),
        warned: &Arc<Once>,
        is_visible: bool,
    ) -> Self {
        let (counted, hold, warned) = (AtomicU64::new(UNKNOWN), Mutex::new(Some(hold)), Arc::clone(warned));
        let own = UsageState { counted, kept: AtomicUsize::new(1), hold, read, warned, charge_rule };
        Self { own: Arc::new(own), is_visible }
    }

    /// Takes the call of a request, and gives the request its handle.
    pub(super) fn take_from(extensions: &mut Extensions) -> Option<CallGuard> {
        let Self { own, is_visible } = extensions.remove()?;
        if is_visible {
            let outer = extensions.remove().map(|UsageOfRequest(outer)| Box::new(outer));
            extensions.insert(UsageOfRequest(Usage { own: Arc::clone(&own), is_kept: false, outer }));
        }
        Some(CallGuard(Some(own)))
    }
}

impl Usage {
    /// Returns the handle of this request, if a layer tracks it. With axum, use it as an extractor instead.
    pub fn from_extensions(extensions: &Extensions) -> Option<&Self> {
        extensions.get().map(|UsageOfRequest(usage)| usage)
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

    fn copy(&self, is_kept: bool) -> Self {
        if is_kept {
            self.own.kept.fetch_add(1, SeqCst);
        }
        let outer = self.outer.as_ref().map(|outer| Box::new(outer.copy(is_kept)));
        Self { own: Arc::clone(&self.own), is_kept, outer }
    }
}

impl Clone for Usage {
    fn clone(&self) -> Self {
        self.copy(true)
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        if self.is_kept {
            self.own.release();
        }
    }
}

impl UsageState {
    /// Ends the call if nothing else keeps it open.
    fn release(&self) {
        if self.kept.fetch_sub(1, SeqCst) == 1 {
            self.end();
        }
    }

    /// Ends the call.
    fn end(&self) {
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
