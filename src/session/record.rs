//! What is stored of a session, under the digest of its secret.

use std::time::Duration;

use super::{NewSession, UserId};
use crate::{
    store::{StoreError, StoreErrorKind, table::Value},
    tenant::Tenant,
    util::clock::UnixTime,
};

/// Once ended, a session is remembered this long, so that a later use of it can be told from a guess.
pub(super) const REMEMBERED: Duration = Duration::from_secs(3600);

/// What stands under a digest. `Ended` is final: nothing is ever written over it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Row {
    Live(Record),
    Ended(Tenant),
}

/// A session. All but `last_use` stands as it was first written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub(super) user: UserId,
    pub(super) tenant: Tenant,
    pub(super) auth_time: UnixTime,
    pub(super) acr: Option<Box<str>>,
    pub(super) amr: Box<[Box<str>]>,
    pub(super) created: UnixTime,
    pub(super) expires: UnixTime,
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

/// The first byte of a row: what it is, and how it is written. Numbers never come back with another meaning.
const LIVE: u8 = 1;
const ENDED: u8 = 2;

/// Compact, not JSON, for each request reads one. Times are 8 bytes, least first; a text is preceded by its length in a
/// byte, and there is none where that is 0.
impl Value for Row {
    fn write(&self) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::with_capacity(128);
        match self {
            Self::Ended(tenant) => {
                bytes.push(ENDED);
                put(&mut bytes, tenant.as_str())?;
            }
            Self::Live(record) => {
                bytes.push(LIVE);
                for time in [record.auth_time, record.created, record.expires, record.last_use] {
                    bytes.extend(time.as_nanos().to_le_bytes());
                }
                put(&mut bytes, record.user.as_str())?;
                put(&mut bytes, record.tenant.as_str())?;
                put(&mut bytes, record.acr.as_deref().unwrap_or_default())?;
                for method in &record.amr {
                    put(&mut bytes, method)?;
                }
            }
        }
        Ok(bytes)
    }

    fn read(bytes: &[u8]) -> Result<Self, StoreError> {
        row(bytes).ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt, "not the row of a session"))
    }
}

fn put(bytes: &mut Vec<u8>, text: &str) -> Result<(), StoreError> {
    bytes.push(u8::try_from(text.len()).map_err(|_| StoreErrorKind::TooLarge)?);
    bytes.extend_from_slice(text.as_bytes());
    Ok(())
}

fn row(bytes: &[u8]) -> Option<Row> {
    let (kind, rest) = bytes.split_first()?;
    let mut rest = Rest(rest);
    let row = match *kind {
        ENDED => Row::Ended(Tenant::restore(rest.text()?)?),
        LIVE => {
            let (auth_time, created, expires, last_use) = (rest.time()?, rest.time()?, rest.time()?, rest.time()?);
            let user = UserId::parse(rest.text()?).ok()?;
            let tenant = Tenant::restore(rest.text()?)?;
            let acr = Some(rest.text()?).filter(|acr| !acr.is_empty()).map(Box::from);
            let mut amr = Vec::new();
            while !rest.0.is_empty() {
                amr.push(Box::from(rest.text()?));
            }
            Row::Live(Record { user, tenant, auth_time, acr, amr: amr.into(), created, expires, last_use })
        }
        _ => return None,
    };
    rest.0.is_empty().then_some(row)
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn time(&mut self) -> Option<UnixTime> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(UnixTime::from_nanos(u64::from_le_bytes(*bytes)))
    }

    fn text(&mut self) -> Option<&'a str> {
        let (len, rest) = self.0.split_first()?;
        let (text, rest) = rest.split_at_checked(usize::from(*len))?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};

    use super::*;

    fn rows() -> impl Strategy<Value = Row> {
        let text = |most: usize| vec(b'!'..=b'~', 1..=most).prop_map(|text| String::from_utf8(text).unwrap());
        let names = ("[a-z~:]{1,128}", text(255), option::of(text(255)), vec(text(64), 0..=16));
        (any::<bool>(), names, any::<[u64; 4]>()).prop_map(|(live, (tenant, user, acr, amr), times)| {
            let tenant = Tenant::restore(&tenant).unwrap();
            if !live {
                return Row::Ended(tenant);
            }
            let [auth_time, created, expires, last_use] = times.map(UnixTime::from_nanos);
            let (user, acr) = (UserId::parse(user).unwrap(), acr.map(String::into_boxed_str));
            let amr = amr.into_iter().map(String::into_boxed_str).collect();
            Row::Live(Record { user, tenant, auth_time, acr, amr, created, expires, last_use })
        })
    }

    proptest! {
        #[test]
        fn a_row_comes_back_whole_and_no_part_of_it_does(row in rows(), cut: prop::sample::Index) {
            let bytes = row.write().unwrap();
            prop_assert_eq!(Row::read(&bytes).unwrap(), row.clone());
            if let Ok(part) = Row::read(&bytes[..cut.index(bytes.len())]) {
                prop_assert_ne!(part, row);
            }
        }

        #[test]
        fn no_bytes_make_it_panic_and_each_row_has_one_writing(kind in 0..4_u8, mut bytes in vec(any::<u8>(), 0..200)) {
            bytes.insert(0, kind);
            if let Ok(row) = Row::read(&bytes) {
                prop_assert_eq!(row.write().unwrap(), bytes);
            }
        }
    }
}
