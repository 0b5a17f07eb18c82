use std::{
    sync::{Arc, Once},
    time::Duration,
};

use super::usage::{OpenedUsage, ReadUsage};
use crate::{
    http::head::Head,
    limit::{
        decision::{Ask, CallAsk, ChargeRule},
        hold::Hold,
    },
};

type Estimate = dyn Fn(Head<'_>) -> u32 + Send + Sync;

/// The settings of a layer that tracks bodies.
#[derive(Clone)]
pub(in crate::limit) struct TrackingSettings {
    /// If set, each request holds an estimate.
    pub(super) metering: Option<Metering>,
    /// The warning about an upgraded connection that nothing tracks is logged once.
    pub(super) warned: Arc<Once>,
    warned_unmetered: Arc<Once>,
}

/// How requests are metered.
#[derive(Clone)]
pub(in crate::limit) struct Metering {
    pub(super) estimate: u32,
    pub(super) at_most: u32,
    pub(super) lifetime: Duration,
    pub(super) estimate_of: Option<Arc<Estimate>>,
    pub(super) read: Option<Arc<ReadUsage>>,
}

impl TrackingSettings {
    pub(super) fn new() -> Self {
        Self { metering: None, warned: Arc::new(Once::new()), warned_unmetered: Arc::new(Once::new()) }
    }

    /// Returns whether requests pay what they use.
    pub(in crate::limit) fn is_metered(&self) -> bool {
        self.metering.is_some()
    }

    /// Returns the estimate of this request, if requests are metered.
    pub(in crate::limit) fn estimate(&self, head: Head<'_>) -> Option<u32> {
        let metering = self.metering.as_ref()?;
        Some(metering.estimate_of.as_ref().map_or(metering.estimate, |estimate| estimate(head)).max(1))
    }

    /// Returns the call that a request opens which asks for these units.
    pub(in crate::limit) fn call(&self, units: u32) -> CallAsk {
        let hold = |metering: &Metering| Ask::hold(units, metering.at_most, metering.lifetime, false).call;
        self.metering.as_ref().map_or(CallAsk::Slot, hold)
    }

    /// Warns once if this layer should charge what calls use, and an outer layer of the limiter has opened them without that.
    pub(in crate::limit) fn warn_if_not_metered(&self, is_metered: bool) {
        if self.metering.is_some() && !is_metered {
            self.warned_unmetered.call_once(|| {
                crate::util::trace::warning!(
                    "a metered layer charges only estimates, because an outer layer of its limiter tracks bodies without metering"
                );
            });
        }
    }

    /// Returns what an admitted request takes along.
    pub(in crate::limit) fn opened(
        &self,
        hold: Hold,
        charge_rule: Option<&Arc<ChargeRule>>,
        is_visible: bool,
    ) -> OpenedUsage {
        let settings = self.metering.as_ref().map(|metering| (metering.read.clone(), charge_rule.cloned()));
        OpenedUsage::new(hold, settings.unwrap_or_default(), &self.warned, is_visible)
    }
}

crate::util::fmt::debug_fields!(Metering { estimate, at_most, lifetime });

crate::util::fmt::debug_fields!(TrackingSettings { metering });
