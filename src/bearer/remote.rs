//! Keys of a remote issuer.

use std::{sync::Arc, time::Duration};

use super::{keys::KeySource, verifier::Verifier};
use crate::{
    discovery::{DescribedIssuer, Fetch, KeysLocation, RemoteIssuer},
    gate::MaybeReady,
    jose::{KeySet, Unavailable},
    store::BoxFuture,
    support::{outgoing::Outgoing, url::parse_url},
    util::{
        builder::setters,
        clock::{Clock, SystemClock},
        error::ConfigError,
    },
};

/// The keys of a remote issuer (feature `external-providers`). With them, a service without access to the issuer's
/// store verifies tokens, knowing only the issuer's URL.
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::{BearerLayer, Verifier, bearer::RemoteKeys};
///
/// // with the defaults
/// let verifier = Verifier::remote("https://auth.acme.example", "https://api.acme.example")?;
///
/// // or an issuer with a private certificate, whose known keys are used for an hour of outage
/// # let pem = "";
/// let verifier = RemoteKeys::new("https://auth.acme.example")?
///     .root_pem(pem)?
///     .outage(Duration::from_secs(3600))
///     .verifier("https://api.acme.example")?;
/// let layer = BearerLayer::new(verifier);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// Nothing is fetched before the first token arrives. Fetching needs a tokio runtime, which is
/// available wherever axum, tonic or hyper serve requests.
///
/// # Trust
///
/// Trust is based on the issuer URL that you configure, on the certificate authorities that vouch
/// for its host, and on the keys that it publishes. Nothing in a token influences where keys come
/// from. The metadata, at `/.well-known/openid-configuration` or
/// `/.well-known/oauth-authorization-server` (RFC 8414), must name exactly the same issuer and an
/// `https` URL for the keys, which may be on another host. With [`jwks_uri`](Self::jwks_uri), no
/// metadata is used. Redirects are not followed, proxies are not used, and documents are limited to
/// 256 KiB. Plain `http` is accepted for loopback addresses only.
///
/// # Rotation
///
/// Keys are cached according to `Cache-Control: max-age`, between a minute and a day, or for 5
/// minutes by default. After four fifths of that time, the next token triggers a refresh in the
/// background; requests never wait while there are valid keys. So no request waits for an issuer that publishes its new
/// keys some time before using them.
///
/// A token with an unknown key id triggers a request immediately. Only one request is in progress at a time, and
/// because anyone can make up a key id, such requests are at least 30 seconds apart, with one exception every five
/// minutes. Fetched keys replace all earlier ones, so a withdrawn key stays valid until the next fetch.
///
/// # Outages
///
/// If the issuer is unreachable or returns something unusable, the keys stay valid for another day;
/// see [`outage`](Self::outage). Retries happen after one second, then two, and at most 30. If
/// there are no keys at all, requests wait for a running attempt, at most for the
/// [`timeout`](Self::timeout), and otherwise get a 503 immediately.
///
/// Revocations are not known here, which is why access tokens are short-lived.
#[must_use]
pub struct RemoteKeys {
    issuer: String,
    place: KeysLocation,
    client: Outgoing,
    deadline: Duration,
    outage: Duration,
    clock: Arc<dyn Clock>,
}

impl RemoteKeys {
    /// Creates the source for this issuer, named exactly as in its tokens.
    ///
    /// # Errors
    ///
    /// Returns an error unless `issuer` is an `https` URL, or an `http` URL on a loopback address.
    pub fn new(issuer: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            issuer: issuer.to_owned(),
            place: KeysLocation::Described(DescribedIssuer::new(issuer)?),
            client: Outgoing::new()?,
            deadline: Duration::from_secs(5),
            outage: Duration::from_secs(24 * 60 * 60),
            clock: Arc::new(SystemClock::new()),
        })
    }

    /// Fetches the keys from this URL and ignores the metadata.
    ///
    /// # Errors
    ///
    /// Returns an error unless `url` is an `https` URL, or an `http` URL on a loopback address.
    pub fn jwks_uri(mut self, url: &str) -> Result<Self, ConfigError> {
        self.place = KeysLocation::Known(parse_url("jwks_uri", url)?);
        Ok(self)
    }

    /// Trusts the certificate authorities in this PEM instead of the public ones.
    ///
    /// # Errors
    ///
    /// Returns an error if the PEM contains no certificate or an invalid one.
    pub fn root_pem(mut self, pem: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        self.client = Outgoing::trusting(pem.as_ref())?;
        Ok(self)
    }

    /// Sets the timeout for fetching keys, from the DNS lookup to the last byte. Defaults to 5
    /// seconds.
    ///
    /// # Errors
    ///
    /// Returns an error if `timeout` is zero or longer than 30 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, ConfigError> {
        let range = Duration::from_nanos(1)..=Duration::from_secs(30);
        ConfigError::check_range("issuer timeout", timeout, range, "must be greater than zero and at most 30 s")?;
        self.deadline = timeout;
        Ok(self)
    }

    setters! {
        /// Sets how long keys stay valid beyond their lifetime if no newer ones can be fetched.
        /// Defaults to one day.
        ///
        /// A shorter time makes sure that a key withdrawn by the issuer stops working here, too. With
        /// [`Duration::ZERO`], keys expire on time, and after an idle period the next request waits for
        /// the issuer.
        pub fn outage(outage: Duration) { outage: outage }

        /// Sets the clock.
        pub fn clock(clock: impl Clock) { clock: Arc::new(clock) }
    }

    /// Returns a verifier for tokens of this issuer whose audience is `audience`, the name of this
    /// service.
    ///
    /// # Errors
    ///
    /// Returns an error if `audience` is not a valid name.
    pub fn verifier(self, audience: &str) -> Result<Verifier, ConfigError> {
        let (issuer, clock) = (self.issuer.clone(), Arc::clone(&self.clock));
        Verifier::new(self.source(), &issuer, audience, clock)
    }

    fn source(self) -> RemoteIssuer {
        let fetch = Fetch { place: self.place, client: self.client, deadline: self.deadline };
        RemoteIssuer::new(fetch, self.outage, self.clock)
    }
}

impl Verifier {
    /// Returns a verifier for tokens of a remote issuer (feature `external-providers`) with the default settings
    /// of [`RemoteKeys`]. `audience` is the name of this service in its tokens.
    ///
    /// # Errors
    ///
    /// Returns an error if the issuer URL or the audience is invalid.
    pub fn remote(issuer: &str, audience: &str) -> Result<Self, ConfigError> {
        RemoteKeys::new(issuer)?.verifier(audience)
    }
}

crate::util::fmt::debug_fields!(RemoteKeys, |own| issuer: own.issuer, timeout: own.deadline, outage: own.outage);

type FetchedKeys = MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>>;

impl KeySource for RemoteIssuer {
    fn keys(&self) -> FetchedKeys {
        self.keys()
    }

    fn newer_keys(&self, seen: &Arc<KeySet>) -> FetchedKeys {
        self.refetch_keys(seen)
    }
}
