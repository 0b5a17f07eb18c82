//! Where the accounts are: in the store, with everything else.

use tollgate::StoredUsers;

pub(crate) type AccountTable = StoredUsers;
