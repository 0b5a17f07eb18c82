//! Sign-in and sign-out of the site itself, without codes and tokens.

pub(crate) mod site;
pub(crate) mod sign_in;
pub(crate) mod entry_pages;
pub(crate) mod sign_out;
pub(crate) mod route_proofs;
