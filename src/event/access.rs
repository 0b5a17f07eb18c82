//! Who may read the log.

use std::fmt;

use http::HeaderName;

use crate::{
    http::head::Head,
    tenant::{Tenant, TenantSource},
    util::{error::ConfigError, secret::Digest},
};

/// Who asks for events, and so which of them it may read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Viewer {
    /// Somebody unknown, who may read nothing.
    Nobody,
    /// A tenant, who may read its own.
    Tenant(Tenant),
    /// Who runs the service, and may read everything.
    Operator,
}

/// Tells who asks for events.
///
/// A closure `|head: Head<'_>| -> Viewer` is one too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't tell who may read the event log",
    note = "use `TenantsAndOperator`, or a closure with its argument annotated: `|head: Head<'_>| -> Viewer`"
)]
pub trait Access: Send + Sync + 'static {
    /// Who sends the request with this head.
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

/// A tenant reads its own events, an operator with a key reads all.
///
/// The source must name a tenant only to those who prove that they are it, as
/// API keys do. Behind a source that believes a header, anybody reads
/// anybody's events.
pub struct TenantsAndOperator<S> {
    source: S,
    header: HeaderName,
    operator: Option<Digest>,
}

impl<S: TenantSource> TenantsAndOperator<S> {
    /// Tenants as this source finds them; no operator yet.
    pub fn new(source: S) -> Self {
        Self { source, header: HeaderName::from_static("x-operator-key"), operator: None }
    }

    /// Who sends this key, of at least 16 bytes, reads everything. Only its digest is kept.
    pub fn operator_key(mut self, key: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        let key = key.as_ref();
        if key.len() < 16 {
            return Err(ConfigError::new("operator key", "(not shown)", "must have at least 16 bytes"));
        }
        self.operator = Some(Digest::of(key));
        Ok(self)
    }

    /// The header that carries the operator's key: `x-operator-key` by default.
    pub fn operator_header(mut self, name: HeaderName) -> Self {
        self.header = name;
        self
    }
}

impl<S: TenantSource> Access for TenantsAndOperator<S> {
    fn viewer(&self, head: Head<'_>) -> Viewer {
        let mut keys = head.headers().get_all(&self.header).iter();
        if let Some(key) = keys.next() {
            let given = Digest::of(key);
            // a wrong key is an answer: it is not tried as something else
            return match &self.operator {
                Some(known) if keys.next().is_none() && known.matches(&given) => Viewer::Operator,
                _ => Viewer::Nobody,
            };
        }
        match self.source.find(head) {
            Ok(Some(tenant)) => Viewer::Tenant(tenant),
            Ok(None) | Err(_) => Viewer::Nobody,
        }
    }
}

impl<S> fmt::Debug for TenantsAndOperator<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantsAndOperator")
            .field("header", &self.header)
            .field("operator", &self.operator.map(|_| "(not shown)"))
            .finish_non_exhaustive()
    }
}
