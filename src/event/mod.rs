//! Security and rate-limit events.
//!
//! The crate records an [`Event`] for each rejection and each change of state in an [`EventLog`].
//! Read the log in process, serve it over HTTP with [`EventService`], or forward it to a [`Sink`].

mod access;
mod coalesce;
pub(crate) mod kind;
mod log;
mod page;
mod pump;
mod query;
mod record;
mod service;
mod shared;
mod sink;
mod stream;
mod usage;

pub(crate) use self::kind::event_kinds;
#[cfg(feature = "metrics")]
pub use self::sink::MetricsSink;
#[cfg(feature = "tracing")]
pub use self::sink::TracingSink;
pub(crate) use self::usage::{Budget, Budgets};
pub use self::{
    access::{Access, TenantsAndOperator, Viewer},
    kind::EventKind,
    log::{EventLog, EventLogBuilder},
    query::{Page, Query, QueryError},
    record::{Event, Mode},
    service::{EventService, EventServiceBuilder},
    shared::Stats,
    sink::Sink,
};
pub use crate::util::public_id::{PublicId, PublicIdError};
