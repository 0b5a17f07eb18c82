//! Changes accounts to what the file of `--config` says.

use std::{collections::HashSet, error::Error};

use tollgate::{AuthService, Identifier, Tenant, UserId, Users, password::PasswordHash};

use crate::{
    applied::Entry,
    person::{Person, contacts},
    users::AccountTable,
};

/// The accounts, and what ends with a change.
pub(crate) struct Accounts<'s> {
    pub(crate) users: &'s AccountTable,
    pub(crate) auth: &'s AuthService,
}

impl Accounts<'_> {
    /// Takes from an account what the file does not give it any more. Returns whether it was disabled.
    pub(crate) async fn release(&self, old: &Entry, new: Option<&Person>) -> Result<bool, Box<dyn Error>> {
        let (tenant, user) = (Tenant::parse(&old.tenant)?, UserId::parse(&old.id)?);
        let Some(account) = self.users.by_id(&tenant, &user).await? else { return Ok(false) };
        let kept = new.map_or(&[][..], |person| &person.identifiers);
        for gone in old.identifiers.iter().filter(|old| !kept.contains(old)) {
            self.users.remove_identifier(&tenant, &user, &Identifier::parse(gone)?).await?;
        }
        if new.is_some() || (old.is_removed && account.is_disabled()) {
            return Ok(false);
        }
        self.users.disable(&tenant, &user).await?;
        self.auth.end_user(&tenant, &user).await?;
        Ok(true)
    }

    /// Gives an account what the file says, and ends what rests on something that it had before. Returns what has changed.
    pub(crate) async fn bring_about(
        &self,
        person: &Person,
        old: Option<&Entry>,
    ) -> Result<Vec<&'static str>, Box<dyn Error>> {
        let (users, tenant, user) = (self.users, &person.tenant, UserId::parse(&person.id)?);
        let Some(account) = users.by_id(tenant, &user).await? else {
            person.add_to(users).await?;
            return Ok(Vec::new());
        };
        let new = Entry::of(person);
        if old == Some(&new) {
            return Ok(Vec::new());
        }
        let mut changed = Vec::new();
        let identifiers = |entry: &Entry| entry.identifiers.iter().cloned().collect::<HashSet<_>>();
        if new.identifiers.is_empty() {
            return Err("has no identifier".into());
        }
        for identifier in &new.identifiers {
            users.add_identifier(tenant, &user, &Identifier::parse(identifier)?).await?;
        }
        // of an account that the file has not made, the identifiers are not known
        if old.is_some_and(|old| identifiers(old) != identifiers(&new)) {
            changed.push("identifiers");
        }
        if account.display_name() != new.name.as_deref() {
            users.set_names(tenant, &user, new.name.as_deref(), account.preferred_username()).await?;
            changed.push("name");
        }
        let own = contacts(new.email.as_deref(), new.phone.as_deref())?;
        let lost = match old {
            Some(old) => contacts(old.email.as_deref(), old.phone.as_deref())?,
            None => Vec::new(),
        };
        let mut has_new_contacts = false;
        for contact in lost.iter().filter(|lost| !own.contains(lost)) {
            users.remove_contact(tenant, &user, contact).await?;
            has_new_contacts = true;
        }
        for contact in own.into_iter().filter(|contact| !account.has_verified(contact)) {
            users.verify_contact(tenant, &user, contact).await?;
            has_new_contacts = true;
        }
        if has_new_contacts {
            changed.push("contacts");
        }
        // the account may have a better hash of the same password by now
        let has_new_password = match old {
            Some(old) => old.password_hash != new.password_hash,
            None => account.password_hash().map(PasswordHash::as_str) != new.password_hash.as_deref(),
        };
        if has_new_password {
            let hash = new.password_hash.map(PasswordHash::parse).transpose()?;
            users.set_password(tenant, &user, hash).await?;
            changed.push("password");
        }
        if old.is_some_and(|old| old.is_removed) && account.is_disabled() {
            users.enable(tenant, &user).await?;
            changed.push("enabled again");
        }
        self.auth.credential_changed(tenant, &user).await?;
        Ok(changed)
    }
}
