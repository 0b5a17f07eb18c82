//! What is stored of a session, under the digest of its secret.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{NewSession, UserId};
use crate::{clock::UnixTime, tenant::Tenant};

/// Once ended, a session is remembered this long, so that a later use of it can be told from a guess.
pub(super) const REMEMBERED: Duration = Duration::from_secs(3600);

/// What stands under a digest. `Ended` is final: nothing is ever written over it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Row {
    Live(Record),
    Ended(#[serde(with = "tenant")] Tenant),
}

/// A session. All but `last_use` stands as it was first written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(with = "user")]
    pub(super) user: UserId,
    #[serde(with = "tenant")]
    pub(super) tenant: Tenant,
    #[serde(with = "unix")]
    pub(super) auth_time: UnixTime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) acr: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub(super) amr: Box<[Box<str>]>,
    #[serde(with = "unix")]
    pub(super) created: UnixTime,
    #[serde(with = "unix")]
    pub(super) expires: UnixTime,
    #[serde(with = "unix")]
    pub(super) last_use: UnixTime,
}

impl Record {
    pub(super) fn new(new: NewSession, now: UnixTime, lifetimes: Lifetimes) -> Self {
        Self {
            user: new.user,
            tenant: new.tenant,
            auth_time: new.auth_time.unwrap_or(now),
            acr: new.acr,
            amr: new.amr,
            created: now,
            expires: now + lifetimes.absolute,
            last_use: now,
        }
    }
}

/// How long a session lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) idle: Duration,
    pub(super) absolute: Duration,
}

impl Lifetimes {
    /// The first moment at which the session is no more. A lifetime that was
    /// made shorter since holds for sessions that began before.
    pub(super) fn end_of(&self, record: &Record) -> UnixTime {
        record.expires.min(record.created + self.absolute).min(record.last_use + self.idle)
    }
}

mod unix {
    use super::{Deserialize, Deserializer, Serializer, UnixTime};

    pub(super) fn serialize<S: Serializer>(time: &UnixTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(time.as_nanos())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnixTime, D::Error> {
        u64::deserialize(deserializer).map(UnixTime::from_nanos)
    }
}

mod tenant {
    use super::{Deserializer, Serializer, Tenant, parsed};

    pub(super) fn serialize<S: Serializer>(tenant: &Tenant, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(tenant.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Tenant, D::Error> {
        parsed(deserializer, Tenant::restore)
    }
}

mod user {
    use super::{Deserializer, Serializer, UserId, parsed};

    pub(super) fn serialize<S: Serializer>(user: &UserId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(user.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UserId, D::Error> {
        parsed(deserializer, |id| UserId::parse(id).ok())
    }
}

/// A text that is read by `parse`, without a copy in between.
fn parsed<'de, T, D: Deserializer<'de>>(deserializer: D, parse: fn(&str) -> Option<T>) -> Result<T, D::Error> {
    struct Text<T>(fn(&str) -> Option<T>);

    impl<T> de::Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a valid name")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            self.0(text).ok_or_else(|| E::custom("not a valid name"))
        }
    }

    deserializer.deserialize_str(Text(parse))
}
