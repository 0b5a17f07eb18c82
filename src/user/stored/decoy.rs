//! Decoy rows: reading them costs as much as reading an account, so that an unknown name or id takes as long as a known
//! one.
//!
//! `cargo bench -p tollgate-bench -- equal` measures it. An account with many more names or contacts than the decoy
//! still takes some hundred nanoseconds longer for each.

use std::{hint::black_box, sync::LazyLock};

use super::{
    index::Owner,
    row::{Name, Row},
};
use crate::{
    password::PasswordHash,
    session::UserId,
    store::table::Value,
    user::{
        account::NewUser,
        contact::{EmailAddress, PhoneNumber},
        identifier::Identifier,
    },
};

static OWNER: LazyLock<Vec<u8>> =
    LazyLock::new(|| Owner("0123456789abcdef".to_owned()).encode_row().unwrap_or_default());
static ROW: LazyLock<Vec<u8>> =
    LazyLock::new(|| read_decoy_row().and_then(|row| row.encode_row().ok()).unwrap_or_default());

const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";

fn read_decoy_row() -> Option<Row> {
    let new = NewUser::new(UserId::parse("0123456789abcdef").ok()?, Identifier::parse("unknown").ok()?)
        .identifier(Identifier::parse("unknown@example.com").ok()?)
        .name("Unknown User.")
        .password(PasswordHash::parse(HASH).ok()?)
        .contact(EmailAddress::parse("unknown@example.com").ok()?)
        .contact(PhoneNumber::parse("+15555550100").ok()?);
    Row::new(&new).ok()
}

/// Reads a decoy in place of the index row of a name.
pub(super) fn read_decoy_owner() {
    if let Ok(owner) = Owner::decode_row(black_box(&OWNER)) {
        let _ = black_box(UserId::parse(owner.0));
    }
}

/// Reads a decoy in place of an account. `name` is the name that the account must list.
pub(super) fn read_decoy_account(name: Option<&Name>) {
    if let (Ok(row), Ok(id)) = (Row::decode_row(black_box(&ROW)), UserId::parse("0123456789abcdef"))
        && !name.is_some_and(|name| black_box(row.lists(name)))
    {
        let _ = black_box(row.into_account(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reading a malformed row would stop early.
    #[test]
    fn the_decoys_have_the_form_of_real_rows() {
        assert_eq!(UserId::parse(Owner::decode_row(&OWNER).unwrap().0).unwrap().as_str().len(), 16);
        let read = Row::decode_row(&ROW).unwrap();
        assert!(read.password.is_some() && read.password_mark.is_some());
        assert_eq!((read.names.len(), read.contacts.len()), (2, 2));
        assert_eq!((read.name.as_deref(), read.username.as_deref()), (Some("Unknown User."), Some("unknown")));
        assert_eq!(read.encode_row().unwrap(), *ROW);
    }
}
