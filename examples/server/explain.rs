//! How errors are printed.

use std::error::Error;

use tollgate::store::{StoreError, StoreErrorKind};

/// Formats an error with its causes, and what helps if there is no room.
pub(crate) fn explained(error: &(dyn Error + 'static)) -> String {
    let (mut text, mut is_full, mut next) = (error.to_string(), false, Some(error));
    while let Some(error) = next {
        let kind = error.downcast_ref::<StoreError>().map(StoreError::kind);
        is_full |= kind == Some(StoreErrorKind::Full);
        next = error.source();
        // some errors name their cause themselves
        let cause = next.map(|cause| format!(": {cause}")).filter(|cause| !text.ends_with(cause));
        text.extend(cause);
    }
    if is_full {
        text.push_str(
            ". Make room on the disk of --data or of the database, or in the memory of Redis, and start again.",
        );
    }
    text
}
