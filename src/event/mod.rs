//! What happened: an [`Event`] for each refusal and each change of state.

mod record;

pub use self::record::{Event, EventKind, Mode};
