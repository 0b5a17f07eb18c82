//! [`Tokens`]: what was set, and what runs on it.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::{family::Row, held::Held, keys::Keys, revoked::Revoked, ring::Schedule, seal::Seal, verify::OwnKeys};
use crate::{
    bearer::{Verifier, check_name},
    client::Scopes,
    http::issuer::Issuer,
    jose::Algorithm,
    store::{AnyStore, StoreError, table::Table},
    util::{
        clock::{Clock, SystemClock, UnixTime},
        error::ConfigError,
        secret::Secret,
    },
};

/// The tokens of one issuer: their keys, how long they live, and what was taken back.
///
/// Clones are one, until something is set on one of them. The app gives one to
/// [`AuthServiceBuilder::tokens`](crate::AuthServiceBuilder::tokens), which issues them, and makes of another the
/// [`verifier`](Self::verifier) of its APIs. The [module docs](super) show both.
#[derive(Clone)]
#[must_use]
pub struct Tokens(Arc<Inner>);

struct Inner {
    settings: Settings,
    running: OnceLock<Running>,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) issuer: Issuer,
    store: AnyStore,
    clock: Arc<dyn Clock>,
    pub(super) algorithm: Algorithm,
    pub(super) audience: String,
    pub(super) access: Duration,
    pub(super) refresh: Duration,
    seal: Seal,
    period: Duration,
}

struct Running {
    keys: Keys,
    families: Table<Row>,
    held: Table<Held>,
    revoked: Revoked,
}

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The longest that an access token may live.
pub(super) const LONGEST_ACCESS: Duration = Duration::from_secs(600);
/// The longest that refresh tokens may be traded after a login.
pub(super) const LONGEST_REFRESH: Duration = Duration::from_secs(400 * 24 * 3600);
/// A key is published for an hour before it signs, and for a day after.
const LEAD: Duration = Duration::from_secs(3600);
const KEEP: Duration = DAY;
/// How long a client that did not ask for more can trade refresh tokens.
pub(super) const REFRESH_OF_A_SESSION: Duration = DAY;

impl Tokens {
    /// Tokens of this issuer, which is that of the login service; their keys, families and marks are in this store.
    pub fn new(issuer: &str, store: impl Into<AnyStore>) -> Result<Self, ConfigError> {
        let issuer = Issuer::parse(issuer)?;
        check_name("issuer", issuer.as_str())?;
        Ok(Self::of(Settings {
            audience: issuer.as_str().to_owned(),
            issuer,
            store: store.into(),
            clock: Arc::new(SystemClock::new()),
            algorithm: Algorithm::Es256,
            access: LONGEST_ACCESS,
            refresh: DAY * 30,
            seal: Seal::default(),
            period: DAY * 90,
        }))
    }

    fn of(settings: Settings) -> Self {
        Self(Arc::new(Inner { settings, running: OnceLock::new() }))
    }

    fn set(self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = self.0.settings.clone();
        change(&mut settings);
        Self::of(settings)
    }

    /// Signs by this algorithm; by ES256, if nothing else is said. There is a key for RS256 in any case, for clients whose
    /// id_tokens are to be signed by it.
    ///
    /// A change takes effect at once, without the hour in which the key of a rotation is published first: whoever keeps a
    /// copy of `/jwks` has to fetch it again when it meets the new key, as `Verifier::remote`
    /// does. All nodes that share a store need the same algorithm.
    pub fn algorithm(self, algorithm: Algorithm) -> Self {
        self.set(|settings| settings.algorithm = algorithm)
    }

    /// Names the APIs that access tokens are for, in `aud`: the URL of an API, such as `https://api.example.com`. It is the
    /// issuer otherwise. A client can have [one of its own](crate::Client::audience).
    pub fn audience(self, audience: &str) -> Result<Self, ConfigError> {
        check_name("audience", audience)?;
        Ok(self.set(|settings| audience.clone_into(&mut settings.audience)))
    }

    /// How long an access token lives, and an id_token: ten minutes, if nothing else is said, and at most; at least one.
    pub fn access_lifetime(self, lifetime: Duration) -> Result<Self, ConfigError> {
        if !(MINUTE..=LONGEST_ACCESS).contains(&lifetime) {
            let reason = "must be one minute to ten";
            return Err(ConfigError::new("access token lifetime", format!("{lifetime:?}"), reason));
        }
        Ok(self.set(|settings| settings.access = lifetime))
    }

    /// How long refresh tokens can be traded after the login, by clients that may and do ask for `offline_access` (which
    /// the operator registers them for; the user is asked where the client says `prompt=consent`): 30 days,
    /// if nothing else is said. Others can for a day, and not beyond a sign-out.
    pub fn refresh_lifetime(self, lifetime: Duration) -> Result<Self, ConfigError> {
        if !(LONGEST_ACCESS..=LONGEST_REFRESH).contains(&lifetime) {
            let reason = "must be ten minutes to 400 days";
            return Err(ConfigError::new("refresh token lifetime", format!("{lifetime:?}"), reason));
        }
        Ok(self.set(|settings| settings.refresh = lifetime))
    }

    /// Seals private keys in the store under this secret, which all nodes must share. Without it whoever reads the store
    /// can sign. Keys that are there already stay as they are until they are [rotated](Self::rotate) out.
    pub fn seal(self, secret: &Secret) -> Self {
        self.set(|settings| settings.seal = Seal::new(secret))
    }

    /// How long a key signs: 90 days, if nothing else is said; at least one.
    pub fn rotate_every(self, period: Duration) -> Result<Self, ConfigError> {
        if !(DAY..=DAY * 3650).contains(&period) {
            let reason = "must be one day to ten years";
            return Err(ConfigError::new("rotation of signing keys", format!("{period:?}"), reason));
        }
        Ok(self.set(|settings| settings.period = period))
    }

    /// Takes the time from this clock.
    pub fn clock(self, clock: impl Clock) -> Self {
        self.set(|settings| settings.clock = Arc::new(clock))
    }

    /// Reads the keys, or makes them: what the first request would do otherwise. To be called at the start, so that a wrong
    /// seal or a store that fails is seen then.
    pub async fn prepare(&self) -> Result<(), StoreError> {
        self.keys().current().await.map(|_| ())
    }

    /// Makes a new key for each algorithm, beside the rotation that goes by itself. It is published at once, on this node,
    /// and within a minute on others; it signs an hour later, and the old one is published for a day more. No restart is
    /// needed anywhere. Nothing is made for an algorithm whose next key waits to sign already, or that has eight published.
    pub async fn rotate(&self) -> Result<(), StoreError> {
        self.keys().rotate().await
    }

    /// Takes all keys out of use, and signs with new ones at once: after somebody got hold of a private one, or of the
    /// secret of the [`seal`](Self::seal), which is to be another then, on all nodes.
    ///
    /// Access tokens and id_tokens that the old keys have signed are refused from now on: here at once, on other nodes that
    /// share the store within a minute, elsewhere when the copy of `/jwks` has had its time. Apps get new ones for their
    /// refresh tokens, which go on.
    pub async fn withdraw_keys(&self) -> Result<(), StoreError> {
        self.keys().withdraw().await
    }

    /// What checks these tokens in this process, or in any that shares the store: a token that was taken back is refused
    /// at once. Far from the store there is `Verifier::remote` (feature `jwks`).
    #[expect(clippy::expect_used, reason = "both names were checked when they were set")]
    pub fn verifier(&self) -> Verifier {
        let settings = self.settings();
        let keys = OwnKeys(self.clone());
        let clock = Arc::clone(&settings.clock);
        Verifier::new(keys, settings.issuer.as_str(), &settings.audience, clock).expect("the names are good")
    }

    /// The issuer.
    pub fn issuer(&self) -> &str {
        self.settings().issuer.as_str()
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn algorithm_in_use(&self) -> Algorithm {
        self.settings().algorithm
    }

    pub(crate) fn now(&self) -> UnixTime {
        self.settings().clock.unix(self.settings().clock.now())
    }

    pub(super) fn family_lives(&self, scope: &Scopes) -> Duration {
        let all = self.settings().refresh;
        if scope.contains(super::OFFLINE_ACCESS) { all } else { all.min(REFRESH_OF_A_SESSION) }
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.running().keys
    }

    pub(super) fn families(&self) -> &Table<Row> {
        &self.running().families
    }

    pub(super) fn held(&self) -> &Table<Held> {
        &self.running().held
    }

    pub(super) fn revoked(&self) -> &Revoked {
        &self.running().revoked
    }

    fn running(&self) -> &Running {
        self.0.running.get_or_init(|| {
            let Settings { store, clock, seal, algorithm, period, .. } = self.settings().clone();
            let mut wanted = vec![algorithm];
            wanted.extend((algorithm != Algorithm::Rs256).then_some(Algorithm::Rs256));
            let schedule = Schedule { period, lead: LEAD, keep: KEEP };
            Running {
                keys: Keys::new(store.clone(), Arc::clone(&clock), seal, wanted, schedule),
                families: Table::new(store.clone(), "token_families", Arc::clone(&clock)),
                held: Table::new(store.clone(), "families_held", Arc::clone(&clock)),
                revoked: Revoked::new(store, clock),
            }
        })
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { issuer, store, algorithm, audience, .. } = self.settings();
        f.debug_struct("Tokens")
            .field("issuer", &issuer.as_str())
            .field("store", store)
            .field("algorithm", algorithm)
            .field("audience", audience)
            .finish_non_exhaustive()
    }
}
