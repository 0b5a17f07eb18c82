//! The list of all kinds of events, and the extractor of a request's tenant for axum.
//!
//! Both need every module. A module declares its part and knows nothing of the modules after it; this file joins the parts.

#[cfg(feature = "axum")]
use std::convert::Infallible;

#[cfg(feature = "axum")]
use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
#[cfg(feature = "axum")]
use http::{Extensions, request::Parts};

use crate::event::EventKind;
#[cfg(feature = "axum")]
use crate::{http::missing_layer::MissingLayer, tenant::Tenant};

const EVENT_KINDS: &[&[EventKind]] = &[
    crate::event::kind::EVENT_KINDS,
    crate::limit::EVENT_KINDS,
    #[cfg(feature = "session")]
    crate::session::EVENT_KINDS,
    #[cfg(feature = "session")]
    crate::pkce::EVENT_KINDS,
    #[cfg(feature = "login")]
    crate::auth::EVENT_KINDS,
];

impl EventKind {
    /// Returns every kind that this build of the crate records.
    pub fn all() -> impl Iterator<Item = Self> {
        EVENT_KINDS.iter().copied().flatten().copied()
    }
}

/// Returns the tenant that the application has put into a request, or the tenant of its access token or session. Without
/// both, it is the one that a rate limit has charged and the request has proved.
#[cfg(feature = "axum")]
fn tenant_of(extensions: &Extensions) -> Option<&Tenant> {
    if let Some(own) = extensions.get() {
        return Some(own);
    }
    #[cfg(feature = "session")]
    if let Some(proved) = proved_tenant(extensions) {
        return proved;
    }
    Tenant::from_extensions(extensions)
}

/// Returns the tenant of a token, a session or both, if the request has one of them.
#[cfg(all(feature = "axum", feature = "session"))]
fn proved_tenant(extensions: &Extensions) -> Option<Option<&Tenant>> {
    use crate::session::Session;
    let session = Session::from_extensions(extensions).map(Session::tenant);
    #[cfg(feature = "bearer")]
    if let Some(token) = crate::bearer::AccessToken::from_extensions(extensions) {
        return Some(token.tenant().filter(|own| session.is_none_or(|session| session == *own)));
    }
    session.map(Some)
}

/// Extracts the tenant that the application has put into the request, or the tenant of the access token or session. Without
/// a token and a session, it is the tenant of the rate limit, if its source proves tenants, as API keys do.
///
/// There is no tenant if the token names none, if the token and the session are of different tenants, or if the limit has
/// charged an address or a name that the caller only claims. Then `Tenant` answers 500, and `Option<Tenant>` is `None`.
#[cfg(feature = "axum")]
impl<S: Sync> FromRequestParts<S> for Tenant {
    type Rejection = MissingLayer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingLayer> {
        let missing = MissingLayer::new("no layer of this route proves the tenant, or its extensions are disabled");
        tenant_of(&parts.extensions).cloned().ok_or(missing)
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> OptionalFromRequestParts<S> for Tenant {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(tenant_of(&parts.extensions).cloned())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn kinds_of_events_have_different_names() {
        let names: BTreeSet<_> = EventKind::all().map(|kind| kind.to_string()).collect();
        assert_eq!(names.len(), EventKind::all().count());
    }
}
