use std::{
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
};

use super::{
    error::{TenantError, TenantErrorKind},
    id::{LimitKey, Tenant, is_reserved},
};
use crate::http::head::Head;

/// Finds the tenant of a request.
///
/// A source answers at once, or reports that the tenant must be [looked up](Self::look_up). For API keys in a database,
/// use [`CachedKeys`](super::CachedKeys), or load them into [`ApiKeys`](super::ApiKeys).
///
/// # Security
///
/// The type that a source returns declares what the request has proved. A [`TenantName`] made from a [`Tenant`] is
/// proved: the source has checked a credential, so callers can't choose the name. One made from a [`LimitKey`], or from
/// [text](TenantName::borrowed), is a claim: its requests are anonymous, so they can't spend what
/// [`Quota::reserve`](crate::Quota::reserve) keeps back, and handlers never get it as a [`Tenant`].
///
/// # Closures
///
/// Closures are sources, too, if their argument is annotated. They return claims, unless you wrap them in a
/// [`ProvedTenant`]. Return `Ok(None)` if the request names no tenant, so that the next source in a chain is asked:
///
/// ```
/// use tollgate::{Head, LimitKey, TenantSource, tenant::TenantError};
///
/// let by_region = |head: Head<'_>| -> Result<Option<LimitKey>, TenantError> {
///     head.headers().get("x-region").map(|value| LimitKey::parse(value)).transpose()
/// };
/// let request = http::Request::get("/").header("x-region", "north").body(()).unwrap();
/// let found = by_region.find(Head::of_request(&request))?.unwrap();
/// assert_eq!((found.as_bytes(), found.is_claimed()), (&b"north"[..], true));
/// # Ok::<(), TenantError>(())
/// ```
///
/// To choose a source at run time, use an `Arc` (a `Box` does not work):
///
/// ```
/// use std::sync::Arc;
/// use tollgate::{ApiKeys, ClientIp, Limiter, Quota, Plans, RateLimitLayer, TenantSource};
///
/// # let by_address = true;
/// let chosen: Arc<dyn TenantSource> =
///     if by_address { Arc::new(ClientIp::peer()) } else { Arc::new(ApiKeys::new("x-api-key")?) };
/// let limiter = Limiter::memory(Plans::new(Quota::per_minute(600)?));
/// let layer: RateLimitLayer = RateLimitLayer::new(chosen, limiter);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` finds no tenant in a request",
    note = "a closure needs its argument annotated: `|head: Head<'_>| -> Result<Option<LimitKey>, TenantError>`"
)]
pub trait TenantSource: Send + Sync + 'static {
    /// Returns the name of the tenant, or `None` if the request names none.
    ///
    /// A name [converted](TenantName) from a `Tenant` counts as proved, one from a `LimitKey` as claimed.
    ///
    /// # Errors
    ///
    /// Returns an error if the request names a tenant that can't be used, or [`TenantError::pending`] if it must be looked up.
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError>;

    /// Looks up the tenant of a request for which [`find`](Self::find) has returned [`TenantError::pending`].
    ///
    /// Only a [`RateLimitLayer`](crate::RateLimitLayer) waits for it. The lookup must have a deadline and bounds,
    /// because callers can trigger it at will. Sources that never return that error don't need this method.
    fn look_up(&self, head: Head<'_>) -> TenantLookup {
        let _ = head;
        Box::pin(ready(Err(TenantError::pending())))
    }

    /// Returns the error of a request in which this source finds no tenant.
    ///
    /// Defaults to a 400. A source of credentials asks for them with
    /// [`TenantError::missing`], which is a 401.
    fn missing(&self, head: Head<'_>) -> TenantError {
        let _ = head;
        TenantError::NO_TENANT
    }

    /// Asks `next` if this source finds no tenant; see [`Or`].
    fn or<S: TenantSource>(self, next: S) -> Or<Self, S>
    where
        Self: Sized,
    {
        Or { first: self, next }
    }
}

/// The result of [`TenantSource::look_up`].
pub type TenantLookup = Pin<Box<dyn Future<Output = Result<TenantName<'static>, TenantError>> + Send>>;

impl<F, K> TenantSource for F
where
    F: Fn(Head<'_>) -> Result<Option<K>, TenantError> + Send + Sync + 'static,
    K: Into<LimitKey>,
{
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        Ok(self(head)?.map(|key| TenantName::from(key.into())))
    }
}

impl<S: TenantSource + ?Sized> TenantSource for Arc<S> {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        (**self).find(head)
    }

    fn look_up(&self, head: Head<'_>) -> TenantLookup {
        (**self).look_up(head)
    }

    fn missing(&self, head: Head<'_>) -> TenantError {
        (**self).missing(head)
    }
}

/// A fixed tenant, the same for every request. It proves nothing about the caller.
impl TenantSource for Tenant {
    fn find<'a>(&self, _head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        Ok(Some(TenantName::from(LimitKey::from(self.clone()))))
    }
}

/// The name of a tenant as a [`TenantSource`] finds it.
///
/// | made from | is |
/// |---|---|
/// | a [`Tenant`] | proved |
/// | a [`LimitKey`], or [text of the request](Self::borrowed) | claimed, unless it is marked as [`proved`](Self::proved) |
///
/// A claim serves only as the key of a limit. Its request is anonymous and can't spend what a quota
/// [reserves](crate::Quota::reserve), and a claim never replaces a tenant that an outer layer has proved.
#[derive(Clone, Debug)]
pub struct TenantName<'a> {
    name: Name<'a>,
    is_claimed: bool,
}

#[derive(Clone, Debug)]
enum Name<'a> {
    /// Text that is not reserved, and not checked any further.
    Text(&'a [u8]),
    Checked(LimitKey),
}

impl<'a> TenantName<'a> {
    /// Borrows text of the request, which is a claim.
    ///
    /// Until the text is checked as [`LimitKey::parse`] does, it is only compared with the names of known tenants.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is reserved (`ip:…` and `~…`), because such a name belongs to no caller.
    #[inline]
    pub fn borrowed(text: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Self, TenantError> {
        let text = text.as_ref();
        if is_reserved(text) {
            return Err(TenantError::RESERVED);
        }
        Ok(Self { name: Name::Text(text), is_claimed: true })
    }

    /// Marks a name that the request has proved, for example with a credential that the source has checked.
    #[must_use]
    #[inline]
    pub fn proved(mut self) -> Self {
        self.is_claimed = false;
        self
    }

    /// Returns whether the request has proved nothing: the caller chose the name, or it is an address.
    pub fn is_claimed(&self) -> bool {
        self.is_claimed
    }

    /// Returns the name as it is written in the request.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.name {
            Name::Text(text) => text,
            Name::Checked(key) => key.as_bytes(),
        }
    }

    /// Returns whether the name is known to be valid.
    #[inline]
    pub(crate) fn is_checked(&self) -> bool {
        matches!(self.name, Name::Checked(_))
    }

    /// Returns the key under which a limiter counts.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is not valid.
    pub fn to_key(&self) -> Result<LimitKey, TenantError> {
        match &self.name {
            Name::Text(text) => LimitKey::parse(text),
            Name::Checked(key) => Ok(key.clone()),
        }
    }

    /// Returns the tenant of this name, even if it is only [claimed](Self::is_claimed): check that before you trust it.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is not valid, or is that of an address or of the anonymous tenant.
    pub fn to_tenant(&self) -> Result<Tenant, TenantError> {
        Tenant::of_key(self.to_key()?).map_err(|_| TenantError::RESERVED)
    }

    /// Checks the name and copies it out of its request.
    fn to_checked(&self) -> Result<TenantName<'static>, TenantError> {
        Ok(TenantName { name: Name::Checked(self.to_key()?), is_claimed: self.is_claimed })
    }

    /// Copies a name that is known to be valid out of its request.
    pub(crate) fn to_known_name(&self) -> TenantName<'static> {
        TenantName { name: Name::Checked(self.to_known_key()), is_claimed: self.is_claimed }
    }

    /// Returns the key of a name that is known to be valid.
    #[inline]
    pub(crate) fn to_known_key(&self) -> LimitKey {
        match &self.name {
            Name::Text(text) => LimitKey::trusted(text),
            Name::Checked(key) => key.clone(),
        }
    }
}

impl From<Tenant> for TenantName<'_> {
    fn from(tenant: Tenant) -> Self {
        Self { name: Name::Checked(tenant.into()), is_claimed: false }
    }
}

impl From<LimitKey> for TenantName<'_> {
    fn from(key: LimitKey) -> Self {
        Self { name: Name::Checked(key), is_claimed: true }
    }
}

/// A source that declares the tenants of another source proved.
///
/// Requests of a proved tenant may spend what [`Quota::reserve`](crate::Quota::reserve) keeps back.
///
/// # Security
///
/// Wrap only a source whose names callers can't choose: a closure that checks a credential, or a header that a trusted proxy
/// sets and strips from the requests of callers.
///
/// ```
/// use tollgate::{Head, Tenant, TenantSource, tenant::{ProvedTenant, TenantError}};
///
/// fn verified(token: &[u8]) -> Option<Tenant> {
///     // checks the signature of the token
/// #   Tenant::parse(token).ok()
/// }
///
/// let by_token = ProvedTenant::new(|head: Head<'_>| -> Result<Option<Tenant>, TenantError> {
///     let Some(token) = head.headers().get("x-token") else { return Ok(None) };
///     verified(token.as_bytes()).map(Some).ok_or(TenantError::unknown("the token is invalid"))
/// });
/// let request = http::Request::get("/").header("x-token", "acme").body(())?;
/// assert!(!by_token.find(Head::of_request(&request))?.unwrap().is_claimed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ProvedTenant<S>(S);

impl<S: TenantSource> ProvedTenant<S> {
    /// Trusts the tenants of this source.
    pub fn new(source: S) -> Self {
        Self(source)
    }
}

impl<S: TenantSource> TenantSource for ProvedTenant<S> {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        Ok(self.0.find(head)?.map(TenantName::proved))
    }

    fn look_up(&self, head: Head<'_>) -> TenantLookup {
        let found = self.0.look_up(head);
        Box::pin(async move { found.await.map(TenantName::proved) })
    }

    fn missing(&self, head: Head<'_>) -> TenantError {
        self.0.missing(head)
    }
}

/// Two sources in a chain: the second is asked if the first finds no tenant.
///
/// An error of the first is final: a request with an unknown API key is refused, and not
/// treated as one without a key. If neither finds a tenant, the caller gets a 500 if one of them lacks what it needs, or
/// else a 401 if one of them asks for a credential. If both do, the second one's challenge is sent.
/// Created by [`TenantSource::or`].
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    next: B,
}

impl<A: TenantSource, B: TenantSource> TenantSource for Or<A, B> {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        match self.first.find(head)? {
            Some(name) => Ok(Some(name)),
            None => self.next.find(head),
        }
    }

    fn look_up(&self, head: Head<'_>) -> TenantLookup {
        match self.first.find(head) {
            Err(error) if error.kind() == TenantErrorKind::Pending => self.first.look_up(head),
            Ok(None) => self.next.look_up(head),
            // an answer came meanwhile
            Ok(Some(name)) => Box::pin(ready(name.to_checked())),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn missing(&self, head: Head<'_>) -> TenantError {
        let (first, next) = (self.first.missing(head), self.next.missing(head));
        if first.kind() > next.kind() { first } else { next }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::tenant::{client_ip::ClientIp, header::HeaderTenant, keys::ApiKeys};

    #[test]
    fn every_401_has_a_challenge_and_a_400_has_none() {
        let asks_for = |challenge| TenantError::unknown("no").challenge(challenge).unwrap().asks_for().unwrap();
        assert_eq!(asks_for("Basic realm=\"api\""), "Basic realm=\"api\"");
        assert_eq!(TenantError::unknown("no").asks_for().unwrap(), "ApiKey");
        assert_eq!(TenantError::missing("no").asks_for().unwrap(), "ApiKey");
        assert_eq!(TenantError::invalid("no").challenge("Basic").unwrap().asks_for(), None);
        assert_eq!(TenantError::internal("no").challenge("Basic").unwrap().asks_for(), None);
    }

    #[test]
    fn b30_an_invalid_challenge_is_an_error_of_the_setter() {
        for bad in ["", " ", " Basic", "\"Basic\"", "Basic\nx: y", "Basic\rx", "\0", "\t", "Basic r\u{e9}alm"] {
            let error = TenantError::missing("no").challenge(bad).unwrap_err();
            assert_eq!(error.setting(), "challenge", "{bad:?}");
        }
    }

    #[test]
    fn a07_a_chain_with_a_source_of_credentials_asks_for_them() {
        let (keys, name) = (ApiKeys::new("x-api-key").unwrap(), HeaderTenant::new("x-tenant").unwrap());
        let request = Request::new(());
        let missing = |source: &dyn TenantSource| source.missing(Head::of_request(&request)).kind();
        assert_eq!(missing(&keys.clone().or(name.clone())), TenantErrorKind::Missing);
        assert_eq!(missing(&Arc::new(name.clone().or(keys.clone()))), TenantErrorKind::Missing);
        assert_eq!(missing(&keys.or(ClientIp::peer())), TenantErrorKind::Internal);
        assert_eq!(missing(&name), TenantErrorKind::Invalid);
    }

    type Found = Result<Option<Tenant>, TenantError>;

    fn answers(found: Found) -> impl TenantSource {
        move |_: Head<'_>| -> Found { found.clone() }
    }

    #[test]
    fn the_first_source_that_finds_a_tenant_or_fails_decides() {
        let acme: Found = Ok(Tenant::parse("acme").ok());
        let globex: Found = Ok(Tenant::parse("globex").ok());
        let none: Found = Ok(None);
        let error: Found = Err(TenantError::unknown("no such key"));
        for (first, second, third, answer) in [
            (&acme, &globex, &error, &acme),
            (&none, &globex, &acme, &globex),
            (&none, &none, &globex, &globex),
            (&none, &error, &acme, &error),
            (&error, &acme, &globex, &error),
            (&none, &none, &none, &none),
        ] {
            let chain = answers(first.clone()).or(answers(second.clone())).or(answers(third.clone()));
            let request = Request::new(());
            let found = chain.find(Head::of_request(&request));
            assert_eq!(&found.map(|name| name.map(|name| name.to_tenant().unwrap())), answer);
        }
    }
}
