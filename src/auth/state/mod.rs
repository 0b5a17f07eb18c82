//! What the login service stores.

pub(crate) mod challenges;
pub(crate) mod evidence;
pub(crate) mod codes;
pub(crate) mod guard;
pub(crate) mod journal;
pub(crate) mod key;
pub(crate) mod logins;
pub(crate) mod proofs;
