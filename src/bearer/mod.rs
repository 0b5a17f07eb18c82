//! Access tokens at an API.

mod claims;
mod keys;

pub(crate) use self::{
    claims::{Audience, Claims, Confirmation},
    keys::{KeySource, Unavailable},
};
