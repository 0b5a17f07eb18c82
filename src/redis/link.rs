//! [`Link`]: one shared connection that is restored in the background.

use std::{
    any::Any,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redis::Cmd;
use tokio::{runtime::Handle, sync::watch, task::JoinHandle, time::Instant};

use super::{
    config::RedisConfig,
    failure::{FailureKind, RedisFailure},
    target::{CONNECT, Connection, Delivery, Target},
};
use crate::util::{
    clock::{Clock, Moment, SystemClock},
    trace::warning,
};

/// The waits between attempts to connect.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// If no call is answered for this long, a new connection is made: the old one may lead nowhere.
const UNANSWERED: Duration = Duration::from_secs(1);

/// A connection that all callers share. Clones are the same connection.
///
/// If it is lost, it is restored in the background, with growing waits between the attempts. Meanwhile calls wait until
/// their deadline for the first attempt, and fail at once after that has failed.
#[derive(Clone)]
pub(crate) struct Link {
    inner: Arc<Inner>,
    /// How long a call waits. Links that share a connection may differ in it.
    deadline: Duration,
}

struct Inner {
    target: Target,
    runtime: Handle,
    state: watch::Sender<State>,
    clock: SystemClock,
    /// When a call was given up first since the last answer, in nanoseconds. Zero if none was.
    unanswered_since: AtomicU64,
}

#[derive(Clone)]
enum State {
    Up(Connection, u64),
    Connecting(u64),
    Down(RedisFailure, u64),
}

impl State {
    /// Returns the number of the connection, or of the last one.
    fn number(&self) -> u64 {
        match self {
            Self::Up(_, number) | Self::Connecting(number) | Self::Down(_, number) => *number,
        }
    }
}

impl Link {
    /// Connects within a tokio runtime, which must live as long as the link, or returns a link with the connection that the
    /// configuration shares.
    pub(crate) async fn connect(config: &RedisConfig, deadline: Duration) -> Result<Self, RedisFailure> {
        let Some(shared) = &config.connection else { return Ok(Self { inner: Inner::open(config).await?, deadline }) };
        let mut shared = shared.lock().await;
        if let Some(inner) = shared.upgrade().and_then(|inner| inner.downcast().ok()) {
            drop(shared);
            let link = Self { inner, deadline };
            link.ping().await?;
            return Ok(link);
        }
        let inner = Inner::open(config).await?;
        let any: Arc<dyn Any + Send + Sync> = inner.clone();
        *shared = Arc::downgrade(&any);
        Ok(Self { inner, deadline })
    }

    /// Returns an error if the server does not answer, in the time that an attempt to connect takes.
    async fn ping(&self) -> Result<(), RedisFailure> {
        match self.call_until(Instant::now() + CONNECT, &redis::cmd("PING"), Delivery::Retried).await {
            // the user may not send this command
            Err(CallError::Replied(error)) if error.code() == Some("NOPERM") => Ok(()),
            reply => Ok(reply.map(drop)?),
        }
    }

    /// Sends a command and returns the reply within the deadline. After a failure of the kind
    /// [`Unavailable`](FailureKind::Unavailable), the command may have been executed.
    pub(super) async fn call(&self, command: &Cmd, delivery: Delivery) -> Result<redis::Value, CallError> {
        self.call_until(Instant::now() + self.deadline, command, delivery).await
    }

    /// Returns how long a call waits for its reply.
    pub(crate) fn patience(&self) -> Duration {
        self.deadline
    }

    /// Like [`call`](Self::call), for several commands that have one deadline together.
    ///
    /// If the connection is lost before the reply, a command with `Delivery::Retried` is sent once more.
    pub(super) async fn call_until(
        &self,
        deadline: Instant,
        command: &Cmd,
        delivery: Delivery,
    ) -> Result<redis::Value, CallError> {
        let inner = &self.inner;
        let mut sent_on = None;
        let call = async {
            let mut is_resent = delivery != Delivery::Retried;
            loop {
                let (mut connection, number) = inner.connection().await.map_err(CallError::Failed)?;
                sent_on = Some(number);
                let error = match connection.send(command, delivery).await {
                    Ok(reply) => return Ok(reply),
                    Err(error) => error,
                };
                if connection.is_lost_after(&error) {
                    inner.lost(number);
                }
                if std::mem::replace(&mut is_resent, true) || !connection.is_broken_after(&error) {
                    return Err(CallError::Replied(error));
                }
            }
        };
        match self.until(deadline, call).await {
            Some(reply) => {
                // this line of memory is shared by all callers
                if inner.unanswered_since.load(Relaxed) != 0 {
                    inner.unanswered_since.store(0, Relaxed);
                }
                reply
            }
            None => {
                if let Some(number) = sent_on {
                    inner.unanswered(number);
                }
                Err(CallError::Failed(RedisFailure::late("no answer within the deadline")))
            }
        }
    }

    /// Runs work in the background. It goes on if the handle is dropped.
    pub(crate) fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.inner.runtime.spawn(work)
    }

    /// Waits for work at most as long as for a call.
    pub(crate) async fn within_deadline<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.until(Instant::now() + self.deadline, work).await
    }

    async fn until<T>(&self, deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
        let work = {
            // the caller may run elsewhere
            let _runtime = self.inner.runtime.enter();
            tokio::time::timeout_at(deadline, work)
        };
        work.await.ok()
    }

    /// Returns the number of the connection, which changes when a lost one is replaced.
    pub(crate) fn number(&self) -> u64 {
        self.inner.state.borrow().number()
    }
}

/// Why a call has no reply.
pub(super) enum CallError {
    Failed(RedisFailure),
    Replied(redis::RedisError),
}

impl From<CallError> for RedisFailure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Failed(failure) => failure,
            CallError::Replied(error) => Self::from(&error),
        }
    }
}

impl Inner {
    async fn open(config: &RedisConfig) -> Result<Arc<Self>, RedisFailure> {
        let misconfigured = |text: String| RedisFailure::new(FailureKind::Misconfigured, text);
        let target = Target::new(config).map_err(|error| misconfigured(error.to_string()))?;
        let runtime = Handle::try_current().map_err(|error| misconfigured(error.to_string()))?;
        let state = watch::Sender::new(State::Connecting(1));
        let (clock, unanswered_since) = (SystemClock::new(), AtomicU64::new(0));
        let inner = Arc::new(Self { target, runtime, state, clock, unanswered_since });
        let connection = inner.connect(1).await?;
        inner.state.send_replace(State::Up(connection, 1));
        Ok(inner)
    }

    /// Returns the connection, after waiting for an attempt that is under way.
    async fn connection(&self) -> Result<(Connection, u64), RedisFailure> {
        if let State::Up(connection, number) = &*self.state.borrow() {
            return Ok((connection.clone(), *number));
        }
        let mut states = self.state.subscribe();
        let settled = states.wait_for(|state| !matches!(state, State::Connecting(_))).await;
        match settled.as_deref() {
            Ok(State::Up(connection, number)) => Ok((connection.clone(), *number)),
            Ok(State::Down(failure, _)) => Err(failure.clone()),
            Ok(State::Connecting(_)) | Err(_) => {
                Err(RedisFailure::new(FailureKind::Unavailable, "there is no connection"))
            }
        }
    }

    /// Notes that a call on this connection was not answered within the deadline. Replaces the connection if that has been
    /// so for too long.
    fn unanswered(self: &Arc<Self>, number: u64) {
        if self.state.borrow().number() != number {
            return;
        }
        let now = self.clock.now();
        let since = self.unanswered_since.compare_exchange(0, now.as_nanos(), Relaxed, Relaxed);
        if since.is_err_and(|since| now.since(Moment::from_nanos(since)) >= UNANSWERED) {
            self.lost(number);
        }
    }

    /// Replaces the connection with this number, unless that was done already.
    fn lost(self: &Arc<Self>, number: u64) {
        let is_new = self.state.send_if_modified(|state| {
            let is_it = matches!(state, State::Up(_, own) if *own == number);
            if is_it {
                *state = State::Connecting(number + 1);
            }
            is_it
        });
        if is_new {
            self.unanswered_since.store(0, Relaxed);
            warning!("the connection to Redis is lost");
            self.runtime.spawn(restore(Arc::downgrade(self), number + 1));
        }
    }

    async fn connect(self: &Arc<Self>, number: u64) -> Result<Connection, RedisFailure> {
        let inner = Arc::downgrade(self);
        let on_lost = move || {
            if let Some(inner) = inner.upgrade() {
                inner.lost(number);
            }
        };
        self.target.connect(on_lost).await
    }
}

/// Tries to connect until it succeeds, or until the link is dropped.
async fn restore(link: Weak<Inner>, number: u64) {
    let mut wait = FIRST_WAIT;
    loop {
        let Some(inner) = link.upgrade() else { return };
        match inner.connect(number).await {
            Ok(connection) => {
                inner.state.send_replace(State::Up(connection, number));
                warning!("the connection to Redis is restored");
                return;
            }
            Err(failure) => inner.state.send_replace(State::Down(failure, number)),
        };
        drop(inner);
        // processes that lost the server together do not return together
        let jitter = getrandom::u32().unwrap_or_default() % 1000;
        tokio::time::sleep(wait / 2 + wait * jitter / 1000).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

crate::util::fmt::opaque_debug!(Link);
