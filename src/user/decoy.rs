//! Rows of nobody: reading them costs what reading an account costs, so that a name that nobody has takes as long.
//!
//! What is measured by `cargo bench -p tollgate-bench -- equal`. An account of many more names or contacts than these
//! still takes some hundred nanoseconds longer for each.

use std::hint::black_box;

use super::row::{Name, Owner, Row};
use crate::{session::UserId, store::table::Value};

const OWNER: &[u8] = br#""0123456789abcdef""#;
const ROW: &[u8] = br#"{"born":12345678901234567890,"names":["n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg","wTZR9EHYMf5uWWB9-E8bzCSFkM2BQ4AcnOjXkV3yRsk"],"password":"$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0","contacts":[{"contact":{"email":"nobody@example.com"},"verified":true},{"contact":{"phone":"+15555550100"},"verified":true}],"disabled":false,"name":"Nobody At All","username":"nobody"}"#;

/// In place of the row of a name.
pub(super) fn owner() {
    let _ = black_box(Owner::read(black_box(OWNER)));
}

/// In place of the row of an account, and of what is made of it.
pub(super) fn account(name: &Name) {
    if let (Ok(row), Ok(id)) = (Row::read(black_box(ROW)), UserId::parse("0123456789abcdef"))
        && !black_box(row.lists(name))
    {
        let _ = black_box(row.into_account(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        PasswordHash, UserId,
        user::{Contact, EmailAddress, Identifier, NewUser, PhoneNumber},
    };

    /// One that can't be read would be given up early.
    #[test]
    fn the_rows_of_nobody_are_those_of_an_account() {
        let id = Owner::read(OWNER).unwrap().0;
        assert_eq!(id.as_str().len(), 16);
        let read = Row::read(ROW).unwrap();
        let hash = PasswordHash::parse(read.password.as_ref().unwrap().as_str()).unwrap();
        let new = NewUser::new(UserId::parse("u-1").unwrap(), Identifier::parse("ada").unwrap())
            .identifier(Identifier::parse("ada@example.com").unwrap())
            .name("Nobody At All")
            .username("nobody")
            .password(hash)
            .contact(Contact::Email(EmailAddress::parse("nobody@example.com").unwrap()))
            .contact(Contact::Phone(PhoneNumber::parse("+15555550100").unwrap()));
        let mut own = Row::new(&new).unwrap();
        own.born = 12_345_678_901_234_567_890;
        assert_eq!(own.write().unwrap().len(), ROW.len());
        assert_eq!(read.write().unwrap(), ROW);
    }
}
