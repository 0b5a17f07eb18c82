use std::{fmt, sync::Arc, thread};

use tokio::{runtime::Handle, sync::Semaphore};

#[cfg(test)]
use super::engine::{Decoy, Run};
use super::{Password, PasswordError, PasswordErrorKind, PasswordHash, cost::Cost, engine::Engine};
use crate::util::error::ConfigError;

/// Hashes passwords and checks them, on threads where that holds up nobody.
///
/// argon2id with 19456 KiB, two iterations and one lane, which is what OWASP
/// asks for at least; so many at once as the machine has threads, and 64 times
/// as many callers that wait for their turn. Clones share the turns.
///
/// It needs a tokio runtime to be called in.
#[derive(Clone)]
#[must_use]
pub struct Passwords {
    engine: Engine,
    /// One permit for each job that runs.
    turns: Arc<Semaphore>,
    /// One permit for each job that runs or waits.
    room: Arc<Semaphore>,
    concurrency: usize,
    waiting: usize,
}

/// What the check of a password says.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub enum Verdict {
    /// It is the one that was hashed.
    #[non_exhaustive]
    Right {
        /// The same password under the parameters of today, where the stored
        /// hash has weaker ones: store it in place of that.
        rehashed: Option<PasswordHash>,
    },
    /// It is not, or there is none.
    Wrong,
}

/// How many wait for each that runs, if nothing else is said.
const WAITING_EACH: usize = 64;
/// Far below what a semaphore of tokio can count, also for both together.
const MOST: usize = 1 << 20;

impl Passwords {
    /// At the default cost.
    pub fn new() -> Self {
        let concurrency = thread::available_parallelism().map_or(1, usize::from).min(MOST / WAITING_EACH);
        Self::assemble(Engine::new(), concurrency, concurrency * WAITING_EACH)
    }

    fn assemble(engine: Engine, concurrency: usize, waiting: usize) -> Self {
        let (turns, room) = (Semaphore::new(concurrency), Semaphore::new(concurrency + waiting));
        Self { engine, turns: Arc::new(turns), room: Arc::new(room), concurrency, waiting }
    }

    /// The memory that a hash takes: 19456 KiB to 256 MiB.
    pub fn memory_kib(self, memory: u32) -> Result<Self, ConfigError> {
        let cost = Cost { memory_kib: memory, ..self.engine.cost };
        self.cost(cost, "password memory_kib", memory, "must be 19456 to 262144")
    }

    /// How often the memory is gone over: 2 to 16 times.
    pub fn iterations(self, iterations: u32) -> Result<Self, ConfigError> {
        let cost = Cost { iterations, ..self.engine.cost };
        self.cost(cost, "password iterations", iterations, "must be 2 to 16")
    }

    /// In how many lanes the memory is filled: 1 to 8.
    ///
    /// They are worked out one after the other, so this is only for hashes that
    /// another program shares which asks for it.
    pub fn parallelism(self, lanes: u32) -> Result<Self, ConfigError> {
        let cost = Cost { parallelism: lanes, ..self.engine.cost };
        self.cost(cost, "password parallelism", lanes, "must be 1 to 8")
    }

    fn cost(
        mut self,
        cost: Cost,
        setting: &'static str,
        value: u32,
        reason: &'static str,
    ) -> Result<Self, ConfigError> {
        let was = self.engine.cost;
        // what was made cheap for tests may stay so in the other parameters
        let floor = |now: u32, was: u32, least: u32| now == was || now >= least;
        let strong = floor(cost.memory_kib, was.memory_kib, Cost::DEFAULT.memory_kib)
            && floor(cost.iterations, was.iterations, Cost::DEFAULT.iterations);
        if !strong || !cost.is_usable() {
            return Err(ConfigError::new(setting, value, reason));
        }
        self.engine.cost = cost;
        Ok(self)
    }

    /// The cheapest hashes that argon2 can make, which anybody can guess at
    /// fast: for tests, never for the passwords of people.
    pub fn insecure_fast(mut self) -> Self {
        self.engine.cost = Cost::LEAST;
        self
    }

    /// How many run at once, each with its memory. From here on, turns are no
    /// longer shared with older clones.
    pub fn concurrency(self, most: usize) -> Result<Self, ConfigError> {
        if !(1..=MOST).contains(&most) {
            return Err(ConfigError::new("password concurrency", most, "must be 1 to 1048576"));
        }
        Ok(Self::assemble(self.engine, most, self.waiting))
    }

    /// How many callers may wait for a turn; one more is told at once that
    /// there are too many. From here on, turns are no longer shared with older
    /// clones.
    pub fn waiting(self, most: usize) -> Result<Self, ConfigError> {
        if most > MOST {
            return Err(ConfigError::new("password waiting", most, "must be at most 1048576"));
        }
        Ok(Self::assemble(self.engine, self.concurrency, most))
    }

    /// Hashes a password, with a new salt. How long it should be at least, and
    /// which ones everybody knows, is for the caller to say.
    pub async fn hash(&self, password: Password) -> Result<PasswordHash, PasswordError> {
        if password.usable().is_none() {
            return Err(PasswordErrorKind::Unusable.into());
        }
        self.run(move |engine| engine.hash(password.usable()?)).await
    }

    /// Checks a password against the hash of the account, or against none where
    /// there is no account, it is disabled, or it has no password.
    ///
    /// Both are the same work by the same code: without a hash a decoy of
    /// today's parameters is checked, and whatever comes out of that the answer
    /// is [`Verdict::Wrong`]. The same holds for what is no password: nothing,
    /// or more than 1024 bytes.
    pub async fn verify(&self, password: Password, stored: Option<PasswordHash>) -> Result<Verdict, PasswordError> {
        self.run(move |engine| engine.verify(&password, stored.as_ref())).await
    }

    /// Does a job when its turn comes. The permits go with the job, so that one
    /// whose caller is gone counts until it is over.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Engine) -> Option<T> + Send + 'static,
    ) -> Result<T, PasswordError> {
        let failed = PasswordErrorKind::Failed;
        let runtime = Handle::try_current().map_err(|_| failed)?;
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(|_| PasswordErrorKind::Busy)?;
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|_| failed)?;
        let engine = self.engine.clone();
        let done = runtime.spawn_blocking(move || {
            let done = job(&engine);
            drop((turn, room));
            done
        });
        Ok(done.await.ok().flatten().ok_or(failed)?)
    }
}

#[cfg(test)]
impl Passwords {
    /// Runs this in place of argon2.
    pub(super) fn with_run(mut self, run: Arc<Run>) -> Self {
        self.engine.run = run;
        self
    }

    pub(super) fn with_decoy(mut self, decoy: Decoy) -> Self {
        self.engine.decoy = Arc::new(decoy);
        self
    }

    pub(super) fn decoy(&self) -> Decoy {
        *self.engine.decoy
    }

    pub(super) fn hash_of_nothing(&self) -> PasswordHash {
        self.engine.hash(&[]).unwrap()
    }
}

impl Default for Passwords {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords")
            .field("cost", &self.engine.cost)
            .field("concurrency", &self.concurrency)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}
