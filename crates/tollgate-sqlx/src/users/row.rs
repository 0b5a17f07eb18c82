//! How accounts are written as columns.

use std::borrow::Cow;

use serde_json::Value;
use sqlx::{ColumnIndex, Decode, Row, Type};
use tollgate::{
    Identifier, UserId,
    clock::UnixTime,
    password::{PasswordHash, PasswordMark},
    store::{StoreError, StoreErrorKind},
    user::{Account, Claims, Contact, EmailAddress, PhoneNumber},
};

use super::sql_user::SqlUser;

/// An account as `statements::FIND` selects it. All columns are null for an unknown one.
pub(super) struct AccountRow {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<StoredHash>,
    pub(super) is_disabled: bool,
    pub(super) has_external_password: bool,
    pub(super) contacts: Option<String>,
}

/// The columns `password_hash` and `password_mark`.
#[derive(Clone)]
pub(super) struct StoredHash {
    pub(super) hash: String,
    pub(super) mark: Option<String>,
}

impl AccountRow {
    pub(super) fn read<R>(row: &R) -> Result<Self, sqlx::Error>
    where
        R: Row,
        usize: ColumnIndex<R>,
        for<'r> Option<String>: Decode<'r, R::Database> + Type<R::Database>,
        for<'r> Option<bool>: Decode<'r, R::Database> + Type<R::Database>,
    {
        let (hash, mark): (Option<String>, Option<String>) = (row.try_get(3)?, row.try_get(4)?);
        Ok(Self {
            id: row.try_get(0)?,
            name: row.try_get(1)?,
            username: row.try_get(2)?,
            password: hash.map(|hash| StoredHash { hash, mark }),
            is_disabled: row.try_get::<Option<bool>, _>(5)?.unwrap_or_default(),
            has_external_password: row.try_get::<Option<bool>, _>(6)?.unwrap_or_default(),
            contacts: row.try_get(7)?,
        })
    }

    /// Returns the account, or `None` for an unknown one.
    pub(super) fn account(self) -> Result<Option<Account>, StoreError> {
        let Some(id) = self.id else { return Ok(None) };
        let mut account = Account::new(read_id(id)?).disabled(self.is_disabled);
        if let Some(stored) = self.password {
            // also a derived mark is set: a login upgrades the hash of the account, and the mark has to stay
            account = account.password_mark(mark_of(&stored)?);
            account = match PasswordHash::parse(&stored.hash) {
                Ok(argon2) => account.password(argon2),
                Err(_) => account.foreign_hash(stored.hash),
            };
        }
        if self.has_external_password {
            account = account.external_password();
        }
        for line in self.contacts.iter().flat_map(|lines| lines.lines()) {
            let (contact, is_verified) = read_contact(line)?;
            account = if is_verified { account.contact(contact) } else { account.unverified_contact(contact) };
        }
        account = self.name.into_iter().fold(account, Account::name);
        Ok(Some(self.username.into_iter().fold(account, Account::username)))
    }
}

/// Reads an account with its identifiers, as `statements::LIST` selects it.
pub(super) fn read_user<R>(row: &R) -> Result<Result<SqlUser, StoreError>, sqlx::Error>
where
    R: Row,
    usize: ColumnIndex<R>,
    for<'r> Option<String>: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Option<bool>: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
{
    let account = AccountRow::read(row)?.account();
    let (identifiers, created): (Option<String>, i64) = (row.try_get(8)?, row.try_get(9)?);
    let user = || {
        let lines = identifiers.iter().flat_map(|lines| lines.lines());
        let identifiers = lines.map(|line| Identifier::parse(line).map_err(corrupt)).collect::<Result<_, _>>()?;
        let account = account?.ok_or(StoreErrorKind::Corrupt)?;
        Ok(SqlUser { account, identifiers, created_at: UnixTime::from_secs(created.unsigned_abs()) })
    };
    Ok(user())
}

/// Reads the identifier that `statements::SEARCH` has found.
pub(super) fn read_identifier<R>(row: &R) -> Result<Result<Identifier, StoreError>, sqlx::Error>
where
    R: Row,
    usize: ColumnIndex<R>,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
{
    Ok(Identifier::parse(row.try_get::<String, _>(10)?).map_err(corrupt))
}

/// Reads the claims whose scope is wanted, as `statements::CLAIMS` selects them.
pub(super) fn read_claims(
    rows: Vec<(String, String, String)>,
    has_scope: impl Fn(&str) -> bool,
) -> Result<Claims, StoreError> {
    let mut claims = Claims::new();
    for (_, name, value) in rows.into_iter().filter(|(scope, ..)| has_scope(scope)) {
        claims.insert(name, serde_json::from_str::<Value>(&value).map_err(corrupt)?).map_err(corrupt)?;
    }
    Ok(claims)
}

pub(super) fn read_id(id: String) -> Result<UserId, StoreError> {
    UserId::parse(id).map_err(corrupt)
}

fn corrupt(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, error)
}

pub(super) fn read_mark(text: String) -> Result<PasswordMark, StoreError> {
    serde_json::from_value(Value::String(text)).map_err(corrupt)
}

pub(super) fn write_mark(mark: PasswordMark) -> Option<String> {
    match serde_json::to_value(mark) {
        Ok(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Returns the mark of a password: the stored one, or the one that is derived from the hash.
pub(super) fn mark_of(stored: &StoredHash) -> Result<PasswordMark, StoreError> {
    stored.mark.clone().map_or_else(|| Ok(PasswordMark::of_version(&stored.hash)), read_mark)
}

const EMAIL: &str = "email";
const PHONE: &str = "phone";

/// Returns the columns `kind` and `contact`.
pub(super) fn contact_columns(contact: &Contact) -> Option<(&'static str, &str)> {
    match contact {
        Contact::Email(address) => Some((EMAIL, address.as_str())),
        Contact::Phone(number) => Some((PHONE, number.as_str())),
        _ => None,
    }
}

fn read_contact(line: &str) -> Result<(Contact, bool), StoreError> {
    let parts = [(EMAIL, '+'), (EMAIL, '-'), (PHONE, '+'), (PHONE, '-')].into_iter();
    let mut found = parts.filter_map(|(kind, sign)| Some((kind, sign, line.strip_prefix(kind)?.strip_prefix(sign)?)));
    let contact = match found.next() {
        Some((EMAIL, sign, text)) => EmailAddress::parse(text).map(|address| (address.into(), sign)),
        Some((_, sign, text)) => PhoneNumber::parse(text).map(|number| (number.into(), sign)),
        None => return Err(corrupt("a contact of an unknown kind")),
    };
    contact.map(|(contact, sign)| (contact, sign == '+')).map_err(corrupt)
}

/// Returns the first identifier after all that begin with `prefix`, in the order of bytes.
pub(super) fn end_of_prefix(prefix: &str) -> String {
    let mut rest = prefix;
    while let Some(last) = rest.chars().next_back() {
        rest = rest.strip_suffix(last).unwrap_or_default();
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            return format!("{rest}{next}");
        }
    }
    // longer than any identifier
    char::MAX.to_string().repeat(Identifier::MAX_LEN)
}

/// Returns the beginning of identifiers, normalized like them as far as their beginning shows.
pub(super) fn normalized_prefix(typed: &str) -> Cow<'_, str> {
    let typed = typed.trim_start();
    if typed.starts_with('+') {
        return typed.chars().filter(|char| !" ()-.".contains(*char)).collect::<String>().into();
    }
    typed.to_lowercase().into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_first_name_without_it() {
        for (prefix, end) in [("a", "b"), ("ad", "ae"), ("a\u{d7ff}", "a\u{e000}"), ("a\u{10ffff}", "b")] {
            assert_eq!(end_of_prefix(prefix), end);
            assert!(prefix < end && *format!("{prefix}\u{10ffff}") < *end);
        }
        for prefix in ["", "\u{10ffff}"] {
            assert!("\u{10ffff}".repeat(80) < end_of_prefix(prefix), "the longest name comes before the end");
        }
        assert_eq!(normalized_prefix(" Ada L"), "ada l");
        assert_eq!(normalized_prefix("+1 (555) 5"), "+15555");
    }

    #[test]
    fn contacts_and_marks_are_read_as_they_were_written() {
        let mail = Contact::from(EmailAddress::parse("ada+x@example.com").unwrap());
        let phone = Contact::from(PhoneNumber::parse("+15555550100").unwrap());
        for contact in [mail, phone] {
            let (kind, text) = contact_columns(&contact).unwrap();
            for (sign, is_verified) in [('+', true), ('-', false)] {
                assert_eq!(read_contact(&format!("{kind}{sign}{text}")).unwrap(), (contact.clone(), is_verified));
            }
        }
        assert!(read_contact("fax+1").is_err() && read_contact("email+nothing").is_err());
        let mark = PasswordMark::of_version("1");
        assert_eq!(read_mark(write_mark(mark).unwrap()).unwrap(), mark);
        assert!(read_mark("short".to_owned()).is_err());
    }
}
