//! Passkeys: the rules of each tenant, and how users add them. The method is `methods/passkey.rs`.

pub(crate) mod enrolments;
pub(crate) mod rules;
