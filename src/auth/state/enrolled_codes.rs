//! Authenticator apps and recovery codes: how they are enrolled, and how their codes are used up.

use std::sync::Arc;

use crate::{
    auth::state::proofs::enrolment_mark,
    credential::{
        CodeDigest, CredentialTable, Credentials, NewTotp, PendingTotp, RECOVERY_CODES, RecoveryCode, RecoveryCodes,
        Strength, TotpAlgorithm, TotpKey, TotpKind,
    },
    login::Keyed,
    session::UserId,
    store::StoreError,
    support::seal::Seal,
    tenant::Tenant,
    util::{
        clock::{Clock, UnixTime},
        error::ConfigError,
        handle::Handle,
        secret::{Digest, Secret},
    },
};

/// The settings of authenticator apps (TOTP, RFC 6238).
///
/// Codes of apps are second steps. A user who has one other factor, such as a password, enrols an app with a fresh proof of it.
/// A user who has two proves both. The same holds for passkeys. Recovery codes need two.
///
/// Defaults to codes of six digits and SHA-1, which every app supports. Keys that exist already keep the settings that
/// they were made with.
///
/// ```no_run
/// use tollgate::{Secret, auth::Totp};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // keep it: changing it makes all enrolled apps unusable
/// let secret = Secret::parse(std::env::var("TOTP_SECRET")?).ok_or("TOTP_SECRET is not 32 bytes of base64url")?;
/// let totp = Totp::new().name("Example").seal(&secret);
/// # let _ = totp;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Totp {
    name: Option<String>,
    kind: TotpKind,
    seal: Option<Seal>,
}

impl Totp {
    /// The maximum length of the name, in bytes.
    const MAX_NAME: usize = 64;

    /// Creates the default settings.
    pub fn new() -> Self {
        Self { name: None, kind: TotpKind { algorithm: TotpAlgorithm::Sha1, digits: 6 }, seal: None }
    }

    /// Sets the name of this service that apps show. Defaults to the host of the issuer. At most 64 bytes.
    pub fn name(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Makes codes of new keys with SHA-256. Some apps ignore this setting, and then show wrong codes.
    pub fn sha256(mut self) -> Self {
        self.kind.algorithm = TotpAlgorithm::Sha256;
        self
    }

    /// Sets how many digits codes of new keys have: 6 or 8. Some apps show six anyway.
    pub fn digits(mut self, digits: u8) -> Self {
        self.kind.digits = digits;
        self
    }

    /// Encrypts the secrets in the store with this secret, which all nodes must share. Without it, a copy of the store can
    /// make codes. Keep it: changing it makes all enrolled apps unusable. Defaults to the seal of the signing keys (`Tokens::seal`). One of the two is required if the
    /// store is persistent.
    pub fn seal(self, secret: &Secret) -> Self {
        Self { seal: Some(Seal::new(secret)), ..self }
    }

    /// Returns the settings, with these defaults.
    pub(crate) fn complete(self, host: &str, seal: &Seal, is_persistent: bool) -> Result<TotpSettings, ConfigError> {
        let name = self.name.unwrap_or_else(|| host.to_owned());
        if name.is_empty() || name.len() > Self::MAX_NAME || name.chars().any(char::is_control) {
            return Err(ConfigError::new("totp name", name, "must have 1 to 64 bytes without control characters"));
        }
        if !matches!(self.kind.digits, 6 | 8) {
            return Err(ConfigError::new("totp digits", self.kind.digits, "must be 6 or 8"));
        }
        let seal = self.seal.unwrap_or_else(|| seal.clone());
        if is_persistent && seal.is_open() {
            let reason = "must be set for a persistent store, because a copy of the store could make codes otherwise";
            return Err(ConfigError::new("totp seal", "", reason));
        }
        Ok(TotpSettings { name, kind: self.kind, seal })
    }
}

impl Default for Totp {
    fn default() -> Self {
        Self::new()
    }
}

/// Complete settings of authenticator apps.
#[derive(Debug)]
pub(crate) struct TotpSettings {
    name: String,
    kind: TotpKind,
    seal: Seal,
}

/// Enrols authenticator apps and recovery codes, and checks their codes.
#[derive(Debug)]
pub(crate) struct EnrolledCodes {
    credentials: CredentialTable,
    totp: Option<TotpSettings>,
    clock: Arc<dyn Clock>,
}

/// A user of a tenant.
type Owner<'a> = (&'a Tenant, &'a UserId);

impl EnrolledCodes {
    pub(crate) fn new(credentials: CredentialTable, totp: Option<TotpSettings>, clock: Arc<dyn Clock>) -> Self {
        Self { credentials, totp, clock }
    }

    /// Returns whether users can enrol authenticator apps.
    pub(crate) fn has_totp(&self) -> bool {
        self.totp.is_some()
    }

    /// Creates a key for an app. Nothing is stored: the caller keeps the pending key until the user confirms it.
    /// `account` is the name that the app shows. Returns `None` without settings.
    pub(crate) fn new_totp(&self, owner: Owner<'_>, account: &str) -> Option<(NewTotp, PendingTotp)> {
        let TotpSettings { name, kind, seal } = self.totp.as_ref()?;
        kind.new_key(owner, (name, account), seal)
    }

    /// Returns the key to store if the user has typed the current code of a pending key.
    pub(crate) fn confirm_totp(
        &self,
        owner: Owner<'_>,
        pending: &PendingTotp,
        typed: &str,
        strength: Strength,
    ) -> Option<TotpKey> {
        pending.confirmed(owner, typed, (strength, self.now()), &self.totp.as_ref()?.seal)
    }

    /// Replaces the recovery codes of the user. They are shown once and stored as keyed digests. Returns the id of their
    /// enrolment, too.
    pub(crate) async fn renew_recovery_codes(
        &self,
        (tenant, user): Owner<'_>,
        strength: Strength,
        keyed: &Keyed,
    ) -> Result<(Handle, Vec<String>), StoreError> {
        let enrolment = Handle::random();
        let codes: Vec<RecoveryCode> = (0..RECOVERY_CODES).map(|_| RecoveryCode::generate()).collect();
        let unused = codes.iter().map(|code| digest(&enrolment, code, keyed)).collect();
        let new = RecoveryCodes { enrolment, unused, created_at: self.now().as_secs(), strength };
        self.credentials.update(tenant, user, |row| row.recovery = Some(new.clone())).await?;
        Ok((enrolment, codes.iter().map(RecoveryCode::shown).collect()))
    }

    /// Uses up a code of the user's app with one compare-and-swap: of requests with the same code, one succeeds. Returns
    /// the mark of the proof, or `None` if the code is wrong or used, or if the strength of the key does not count.
    pub(crate) async fn use_totp(
        &self,
        (tenant, user): Owner<'_>,
        typed: &str,
        counts: impl Fn(&Strength) -> bool + Send + Sync,
        keyed: &Keyed,
    ) -> Result<Option<[u8; 32]>, StoreError> {
        let Some(settings) = &self.totp else { return Ok(None) };
        let now = self.now();
        let accept = |row: &mut Credentials| {
            let key = row.totp.as_mut().filter(|key| counts(&key.strength))?;
            key.accept((tenant, user), typed, now, &settings.seal).then_some(key.enrolment)
        };
        let used = self.credentials.update(tenant, user, accept).await?;
        Ok(used.map(|enrolment| enrolment_mark(&enrolment, keyed)))
    }

    /// Uses up a recovery code like [`use_totp`](Self::use_totp).
    pub(crate) async fn use_recovery_code(
        &self,
        (tenant, user): Owner<'_>,
        typed: &str,
        counts: impl Fn(&Strength) -> bool + Send + Sync,
        keyed: &Keyed,
    ) -> Result<Option<[u8; 32]>, StoreError> {
        let Some(code) = RecoveryCode::parse(typed) else { return Ok(None) };
        let take = |row: &mut Credentials| {
            let codes = row.recovery.as_mut().filter(|codes| counts(&codes.strength))?;
            let digest = Digest::from_bytes(digest(&codes.enrolment, &code, keyed).0);
            let before = codes.unused.len();
            codes.unused.retain(|unused| !Digest::from_bytes(unused.0).matches(&digest));
            (codes.unused.len() < before).then_some(codes.enrolment)
        };
        let used = self.credentials.update(tenant, user, take).await?;
        Ok(used.map(|enrolment| enrolment_mark(&enrolment, keyed)))
    }

    fn now(&self) -> UnixTime {
        self.clock.unix(self.clock.now())
    }
}

fn digest(enrolment: &Handle, code: &RecoveryCode, keyed: &Keyed) -> CodeDigest {
    CodeDigest(*keyed.hash("recovery code", [enrolment.as_bytes(), code.as_bytes()]).as_bytes())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        credential::{Added, Removed},
        policy::Method,
        store::{AnyStore, Memory},
        testing::{ManualClock, block_on},
    };

    struct World {
        enrolled_codes: EnrolledCodes,
        credentials: CredentialTable,
        clock: ManualClock,
        keyed: Keyed,
        tenant: Tenant,
        user: UserId,
    }

    impl World {
        fn new() -> Self {
            let clock = ManualClock::new();
            clock.set_wall(UnixTime::from_secs(1_000_000_005));
            let shared: Arc<dyn Clock> = Arc::new(clock.clone());
            let credentials = CredentialTable::new(&AnyStore::from(Memory::new()), &shared);
            let totp = Totp::new().seal(&Secret::generate()).complete("example.com", &Seal::default(), true).unwrap();
            let enrolled_codes = EnrolledCodes::new(credentials.clone(), Some(totp), shared);
            let (tenant, user) = (Tenant::parse("acme").unwrap(), UserId::parse("u-ada").unwrap());
            Self { enrolled_codes, credentials, clock, keyed: Keyed::new(&Secret::generate()), tenant, user }
        }

        fn owner(&self) -> Owner<'_> {
            (&self.tenant, &self.user)
        }

        fn removes_totp(&self) -> bool {
            let removed = block_on(self.credentials.remove_totp(self.owner(), |_, _| true)).unwrap();
            removed == Removed::Done
        }

        fn row(&self) -> Credentials {
            block_on(self.credentials.get(&self.tenant, &self.user)).unwrap().unwrap()
        }

        fn use_totp(&self, typed: &str, steps: usize) -> Option<[u8; 32]> {
            block_on(self.enrolled_codes.use_totp(self.owner(), typed, |it| it.suffices_for(steps), &self.keyed))
                .unwrap()
        }

        fn use_recovery_code(&self, typed: &str, steps: usize) -> Option<[u8; 32]> {
            let counts = |strength: &Strength| strength.suffices_for(steps);
            block_on(self.enrolled_codes.use_recovery_code(self.owner(), typed, counts, &self.keyed)).unwrap()
        }
    }

    fn strength(steps: usize) -> Strength {
        Strength::of_proofs(steps, Method::Password.into(), [])
    }

    /// The code that the app shows now.
    fn shown_code(pending: &PendingTotp, world: &World) -> String {
        let settings = world.enrolled_codes.totp.as_ref().unwrap();
        pending.current_code(world.owner(), &settings.seal, world.enrolled_codes.now())
    }

    #[test]
    fn c124_an_app_is_enrolled_by_a_right_code_and_each_code_is_accepted_once() {
        let world = World::new();
        let (new, pending) = world.enrolled_codes.new_totp(world.owner(), "ada").unwrap();
        assert!(new.uri.starts_with("otpauth://totp/example.com:ada?secret="));
        let app = || shown_code(&pending, &world);
        let enrol = |code: &str| {
            let confirmed = world.enrolled_codes.confirm_totp(world.owner(), &pending, code, strength(1));
            confirmed.is_some_and(|key| {
                block_on(world.credentials.put_totp(world.owner(), &key, |_| true)).unwrap() == Added::Done
            })
        };
        assert!(!enrol("000000") || app() == "000000");
        assert!(enrol(&app()));
        assert_eq!(world.use_totp(&app(), 1), None, "the code of the enrolment is used up");
        world.clock.advance(Duration::from_secs(30));
        let first = world.use_totp(&app(), 1);
        assert!(first.is_some());
        assert_eq!(world.use_totp(&app(), 1), None);
        world.clock.advance(Duration::from_secs(30));
        assert_eq!(world.use_totp(&app(), 2), None, "too weak for a login of two steps");
        assert_eq!(world.use_totp(&app(), 1), first);
        assert!(world.removes_totp());
        assert!(!world.removes_totp());
        world.clock.advance(Duration::from_secs(30));
        assert_eq!(world.use_totp(&app(), 1), None);
    }

    #[test]
    fn c124_recovery_codes_are_used_once_and_stored_as_digests() {
        let world = World::new();
        let renew =
            || block_on(world.enrolled_codes.renew_recovery_codes(world.owner(), strength(2), &world.keyed)).unwrap().1;
        let old = renew();
        let codes = renew();
        assert_eq!(codes.len(), 10);
        let stored = serde_json::to_string(&world.row()).unwrap();
        assert!(!codes.iter().any(|code| stored.contains(code) || stored.contains(&code.replace('-', ""))));
        assert_eq!(world.use_recovery_code(&old[0], 1), None, "replaced");
        assert_eq!(world.use_recovery_code(&codes[0], 3), None, "too weak");
        let marks: Vec<_> = codes.iter().map(|code| world.use_recovery_code(&code.to_uppercase(), 2)).collect();
        assert!(marks.iter().all(|mark| mark.is_some() && *mark == marks[0]));
        assert!(codes.iter().all(|code| world.use_recovery_code(code, 1).is_none()), "each works once");
        assert!(world.row().recovery.unwrap().unused.is_empty());
    }

    #[test]
    fn c124_of_many_requests_with_the_same_code_one_succeeds() {
        let world = World::new();
        let (_, pending) = world.enrolled_codes.new_totp(world.owner(), "ada").unwrap();
        let code = shown_code(&pending, &world);
        let key = world.enrolled_codes.confirm_totp(world.owner(), &pending, &code, strength(1)).unwrap();
        assert_eq!(block_on(world.credentials.put_totp(world.owner(), &key, |_| true)).unwrap(), Added::Done);
        let renewed = world.enrolled_codes.renew_recovery_codes(world.owner(), strength(1), &world.keyed);
        let recovery = block_on(renewed).unwrap().1;
        for code_of_recovery in &recovery {
            world.clock.advance(Duration::from_secs(30));
            let code = shown_code(&pending, &world);
            let barrier = std::sync::Barrier::new(8);
            let [by_app, by_recovery]: [usize; 2] = std::thread::scope(|scope| {
                let attempt = || {
                    barrier.wait();
                    [world.use_totp(&code, 1).is_some(), world.use_recovery_code(code_of_recovery, 1).is_some()]
                };
                let all: Vec<_> = (0..8).map(|_| scope.spawn(attempt)).collect();
                let all: Vec<[bool; 2]> = all.into_iter().map(|one| one.join().unwrap()).collect();
                [0, 1].map(|at| all.iter().filter(|used| used[at]).count())
            });
            assert_eq!((by_app, by_recovery), (1, 1));
        }
    }

    #[test]
    fn c124_settings_are_checked_and_a_persistent_store_needs_a_seal() {
        let complete = |totp: Totp, is_persistent| {
            totp.complete("example.com", &Seal::default(), is_persistent).map_err(|error| error.to_string())
        };
        assert!(complete(Totp::new(), false).is_ok());
        assert!(complete(Totp::new().sha256().digits(8).seal(&Secret::generate()), true).is_ok());
        assert!(Totp::new().complete("example.com", &Seal::new(&Secret::generate()), true).is_ok());
        let error = complete(Totp::new(), true).unwrap_err();
        assert!(error.starts_with("totp seal") && error.contains("must be set for a persistent store"), "{error}");
        for (wrong, setting) in [
            (Totp::new().digits(7), "totp digits"),
            (Totp::new().name(""), "totp name"),
            (Totp::new().name("a\nb"), "totp name"),
            (Totp::new().name(&"x".repeat(65)), "totp name"),
        ] {
            assert!(complete(wrong, false).unwrap_err().starts_with(setting));
        }
        assert!(!format!("{:?}", Totp::new().seal(&Secret::generate())).contains("nonce"));
    }
}
