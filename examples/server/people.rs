//! Keeps the accounts of the users in the file as the file says.
//!
//! The file is the truth for its users. The store remembers what the file said when it was applied last, so that only
//! changes are applied: a password that the application has changed since stays. Other accounts are never touched.

use std::{collections::HashSet, error::Error};

use tollgate::store::AnyStore;

use crate::{
    accounts::Accounts,
    applied::{self, Entry},
    explain::explained,
    person::Person,
};

/// Creates, changes and disables accounts. Says what has changed, but not for new users.
pub(crate) async fn apply(
    accounts: &Accounts<'_>,
    store: &AnyStore,
    people: &[Person],
) -> Result<Vec<String>, Box<dyn Error>> {
    let mut known = HashSet::new();
    if let Some(twice) = people.iter().find(|person| !known.insert(&person.id)) {
        return Err(format!("{} appears more than once", twice.place()).into());
    }
    let before = applied::read(store).await?;
    let mut entries = before.clone();
    let changes = apply_each(accounts, &before, &mut entries, people).await;
    // also after an error: what was applied until then can be taken back by another edit
    if entries != before {
        let written = applied::write(store, &entries).await;
        return changes.and_then(|changes| written.map(|()| changes));
    }
    changes
}

/// Keeps the entries at what the accounts have.
async fn apply_each(
    accounts: &Accounts<'_>,
    before: &[Entry],
    entries: &mut Vec<Entry>,
    people: &[Person],
) -> Result<Vec<String>, Box<dyn Error>> {
    let mut changes = Vec::new();
    // what one user loses, another one may get
    for entry in &mut *entries {
        let new = people.iter().find(|person| entry.is_of(person));
        let lost = accounts.release(entry, new).await;
        if lost.map_err(|error| format!("users: {:?}: {}", entry.id, explained(&*error)))? {
            changes.push(format!("users: {:?} is not in the file any more: the account is disabled", entry.id));
        }
        entry.identifiers.retain(|identifier| new.is_some_and(|new| new.identifiers.contains(identifier)));
        entry.is_removed |= new.is_none();
    }
    for person in people {
        let old = before.iter().find(|old| old.is_of(person));
        let changed = accounts.bring_about(person, old).await;
        match (entries.iter_mut().find(|entry| entry.is_of(person)), &changed) {
            (Some(entry), Ok(_)) => *entry = Entry::of(person),
            (None, Ok(_)) => entries.push(Entry::of(person)),
            // it may have got some of them
            (Some(entry), Err(_)) => entry.identifiers.extend(person.identifiers.iter().cloned()),
            (None, Err(_)) => {}
        }
        let changed = changed.map_err(|error| format!("{}: {}", person.place(), explained(&*error)))?;
        if !changed.is_empty() {
            changes.push(format!("{} has changed: {}", person.place(), changed.join(", ")));
        }
    }
    Ok(changes)
}
