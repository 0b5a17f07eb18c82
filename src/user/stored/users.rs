//! The methods of [`Users`] that accounts in a [`Store`](crate::store::Store) have.

use super::{
    StoredUsers, decoy,
    error::{UserError, outcome},
    index::{AccountKey, Unique},
    row::{Name, Row},
};
use crate::{
    password::PasswordHash,
    session::UserId,
    store::{ScanCursor, StoreError, StoreErrorKind, table::Change},
    tenant::Tenant,
    user::{
        account::{Account, NewUser, OwnContact},
        changes::{AccountChange, NewAccount, OfferedChange},
        claims::{Claims, ClaimsRequest},
        contact::Contact,
        identifier::Identifier,
        password_attempt::PasswordUpgrade,
        users::{AccountPage, Users},
    },
    util::clock::UnixTime,
};

impl Users for StoredUsers {
    type Error = StoreError;

    /// Makes two reads and the same work, whether the identifier is known or not.
    async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
        let name = Name::from_identifier(identifier);
        let found = self.index.names.get(Some(tenant), name.as_bytes()).wait().await?;
        let owner = match found {
            Some(stored) => Some(UserId::parse(stored.value.0).map_err(|_| StoreErrorKind::Corrupt)?),
            None => {
                decoy::read_decoy_owner();
                None
            }
        };
        // for an unknown name, the second read is of a row that can't exist
        let id = owner.as_ref().map_or(&name.as_bytes()[..], |user| user.as_str().as_bytes());
        let row = self.index.rows.get(Some(tenant), id).wait().await?.map(|stored| stored.value);
        if row.is_none() {
            decoy::read_decoy_account(Some(&name));
        }
        Ok(owner.zip(row.filter(|row| row.lists(&name))).map(|(user, row)| row.into_account(user)))
    }

    /// Makes one read and the same work, whether the id is known or not.
    async fn by_id(&self, tenant: &Tenant, id: &UserId) -> Result<Option<Account>, StoreError> {
        let row = self.index.row(AccountKey { tenant, user: id }).await?;
        if row.is_none() {
            decoy::read_decoy_account(None);
        }
        Ok(row.map(|row| row.into_account(id.clone())))
    }

    /// Scans the store. An error of the kind [`StoreErrorKind::NotOffered`] means that it cannot be scanned.
    async fn list(&self, tenant: &Tenant, cursor: Option<ScanCursor>) -> Result<Option<AccountPage>, StoreError> {
        let (rows, next) = self.index.rows.scan(Some(tenant), cursor).await?;
        let accounts = rows.into_iter().map(|(id, row)| {
            let id = std::str::from_utf8(&id).ok().and_then(|id| UserId::parse(id).ok());
            Ok(row.value.into_account(id.ok_or(StoreErrorKind::Corrupt)?))
        });
        Ok(Some(AccountPage { accounts: accounts.collect::<Result<_, StoreError>>()?, next }))
    }

    async fn upgrade_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        new: PasswordHash,
    ) -> Result<PasswordUpgrade, StoreError> {
        let (mark, old) = (account.current_password_mark(), account.password_hash());
        let upgrade = |row: Option<&Row>, _| {
            let Some(row) = row.filter(|row| row.password.is_some() && row.password_mark == mark) else {
                return Change::Keep(PasswordUpgrade::PasswordChanged);
            };
            let is_old = row.password.as_ref().zip(old).is_some_and(|(stored, old)| stored.as_str() == old.as_str());
            if !is_old {
                // another login has replaced it since
                return Change::Keep(PasswordUpgrade::Replaced);
            }
            let mut row = row.clone();
            row.rehash(new.clone());
            Change::Put(row, UnixTime::FOREVER, PasswordUpgrade::Replaced)
        };
        self.index.rows.update(Some(tenant), account.id().as_str().as_bytes(), upgrade).await
    }

    /// Returns the claims of the user's [invitation](NewUser::invitation_claims), each one to clients that were granted the
    /// scope with its name.
    async fn claims(&self, _: &Tenant, account: &Account, request: &ClaimsRequest) -> Result<Claims, StoreError> {
        let mut claims = Claims::new();
        for (name, value) in account.claims.iter().flatten().filter(|(name, _)| request.has_scope(name)) {
            claims.insert(name, value).map_err(|error| StoreError::new(StoreErrorKind::Corrupt, error))?;
        }
        Ok(claims)
    }

    fn offers(&self, _: OfferedChange) -> bool {
        true
    }

    async fn create(&self, tenant: &Tenant, new: NewUser) -> Result<NewAccount, StoreError> {
        match self.create(tenant, new).await {
            Ok(user) => Ok(NewAccount::Created(user)),
            Err(UserError::Taken | UserError::Exists) => Ok(NewAccount::Taken),
            Err(UserError::Store(error)) => Err(error),
            Err(UserError::Unknown | UserError::OutOfBounds) => Err(StoreErrorKind::TooLarge.into()),
        }
    }

    /// Sets the password if the account still has the one with which it was read, and the same contacts.
    async fn set_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        new: PasswordHash,
    ) -> Result<AccountChange, StoreError> {
        let mark = account.current_password_mark();
        let replace = |row: Option<&Row>, _| {
            let is_current = |row: &&Row| row.password_mark == mark && row.contacts == account.contacts;
            let Some(mut row) = row.filter(is_current).cloned() else {
                return Change::Keep(AccountChange::Outdated);
            };
            row.set_password(Some(new.clone()));
            Change::Put(row, UnixTime::FOREVER, AccountChange::Done)
        };
        self.index.rows.update(Some(tenant), account.id().as_str().as_bytes(), replace).await
    }

    async fn set_name(&self, tenant: &Tenant, id: &UserId, name: Option<&str>) -> Result<AccountChange, StoreError> {
        outcome(self.change(tenant, id, |row| row.set_names(name, row.username.clone().as_deref())).await)
    }

    /// Replaces a contact. The new identifier is claimed first, so that no other account can have it in between.
    async fn set_contact(
        &self,
        tenant: &Tenant,
        id: &UserId,
        old: Option<&Contact>,
        new: Option<&Contact>,
    ) -> Result<AccountChange, StoreError> {
        let account = AccountKey { tenant, user: id };
        let named = |contact: &Contact| Identifier::parse(contact.as_str()).ok().map(|it| Name::from_identifier(&it));
        let (old_name, new_name) = (old.filter(|old| new != Some(*old)).and_then(named), new.and_then(named));
        let replace = |row: &mut Row| swap_contacts(row, (old, old_name), (new, new_name));
        // refused before anything is written
        let Some(mut row) = self.index.row(account).await? else { return Ok(AccountChange::Outdated) };
        let is_new = new_name.filter(|name| !row.lists(name));
        if let Err(error) = replace(&mut row) {
            return outcome(Err(error));
        }
        if let Some(name) = new_name
            && let Err(error) = self.add_name(account, name, old_name).await
        {
            return outcome(Err(error));
        }
        let held = match old_name {
            Some(name) => self.index.held(account, Unique::Name(name)).await?,
            None => None,
        };
        let changed = self.change(tenant, id, replace).await;
        match (&changed, is_new) {
            (Ok(()), _) => self.index.release(account, held.as_slice()).await,
            // changed meanwhile
            (Err(UserError::Unknown | UserError::OutOfBounds), Some(name)) => {
                let held = self.index.held(account, Unique::Name(name)).await?;
                let unlist = |row: &mut Row| {
                    // another call may have added the contact
                    if row.contacts.iter().any(|own| Some(&own.contact) == new) {
                        return Err(UserError::Taken);
                    }
                    row.unlist(&name);
                    Ok(())
                };
                if self.change(tenant, id, unlist).await.is_ok() {
                    self.index.release(account, held.as_slice()).await;
                }
            }
            _ => {}
        }
        outcome(changed)
    }

    async fn remove(&self, tenant: &Tenant, id: &UserId) -> Result<AccountChange, StoreError> {
        outcome(self.remove(tenant, id).await)
    }
}

/// Replaces a contact and its name.
fn swap_contacts(
    row: &mut Row,
    (old, old_name): (Option<&Contact>, Option<Name>),
    (new, new_name): (Option<&Contact>, Option<Name>),
) -> Result<(), UserError> {
    let place = row.contacts.iter().position(|own| Some(&own.contact) == old);
    if old.is_some() && place.is_none() {
        return Err(UserError::Unknown);
    }
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
    new_name.map_or(Ok(()), |name| row.list(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        gate::MaybeReady,
        store::{AnyStore, Entry, Key, Memory, Record, Store, Version, WriteOutcome},
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
        // a contact that proved who the user is may be replaced by now
        let (read, old, new) = (account(), contact("old@example.com"), contact("new@example.com"));
        let replace = |old, new| block_on(users.set_contact(&acme, &id("u-1"), old, new)).unwrap();
        assert_eq!((replace(None, Some(&old)), set(&read)), (AccountChange::Done, AccountChange::Outdated));
        let read = account();
        assert_eq!((replace(Some(&old), Some(&new)), set(&read)), (AccountChange::Done, AccountChange::Outdated));
        assert_eq!(set(&account()), AccountChange::Done);
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

    #[test]
    fn an_account_with_all_its_names_can_replace_a_contact_and_gets_no_more() {
        let (users, acme) = (StoredUsers::new(Memory::new()), Tenant::parse("acme").unwrap());
        let (old, new, more) = ("ada@example.com", "new@example.com", "more@example.com");
        let ada = NewUser::new(id("u-1"), name(old)).contact(contact(old));
        let ada = (1..16).fold(ada, |ada, number| ada.identifier(name(&format!("ada{number}"))));
        block_on(users.create(&acme, ada)).unwrap();
        let set = |old: Option<&str>, new: &str| {
            let (old, new) = (old.map(contact), contact(new));
            block_on(Users::set_contact(&users, &acme, &id("u-1"), old.as_ref(), Some(&new)))
        };
        let is_known = |address: &str| block_on(users.find(&acme, &name(address))).unwrap().is_some();
        assert_eq!(set(None, more).unwrap(), AccountChange::OutOfBounds);
        assert_eq!(set(Some(old), new).unwrap(), AccountChange::Done);
        assert_eq!((is_known(old), is_known(new), is_known(more)), (false, true, false));
        let account = block_on(users.by_id(&acme, &id("u-1"))).unwrap().unwrap();
        assert_eq!(account.contacts().collect::<Vec<_>>(), [(&contact(new), true)]);
    }

    /// A store in which the account loses its contact while the name of the new one is claimed.
    struct Meanwhile(AnyStore);

    impl Store for Meanwhile {
        fn get(
            &self,
            key: &Key,
        ) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
            self.0.get(key)
        }

        async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
            let outcome = self.0.insert(key, record).await;
            if key.table() == "user_names" {
                let (users, acme) = (StoredUsers::new(self.0.clone()), Tenant::parse("acme").unwrap());
                users.remove_contact(&acme, &id("u-1"), &contact("ada@example.com")).await.unwrap();
            }
            outcome
        }

        async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
            self.0.swap(key, expected, record).await
        }

        async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
            self.0.take(key).await
        }
    }

    #[test]
    fn a_replacement_that_is_refused_in_the_end_leaves_no_name_behind() {
        let (memory, acme) = (AnyStore::from(Memory::new()), Tenant::parse("acme").unwrap());
        let users = StoredUsers::new(memory.clone());
        let ada = NewUser::new(id("u-1"), name("ada")).contact(contact("ada@example.com"));
        block_on(users.create(&acme, ada)).unwrap();
        let (old, new) = (contact("ada@example.com"), contact("new@example.com"));
        let slow = StoredUsers::new(Meanwhile(memory));
        let changed = block_on(Users::set_contact(&slow, &acme, &id("u-1"), Some(&old), Some(&new)));
        assert_eq!(changed.unwrap(), AccountChange::Outdated);
        assert!(block_on(users.find(&acme, &name("new@example.com"))).unwrap().is_none());
        // it takes none of the 16 places, and another account can have it
        for number in 1..16 {
            block_on(users.add_identifier(&acme, &id("u-1"), &name(&format!("ada{number}")))).unwrap();
        }
        let eve = NewUser::new(id("u-2"), name("new@example.com"));
        assert_eq!(block_on(Users::create(&users, &acme, eve)).unwrap(), NewAccount::Created(id("u-2")));
    }
}
