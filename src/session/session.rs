//! A session as the application sees it, and what one is made of.

use std::{sync::Arc, time::Duration};

use http::{Extensions, HeaderValue};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{
    identity::{Authentication, IdentityError, Proof, UserId, auth_time, is_visible},
    rows::{LiveSession, SessionDetails, SessionTimes},
};
use crate::{
    http::head::Head,
    tenant::{Tenant, TenantError, TenantName, TenantSource},
    util::{builder::setters, clock::UnixTime, error::ConfigError, public_id::PublicId, secret::SecretDigest},
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
    sid: PublicId,
    row: Arc<LiveSession>,
    claims: Option<Arc<Map<String, Value>>>,
}

impl Session {
    pub(super) fn new(sid: PublicId, row: Arc<LiveSession>) -> Self {
        Self { sid, row, claims: None }
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
    /// not a secret: logs and pages may show it.
    pub fn sid(&self) -> PublicId {
        self.sid
    }

    /// Returns the user.
    pub fn user(&self) -> &UserId {
        &self.row.user
    }

    /// Returns the tenant of the user.
    pub fn tenant(&self) -> &Tenant {
        &self.row.tenant
    }

    /// Returns when the user last proved who they are.
    ///
    /// If the user signed in at another identity provider that did not say when it last asked for their credentials, this
    /// is the Unix epoch.
    pub fn auth_time(&self) -> UnixTime {
        match self.proofs() {
            [] => self.row.declared_auth_time,
            proofs => auth_time(proofs).unwrap_or_default(),
        }
    }

    /// Returns how strong the proof was, if the sign-in recorded it.
    pub fn acr(&self) -> Option<&str> {
        self.details().acr.as_deref()
    }

    /// Returns how the user proved who they are, by the names of RFC 8176.
    pub fn amr(&self) -> impl Iterator<Item = &str> {
        self.details().amr.iter().map(AsRef::as_ref)
    }

    /// Returns when the session began, or when the user last repeated the whole sign-in.
    pub fn created(&self) -> UnixTime {
        self.row.times.created
    }

    /// Returns when the session ends at the latest, regardless of use.
    pub fn expires(&self) -> UnixTime {
        self.row.times.expires
    }

    /// Returns when the session was last used, to the minute.
    pub fn last_use(&self) -> UnixTime {
        self.row.times.last_use
    }

    /// Returns the browser and the system in which the user signed in, such as `Firefox on Linux`, if that is known.
    /// Browsers can claim any name, so use it only for display.
    pub fn device(&self) -> Option<&str> {
        self.details().device.as_deref()
    }

    /// Reads an extra claim of the user, such as a role or a locale.
    ///
    /// Claims come from the source of the layer and are cached for a minute by default, so they can be
    /// that old. Returns `None` if there is no such claim, if it has another type, or if
    /// the layer has no source of claims.
    pub fn claim<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        T::deserialize(self.claims.as_ref()?.get(name)?).ok()
    }

    pub(super) fn with_claims(mut self, claims: Arc<Map<String, Value>>) -> Self {
        self.claims = Some(claims);
        self
    }

    pub(super) fn row(&self) -> &Arc<LiveSession> {
        &self.row
    }

    fn details(&self) -> &SessionDetails {
        self.row.details.get()
    }

    /// Returns how the user proved who they are. Empty if the application created the session itself.
    pub(crate) fn proofs(&self) -> &[Proof] {
        &self.details().proofs
    }

    /// Returns the generation of the user when the sign-in began.
    pub(crate) fn generation(&self) -> u64 {
        self.row.generation
    }

    pub(crate) fn authentication(&self) -> Authentication {
        let (LiveSession { tenant, user, generation, .. }, details) = (&*self.row, self.details().clone());
        let (tenant, user) = (tenant.clone(), user.clone());
        Authentication { tenant, user, generation: *generation, proofs: details.proofs, acr: details.acr }
    }

    /// Returns the client at which the session began.
    pub(crate) fn client(&self) -> Option<&str> {
        self.details().client.as_deref()
    }

    /// Returns whether the user asked to stay signed in.
    #[cfg(test)]
    pub(crate) fn is_remembered(&self) -> bool {
        self.row.times.remembered
    }
}

crate::util::fmt::debug_fields!(Session, |own| sid: own.sid(), tenant: own.tenant(), user: own.user());

/// The entry that the layer adds to the extensions of every request. It distinguishes a
/// request without a session from a route without a layer.
#[derive(Clone, Debug)]
pub(crate) enum SessionExtension {
    Present(Session),
    /// No session; holds the `WWW-Authenticate` value for a 401.
    Absent(HeaderValue),
}

/// A session that is about to begin: who signed in, and how.
///
/// ```
/// use tollgate::{Tenant, UserId, session::NewSession};
///
/// let ada = NewSession::new(Tenant::parse("acme")?, UserId::parse("ada")?).acr("mfa")?.amr(["pwd", "otp"])?;
/// # let _ = ada;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct NewSession {
    pub(super) tenant: Tenant,
    pub(super) user: UserId,
    /// The generation of the user when the sign-in began. If it was not read then, it is read when the session is created.
    pub(super) generation: Option<u64>,
    auth_time: Option<UnixTime>,
    pub(super) remember: Option<Duration>,
    details: SessionDetails,
}

impl NewSession {
    /// Returns the row of a session that begins now. It lives for `absolute` unless it is remembered for another time.
    pub(super) fn into_row(
        self,
        generation: u64,
        secret: SecretDigest,
        now: UnixTime,
        absolute: Duration,
    ) -> LiveSession {
        let Self { tenant, user, auth_time, remember, details, .. } = self;
        let expires = now + remember.unwrap_or(absolute);
        let times = SessionTimes { created: now, expires, last_use: now, remembered: remember.is_some() };
        let declared_auth_time = auth_time.unwrap_or(now);
        LiveSession { tenant, user, generation, secret, declared_auth_time, times, details: details.into() }
    }

    /// Describes a session of this user, who has just signed in.
    pub fn new(tenant: Tenant, user: UserId) -> Self {
        let details = SessionDetails::default();
        Self { tenant, user, generation: None, auth_time: None, remember: None, details }
    }

    /// Describes the session of a sign-in, with its proofs and the generation that was read
    /// when the sign-in began.
    pub(crate) fn authenticated(authentication: Authentication) -> Self {
        let Authentication { tenant, user, generation, proofs, acr } = authentication;
        let details = SessionDetails { proofs, acr, ..SessionDetails::default() };
        Self { generation: Some(generation), details, ..Self::new(tenant, user) }
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
        self.details.acr = Some(class.into());
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
        self.details.amr = methods.into_iter().map(Box::from).collect();
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
        let (range, reason) = (SHORTEST_REMEMBERED..=LONGEST_REMEMBERED, "must be from two minutes to 400 days");
        ConfigError::check_range("remembered session lifetime", lifetime, range, reason)?;
        self.remember = Some(lifetime);
        Ok(self)
    }

    setters! {
        /// Sets when the user signed in, if that was earlier: the `auth_time` of OpenID Connect.
        pub fn auth_time(time: UnixTime) { auth_time: Some(time) }

        /// Sets the browser and the system of the sign-in.
        pub(crate) fn device(device: Option<String>) { details.device: device.filter(|device| !device.is_empty()).map(Box::from) }

        /// Sets the client at which the session begins.
        pub(crate) fn client(id: &str) { details.client: Some(id).filter(|id| !id.is_empty()).map(Box::from) }
    }
}

/// Reads the tenant from the session of the request.
///
/// Needs a [`SessionLayer`](super::SessionLayer) outside, and answers with a 500 without one. Callers cannot forge this
/// tenant, unlike one that a header names. Requests without a session have no tenant.
#[derive(Clone, Copy, Debug)]
pub struct SessionTenant;

impl TenantSource for SessionTenant {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        Ok(Session::from_extensions(head.extensions()).map(|session| session.tenant().clone().into()))
    }

    fn missing(&self, head: Head<'_>) -> TenantError {
        let missing = TenantError::missing("a session is required");
        match head.extensions().get() {
            Some(SessionExtension::Absent(challenge)) => missing.asking(challenge.clone()),
            Some(SessionExtension::Present(_)) => missing,
            None => TenantError::internal("no SessionLayer is outside of the rate limit"),
        }
    }
}

#[cfg(feature = "axum")]
crate::http::missing_layer::extract_credential!(
    Session,
    "no SessionLayer covers this route",
    SessionExtension::Present(session) => session,
    SessionExtension::Absent(challenge) => challenge
);

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::{
        session::{Sessions, model::proved},
        store::Memory,
        tenant::TenantErrorKind,
        testing::block_on,
    };

    fn new() -> NewSession {
        NewSession::authenticated(proved("acme", "ada", 0, &["password"]))
    }

    #[test]
    fn the_acr_and_the_names_of_the_amr_are_visible_and_bounded() {
        let (long, longer) = ("x".repeat(64), "x".repeat(65));
        for (names, is_valid) in [
            (vec![], true),
            (vec!["pwd"; 16], true),
            (vec!["pwd"; 17], false),
            (vec![long.as_str()], true),
            (vec![longer.as_str()], false),
            (vec!["pwd", ""], false),
            (vec!["a b"], false),
        ] {
            assert_eq!(new().amr(names.iter().copied()).is_ok(), is_valid, "{names:?}");
        }
        for (name, is_valid) in [("mfa", true), ("", false), ("a b", false), (&"x".repeat(255), true)] {
            assert_eq!(new().acr(name).is_ok(), is_valid, "{name}");
        }
        assert!(new().acr(&"x".repeat(256)).is_err());
    }

    #[test]
    fn a_session_proves_its_tenant_and_without_one_there_is_none() {
        let (cookie, session) = block_on(Sessions::new(Memory::new()).create(new())).unwrap();
        let mut request = Request::new(());
        assert!(SessionTenant.find(Head::of_request(&request)).unwrap().is_none());
        assert_eq!(SessionTenant.missing(Head::of_request(&request)).kind(), TenantErrorKind::Internal);
        let shown = format!("{session:?}");
        request.extensions_mut().insert(SessionExtension::Present(session));
        let name = SessionTenant.find(Head::of_request(&request)).unwrap().unwrap();
        assert_eq!(name.as_bytes(), b"acme");
        assert!(!name.is_claimed());
        assert_eq!(SessionTenant.missing(Head::of_request(&request)).kind(), TenantErrorKind::Missing);
        // what is logged names the user, and does not let anybody use the session
        assert!(shown.contains("acme") && shown.contains("ada"), "{shown}");
        let header = cookie.header_value();
        let (_, secret) = header.to_str().unwrap().split(';').next().unwrap().split_once('.').unwrap();
        assert!(!shown.contains(secret), "{shown}");
    }
}
