//! What the file of `--config` said about its users when it was applied last, kept in the store.

use std::error::Error;

use serde::{Deserialize, Serialize};
use tollgate::{
    clock::{Clock, SystemClock, UnixTime},
    store::{AnyStore, Key, Record, WriteOutcome},
};

use crate::person::{Person, Proof};

/// The size of a row, in bytes. A value of the store has at most 64 KiB.
const ROW: usize = 32 * 1024;

/// What the file said about a user.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) tenant: String,
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) identifiers: Vec<String>,
    pub(crate) password_hash: Option<String>,
    pub(crate) email: Option<String>,
    pub(crate) phone: Option<String>,
    /// The file has no such user any more.
    pub(crate) is_removed: bool,
}

impl Entry {
    pub(crate) fn of(person: &Person) -> Self {
        let hash = match &person.password {
            Some(Proof::Hash(hash)) => Some(hash.as_str().to_owned()),
            Some(Proof::Password(_)) | None => None,
        };
        Self {
            tenant: person.tenant.as_str().to_owned(),
            id: person.id.clone(),
            name: person.name.clone(),
            identifiers: person.identifiers.clone(),
            password_hash: hash,
            email: person.email.clone(),
            phone: person.phone.clone(),
            is_removed: false,
        }
    }

    pub(crate) fn is_of(&self, person: &Person) -> bool {
        self.tenant == person.tenant.as_str() && self.id == person.id
    }
}

pub(crate) async fn read(store: &AnyStore) -> Result<Vec<Entry>, Box<dyn Error>> {
    let mut entries = Vec::new();
    for number in 0_u32.. {
        let Some(found) = store.get(&key(number)?).wait().await? else { break };
        entries.extend(serde_json::from_slice::<Vec<Entry>>(&found.value)?);
    }
    Ok(entries)
}

pub(crate) async fn write(store: &AnyStore, entries: &[Entry]) -> Result<(), Box<dyn Error>> {
    let (mut rows, mut len) = (vec![Vec::new()], 0);
    for entry in entries {
        let size = serde_json::to_vec(entry)?.len() + 1;
        if len + size > ROW {
            (rows, len) = ([rows, vec![Vec::new()]].concat(), 0);
        }
        len += size;
        rows.last_mut().into_iter().for_each(|row| row.push(entry));
    }
    let mut number = 0;
    for row in rows {
        put(store, &key(number)?, serde_json::to_vec(&row)?).await?;
        number += 1;
    }
    while store.take(&key(number)?).await?.is_some() {
        number += 1;
    }
    Ok(())
}

async fn put(store: &AnyStore, key: &Key, value: Vec<u8>) -> Result<(), Box<dyn Error>> {
    let record = Record::new(value, SystemClock::new().read().1, UnixTime::from_nanos(u64::MAX))?;
    loop {
        let written = match store.get(key).wait().await? {
            Some(found) => store.swap(key, found.version, record.clone()).await?,
            None => store.insert(key, record.clone()).await?,
        };
        if let WriteOutcome::Done(_) = written {
            return Ok(());
        }
    }
}

fn key(number: u32) -> Result<Key, Box<dyn Error>> {
    Ok(Key::new("server_users", None, number.to_be_bytes())?)
}
