//! The answers to changes of an account.

use crate::{
    auth::http::problem::{Code, Problem},
    user::AccountChange,
};

/// Reports why a change was not made.
pub(super) fn changed(change: AccountChange) -> Result<(), Problem> {
    match change {
        AccountChange::Done => Ok(()),
        AccountChange::Taken => Err(Problem::new(Code::ContactTaken, "another account has this contact")),
        AccountChange::Outdated => Err(Problem::new(Code::AccountOutdated, "the account has changed in the meantime")),
        AccountChange::OutOfBounds => {
            Err(Problem::invalid("this user can have no more contacts or identifiers, or no such long name"))
        }
        AccountChange::NotOffered => Err(Problem::new(Code::NotFound, "there is no such endpoint")),
    }
}
