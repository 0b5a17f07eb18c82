//! Lua scripts and the few commands that run without one.

use std::{sync::OnceLock, time::Duration};

use bytes::Bytes;
use redis::{Cmd, ErrorKind, ServerErrorKind, Value, cmd};
use tokio::time::Instant;

use super::{
    failure::{FailureKind, RedisFailure},
    link::{CallError, Link},
    target::Delivery,
};

/// A Lua script. On a cluster, all its keys must have the same hash tag.
pub(crate) struct Script {
    text: &'static str,
    hashed: OnceLock<redis::Script>,
}

impl Script {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self { text, hashed: OnceLock::new() }
    }

    fn hash(&self) -> &str {
        self.hashed.get_or_init(|| redis::Script::new(self.text)).get_hash()
    }
}

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nothing,
    Number(i64),
    Bytes(Bytes),
    List(Vec<Reply>),
}

impl Link {
    /// Runs a script. If the server does not know it, because it was restarted or its scripts were flushed, the text is
    /// sent as well.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        delivery: Delivery,
    ) -> Result<Reply, RedisFailure> {
        self.run_within(self.patience(), script, keys, arguments, delivery).await
    }

    /// Like [`run`](Self::run), with a deadline of its own.
    pub(crate) async fn run_within(
        &self,
        longest: Duration,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        delivery: Delivery,
    ) -> Result<Reply, RedisFailure> {
        let until = Instant::now() + longest;
        match self.call_until(until, &command("EVALSHA", script.hash(), keys, arguments), delivery).await {
            // it was not executed
            Err(CallError::Replied(error)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                Reply::from_redis_value(
                    self.call_until(until, &command("EVAL", script.text, keys, arguments), delivery).await?,
                )
            }
            reply => Reply::from_redis_value(reply?),
        }
    }

    /// Reads several keys with the same hash tag.
    pub(crate) async fn read_redis_keys(&self, keys: &[&[u8]]) -> Result<Reply, RedisFailure> {
        let mut command = cmd("MGET");
        for key in keys {
            command.arg(key);
        }
        Reply::from_redis_value(self.call(&command, Delivery::Resent).await?)
    }

    /// Reads one key. Unlike [`read_redis_keys`](Self::read_redis_keys), fails if the key holds no text.
    pub(crate) async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, RedisFailure> {
        let mut command = cmd("GET");
        match Reply::from_redis_value(self.call(command.arg(key), Delivery::Retried).await?)? {
            Reply::Bytes(text) => Ok(Some(text)),
            Reply::Nothing => Ok(None),
            _ => Err(unexpected()),
        }
    }

    /// Writes one key, which does not expire.
    pub(crate) async fn set(&self, key: &[u8], value: &[u8]) -> Result<(), RedisFailure> {
        let mut command = cmd("SET");
        // a text that arrives late must not replace a newer one
        self.call(command.arg(key).arg(value), Delivery::Once).await?;
        Ok(())
    }

    /// Removes a key.
    pub(crate) async fn remove(&self, key: &[u8]) -> Result<(), RedisFailure> {
        let mut command = cmd("DEL");
        // one that arrives late must not remove what was written since
        self.call(command.arg(key), Delivery::Once).await?;
        Ok(())
    }
}

fn command(name: &str, script: &str, keys: &[&[u8]], arguments: &[&[u8]]) -> Cmd {
    let parts = keys.iter().chain(arguments);
    let bytes = parts.clone().map(|part| part.len()).sum::<usize>() + name.len() + script.len() + 1;
    let mut command = Cmd::with_capacity(3 + keys.len() + arguments.len(), bytes);
    command.arg(name).arg(script).arg(keys.len());
    for part in parts {
        command.arg(part);
    }
    command
}

impl Reply {
    fn from_redis_value(value: Value) -> Result<Self, RedisFailure> {
        Ok(match value {
            Value::Nil => Self::Nothing,
            Value::Int(number) => Self::Number(number),
            Value::BulkString(bytes) => Self::Bytes(bytes.into()),
            Value::Array(values) => {
                Self::List(values.into_iter().map(Self::from_redis_value).collect::<Result<_, _>>()?)
            }
            _ => return Err(unexpected()),
        })
    }
}

pub(crate) fn unexpected() -> RedisFailure {
    RedisFailure::new(FailureKind::Corrupt, "an unexpected reply")
}
