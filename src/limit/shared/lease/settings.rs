//! [`Leases`]: the settings of leases.

use std::time::Duration;

use crate::util::error::ConfigError;

/// The settings of leases (feature `redis`), for [`SharedLimiterBuilder::leases`](crate::limit::SharedLimiterBuilder::leases).
///
/// ```
/// use std::time::Duration;
/// use tollgate::limit::Leases;
///
/// let leases = Leases::new().lifetime(Duration::from_millis(500))?.largest(5_000)?;
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Leases {
    pub(crate) lifetime: Duration,
    pub(crate) largest: u32,
}

impl Leases {
    /// Creates the default settings.
    pub fn new() -> Self {
        Self { lifetime: Duration::from_secs(1), largest: 1_000 }
    }

    /// Sets how long a lease can be used. Defaults to 1 second.
    ///
    /// A longer lifetime saves calls for tenants with few requests. It also delays what other nodes see: a reset, a
    /// change of a plan and units that come back reach every node within a lifetime. For a short window, a lease lasts
    /// at most an eighth of the window.
    ///
    /// # Errors
    ///
    /// Returns an error unless it is between 10 ms and 1 minute.
    pub fn lifetime(mut self, lifetime: Duration) -> Result<Self, ConfigError> {
        let range = Duration::from_millis(10)..=Duration::from_secs(60);
        ConfigError::check_range("lease lifetime", lifetime, range, "must be from 10 ms to 1 minute")?;
        self.lifetime = lifetime;
        Ok(self)
    }

    /// Sets the maximum number of units in one lease. Defaults to 1,000. A lease takes at most a quarter of what the
    /// tenant has left, unless the request itself needs more.
    ///
    /// # Errors
    ///
    /// Returns an error if it is zero.
    pub fn largest(mut self, units: u32) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(units == 0, "largest lease", units, "must be at least 1")?;
        self.largest = units;
        Ok(self)
    }
}

crate::util::builder::default_by_new!(Leases);
