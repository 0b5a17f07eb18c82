use std::{any::type_name, fmt, sync::Arc};

use tower_layer::Layer;

use super::{Sessions, gate::SessionGate, origin::Origins, refusal::Refusal};
use crate::{gate::Gated, reject::StatusOnly, tenant::TenantSource, util::error::ConfigError};

/// Finds the session of each request by its cookie.
///
/// A request that has one carries a [`Session`](super::Session). One that has
/// none comes through too, unless the layer says [`required`](Self::required).
///
/// See the [module docs](super) for what is refused and why.
#[must_use]
pub struct SessionLayer<R = StatusOnly> {
    gate: SessionGate,
    respond: R,
}

impl SessionLayer {
    /// A layer that attaches the session, if there is one.
    pub fn new(sessions: Sessions) -> Self {
        let gate = SessionGate {
            sessions,
            required: false,
            refusal: Refusal::new(),
            origins: Origins::default(),
            tenant: None,
        };
        Self { gate, respond: StatusOnly }
    }
}

impl<R> SessionLayer<R> {
    /// Lets only requests with a session through. Others are answered 401
    /// (UNAUTHENTICATED to a gRPC client), or sent to the
    /// [`login_url`](Self::login_url).
    pub fn required(mut self) -> Self {
        self.gate.required = true;
        self
    }

    /// Where [`required`](Self::required) sends a person who opens a page
    /// without a session: a path of this site, or an `https` URL. The answer is
    /// a 303. Programs get a 401 all the same.
    ///
    /// A navigation is told by `Sec-Fetch-Mode: navigate`; in browsers that
    /// don't send that, by an `Accept` that prefers HTML. Keep the login page
    /// itself outside of the layer.
    pub fn login_url(mut self, url: &str) -> Result<Self, ConfigError> {
        self.gate.refusal.set_login(url)?;
        Ok(self)
    }

    /// Tells the login page where the person was going, in a query parameter of
    /// this name: always a path with its query, as the layer sees it (a router
    /// may have stripped a prefix). It is left out where coming back makes no
    /// sense, such as after a form was sent.
    ///
    /// The login page must check it again before it redirects: anyone can write
    /// a link to that page.
    pub fn return_parameter(mut self, name: &str) -> Result<Self, ConfigError> {
        self.gate.refusal.set_parameter(name)?;
        Ok(self)
    }

    /// The realm in `WWW-Authenticate`, otherwise `app`.
    pub fn realm(mut self, realm: &str) -> Result<Self, ConfigError> {
        self.gate.refusal.set_realm(realm)?;
        Ok(self)
    }

    /// Lets the pages of one more origin write, such as
    /// `https://admin.example`; give the site's own too, where a proxy in front
    /// changes the `Host` header. Over plain http only a loopback address is
    /// accepted.
    pub fn trusted_origin(mut self, origin: &str) -> Result<Self, ConfigError> {
        self.gate.origins.trust(origin)?;
        Ok(self)
    }

    /// Accepts only sessions of the tenant that `source` finds in the request,
    /// such as the one that the host names. Any other is none, and so is all
    /// where the request names no tenant.
    pub fn tenant(mut self, source: impl TenantSource) -> Self {
        self.gate.tenant = Some(Arc::new(source));
        self
    }

    /// Chooses how refusals are answered; see [`Respond`](crate::Respond).
    pub fn respond_with<R2>(self, respond: R2) -> SessionLayer<R2> {
        SessionLayer { gate: self.gate, respond }
    }
}

impl<S, R: Clone> Layer<S> for SessionLayer<R> {
    type Service = Gated<S, SessionGate, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, Arc::new(self.gate.clone()), self.respond.clone())
    }
}

impl<R: Clone> Clone for SessionLayer<R> {
    fn clone(&self) -> Self {
        Self { gate: self.gate.clone(), respond: self.respond.clone() }
    }
}

impl<R> fmt::Debug for SessionLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionLayer").field("gate", &self.gate).field("respond", &type_name::<R>()).finish()
    }
}
