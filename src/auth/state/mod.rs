//! The state of logins and of the token endpoints, on top of the store.

pub(crate) mod guard;
pub(crate) mod accounts;
pub(crate) mod redeemed_challenges;
pub(crate) mod codes;
pub(crate) mod consents;
pub(crate) mod devices;
pub(crate) mod journal;
pub(crate) mod key;
pub(crate) mod logins;
pub(crate) mod pushed;
pub(crate) mod ticket_limits;
pub(crate) mod tickets;
pub(crate) mod token_endpoints;
pub(crate) mod unverified;
