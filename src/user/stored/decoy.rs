//! Decoy rows: reading them costs as much as reading an account, so that an unknown name or id takes as long as a known
//! one.
//!
//! `cargo bench -p tollgate-bench -- equal` measures it. An account with many more names or contacts than the decoy
//! still takes some hundred nanoseconds longer for each.

use std::hint::black_box;

use super::{
    index::Owner,
    row::{Name, Row},
};
use crate::{session::UserId, store::table::Value};

const OWNER: &[u8] = br#""0123456789abcdef""#;
const ROW: &[u8] = br#"{"born":12345678901234567890,"names":["n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg","wTZR9EHYMf5uWWB9-E8bzCSFkM2BQ4AcnOjXkV3yRsk"],"password":"$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0","password_mark":"47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU","contacts":[{"contact":{"email":"unknown@example.com"},"verified":true},{"contact":{"phone":"+15555550100"},"verified":true}],"disabled":false,"name":"Unknown User.","username":"unknown"}"#;

/// Reads a decoy in place of the index row of a name.
pub(super) fn owner() {
    if let Ok(owner) = Owner::read(black_box(OWNER)) {
        let _ = black_box(UserId::parse(owner.0));
    }
}

/// Reads a decoy in place of an account. `name` is the name that the account must list.
pub(super) fn account(name: Option<&Name>) {
    if let (Ok(row), Ok(id)) = (Row::read(black_box(ROW)), UserId::parse("0123456789abcdef"))
        && !name.is_some_and(|name| black_box(row.lists(name)))
    {
        let _ = black_box(row.into_account(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        PasswordHash,
        user::{Contact, EmailAddress, Identifier, NewUser, PhoneNumber},
    };

    /// Reading a malformed row would stop early.
    #[test]
    fn the_decoys_have_the_form_of_real_rows() {
        assert_eq!(UserId::parse(Owner::read(OWNER).unwrap().0).unwrap().as_str().len(), 16);
        let read = Row::read(ROW).unwrap();
        let hash = PasswordHash::parse(read.password.as_ref().unwrap().as_str()).unwrap();
        let new = NewUser::new(UserId::parse("u-1").unwrap(), Identifier::parse("ada").unwrap())
            .identifier(Identifier::parse("ada@example.com").unwrap())
            .name("Unknown User.")
            .username("unknown")
            .password(hash)
            .contact(Contact::Email(EmailAddress::parse("unknown@example.com").unwrap()))
            .contact(Contact::Phone(PhoneNumber::parse("+15555550100").unwrap()));
        let mut own = Row::new(&new).unwrap();
        own.instance = 12_345_678_901_234_567_890;
        assert_eq!(own.write().unwrap().len(), ROW.len());
        assert_eq!(read.write().unwrap(), ROW);
    }
}
