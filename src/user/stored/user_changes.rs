//! Changes that users make themselves, as [`Users`](crate::user::Users) names them.

use super::{
    StoredUsers,
    error::{UserError, outcome},
    index::{AccountKey, Unique},
    row::Name,
};
use crate::{
    password::PasswordHash,
    session::UserId,
    store::{StoreError, table::Change},
    tenant::Tenant,
    user::{
        account::{Account, OwnContact},
        changes::AccountChange,
        contact::Contact,
        identifier::Identifier,
    },
    util::clock::UnixTime,
};

impl StoredUsers {
    /// Sets the password if the account still has the one with which it was read.
    pub(super) async fn replace_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        new: PasswordHash,
    ) -> Result<AccountChange, StoreError> {
        let mark = account.current_password_mark();
        let replace = |row: Option<&super::row::Row>, _| {
            let Some(mut row) = row.filter(|row| row.password_mark == mark).cloned() else {
                return Change::Keep(AccountChange::Outdated);
            };
            row.set_password(Some(new.clone()));
            Change::Put(row, UnixTime::FOREVER, AccountChange::Done)
        };
        self.index.rows.update(Some(tenant), account.id().as_str().as_bytes(), replace).await
    }

    pub(super) async fn replace_name(
        &self,
        tenant: &Tenant,
        user: &UserId,
        name: Option<&str>,
    ) -> Result<AccountChange, StoreError> {
        outcome(self.change(tenant, user, |row| row.set_names(name, row.username.clone().as_deref())).await)
    }

    /// Replaces a contact. The new identifier is claimed first, so that no other account can have it in between.
    pub(super) async fn replace_contact(
        &self,
        tenant: &Tenant,
        user: &UserId,
        old: Option<&Contact>,
        new: Option<&Contact>,
    ) -> Result<AccountChange, StoreError> {
        let (account, has) = (AccountKey { tenant, user }, |row: &super::row::Row| {
            old.is_none_or(|old| row.contacts.iter().any(|own| own.contact == *old))
        });
        if !self.index.row(account).await?.is_some_and(|row| has(&row)) {
            return Ok(AccountChange::Outdated);
        }
        let named = |contact: &Contact| Identifier::parse(contact.as_str()).ok();
        if let Some(name) = new.and_then(named)
            && let Err(error) = self.add_identifier(tenant, user, &name).await
        {
            return outcome(Err(error));
        }
        let old_name = old.filter(|old| new != Some(*old)).and_then(named).map(|name| Name::from_identifier(&name));
        let held = match old_name {
            Some(name) => self.index.held(account, Unique::Name(name)).await?,
            None => None,
        };
        let changed = self.change(tenant, user, |row| {
            if !has(row) {
                return Err(UserError::Unknown);
            }
            let place = row.contacts.iter().position(|own| Some(&own.contact) == old);
            row.contacts.retain(|own| Some(&own.contact) != old && (old.is_none() || Some(&own.contact) != new));
            if let Some(new) = new {
                row.put(&OwnContact { contact: new.clone(), verified: true })?;
                // a replaced contact keeps its place, because messages go to the first
                let (last, place) = (row.contacts.len() - 1, place.unwrap_or(usize::MAX));
                if place < last {
                    let moved = row.contacts.remove(last);
                    row.contacts.insert(place, moved);
                }
            }
            if let Some(name) = &old_name {
                row.unlist(name);
            }
            Ok(())
        });
        let changed = changed.await;
        if changed.is_ok() {
            self.index.release(account, held.as_slice()).await;
        }
        outcome(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        store::Memory,
        testing::block_on,
        user::{EmailAddress, NewAccount, NewUser, Users},
    };

    const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";

    fn contact(text: &str) -> Contact {
        EmailAddress::parse(text).unwrap().into()
    }

    fn name(text: &str) -> Identifier {
        Identifier::parse(text).unwrap()
    }

    fn id(text: &str) -> UserId {
        UserId::parse(text).unwrap()
    }

    #[test]
    fn a_password_is_replaced_only_if_it_is_still_the_one_that_was_read() {
        let (users, acme) = (StoredUsers::new(Memory::new()), Tenant::parse("acme").unwrap());
        block_on(users.create(&acme, NewUser::new(id("u-1"), name("ada")))).unwrap();
        let account = || block_on(users.by_id(&acme, &id("u-1"))).unwrap().unwrap();
        let hash = || PasswordHash::parse(HASH).unwrap();
        let set = |account: &Account| block_on(Users::set_password(&users, &acme, account, hash())).unwrap();
        let without = account();
        assert_eq!((set(&without), set(&without)), (AccountChange::Done, AccountChange::Outdated));
        let (first, mark) = (account(), account().current_password_mark());
        // the same hash, and another mark
        assert_eq!(set(&first), AccountChange::Done);
        assert_ne!(account().current_password_mark(), mark);
        assert_eq!(set(&first), AccountChange::Outdated);
        assert_eq!(block_on(Users::remove(&users, &acme, &id("u-1"))).unwrap(), AccountChange::Done);
        assert_eq!(set(&first), AccountChange::Outdated);
        assert_eq!(block_on(Users::remove(&users, &acme, &id("u-1"))).unwrap(), AccountChange::Outdated);
    }

    #[test]
    fn a_new_contact_takes_the_place_and_the_name_of_the_old_one() {
        let (users, acme) = (StoredUsers::new(Memory::new()), Tenant::parse("acme").unwrap());
        let new = |user: &str, address: &str| NewUser::new(id(user), name(address)).contact(contact(address));
        let ada = new("u-1", "ada@example.com").contact(contact("second@example.com"));
        assert_eq!(block_on(Users::create(&users, &acme, ada)).unwrap(), NewAccount::Created(id("u-1")));
        let create = |user, address| block_on(Users::create(&users, &acme, new(user, address))).unwrap();
        assert_eq!(create("u-2", "ada@example.com"), NewAccount::Taken);
        assert_eq!(create("u-2", "eve@example.com"), NewAccount::Created(id("u-2")));
        let set = |old: Option<&str>, new: Option<&str>| {
            let (old, new) = (old.map(contact), new.map(contact));
            block_on(Users::set_contact(&users, &acme, &id("u-1"), old.as_ref(), new.as_ref())).unwrap()
        };
        let owner = |address| block_on(users.find(&acme, &name(address))).unwrap().map(|it| it.id().to_string());
        let contacts = || {
            let account = block_on(users.by_id(&acme, &id("u-1"))).unwrap().unwrap();
            account.contacts().map(|(contact, is_proved)| (contact.as_str().to_owned(), is_proved)).collect::<Vec<_>>()
        };
        let proved = |address: &str| (address.to_owned(), true);
        let before = contacts();
        assert_eq!(set(Some("ada@example.com"), Some("eve@example.com")), AccountChange::Taken);
        assert_eq!(set(Some("gone@example.com"), Some("new@example.com")), AccountChange::Outdated);
        assert_eq!((contacts(), owner("new@example.com")), (before, None));
        assert_eq!(set(Some("ada@example.com"), Some("new@example.com")), AccountChange::Done);
        assert_eq!(contacts(), [proved("new@example.com"), proved("second@example.com")]);
        assert_eq!((owner("ada@example.com"), owner("new@example.com").as_deref()), (None, Some("u-1")));
        // another account can have the old one
        assert_eq!(create("u-3", "ada@example.com"), NewAccount::Created(id("u-3")));
        assert_eq!(set(None, Some("third@example.com")), AccountChange::Done);
        assert_eq!(set(Some("second@example.com"), None), AccountChange::Done);
        assert_eq!(contacts(), [proved("new@example.com"), proved("third@example.com")]);
        assert_eq!(set(Some("new@example.com"), Some("third@example.com")), AccountChange::Done);
        assert_eq!((contacts(), owner("new@example.com")), (vec![proved("third@example.com")], None));
        assert_eq!(set(Some("third@example.com"), Some("third@example.com")), AccountChange::Done);
        assert_eq!((contacts(), owner("third@example.com").is_some()), (vec![proved("third@example.com")], true));
    }
}
