use std::thread;

use tokio::runtime::Handle;

use super::{
    engine::{Engine, Verdict},
    hash::{PasswordHash, StoredPassword},
    password::Password,
    recipe::Cost,
    turns::Turns,
};
use crate::{
    util::builder::setters,
    {tenant::Tenant, util::error::ConfigError},
};

/// The number of waiting callers for each running check, by default.
const WAITING_EACH: usize = 64;
/// The most jobs that either setting allows.
const MOST: usize = 1 << 20;

/// Hashes and checks passwords, away from the async threads.
///
/// By default, uses argon2id with 19456 KiB, two iterations and one lane, the minimum that OWASP recommends. It computes as
/// many hashes at once as the machine has threads, and lets 64 times as many callers wait. Clones share these limits.
/// [`builder`](Self::builder) changes the settings.
///
/// Waiting tenants take turns, so a flood from one does not starve the others. If the queue is full, a tenant with
/// fewer waiting callers takes the place of the last caller of the tenant with the most. The login service names the
/// tenant of each check; [`of_tenant`](Self::of_tenant) does so for your own calls.
///
/// Its methods must be called within a tokio runtime.
#[derive(Clone)]
pub struct Passwords {
    engine: Engine,
    turns: Turns,
    tenant: Option<Tenant>,
}

impl Passwords {
    /// Creates a pool with the default settings.
    pub fn new() -> Self {
        Self::from_builder(&PasswordsBuilder::new())
    }

    /// Creates a pool that makes the cheapest hashes argon2 supports. They are easy to guess: use them only in tests.
    pub fn insecure_fast() -> Self {
        Self::from_builder(&Self::builder().insecure_fast())
    }

    /// Starts building a pool with other settings.
    pub fn builder() -> PasswordsBuilder {
        PasswordsBuilder::new()
    }

    fn from_builder(settings: &PasswordsBuilder) -> Self {
        let PasswordsBuilder { cost, concurrency, waiting, .. } = *settings;
        Self { engine: Engine::new(cost), turns: Turns::new(concurrency, waiting), tenant: None }
    }

    /// Returns the same pool for jobs of this tenant. Jobs without a tenant share a separate queue.
    #[must_use]
    pub fn of_tenant(&self, tenant: &Tenant) -> Self {
        Self { tenant: Some(tenant.clone()), ..self.clone() }
    }

    /// Hashes a password with a new salt. The caller must enforce a minimum length and refuse common passwords, for
    /// example with [`PasswordRules`](super::PasswordRules).
    ///
    /// # Errors
    ///
    /// Returns an error if the password is empty or longer than 1024 bytes, or if it can't be hashed now.
    pub async fn hash(&self, password: Password) -> Result<PasswordHash, PasswordError> {
        if password.usable().is_none() {
            return Err(PasswordErrorKind::Unusable.into());
        }
        self.run(move |engine| engine.hash(password.usable()?)).await
    }

    /// Checks a password against the hash of an account. Pass `None` if there is no account, if it is disabled, or if
    /// it has no password.
    ///
    /// Both cases cost the same: without a hash, a decoy is checked and the answer is [`Verdict::Wrong`]. An empty
    /// password, or one of more than 1024 bytes, is wrong at the same cost too.
    ///
    /// # Errors
    ///
    /// Returns an error if the password can't be checked now.
    pub async fn verify(&self, password: Password, stored: Option<PasswordHash>) -> Result<Verdict, PasswordError> {
        self.run(move |engine| engine.verify(&password, stored.as_ref())).await
    }

    /// Checks a password of an account whose hash may be foreign. See [`Engine::verify_either`].
    pub(crate) async fn verify_either(
        &self,
        password: Password,
        stored: Option<StoredPassword>,
        foreign_decoy: String,
        check: impl FnOnce(&str, &str) -> bool + Send + 'static,
    ) -> Result<Verdict, PasswordError> {
        self.run(move |engine| engine.verify_either(&password, stored.as_ref(), &foreign_decoy, check)).await
    }

    /// Runs a job when its turn comes. The job owns its turn, so it counts until it ends, even if the caller is gone.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Engine) -> Option<T> + Send + 'static,
    ) -> Result<T, PasswordError> {
        let failed = PasswordErrorKind::Failed;
        let runtime = Handle::try_current().map_err(|_| failed)?;
        let turn = self.turns.next(self.tenant.as_ref()).await.ok_or(PasswordErrorKind::Busy)?;
        let engine = self.engine.clone();
        let done = runtime.spawn_blocking(move || {
            let done = job(&engine);
            drop(turn);
            done
        });
        Ok(done.await.ok().flatten().ok_or(failed)?)
    }
}

crate::util::builder::default_by_new!(Passwords);

crate::util::fmt::debug_fields!(Passwords, |own| cost: own.engine.cost);

/// Settings of [`Passwords`].
///
/// ```
/// use tollgate::Passwords;
///
/// let passwords = Passwords::builder().memory_kib(65_536).iterations(3).concurrency(4).build()?;
/// assert!(Passwords::builder().memory_kib(1024).build().is_err());
/// # let _ = passwords;
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PasswordsBuilder {
    cost: Cost,
    /// The minimum memory and iterations.
    floor: Cost,
    concurrency: usize,
    waiting: usize,
}

impl PasswordsBuilder {
    fn new() -> Self {
        let concurrency = thread::available_parallelism().map_or(1, usize::from).min(MOST / WAITING_EACH);
        Self { cost: Cost::DEFAULT, floor: Cost::DEFAULT, concurrency, waiting: concurrency * WAITING_EACH }
    }

    setters! {
        /// Sets the memory of a hash: 19456 KiB to 256 MiB. Defaults to 19456 KiB.
        ///
        /// Don't lower it while hashes with more memory are stored: they take longer to check than the decoy of an unknown
        /// user, and the time would show which users exist.
        pub fn memory_kib(memory: u32) { cost.memory_kib: memory }

        /// Sets the number of passes over the memory: 2 to 16. Defaults to 2. Like the memory, it should not be lowered.
        pub fn iterations(iterations: u32) { cost.iterations: iterations }

        /// Sets the number of lanes: 1 to 8. Defaults to 1.
        ///
        /// One thread computes all lanes, so more of them are only useful to match the hashes of another program.
        pub fn parallelism(lanes: u32) { cost.parallelism: lanes }

        /// Sets how many checks run at once, each with its own memory. Defaults to the number of threads of the machine.
        ///
        /// Checks reuse the memory of earlier ones. When the last one ends, the memory is returned to the system,
        /// except for that of one check.
        pub fn concurrency(most: usize) { concurrency: most }

        /// Sets how many callers may wait for a turn. Any further caller fails at once with [`PasswordErrorKind::Busy`].
        /// Defaults to 64 for each thread of the machine.
        pub fn waiting(most: usize) { waiting: most }
    }

    /// Makes the cheapest hashes argon2 supports. They are easy to guess: use them only in tests.
    pub fn insecure_fast(self) -> Self {
        Self { cost: Cost::LEAST, floor: Cost::LEAST, ..self }
    }

    /// Creates the pool.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is out of bounds.
    pub fn build(self) -> Result<Passwords, ConfigError> {
        let Self { cost, floor, concurrency, waiting } = self;
        let memory = floor.memory_kib..=Cost::MOST.memory_kib;
        ConfigError::check_range("password memory_kib", cost.memory_kib, memory, "must be 19456 to 262144")?;
        let iterations = floor.iterations..=Cost::MOST.iterations;
        ConfigError::check_range("password iterations", cost.iterations, iterations, "must be 2 to 16")?;
        ConfigError::refuse_if(!cost.is_usable(), "password parallelism", cost.parallelism, "must be 1 to 8")?;
        ConfigError::check_range("password concurrency", concurrency, 1..=MOST, "must be 1 to 1048576")?;
        ConfigError::check_range("password waiting", waiting, ..=MOST, "must be at most 1048576")?;
        Ok(Passwords::from_builder(&self))
    }
}

/// The reason why a password could not be hashed or checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PasswordErrorKind {
    /// Too many callers are waiting already. See [`PasswordsBuilder::waiting`].
    Busy,
    /// The password to hash is empty or has more than 1024 bytes. Checking a password never fails with this.
    Unusable,
    /// There is not enough memory, there is no tokio runtime, or the job panicked.
    Failed,
}

/// A password could not be hashed or checked. The error does not reveal whether it is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordError(PasswordErrorKind);

impl PasswordError {
    /// Returns the reason.
    pub fn kind(&self) -> PasswordErrorKind {
        self.0
    }
}

impl From<PasswordErrorKind> for PasswordError {
    fn from(kind: PasswordErrorKind) -> Self {
        Self(kind)
    }
}

crate::util::fmt::text_error!(PasswordError, |own| match own.0 {
    PasswordErrorKind::Busy => "too many passwords are being checked at once",
    PasswordErrorKind::Unusable => "a password must have 1 to 1024 bytes",
    PasswordErrorKind::Failed => "the password could not be checked",
});

#[cfg(test)]
impl Passwords {
    setters! {
        /// Replaces argon2.
        pub(super) fn with_run(run: std::sync::Arc<super::engine::Run>) { engine.run: run }

        pub(super) fn with_decoy(decoy: PasswordHash) { engine.decoy: std::sync::Arc::new(decoy) }
    }

    pub(super) fn decoy(&self) -> PasswordHash {
        PasswordHash::clone(&self.engine.decoy)
    }

    pub(super) fn hash_of_nothing(&self) -> PasswordHash {
        self.engine.hash("").unwrap()
    }
}
