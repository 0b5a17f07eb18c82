//! Whose request it is: a [`Tenant`], found in a request by a [`TenantSource`].

mod id;
mod source;

pub use self::{
    id::Tenant,
    source::{TenantError, TenantSource},
};
