//! Which [`StoreError`] an error of a database becomes.

use sqlx::Error;
use tollgate::store::{StoreError, StoreErrorKind};

/// Returns whether the database rolled a call back because of another one, so that it can be repeated.
pub(crate) fn is_conflict(error: &Error) -> bool {
    // serialization_failure, deadlock_detected
    code(error).is_some_and(|code| matches!(code.as_str(), "40001" | "40P01"))
}

/// Returns whether the connection has ended.
pub(crate) fn is_lost(error: &Error) -> bool {
    // admin_shutdown, crash_shutdown, cannot_connect_now, database_dropped, idle_session_timeout
    matches!(error, Error::Io(_)) || code(error).is_some_and(|code| code.starts_with("57P"))
}

pub(crate) fn store_error(error: Error) -> StoreError {
    StoreError::new(kind(&error), error)
}

fn code(error: &Error) -> Option<String> {
    error.as_database_error()?.code().map(|code| code.into_owned())
}

fn kind(error: &Error) -> StoreErrorKind {
    match error {
        Error::Configuration(_) => return StoreErrorKind::Misconfigured,
        Error::ColumnDecode { .. } | Error::ColumnNotFound(_) | Error::TypeNotFound { .. } | Error::RowNotFound => {
            return StoreErrorKind::Corrupt;
        }
        Error::PoolTimedOut => return StoreErrorKind::Busy,
        _ => {}
    }
    match code(error).as_deref() {
        // disk_full; SQLITE_FULL
        Some("53100" | "13") => StoreErrorKind::Full,
        // too_many_connections, serialization_failure, deadlock_detected; SQLITE_BUSY and its variants, SQLITE_LOCKED
        Some("53300" | "40001" | "40P01" | "5" | "261" | "517" | "773" | "6" | "262") => StoreErrorKind::Busy,
        // data_corrupted, index_corrupted; SQLITE_CORRUPT, SQLITE_NOTADB
        Some("XX001" | "XX002" | "11" | "26") => StoreErrorKind::Corrupt,
        // undefined_table, undefined_function, insufficient_privilege, invalid_password,
        // invalid_authorization_specification, invalid_catalog_name, invalid_transaction_state (of `tollgate_run`);
        // SQLITE_READONLY, SQLITE_CANTOPEN, "no such table"
        Some("42P01" | "42883" | "42501" | "28P01" | "28000" | "3D000" | "25000" | "8" | "14" | "1") => {
            StoreErrorKind::Misconfigured
        }
        _ => StoreErrorKind::Unavailable,
    }
}
