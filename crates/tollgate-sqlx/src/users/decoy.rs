//! A decoy account: reading it costs as much as reading a real one, so that an unknown name or id takes as long as a
//! known one.

use std::hint::black_box;

use super::row::{AccountRow, StoredHash};

const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";
const MARK: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY";

/// Reads the decoy.
pub(super) fn read() {
    let _ = black_box(black_box(row()).account());
}

fn row() -> AccountRow {
    AccountRow {
        id: Some("0123456789abcdef".to_owned()),
        name: Some("Unknown User.".to_owned()),
        username: Some("unknown".to_owned()),
        password: Some(StoredHash { hash: HASH.to_owned(), mark: Some(MARK.to_owned()) }),
        is_disabled: false,
        has_external_password: false,
        contacts: Some("email+unknown@example.com\nphone++15555550100".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reading a malformed row would stop early.
    #[test]
    fn the_decoy_has_the_form_of_a_real_row() {
        assert!(matches!(row().account(), Ok(Some(account)) if account.contacts().count() == 2
            && account.password_hash().is_some() && account.preferred_username().is_some()));
    }
}
