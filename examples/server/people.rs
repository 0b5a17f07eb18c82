//! Keeps the accounts of the users in the file as the file says.
//!
//! The file is the truth for its users. The store remembers what the file said when it was applied last, so that only
//! changes are applied: a password that the application has changed since stays. Other accounts are never touched.

use std::{collections::HashSet, error::Error};

use tollgate::store::AnyStore;

use crate::{
    accounts::Accounts,
    applied::{self, Entry},
    person::Person,
    state::explained,
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
    let (mut after, mut changes) = (Vec::new(), Vec::new());
    // what one user loses, another one may get
    for old in &before {
        let new = people.iter().find(|person| old.is_of(person));
        let lost =
            accounts.release(old, new).await.map_err(|error| format!("users: {:?}: {}", old.id, explained(&*error)));
        if lost? {
            changes.push(format!("users: {:?} is not in the file any more: the account is disabled", old.id));
        }
        if new.is_none() {
            after.push(Entry { is_removed: true, identifiers: Vec::new(), ..old.clone() });
        }
    }
    for person in people {
        let old = before.iter().find(|old| old.is_of(person));
        let changed = accounts.bring_about(person, old).await;
        let changed = changed.map_err(|error| format!("{}: {}", person.place(), explained(&*error)))?;
        if !changed.is_empty() {
            changes.push(format!("{} has changed: {}", person.place(), changed.join(", ")));
        }
        after.push(Entry::of(person));
    }
    if after != before {
        applied::write(store, &after).await?;
    }
    Ok(changes)
}
