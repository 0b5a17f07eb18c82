use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use http::{HeaderMap, StatusCode};

use super::settings::TrackingSettings;
use crate::{
    limit::{hold::Hold, pass::ChargeRule},
    util::lock::lock,
};

/// The handle of an open call, in the extensions of its request. Clones are the same handle.
///
/// In a [metered](super::TrackingLayer::metered) layer it counts what the call uses. The layer commits that when the
/// response body ends. If nothing was counted, it charges the estimate.
///
/// An upgraded connection stays a call until the last clone is dropped, so move one into the task that serves it:
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

pub(super) struct UsageState {
    counted: AtomicU64,
    /// Taken when the call ends.
    hold: Mutex<Option<Hold>>,
    pub(super) settings: Arc<TrackingSettings>,
    /// Decides whether a metered call is charged.
    charge_rule: Option<Arc<ChargeRule>>,
}

/// Nothing was counted.
const UNKNOWN: u64 = u64::MAX;

/// The response is not charged, even if units are counted.
const FREE: u64 = u64::MAX - 1;

/// A call that the gate has opened, in the extensions of a request on its way to the service that ends it.
#[derive(Clone, Debug)]
pub(in crate::limit) struct OpenedUsage {
    pub(super) usage: Usage,
    /// Whether the handler gets the handle.
    pub(super) is_visible: bool,
}

impl OpenedUsage {
    pub(in crate::limit) fn new(
        hold: Hold,
        settings: &Arc<TrackingSettings>,
        charge_rule: Option<&Arc<ChargeRule>>,
        is_visible: bool,
    ) -> Self {
        let own = UsageState {
            counted: AtomicU64::new(UNKNOWN),
            hold: Mutex::new(Some(hold)),
            settings: Arc::clone(settings),
            charge_rule: charge_rule.filter(|_| settings.is_metered()).cloned(),
        };
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

    pub(super) fn own(&self) -> &Arc<UsageState> {
        &self.own
    }

    pub(super) fn inside(self, outer: Option<Self>) -> Self {
        Self { outer: outer.map(Arc::new), ..self }
    }

    /// Counts only for its own layer what that layer has read.
    pub(super) fn of_own(own: &Arc<UsageState>) -> Self {
        Self { own: Arc::clone(own), outer: None }
    }
}

impl UsageState {
    /// Frees a metered call if its response is not charged.
    pub(super) fn apply_charge_rule(&self, status: StatusCode, headers: &HeaderMap) {
        if self.charge_rule.as_ref().is_some_and(|rule| !rule(status, headers)) {
            self.counted.store(FREE, Relaxed);
        }
    }

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
