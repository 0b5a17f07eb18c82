use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    contact::{Contact, EmailAddress, PhoneNumber},
    identifier::Identifier,
};
use crate::{
    password::{ForeignHash, PasswordHash, PasswordMark, StoredPassword},
    session::UserId,
    util::builder::setters,
};

/// A user account, with everything that a login needs to know about it.
///
/// ```
/// use tollgate::{UserId, user::{Account, Contact, EmailAddress}};
///
/// let mailbox = Contact::from(EmailAddress::parse("ada@example.com")?);
/// let account = Account::new(UserId::parse("u-1815")?).contact(mailbox.clone());
/// assert!(account.has_verified(&mailbox));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `Debug` does not show the user's names.
#[derive(Clone)]
#[must_use]
pub struct Account {
    pub(super) id: UserId,
    pub(super) password: Option<StoredPassword>,
    pub(super) password_mark: Option<PasswordMark>,
    pub(super) has_external_password: bool,
    pub(super) contacts: Vec<OwnContact>,
    pub(super) disabled: bool,
    pub(super) name: Option<String>,
    pub(super) username: Option<String>,
    /// The claims that the application has set in the user's invitation.
    pub(super) claims: Option<Map<String, Value>>,
}

/// A contact, and whether the user has proved ownership of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OwnContact {
    pub(super) contact: Contact,
    pub(super) verified: bool,
}

impl Account {
    /// Creates an account without a password and without contacts.
    pub fn new(id: UserId) -> Self {
        Self {
            id,
            password: None,
            password_mark: None,
            has_external_password: false,
            contacts: Vec::new(),
            disabled: false,
            name: None,
            username: None,
            claims: None,
        }
    }

    /// Sets the hash of the password. Replaces a [`foreign_hash`](Self::foreign_hash).
    pub fn password(self, hash: PasswordHash) -> Self {
        Self { password: Some(StoredPassword::Argon2(hash)), ..self }
    }

    /// Sets a hash of another kind, such as bcrypt. Replaces the [`password`](Self::password).
    ///
    /// It counts only if [`Users::verify_password`](super::Users::verify_password) checks it, for example through
    /// [`PasswordAttempt::blocking`](super::PasswordAttempt::blocking). By default, an account with such a hash is
    /// treated like one without a password.
    pub fn foreign_hash(self, hash: impl Into<String>) -> Self {
        let hash = ForeignHash(hash.into().into_boxed_str());
        Self { password: Some(StoredPassword::Foreign(hash)), ..self }
    }

    setters! {
        /// Sets the mark of the password, which changes with the password and not with its hash. See [`PasswordMark`].
        ///
        /// Defaults to a mark derived from the hash. Hashing the same password again then counts as a change of the
        /// password, so earlier proofs by it no longer count.
        pub fn password_mark(mark: PasswordMark) { password_mark: Some(mark) }

        /// Marks an account whose password is stored elsewhere, such as in LDAP, and is checked by
        /// [`Users::verify_password`](super::Users::verify_password).
        ///
        /// An account without a hash, a [mark](Self::password_mark) or this setting counts as one
        /// [without a password](Self::has_password). Set a mark too if you have a version of the password: proofs by an
        /// old password then no longer count.
        pub fn external_password() { has_external_password: true }
    }

    /// Adds a contact whose ownership the user has proved. One-time codes are sent only to such contacts.
    pub fn contact(mut self, contact: impl Into<Contact>) -> Self {
        self.contacts.push(OwnContact { contact: contact.into(), verified: true });
        self
    }

    /// Adds a contact whose ownership the user has not proved.
    pub fn unverified_contact(mut self, contact: impl Into<Contact>) -> Self {
        self.contacts.push(OwnContact { contact: contact.into(), verified: false });
        self
    }

    setters! {
        /// Sets whether the account is disabled. The user of a disabled account can't sign in.
        pub fn disabled(disabled: bool) { disabled: disabled }

        /// Sets the full name of the user, which applications may display: the OpenID Connect claim `name`.
        pub fn name(name: impl Into<String>) { name: Some(name.into()) }

        /// Sets the short name of the user: the OpenID Connect claim `preferred_username`. The user need not be able to
        /// sign in with it.
        pub fn username(username: impl Into<String>) { username: Some(username.into()) }
    }

    /// Returns the id of the account.
    pub fn id(&self) -> &UserId {
        &self.id
    }

    /// Returns whether the account has a password, here or [elsewhere](Self::external_password).
    ///
    /// This decides whether a password is offered after another step, how many factors a user has, and which one is the
    /// last. It does not decide whether a password is checked.
    pub fn has_password(&self) -> bool {
        self.has_external_password || self.current_password_mark().is_some()
    }

    /// Returns the argon2 hash of the password, if there is one.
    pub fn password_hash(&self) -> Option<&PasswordHash> {
        match &self.password {
            Some(StoredPassword::Argon2(hash)) => Some(hash),
            _ => None,
        }
    }

    /// Returns the hash of another kind, if there is one.
    pub fn foreign_password_hash(&self) -> Option<&str> {
        match &self.password {
            Some(StoredPassword::Foreign(hash)) => Some(&hash.0),
            _ => None,
        }
    }

    /// Returns the mark of the password: the one that was set, or one derived from the hash. Returns `None` for an
    /// account without either.
    pub fn current_password_mark(&self) -> Option<PasswordMark> {
        let derived = || match self.password.as_ref()? {
            // it changes when the password is hashed again
            StoredPassword::Argon2(hash) => Some(PasswordMark::of_version(hash.as_str())),
            StoredPassword::Foreign(hash) => Some(PasswordMark::of_version(&*hash.0)),
        };
        self.password_mark.or_else(derived)
    }

    /// Returns whether the account is disabled.
    pub fn is_disabled(&self) -> bool {
        self.disabled
    }

    /// Returns whether the user has proved ownership of this contact.
    pub fn has_verified(&self, contact: &Contact) -> bool {
        self.contacts.iter().any(|own| own.verified && own.contact == *contact)
    }

    /// Returns the contacts, and whether the user has proved ownership of each.
    pub fn contacts(&self) -> impl Iterator<Item = (&Contact, bool)> {
        self.contacts.iter().map(|own| (&own.contact, own.verified))
    }

    /// Returns the contacts whose ownership the user has proved.
    pub(crate) fn verified_contacts(&self) -> impl Iterator<Item = &Contact> {
        self.contacts.iter().filter(|own| own.verified).map(|own| &own.contact)
    }

    /// Returns the full name of the user.
    pub fn display_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the short name of the user.
    pub fn preferred_username(&self) -> Option<&str> {
        self.username.as_deref()
    }
}

crate::util::fmt::debug_fields!(Account, |own| id: own.id, password: own.password, external_password: own.has_external_password, contacts: own.contacts, disabled: own.disabled);

/// An account to create, for example in [`StoredUsers`](super::StoredUsers), and the identifiers that find it.
#[derive(Clone, Debug)]
#[must_use]
pub struct NewUser {
    pub(super) account: Account,
    pub(super) identifiers: Vec<Identifier>,
}

impl NewUser {
    /// Creates an account that is found by `identifier`.
    ///
    /// The identifier also becomes the [`username`](Self::username), which applications with the scope `profile` see.
    /// An e-mail address or a phone number does not, because those have scopes of their own.
    pub fn new(id: UserId, identifier: Identifier) -> Self {
        let account = Account::new(id);
        let is_address =
            EmailAddress::parse(identifier.as_str()).is_ok() || PhoneNumber::parse(identifier.as_str()).is_ok();
        let account = if is_address { account } else { account.username(identifier.as_str()) };
        Self { account, identifiers: vec![identifier] }
    }

    /// Adds an identifier. At most 16 in all.
    pub fn identifier(mut self, identifier: Identifier) -> Self {
        self.identifiers.push(identifier);
        self
    }

    setters! {
        /// Sets the full name of the user, the OpenID Connect claim `name`: 1 to 320 bytes.
        pub fn name(name: impl Into<String>) { account.name: Some(name.into()) }

        /// Sets the short name of the user, the OpenID Connect claim `preferred_username`: 1 to 320 bytes. It is only
        /// displayed: it finds no account, and several users may have the same.
        pub fn username(username: impl Into<String>) { account.username: Some(username.into()) }

        /// Sets the hash of the password.
        pub fn password(hash: PasswordHash) { account.password: Some(StoredPassword::Argon2(hash)) }

        /// Sets whether the account is disabled.
        pub fn disabled(disabled: bool) { account.disabled: disabled }
    }

    /// Adds a contact whose ownership the user has proved. At most 16 contacts in all.
    pub fn contact(self, contact: impl Into<Contact>) -> Self {
        Self { account: self.account.contact(contact), ..self }
    }

    /// Adds a contact whose ownership the user has not proved. At most 16 contacts in all.
    pub fn unverified_contact(self, contact: impl Into<Contact>) -> Self {
        Self { account: self.account.unverified_contact(contact), ..self }
    }

    /// Sets the claims of the user's invitation.
    #[cfg_attr(not(feature = "login"), allow(dead_code, reason = "only the login service invites"))]
    pub(crate) fn claims_of_invitation(self, claims: Option<Map<String, Value>>) -> Self {
        Self { account: Account { claims, ..self.account }, ..self }
    }

    /// Returns the claims of the invitation that the user has accepted, such as roles. Only the application can set
    /// them.
    pub fn invitation_claims(&self) -> Option<&Map<String, Value>> {
        self.account.claims.as_ref()
    }

    /// Returns the account.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the identifiers that find the account.
    pub fn identifiers(&self) -> &[Identifier] {
        &self.identifiers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        Account::new(UserId::parse("u-1").unwrap())
    }

    fn hash(salt: &str) -> PasswordHash {
        PasswordHash::parse(format!("$argon2id$v=19$m=8,t=1,p=1${salt}$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0"))
            .unwrap()
    }

    #[test]
    fn an_explicit_mark_outlives_the_hash_and_a_derived_one_does_not() {
        let (old, new) = (hash("MDEyMzQ1Njc4OWFiY2RlZg"), hash("AAAAQ1Njc4OWFiY2RlZg"));
        assert_eq!(account().current_password_mark(), None);
        let derived = account().password(old.clone());
        assert_eq!(derived.current_password_mark(), derived.clone().current_password_mark());
        assert_ne!(derived.current_password_mark(), derived.clone().password(new.clone()).current_password_mark());
        let foreign = account().foreign_hash("$2b$12$a").current_password_mark();
        assert!(foreign.is_some() && foreign != account().foreign_hash("$2b$12$b").current_password_mark());
        let mark = PasswordMark::of_version("7");
        for account in [derived.password_mark(mark).password(new), account().foreign_hash("x").password_mark(mark)] {
            assert_eq!(account.current_password_mark(), Some(mark));
        }
    }

    #[test]
    fn b05_a_password_is_a_hash_a_mark_or_elsewhere() {
        assert!(!account().has_password());
        assert!(!account().contact(EmailAddress::parse("ada@example.com").unwrap()).has_password());
        assert!(account().external_password().has_password());
        assert_eq!(account().external_password().current_password_mark(), None);
        assert!(account().password_mark(PasswordMark::of_version("7")).has_password());
        assert!(
            account().foreign_hash("x").has_password()
                && account().password(hash("AAAAQ1Njc4OWFiY2RlZg")).has_password()
        );
    }

    #[test]
    fn an_account_has_one_hash() {
        let argon2 = account().foreign_hash("$2b$12$a").password(hash("MDEyMzQ1Njc4OWFiY2RlZg"));
        assert!(argon2.password_hash().is_some() && argon2.foreign_password_hash().is_none());
        let foreign = argon2.foreign_hash("$2b$12$a");
        assert_eq!((foreign.password_hash().is_some(), foreign.foreign_password_hash()), (false, Some("$2b$12$a")));
    }

    #[test]
    fn debug_shows_no_hash_and_no_name() {
        let account = account().foreign_hash("$2b$12$abc").name("Ada").password_mark(PasswordMark::of_version("7"));
        let shown = format!("{account:?}");
        assert!(shown.contains("u-1") && !shown.contains("2b") && !shown.contains("Ada"), "{shown}");
    }
}
