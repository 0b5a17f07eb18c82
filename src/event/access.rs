//! Access control for the event log.

use http::HeaderName;

use crate::{
    http::head::Head,
    tenant::{Tenant, TenantSource},
    util::{error::ConfigError, secret::SecretDigest},
};

/// The caller that asks for events. It determines which events are returned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Viewer {
    /// An unknown caller, which may read nothing.
    Nobody,
    /// A tenant, which may read its own events.
    Tenant(Tenant),
    /// The operator of the service, who may read everything.
    Operator,
}

/// Identifies the caller that asks for events.
///
/// Closures of the form `|head: Head<'_>| -> Viewer` implement it too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `Access`, which decides who may read the event log",
    note = "use `TenantsAndOperator`, or a closure with an annotated argument: `|head: Head<'_>| -> Viewer`"
)]
pub trait Access: Send + Sync + 'static {
    /// Returns who sent the request with this head.
    fn viewer(&self, head: Head<'_>) -> Viewer;
}

impl<F> Access for F
where
    F: Fn(Head<'_>) -> Viewer + Send + Sync + 'static,
{
    fn viewer(&self, head: Head<'_>) -> Viewer {
        self(head)
    }
}

/// The header of the operator's key.
const OPERATOR_KEY: HeaderName = HeaderName::from_static("x-operator-key");

/// Lets each tenant read its own events, and an operator with a key in the header `x-operator-key` read everything.
///
/// # Security
///
/// Only a tenant that is proved may read, for example with an API key. A tenant that is only
/// [claimed](crate::tenant::TenantName::is_claimed), as with headers and closures, reads nothing. Wrap a closure that
/// checks a credential in [`ProvedTenant`](crate::tenant::ProvedTenant).
pub struct TenantsAndOperator<S> {
    source: S,
    operator: Option<SecretDigest>,
}

impl<S: TenantSource> TenantsAndOperator<S> {
    /// Creates the rule from a source of tenants. No operator key is accepted until
    /// [`operator_key`](Self::operator_key) sets one.
    pub fn new(source: S) -> Self {
        Self { source, operator: None }
    }

    /// Accepts this key as the operator's. Only its digest is kept.
    ///
    /// # Errors
    ///
    /// Returns an error if the key has fewer than 16 bytes.
    pub fn operator_key(mut self, key: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        let key = key.as_ref();
        ConfigError::refuse_if(key.len() < 16, "operator key", "(not shown)", "must have at least 16 bytes")?;
        self.operator = Some(SecretDigest::of_secret(key));
        Ok(self)
    }
}

impl<S: TenantSource> Access for TenantsAndOperator<S> {
    fn viewer(&self, head: Head<'_>) -> Viewer {
        let mut keys = head.headers().get_all(OPERATOR_KEY).iter();
        if let Some(key) = keys.next() {
            let given = SecretDigest::of_secret(key);
            // a wrong operator key is final: the request is not tried as a tenant's
            return match &self.operator {
                Some(known) if keys.next().is_none() && known.matches(&given) => Viewer::Operator,
                _ => Viewer::Nobody,
            };
        }
        match self.source.find(head) {
            Ok(Some(name)) if !name.is_claimed() => name.to_tenant().map_or(Viewer::Nobody, Viewer::Tenant),
            _ => Viewer::Nobody,
        }
    }
}

crate::util::fmt::debug_fields!(TenantsAndOperator<S>, |own| operator: own.operator.map(|_| "(not shown)"));
