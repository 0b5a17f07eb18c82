//! A session as the application sees it, and what one is made of.

use std::{fmt, sync::Arc, time::Duration};

use http::{Extensions, HeaderValue};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{
    found::FoundSession,
    identity::{Authentication, IdentityError, UserId, is_visible},
    rows::{LiveSession, SessionHead},
};
use crate::{
    http::head::Head,
    tenant::{Tenant, TenantError, TenantSource},
    util::{clock::UnixTime, error::ConfigError, handle::Handle, secret::Digest},
};

/// The longest time for which a session can be remembered. Browsers drop cookies after it.
const LONGEST_REMEMBERED: Duration = Duration::from_secs(400 * 86400);
const SHORTEST_REMEMBERED: Duration = Duration::from_secs(120);

/// A signed-in session: who the caller is, and how and when they proved it.
///
/// A `Session` is a snapshot of what the store holds. It cannot be changed or saved, so a
/// late request cannot undo a sign-out. Keep what your application remembers about a
/// visitor in your own table, under [`sid`](Self::sid) or [`user`](Self::user).
///
/// With the feature `axum` it is an extractor: `Session` answers 401 to requests without a
/// session, `Option<Session>` lets them through, and both answer 500 if no
/// [`SessionLayer`](super::SessionLayer) protects the route.
#[derive(Clone)]
pub struct Session {
    sid: Handle,
    found: Arc<FoundSession>,
    claims: Option<Arc<Map<String, Value>>>,
}

impl Session {
    pub(super) fn new(sid: Handle, row: LiveSession) -> Self {
        Self::found(sid, Arc::new(row.into()))
    }

    pub(super) fn found(sid: Handle, found: Arc<FoundSession>) -> Self {
        Self { sid, found, claims: None }
    }

    /// Returns the session of a request that passed a
    /// [`SessionLayer`](super::SessionLayer). Takes `request.extensions()` of hyper and of
    /// tonic.
    pub fn from_extensions(extensions: &Extensions) -> Option<&Self> {
        match extensions.get()? {
            SessionExtension::Present(session) => Some(session),
            SessionExtension::Absent(_) => None,
        }
    }

    /// Returns the id of the session. It stays the same until the session ends, and it is
    /// not a secret: logs, tokens and pages may show it.
    pub fn sid(&self) -> Handle {
        self.sid
    }

    /// Returns the user.
    pub fn user(&self) -> &UserId {
        &self.head().user
    }

    /// Returns the tenant of the user.
    pub fn tenant(&self) -> &Tenant {
        &self.head().tenant
    }

    /// Returns when the user last proved who they are.
    ///
    /// If the user signed in at another identity provider that did not tell when it last asked for their credentials, this
    /// is the Unix epoch.
    pub fn auth_time(&self) -> UnixTime {
        match self.authentication().proofs.is_empty() {
            true => self.head().declared_auth_time,
            false => self.authentication().auth_time().unwrap_or_default(),
        }
    }

    /// Returns how strong the proof was, if the sign-in recorded it.
    pub fn acr(&self) -> Option<&str> {
        self.authentication().acr.as_deref()
    }

    /// Returns how the user proved who they are, by the names of RFC 8176.
    pub fn amr(&self) -> impl Iterator<Item = &str> {
        self.row().amr.iter().map(AsRef::as_ref)
    }

    /// Returns when the session began, or when the user last repeated the whole sign-in.
    pub fn created(&self) -> UnixTime {
        self.head().times.created
    }

    /// Returns when the session ends at the latest, regardless of use.
    pub fn expires(&self) -> UnixTime {
        self.head().times.expires
    }

    /// Returns when the session was last used, to the minute.
    pub fn last_use(&self) -> UnixTime {
        self.head().times.last_use
    }

    /// Returns the browser and the system in which the user signed in through an `AuthService`, such as `Firefox on
    /// Linux`. Browsers can name themselves as they like, so only show it.
    pub fn device(&self) -> Option<&str> {
        self.row().device.as_deref()
    }

    /// Reads an extra claim of the user, such as a role or a locale.
    ///
    /// Claims come from the login service and are cached for a minute by default, so they can be
    /// that old. Returns `None` if there is no such claim, if it has another type, or if
    /// the layer has no source of claims.
    pub fn claim<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        T::deserialize(self.claims.as_ref()?.get(name)?).ok()
    }

    pub(super) fn with_claims(mut self, claims: Arc<Map<String, Value>>) -> Self {
        self.claims = Some(claims);
        self
    }

    pub(super) fn head(&self) -> &SessionHead {
        &self.found.head
    }

    pub(super) fn row(&self) -> &LiveSession {
        self.found.row()
    }

    pub(crate) fn authentication(&self) -> &Authentication {
        &self.row().authentication
    }

    /// Returns the client at which the session began.
    #[cfg(any(feature = "login", test))]
    pub(crate) fn client(&self) -> Option<&str> {
        self.row().client.as_deref()
    }

    /// Returns whether the user asked to stay signed in.
    #[cfg(test)]
    pub(crate) fn is_remembered(&self) -> bool {
        self.head().times.remembered
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("sid", &self.sid())
            .field("tenant", self.tenant())
            .field("user", self.user())
            .finish_non_exhaustive()
    }
}

/// The entry that the layer adds to the extensions of every request. It distinguishes a
/// request without a session from a route without a layer.
#[derive(Clone, Debug)]
pub(crate) enum SessionExtension {
    Present(Session),
    /// No session; holds the `WWW-Authenticate` value for a 401.
    #[cfg_attr(not(feature = "axum"), expect(dead_code, reason = "only the extractor reads it"))]
    Absent(HeaderValue),
}

/// A session that is about to begin: who signed in, and how.
///
/// ```
/// use tollgate::{NewSession, Tenant, UserId};
///
/// let ada = NewSession::new(Tenant::parse("acme")?, UserId::parse("ada")?).acr("mfa")?.amr(["pwd", "otp"])?;
/// # let _ = ada;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct NewSession {
    /// The generation counts only if `has_generation` is set.
    pub(super) authentication: Authentication,
    /// Whether the generation was read when the sign-in began. If not, it is read when the
    /// session is created.
    pub(super) has_generation: bool,
    pub(super) auth_time: Option<UnixTime>,
    pub(super) amr: Box<[Box<str>]>,
    pub(super) client: Option<Box<str>>,
    pub(super) remember: Option<Duration>,
    pub(super) device: Option<Box<str>>,
}

impl NewSession {
    /// Returns the row of a session that begins now. It lives for `absolute` unless it is remembered for another time.
    pub(super) fn into_row(self, secret: Digest, now: UnixTime, absolute: Duration) -> LiveSession {
        LiveSession {
            authentication: self.authentication,
            secret,
            client: self.client,
            amr: self.amr,
            declared_auth_time: self.auth_time.unwrap_or(now),
            created: now,
            expires: now + self.remember.unwrap_or(absolute),
            last_use: now,
            remembered: self.remember.is_some(),
            device: self.device,
        }
    }

    /// Describes a session of this user, who has just signed in.
    pub fn new(tenant: Tenant, user: UserId) -> Self {
        let authentication = Authentication { tenant, user, generation: 0, proofs: Vec::new(), acr: None };
        Self {
            authentication,
            has_generation: false,
            auth_time: None,
            amr: Box::default(),
            client: None,
            remember: None,
            device: None,
        }
    }

    /// Describes the session of a login, with its proofs and the generation that was read
    /// when the login began.
    #[cfg(any(feature = "login", test))]
    pub(crate) fn authenticated(authentication: Authentication) -> Self {
        let new = Self::new(authentication.tenant.clone(), authentication.user.clone());
        Self { authentication, has_generation: true, ..new }
    }

    /// Sets when the user signed in, if that was earlier: the `auth_time` of OpenID Connect.
    pub fn auth_time(mut self, time: UnixTime) -> Self {
        self.auth_time = Some(time);
        self
    }

    /// Sets how strong the proof was, by a name of your own: the `acr` of OpenID Connect.
    ///
    /// # Errors
    ///
    /// Returns an error unless the name has 1 to 255 visible ASCII characters.
    pub fn acr(mut self, class: &str) -> Result<Self, IdentityError> {
        if !is_visible(class, 255) {
            return Err(IdentityError("the acr must have 1 to 255 visible ASCII characters"));
        }
        self.authentication.acr = Some(class.into());
        Ok(self)
    }

    /// Sets how the user proved who they are, by the names of RFC 8176: the `amr` of OpenID
    /// Connect.
    ///
    /// # Errors
    ///
    /// Returns an error for more than 16 names, or if a name does not have 1 to 64 visible
    /// ASCII characters.
    pub fn amr<'a>(mut self, methods: impl IntoIterator<Item = &'a str>) -> Result<Self, IdentityError> {
        // one more than allowed is enough to notice
        let methods: Vec<&str> = methods.into_iter().take(17).collect();
        if methods.len() > 16 || !methods.iter().all(|method| is_visible(method, 64)) {
            return Err(IdentityError("the amr must be up to 16 names of 1 to 64 visible ASCII characters"));
        }
        self.amr = methods.into_iter().map(Box::from).collect();
        Ok(self)
    }

    /// Keeps the user signed in for this long ("remember me").
    ///
    /// The cookie gets a `Max-Age`, so it survives a closed browser, and the session ends
    /// after this time instead of after the lifetimes of [`Sessions`](super::Sessions).
    /// Sessions without this setting end with the browser.
    ///
    /// # Errors
    ///
    /// Returns an error if the time is shorter than two minutes or longer than 400 days.
    pub fn remember(mut self, lifetime: Duration) -> Result<Self, ConfigError> {
        if !(SHORTEST_REMEMBERED..=LONGEST_REMEMBERED).contains(&lifetime) {
            let reason = "must be from two minutes to 400 days";
            return Err(ConfigError::new("remembered session lifetime", format!("{lifetime:?}"), reason));
        }
        self.remember = Some(lifetime);
        Ok(self)
    }

    /// Sets the browser and the system of the sign-in.
    #[cfg(any(feature = "login", test))]
    pub(crate) fn device(mut self, device: Option<String>) -> Self {
        self.device = device.filter(|device| !device.is_empty()).map(Box::from);
        self
    }

    /// Sets the client at which the session begins.
    #[cfg(any(feature = "login", test))]
    pub(crate) fn client(mut self, id: &str) -> Self {
        self.client = Some(id).filter(|id| !id.is_empty()).map(Box::from);
        self
    }
}

/// Reads the tenant from the session of the request.
///
/// Needs a [`SessionLayer`](super::SessionLayer) outside, and answers with a 500 without one. Callers cannot forge this
/// tenant, unlike one that a header names. Requests without a session have no tenant.
#[derive(Clone, Copy, Debug)]
pub struct SessionTenant;

impl TenantSource for SessionTenant {
    fn find(&self, head: Head<'_>) -> Result<Option<Tenant>, TenantError> {
        Ok(Session::from_extensions(head.extensions()).map(|session| session.tenant().clone()))
    }

    fn missing(&self, head: Head<'_>) -> TenantError {
        match head.extensions().get::<SessionExtension>() {
            Some(_) => TenantError::missing("a session is required").challenge("Session realm=\"app\""),
            None => TenantError::internal("no SessionLayer is outside of the rate limit"),
        }
    }
}
