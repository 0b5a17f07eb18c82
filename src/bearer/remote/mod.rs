//! The keys of an issuer elsewhere.

mod key_cache;
mod fetch;
mod lifetime;
mod source;

use std::{fmt, sync::Arc, time::Duration};

use self::{
    fetch::{Described, Fetch, KeysLocation},
    key_cache::KeyCache,
    source::RemoteKeySource,
};
use super::verifier::Verifier;
use crate::{
    http::outgoing::{Outgoing, parse_url},
    util::{
        clock::{Clock, SystemClock},
        error::ConfigError,
    },
};

/// The keys of an issuer elsewhere (feature `jwks`), for a service far from the login service: it checks tokens by
/// itself and shares nothing with the issuer but its address.
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::{BearerLayer, Verifier, bearer::RemoteKeys};
///
/// // whoever is content with the defaults
/// let verifier = Verifier::remote("https://auth.acme.example", "https://api.acme.example")?;
///
/// // or an issuer with a private certificate, whose outage is borne for an hour
/// # let pem = "";
/// let verifier = RemoteKeys::new("https://auth.acme.example")?
///     .root_pem(pem)?
///     .outage(Duration::from_secs(3600))
///     .verifier("https://api.acme.example")?;
/// let layer = BearerLayer::new(verifier);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// Nothing is fetched before the first token comes. Fetching needs the runtime of tokio, which is there wherever axum,
/// tonic or hyper serve.
///
/// # What is trusted
///
/// The address of the issuer as it is written here, the authorities whose certificates prove that name, and the keys
/// that it publishes: nothing in a token says where keys come from. The metadata, at
/// `/.well-known/openid-configuration` or `/.well-known/oauth-authorization-server` (RFC 8414), must name the same
/// issuer byte for byte, and an address of the keys that is `https`; it may be on another host. With
/// [`jwks_uri`](Self::jwks_uri) there is no metadata. No redirect is followed, no proxy used, no document above 256 KiB
/// read. Plain `http` is for loopback addresses only.
///
/// # Rotation
///
/// Keys are kept for as long as `KeyCache-Control: max-age` says, from a minute to a day, otherwise for 5 minutes. When four
/// fifths of it have gone by, the next token has them fetched anew, behind its back: nobody waits who has keys. So an
/// issuer that publishes a key some time before it signs with it is never waited for. A token that names a key nobody
/// has seen has the keys fetched at once, but only one request is under way at a time, and after it no other for such a
/// token for 30 seconds: anybody can make up a name. What the issuer publishes takes the place of all that it
/// published before; a key that it has withdrawn counts until the next fetch.
///
/// # Outage
///
/// While the issuer can't be reached, or what it says can't be used, the keys stay good for another day beyond their
/// time: see [`outage`](Self::outage). Between tries there is a second, then two, and at most 30. Where there are no keys
/// at all, requests are answered 503 at once between the tries, and wait for no longer than the
/// [`timeout`](Self::timeout) during one.
///
/// What the issuer revokes before its time is not heard of here: access tokens are short-lived for that reason.
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
    /// The keys of this issuer, as it is named in its tokens: an `https` URL, or `http` on a loopback address.
    pub fn new(issuer: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            issuer: issuer.to_owned(),
            place: KeysLocation::Described(Described::new(issuer)?),
            client: Outgoing::new()?,
            deadline: Duration::from_secs(5),
            outage: Duration::from_secs(24 * 60 * 60),
            clock: Arc::new(SystemClock::new()),
        })
    }

    /// Fetches the keys at this address, whatever the metadata of the issuer say: `https`, or `http` on the loopback
    /// interface.
    pub fn jwks_uri(mut self, url: &str) -> Result<Self, ConfigError> {
        self.place = KeysLocation::Known(parse_url("jwks_uri", url)?);
        Ok(self)
    }

    /// Trusts the certificate authorities in this PEM in place of the public ones.
    pub fn root_pem(mut self, pem: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        self.client = Outgoing::trusting(pem.as_ref())?;
        Ok(self)
    }

    /// When fetching is given up, from the look-up of the host to the last byte of the keys: after 5 seconds by default,
    /// and at most 30.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, ConfigError> {
        if timeout.is_zero() || timeout > Duration::from_secs(30) {
            let given = format_args!("{timeout:?}");
            return Err(ConfigError::new("timeout of the issuer", given, "must be more than nothing, at most 30 s"));
        }
        self.deadline = timeout;
        Ok(self)
    }

    /// How long keys stay good beyond their time, if no others can be had: a day by default.
    ///
    /// A short one makes sure that a key which the issuer has withdrawn ends here too. With [`Duration::ZERO`] keys end
    /// with their time, also where nobody asked for long: whoever comes next then waits for the issuer.
    pub fn outage(mut self, outage: Duration) -> Self {
        self.outage = outage;
        self
    }

    /// Takes the time from this clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Checks access tokens of this issuer, for the service of this name.
    pub fn verifier(self, audience: &str) -> Result<Verifier, ConfigError> {
        let (issuer, clock) = (self.issuer.clone(), Arc::clone(&self.clock));
        Verifier::new(self.source(), &issuer, audience, clock)
    }

    fn source(self) -> RemoteKeySource {
        let fetch = Fetch { place: self.place, client: self.client, deadline: self.deadline };
        RemoteKeySource::new(fetch, KeyCache::new(self.outage), self.clock)
    }
}

impl Verifier {
    /// Checks access tokens of an issuer elsewhere (feature `jwks`), by the keys that it publishes: [`RemoteKeys`] says
    /// how, and has the settings. `audience` is the name of this service in its tokens.
    pub fn remote(issuer: &str, audience: &str) -> Result<Self, ConfigError> {
        RemoteKeys::new(issuer)?.verifier(audience)
    }
}

impl fmt::Debug for RemoteKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteKeys")
            .field("issuer", &self.issuer)
            .field("timeout", &self.deadline)
            .field("outage", &self.outage)
            .finish_non_exhaustive()
    }
}
